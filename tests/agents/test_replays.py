"""Goldens replayed: the same bytes from the offline model, nothing of the workspace touched, verdicts that set off
feedback, runs that end exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import NotFound, Refused
from app.evals.compare import clipping
from app.models import AgentSession, EvalRun, Feedback
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.evals import compare as eval_compare
from app.services.evals import golden as eval_golden
from app.services.evals import promotion
from app.services.evals import results as eval_results
from app.services.evals import runs as eval_runs
from app.services.evals.promotion import Promotion
from app.services.evals.runs import NewRun
from app.services.feedback import review as feedback_review
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.agents.running import Desk
from tests.conftest import Workspace

CONFIG: dict[str, Any] = {
    "instructions": "You help with deals.",
    "model": "offline",
    "tool_groups": ["entities-read", "entities-write"],
}
MESSAGE_EVENTS = ("user.message", "agent.message", "tool.call", "tool.result", "entity.created", "entity.updated")
GUARDED = ("entities", "entity_responses", "shared_context", "feedback", "user_memories", "agents", "chats")


class Bench:
    """A workspace with deals, an agent that works on them, and goldens of its work."""

    def __init__(self, app: Flask, workspace: Workspace, drain: Callable[[], int]) -> None:
        self.app, self.workspace, self.drain = app, workspace, drain
        self.admin = workspace.actor("admin")
        self.desk = Desk(app, workspace)
        self.agent_id = self.desk.agent(**CONFIG)
        with self.acting():
            entity_store.create_type(
                slug="deal", name="Deal", actor=self.admin,
                fields={"valuation": {"type": "number"}, "stage": {"type": "string"}},
            )  # fmt: skip
            for name, value in (("Halden", 8.2), ("Kestrel", 9.6)):
                entity_store.create_entity(
                    entity_type="deal", name=name, fields={"valuation": value, "stage": "open"}, actor=self.admin
                )

    def acting(self) -> Any:
        bench = self

        class Acting:
            def __enter__(self) -> None:
                self.stack = (bench.app.app_context(), acting_as(bench.admin), transaction())
                for each in self.stack:
                    each.__enter__()

            def __exit__(self, *trouble: Any) -> None:
                for each in reversed(self.stack):
                    each.__exit__(*trouble)

        return Acting()

    def golden(self, *turns: str, **given: Any) -> UUID:
        session_id = self.desk.ask(*turns)
        self.drain()
        with self.acting():
            promotion.promote_session(session_id, Promotion(**given), actor=self.admin)
        return session_id

    def run(self, *, drain: bool = True, **asked: Any) -> EvalRun:
        with self.acting():
            run_id = eval_runs.start_run(NewRun(**asked), actor=self.admin).id
        if drain:
            self.drain()
        return self.look(run_id)

    def look(self, run_id: UUID) -> EvalRun:
        with self.acting():
            return eval_runs.get_run(run_id, actor=self.admin)

    def replays(self, run: EvalRun) -> list[AgentSession]:
        with self.acting():
            found = db.session.scalars(
                select(AgentSession).where(AgentSession.eval_run_id == run.id).order_by(AgentSession.created_at)
            ).all()
            for one in found:
                assert one.meta
            return list(found)

    def complaints(self) -> list[Feedback]:
        with self.acting():
            return list(db.session.scalars(select(Feedback).where(Feedback.kind == "replay_failure")))

    def messages_of(self, session_id: UUID) -> list[tuple[str, Any]]:
        return [
            (event.event_type, {name: value for name, value in event.payload.items() if name != "replay"})
            for event in self.desk.look(session_id).events
            if event.event_type in MESSAGE_EVENTS
        ]

    def worse(self) -> UUID:
        """A version that is worse through its instructions."""
        with self.acting():
            return versions.save_version(
                self.agent_id,
                CONFIG | {"instructions": "Never use updateEntity. Avoid searchEntities."},
                actor=self.admin,
            ).id


@pytest.fixture
def bench(app: Flask, workspace: Workspace, run_sessions: Callable[[], int]) -> Iterator[Bench]:
    run_sessions()
    return Bench(app, workspace, run_sessions)  # type: ignore[return-value]


def checksums(superuser_url: str, tenant: UUID) -> dict[str, Any]:
    with psycopg.connect(superuser_url) as connection:
        return {
            table: connection.execute(
                f"SELECT count(*), md5(string_agg(t::text, '' ORDER BY t::text)) FROM {table} t WHERE tenant_id = %s",
                (tenant,),
            ).fetchone()
            for table in GUARDED
        }


@pytest.mark.parametrize("worse", [False, True])
def test_a_golden_too_large_to_be_held_replays_to_the_same_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, worse: bool
) -> None:
    """Long values of the recording are kept by their hash, and what an agent gets to read is looked up."""
    monkeypatch.setattr(eval_compare, "WHOLE_BYTES", 0)
    for name in ("RESULT_ROOM", "VALUE_ROOM"):
        monkeypatch.setattr(clipping, name, 20)
    monkeypatch.setitem(clipping.ROOMS, "tool.result", 20)
    golden_id = bench.golden('Find the deal "Halden". Then update entity Halden: set stage to won')
    run = bench.run(set_name="default", **({"agent_version_id": bench.worse()} if worse else {}))
    [replay] = bench.replays(run)
    if worse:
        assert replay.meta["eval_result"]["verdict"] == "fail"
        return
    assert replay.meta["eval_result"]["verdict"] == "pass", replay.meta["eval_result"]
    assert bench.messages_of(replay.id) == bench.messages_of(golden_id)
    assert "sha256" not in str(bench.messages_of(replay.id))


def test_every_golden_of_the_offline_model_replays_to_the_same_bytes(bench: Bench, superuser_url: str) -> None:
    with bench.acting():
        knowledge_rows.add_row(NewRow(type="routing", content="Use searchEntities to find deals."), actor=bench.admin)
    goldens = [
        bench.golden("Search entities Halden"),
        bench.golden('Find the deal "Halden". Then update entity Halden: set stage to won'),
        bench.golden("Search entities Kestrel", "Update entity Kestrel valuation to 10.5", "List entities"),
        bench.golden("Sing a song"),
    ]
    with bench.acting():
        knowledge_rows.add_row(NewRow(type="routing", content="Never use searchEntities."), actor=bench.admin)
    before = checksums(superuser_url, bench.workspace.id)
    run = bench.run(set_name="default")
    assert checksums(superuser_url, bench.workspace.id) == before
    assert (run.status, run.passed_count, run.failed_count) == ("completed", 4, 0)
    replays = bench.replays(run)
    assert {replay.eval_source for replay in replays} == {str(golden_id) for golden_id in goldens}
    for replay in replays:
        result = replay.meta["eval_result"]
        assert (result["verdict"], result["overall_accuracy"], result["divergences"]) == ("pass", 1.0, [])
        assert bench.messages_of(replay.id) == bench.messages_of(UUID(str(replay.eval_source)))
        loaded, was = (
            bench.desk.look(one).payloads("context.loaded")[0] for one in (replay.id, UUID(str(replay.eval_source)))
        )
        assert (loaded["sha256"], loaded["row_ids"]) == (was["sha256"], was["row_ids"])
    assert bench.complaints() == []


def test_a_worse_version_fails_with_one_row_of_feedback_that_a_later_pass_settles(bench: Bench) -> None:
    golden_id = bench.golden('Find the deal "Halden". Then update entity Halden: set stage to won')
    good = bench.desk.look(golden_id).session.agent_version_id
    bench.worse()
    for times in (1, 2):
        run = bench.run(set_name="default")
        assert (run.passed_count, run.failed_count) == (0, 1)
        (row,) = bench.complaints()
        assert (row.status, row.source_type, row.origin) == ("pending", "session", "system")
        assert len(row.context["replay_session_ids"]) == times
        assert row.context["golden_session_id"] == str(golden_id)
        assert row.context["divergences"]
    one = run.results["bySession"][str(golden_id)]
    assert (one["passed"], one["verdict"]) == (False, "fail")
    assert UUID(one["replay_session_id"]) in {replay.id for replay in bench.replays(run)}
    assert bench.run(set_name="default", agent_version_id=good).passed_count == 1
    assert bench.complaints()[0].status == "pending", "another version says nothing about this one"
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG, actor=bench.admin)
    assert bench.run(set_name="default").passed_count == 1


def test_a_later_pass_of_the_same_version_settles_the_complaint(bench: Bench) -> None:
    bench.golden("Search entities Halden", expected={"calls": [{"name": "listEntities"}]})
    assert bench.run(set_name="default", context_mode="live").failed_count == 1
    with bench.acting():
        row = knowledge_rows.add_row(
            NewRow(type="routing", content="Use listEntities instead of searchEntities."), actor=bench.admin
        )
    assert bench.run(set_name="default", context_mode="frozen").failed_count == 1
    assert bench.run(set_name="default", plus_rows=[row.id]).passed_count == 1
    assert {found.status for found in bench.complaints()} == {"pending"}, "a trial run settles nothing"
    assert bench.run(set_name="default", context_mode="live").passed_count == 1
    rows = {found.context["context_mode"]: found for found in bench.complaints()}
    assert (rows["live"].status, rows["live"].review_notes) == ("dismissed", "passes again on v1")
    assert rows["frozen"].status == "pending", "other knowledge says nothing about this"


def test_what_a_changed_agent_writes_is_simulated_and_what_it_reads_is_read(bench: Bench, superuser_url: str) -> None:
    bench.golden("List entities", expected={"calls": [{"name": "listEntities"}]})
    with bench.acting():
        versions.save_version(
            bench.agent_id,
            CONFIG | {"instructions": "Use searchEntities instead of listEntities. query=Kestrel"},
            actor=bench.admin,
        )
    before = checksums(superuser_url, bench.workspace.id)
    (replay,) = bench.replays(bench.run(set_name="default"))
    marks = [event["replay"]["kind"] for event in bench.desk.look(replay.id).payloads("tool.result")]
    assert marks == ["read"]
    after = checksums(superuser_url, bench.workspace.id)
    assert after.pop("feedback") != before.pop("feedback"), "the verdict itself is feedback"
    assert after == before


def test_replays_are_refused_where_they_cannot_work(bench: Bench, app: Flask) -> None:
    golden_id = bench.golden("List entities")
    member = bench.workspace.actor("member")
    for asked, trouble in (
        ({"set_name": "nothing-here"}, NotFound),
        ({"golden_ids": [bench.admin.id]}, NotFound),
        ({"golden_ids": [golden_id], "agent_id": bench.admin.id}, NotFound),
        ({"golden_ids": [golden_id], "plus_rows": [bench.admin.id]}, NotFound),
    ):
        with pytest.raises(trouble):
            bench.run(**asked)
    with bench.acting():
        elsewhere = versions.ensure_agent("elsewhere", actor=bench.admin).id
    with pytest.raises(Refused, match="runs outside Upshot"):
        bench.run(golden_ids=[golden_id], agent_id=elsewhere)
    with pytest.raises(Exception, match="admin"), app.app_context(), acting_as(member), transaction():
        eval_runs.start_run(NewRun(golden_ids=[golden_id]), actor=member)


def test_trials_are_combined_and_a_run_is_cancelled_once(bench: Bench) -> None:
    golden_id = bench.golden("List entities")
    run = bench.run(golden_ids=[golden_id], trials=3)
    assert run.results["pass_power_k"] == 1.0
    assert len(run.results["bySession"][str(golden_id)]["trials"]) == 3
    waiting = bench.run(drain=False, golden_ids=[golden_id], trials=2)
    assert waiting.status == "queued"
    for _ in range(2):
        with bench.acting():
            assert eval_results.cancel_run(waiting.id, actor=bench.admin).status == "cancelled"
    assert bench.drain() == 0
    assert {replay.status for replay in bench.replays(waiting)} == {"cancelled"}
    assert bench.complaints() == []
    with bench.acting(), pytest.raises(Refused, match="completed"):
        eval_results.cancel_run(run.id, actor=bench.admin)


def test_what_errors_writes_no_feedback_and_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    golden_id = bench.golden("List entities")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"model": "openai:gpt-5"}, actor=bench.admin)
    run = bench.run(golden_ids=[golden_id])
    one = run.results["bySession"][str(golden_id)]
    assert (one["verdict"], one["passed"]) == ("errored", None)
    assert bench.complaints() == []
    with bench.acting():
        assert eval_results.retry_errored(run.id, actor=bench.admin) == 1
    bench.drain()
    again = bench.look(run.id)
    assert again.status == "completed"
    assert len(bench.replays(run)) == 3, "once by itself, once because an admin asked"
    assert len(again.results["bySession"]) == 1


def test_a_golden_that_is_revoked_meanwhile_is_still_judged_by_what_it_was(bench: Bench) -> None:
    golden_id = bench.golden("List entities")
    run = bench.run(drain=False, golden_ids=[golden_id])
    with bench.acting():
        eval_golden.revoke_golden(golden_id, actor=bench.admin)
    bench.drain()
    assert bench.look(run.id).passed_count == 1


def test_a_group_has_one_row_however_many_runs_fail_at_once(bench: Bench, run_sessions: Callable[[], int]) -> None:
    bench.golden("List entities")
    bench.worse()
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"instructions": "Avoid listEntities."}, actor=bench.admin)

    def start(_: int) -> UUID:
        return bench.run(drain=False, set_name="default").id

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(start, range(6)))
    run_sessions()
    assert {bench.look(run_id).failed_count for run_id in runs} == {1}
    (row,) = bench.complaints()
    assert len(row.context["replay_session_ids"]) == 6
    with bench.acting():
        feedback_review.review([row.id], "dismissed", actor=bench.admin, notes="Known.")
    bench.run(set_name="default")
    assert len(bench.complaints()) == 2
