"""The demo's golden sets: really promoted, really replayed, and their history is what replaying gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.jobs.executor import Executor
from app.models import AgentSession, AgentVersion, EvalRun, Feedback, SharedContext
from app.services.evals import candidates
from app.services.evals import runs as eval_runs
from app.services.evals.runs import NewRun
from app.services.review import runs as review_runs
from app.services.sessions.event_windows import events_of

# One worker, so that the demo is made once.
pytestmark = pytest.mark.xdist_group("demo")

SETS = {"pe-analyst", "sales-ops", "first-time-admin"}
SAID = ("user.message", "agent.message", "tool.call", "tool.result", "entity.created", "entity.updated")


@pytest.fixture(scope="module")
def executor(demo_app: Flask) -> Iterator[Executor]:
    one = Executor(demo_app, slots=4)
    yield one
    one.stop()


def goldens() -> list[AgentSession]:
    return list(db.session.scalars(select(AgentSession).where(AgentSession.golden_set.is_not(None))))


def runs() -> list[EvalRun]:
    return list(db.session.scalars(select(EvalRun).where(EvalRun.set_name.is_not(None)).order_by(EvalRun.created_at)))


def replays_of(run_id: UUID) -> list[AgentSession]:
    return list(db.session.scalars(select(AgentSession).where(AgentSession.eval_run_id == run_id)))


def result_of(replay: AgentSession) -> tuple[Any, ...]:
    result = replay.meta["eval_result"]
    return result["verdict"], result["reason"], result["overall_accuracy"]


def test_each_persona_has_a_set_with_every_kind_of_interaction(demo: Any) -> None:
    found: dict[str, list[AgentSession]] = defaultdict(list)
    for session in goldens():
        found[str(session.golden_set)].append(session)
    assert found.keys() == SETS
    for name, sessions in found.items():
        assert len(sessions) >= 5, name
        assert {session.session_type for session in sessions} >= {"chat", "response", "tool"}, name
        assert any(session.output_type for session in sessions), f"an extraction in {name}"
        assert any(len(session.meta["golden"]["snapshot"]["turns"]) > 1 for session in sessions), name
        assert any("calls" in (session.meta["golden"].get("expected") or {}) for session in sessions), name
        for session in sessions:
            kept = session.meta["golden"]
            assert session.created_at.isoformat() < kept["promoted_at"]
            assert "baseline_rejected" not in kept, "what should have happened is said where someone complained"


def test_each_set_has_a_history_with_a_worse_version_in_it(demo: Any) -> None:
    history: dict[str, list[EvalRun]] = defaultdict(list)
    for run in runs():
        history[str(run.set_name)].append(run)
        assert run.status == "completed"
        assert run.created_at < run.completed_at
        assert run.passed_count + run.failed_count == run.golden_session_count == len(replays_of(run.id))
    assert history.keys() == SETS
    for name, found in history.items():
        accuracies = [run.results["accuracy"] for run in found]
        assert len(found) >= 3, name
        assert accuracies[-1] > accuracies[0], name
        assert min(run.failed_count for run in found) < max(run.failed_count for run in found), name
    assert {run.triggered_by for run in runs()} == {"manual", "scheduled", "post-deploy"}
    assert {run.context_mode for run in runs()} == {"frozen", "live"}


def test_every_failed_golden_has_one_row_of_feedback_for_a_version(demo: Any) -> None:
    failed: Counter[tuple[str, str, str]] = Counter()
    for run in runs():
        for replay in replays_of(run.id):
            if result_of(replay)[0] == "fail":
                failed[str(replay.eval_source), str(replay.agent_version_id), run.context_mode] += 1
    rows = db.session.scalars(select(Feedback).where(Feedback.kind == "replay_failure")).all()
    told = {
        (row.context["golden_session_id"], row.context["agent_version_id"], row.context["context_mode"]): row
        for row in rows
    }
    assert len(told) == len(rows)
    assert {key: len(row.context["replay_session_ids"]) for key, row in told.items()} == failed
    assert {row.status for row in rows} == {"pending", "dismissed"}
    current = {str(version) for version in current_versions()}
    for row in rows:
        assert (row.status == "pending") == (row.context["agent_version_id"] in current), row.comment
        assert row.context["divergences"]


def current_versions() -> list[UUID]:
    newest: dict[UUID, AgentVersion] = {}
    for version in db.session.scalars(select(AgentVersion).order_by(AgentVersion.version)):
        newest[version.agent_id] = version
    return [version.id for version in newest.values()]


def test_every_golden_replays_to_the_same_bytes_with_the_version_that_recorded_it(
    demo: Any, executor: Executor
) -> None:
    recorded_by: dict[UUID, list[UUID]] = defaultdict(list)
    for session in goldens():
        recorded_by[session.agent_version_id].append(session.id)
    db.session.rollback()
    started = [start(demo, NewRun(golden_ids=ids, agent_version_id=one)) for one, ids in recorded_by.items()]
    executor.drain()
    replays = [replay for run_id in started for replay in replays_of(run_id)]
    assert len(replays) == len(goldens())
    for replay in replays:
        golden_id = UUID(str(replay.eval_source))
        assert replay.status == "completed", (replay.title, replay.status, replay.attempt, replay.error)
        assert messages_of(replay.id, demo) == messages_of(golden_id, demo), replay.title
        kinds = {event["replay"]["kind"] for kind, event in whole(replay.id, demo) if kind == "tool.result"}
        assert kinds <= {"exact"}, replay.title
        if "calls" not in (replay.meta["eval_golden"].get("expected") or {}):
            assert result_of(replay)[::2] == ("pass", 1.0), replay.title


def start(actor: Any, new: NewRun) -> UUID:
    with acting_as(actor), transaction():
        return eval_runs.start_run(new, actor=actor).id


def whole(session_id: UUID, actor: Any) -> list[tuple[str, Any]]:
    return [(event.event_type, event.payload) for event in events_of(session_id, actor=actor)]


def messages_of(session_id: UUID, actor: Any) -> list[tuple[str, Any]]:
    return [
        (kind, {name: value for name, value in payload.items() if name != "replay"})
        for kind, payload in whole(session_id, actor)
        if kind in SAID
    ]


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        ("entityType=fiscal-year", "EBITDA of Tern on the fiscal year"),
        ("Our contact at a company is in the company", "who is our contact at Tessera?"),
    ],
)
def test_the_row_that_answers_a_complaint_makes_its_golden_pass(
    demo: Any, executor: Executor, content: str, prompt: str
) -> None:
    """The first comes from the first review, the second is in use."""
    if content.startswith("entityType"):
        with acting_as(demo), transaction():
            review_id = review_runs.start_review(actor=demo)
        executor.drain()
        with acting_as(demo):
            proposed = review_runs.get_review(review_id, actor=demo).proposed
            texts = list(db.session.scalars(select(SharedContext.content).where(SharedContext.id.in_(proposed))))
        assert {"entityType=fiscal-year", "entityType=contact"} <= {
            word.strip(".") for text in texts for word in text.split()
        }
    wanted = SharedContext.content.contains(content), SharedContext.state.in_(("active", "proposed"))
    row_id = db.session.scalars(select(SharedContext.id).where(*wanted)).one()
    golden_id = next(session.id for session in goldens() if session.title.startswith(prompt))
    db.session.rollback()
    without, with_it = (start(demo, NewRun(golden_ids=[golden_id], plus_rows=rows)) for rows in ([], [row_id]))
    executor.drain()
    assert [result_of(one)[0] for run_id in (without, with_it) for one in replays_of(run_id)] == ["fail", "pass"]


def test_requests_that_went_wrong_wait_among_the_candidates(demo: Any) -> None:
    listed = candidates.list_candidates(actor=demo)
    found, total = listed.items, listed.count
    assert total == len(found) >= 2
    assert all(one.promotable for one in found)
