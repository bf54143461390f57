"""Retry replays that errored: once automatically at the end of a run, and whenever an admin asks for it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import insert, select

from app.actor import Actor
from app.db import db
from app.models import Agent, AgentSession, EvalRun
from app.services import audit
from app.services.evals.golden_lists import can_replay

# What a retry shares with the case that errored.
COPIED = (
    "tenant_id", "title", "session_type", "output_type", "agent_id", "agent_version_id", "entity_id", "created_by",
)  # fmt: skip


def errored_cases(run_id: UUID, *, actor: Actor) -> list[AgentSession]:
    """The errored cases of a run that were not retried, locked until the transaction ends."""
    found = db.session.scalars(
        select(AgentSession)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.eval_run_id == run_id,
            AgentSession.meta["eval_result"]["verdict"].astext == "errored",
            AgentSession.meta["eval_retried"].is_(None),
        )
        .with_for_update()
    )
    return list(found)


def keep_replayable(cases: Sequence[AgentSession], *, actor: Actor) -> list[AgentSession]:
    """The cases whose agent can still replay: it may have been archived or become an endpoint since."""
    able = set(
        db.session.scalars(
            select(Agent.id).where(
                Agent.tenant_id == actor.tenant_id, Agent.id.in_({case.agent_id for case in cases}), can_replay()
            )
        )
    )
    return [case for case in cases if case.agent_id in able]


def retry_once(run: EvalRun, *, actor: Actor) -> int:
    """Retry, at the end of a run, what errored in it for the first time; returns how many cases.

    A model that was down for a minute should not leave a hole in the result. A replay that a person cancelled stays
    cancelled.
    """
    first = [case for case in errored_cases(run.id, actor=actor) if case.status == "failed" and not _is_retry(case)]
    again = keep_replayable(first, actor=actor) if first else []
    if again:
        add_retries(again, actor=actor)
        mark_retried(again)
        audit.record(actor, "eval_run.retried", "eval_run", run.id, cases=len(again), automatic=True)
    return len(again)


def add_retries(cases: Sequence[AgentSession], *, actor: Actor) -> None:
    """Queue a replay in place of each of these."""
    db.session.execute(insert(AgentSession.__table__).inline(), [_retry_row(case, actor) for case in cases])  # type: ignore[arg-type]


def mark_retried(cases: Sequence[AgentSession]) -> None:
    """Leave these out of the results, since another replay replaces them."""
    for case in cases:
        case.meta = {**case.meta, "eval_retried": True}
    db.session.flush()


def _is_retry(case: AgentSession) -> bool:
    return "." in case.meta["eval_trial"]


def _retry_row(old: AgentSession, actor: Actor) -> dict[str, Any]:
    trial = old.meta["eval_trial"].partition(".")[0]
    fresh = {name: value for name, value in old.meta.items() if name != "eval_result"}
    return {
        **{name: getattr(old, name) for name in COPIED},
        "id": uuid4(),
        "status": "pending",
        "trace_id": uuid4().hex,
        "tags": [],
        "metadata": fresh | {"eval_trial": f"{trial}.{uuid4().hex[:8]}"},
        "key_scopes": actor.limited_to(old.key_scopes).stored_scopes,
    }
