"""Any two stored sessions compared: loaded in windows, judged by `app.evals`, nothing written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.evals.compare.sessions import Comparison, Golden, compare
from app.evals.expected.expectations import read_expected
from app.evals.trace import Run, make_tool
from app.evals.verdict import Policy
from app.models import AgentSession, CriteriaSet
from app.services.evals.traces import LoadedEvents, load_events
from app.text.embeddings import embed, nearness_of
from app.text.similarity import Nearness


def compare_sessions(golden_id: UUID, replay_id: UUID, *, actor: Actor, policy: Policy | None = None) -> Comparison:
    """The verdict on the second session, with the first as what is right. The first need not be golden: then what it
    recorded counts."""
    golden, replay = load_run(golden_id, replay_id, actor=actor)
    return compare(golden, replay, nearness(), policy)


@cache
def nearness() -> Nearness:
    """How near texts are in meaning, for all comparisons of this process."""
    return nearness_of(embed)


def load_run(golden_id: UUID, replay_id: UUID, *, actor: Actor) -> tuple[Golden, Run]:
    """Both sessions as the comparer reads them, events in order of time."""
    rows = _sessions({golden_id, replay_id}, actor)
    loaded = load_events({one: rows[one].event_bytes for one in (golden_id, replay_id)}, actor=actor)
    golden, replay = (_as_run(rows[one], loaded[one]) for one in (golden_id, replay_id))
    return _as_golden(golden, rows[golden_id], actor), replay


def _sessions(ids: set[UUID], actor: Actor) -> dict[UUID, Any]:
    found = db.session.execute(
        select(
            AgentSession.id,
            AgentSession.session_type,
            AgentSession.output_type,
            AgentSession.status,
            AgentSession.meta,
            AgentSession.event_bytes,
        ).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(ids))
    ).all()
    if len(found) < len(ids):
        raise NotFound("There is no such session in this workspace.")
    return {row.id: row for row in found}


def _as_run(row: Any, found: LoadedEvents) -> Run:
    loaded = next((event.payload for event in found.events if event.event_type == "context.loaded"), {})
    given = row.meta.get("tools") or loaded.get("tools") or _snapshot(row.meta).get("tools") or ()
    tools = [tool for one in given if (tool := make_tool(one)) is not None] if isinstance(given, list) else []
    named = {tool.name: tool for tool in tools}
    return Run(row.session_type, row.status, row.output_type, found.events, named, found.clipped, found.cut)


def _as_golden(run: Run, row: Any, actor: Actor) -> Golden:
    """A golden with what was frozen with it; another session with the criteria that its response was judged by."""
    marks: Mapping[str, Any] = row.meta.get("golden") or {}
    criteria = _snapshot(row.meta).get("criteria")
    dimensions = criteria.get("dimensions") if isinstance(criteria, Mapping) else None
    return Golden(
        run,
        read_expected(marks.get("expected")),
        dimensions or _criteria(run, actor),
        rejected=bool(marks.get("baseline_rejected")),
    )


def _snapshot(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (meta.get("golden") or {}).get("snapshot")
    return found if isinstance(found, Mapping) else {}


def _criteria(run: Run, actor: Actor) -> dict[str, Any] | None:
    submitted = (event.payload for event in run.events if event.event_type == "response.submitted")
    named = next((payload.get("criteria_set_id") for payload in submitted if payload.get("criteria_set_id")), None)
    try:
        wanted = UUID(str(named))
    except ValueError:
        return None
    return db.session.scalar(
        select(CriteriaSet.dimensions).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == wanted)
    )
