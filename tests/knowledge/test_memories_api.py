"""What an agent remembers about a person is read by nobody else, also where a golden froze it."""

from __future__ import annotations

from collections.abc import Callable

from app.db import db
from app.evals.snapshot import snapshot_hash
from app.models import AgentSession
from app.services.evals import promotion
from app.services.evals.promotion import Promotion
from app.services.knowledge import memories
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace

__all__ = ["bench"]
SECRET = "I am looking for another job"


def test_frozen_memories_reach_no_answer(bench: Bench, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = api(workspace.actor("admin"), "admin")
    with bench.acting():
        memories.save_memory(SECRET, actor=bench.admin)
    golden_id = bench.desk.ask("Sing a song", by="admin")
    bench.drain()
    with bench.acting():
        promotion.promote_session(golden_id, Promotion(), actor=bench.admin)
    [replay] = bench.replays(bench.run(golden_ids=[golden_id]))
    assert replay.status == "completed"
    with bench.acting():
        kept = db.session.get_one(AgentSession, golden_id).meta["golden"]
        assert kept["snapshot"]["memories"]["texts"] == [SECRET], "whoever replays it needs it whole"
        assert kept["sha256"] == snapshot_hash(kept["snapshot"])

    for name, read in ((golden_id, "golden"), (replay.id, "eval_golden")):
        answer = admin.get(f"/api/v1/sessions/{name}")
        assert answer.json["metadata"][read]["snapshot"]["memories"] == {"count": 1}
        assert answer.json["metadata"][read]["snapshot"]["turns"] == ["Sing a song"]
        for asks in (api(workspace.actor("member"), "ingest"), api(workspace.actor("admin"), "ingest")):
            answer = asks.get(f"/api/v1/sessions/{name}")
            assert answer.json["metadata"][read]["set"] == "default"
            assert "snapshot" not in answer.json["metadata"][read]
            assert SECRET not in answer.text
    everything = ["/api/v1/sessions", f"/api/v1/sessions/{golden_id}", f"/api/v1/sessions/{replay.id}"]
    everything += ["/api/admin/evals/golden", f"/api/admin/evals/golden/{golden_id}", "/api/admin/evals/runs"]
    everything += [f"/api/admin/evals/runs/{replay.eval_run_id}"]
    for path in everything:
        answer = admin.get(path)
        assert answer.status_code == 200
        assert SECRET not in answer.text, path
    listed = api(workspace.actor("member"), "ingest").get("/api/v1/sessions")
    assert len(listed.json["items"]) == 2
    assert "snapshot" not in listed.text
