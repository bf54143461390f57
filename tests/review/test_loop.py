"""The whole loop without a model: three complaints become one proposal, a proof, a rule, and an agent that behaves."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.db import acting_as, transaction
from app.services.feedback import intake
from app.services.feedback.intake import NewFeedback
from tests.agents.test_replays import Bench, bench
from tests.conftest import soup
from tests.evals.test_proofs import Knowledge, knowledge

__all__ = ["bench", "knowledge"]
COMPLAINTS = {
    "member": (
        "Search entities for the whole pipeline",
        "Use listEntities instead of searchEntities for the pipeline.",
    ),
    "other": ("Search entities: our whole pipeline", "The pipeline needs listEntities, not searchEntities."),
    "owner": ("Search entities of the pipeline, the whole of it", "listEntities instead of searchEntities, please."),
}
EXPECTED = {"calls": [{"name": "listEntities"}], "mentions": ["Halden", "Kestrel"]}
ROWS = "/api/admin/shared-context"


def complain(bench: Bench, person: str) -> UUID:
    """A person asks, gets the wrong thing and says so. Returns the session."""
    asked, comment = COMPLAINTS[person]
    session_id = bench.desk.ask(asked, by=person)
    bench.drain()
    assert "searchEntities" in tools_of(bench, session_id)
    actor = bench.workspace.actor(person)
    new = NewFeedback(source_type="session", rating="negative", comment=comment, session_id=session_id)
    with bench.app.app_context(), acting_as(actor), transaction():
        intake.record_feedback(new, actor=actor)
    return session_id


def promote(knowledge: Knowledge, session_id: UUID) -> None:
    asked = {"sessionId": str(session_id), "set": "pipeline", "expected": EXPECTED}
    promoted = knowledge.api.post("/api/admin/evals/golden", asked)
    assert promoted.status_code == 201, promoted.json


def tools_of(bench: Bench, session_id: UUID) -> list[str]:
    return [event.payload["name"] for event in bench.desk.look(session_id).events if event.event_type == "tool.call"]


def test_three_complaints_become_a_rule_that_agents_follow(knowledge: Knowledge, sign_in: Any) -> None:
    bench, api = knowledge.bench, knowledge.api
    complained = [complain(bench, one) for one in COMPLAINTS]
    promote(knowledge, complained[0])
    run = api.post("/api/admin/evals/runs/set", {"setName": "pipeline"}).json["id"]
    bench.drain()
    assert verdict(api, run) == "fail"

    review = api.post("/api/admin/review/runs", {}).json["id"]
    bench.drain()
    done = api.get(f"/api/admin/review/runs/{review}").json
    assert done["status"] == "completed", done
    [rule] = done["proposed"]
    row = api.get(f"{ROWS}/{rule}").json
    assert row["state"] == "proposed"
    assert "listEntities" in row["content"]
    assert len(row["feedback_ids"]) >= 3, row
    assert row["content"] not in prompt(api), "a proposal is in no prompt"

    proof = knowledge.prove(UUID(rule))
    assert (len(proof["fixed"]), proof["broken"]) == (1, []), proof
    assert knowledge.activate(UUID(rule)).status_code == 200
    assert row["content"] in prompt(api), "byte for byte"

    again = bench.desk.ask(COMPLAINTS["member"][0])
    bench.drain()
    assert tools_of(bench, again) == ["listEntities"]
    run = api.post("/api/admin/evals/runs/set", {"setName": "pipeline", "context": "live"}).json["id"]
    bench.drain()
    assert verdict(api, run) == "pass"
    for one in COMPLAINTS:
        told = soup(sign_in(bench.workspace.actor(one)).get("/feedback/mine")).get_text(" ", strip=True)
        assert "Led to a change" in told, one
        assert row["content"] in told


def prompt(api: Any) -> str:
    return str(api.get("/api/v1/context?agent=assistant").json["prompt"])


def verdict(api: Any, run: str) -> str:
    [found] = api.get(f"/api/admin/evals/runs/{run}").json["results"]["bySession"].values()
    return str(found["verdict"])
