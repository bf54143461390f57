"""Load stored sessions, whole or clipped, and compare any two of them. Nothing is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.evals.compare.clipping import WHOLE_BYTES, TooDense, read_events
from app.evals.compare.sessions import Comparison, Golden, compare
from app.evals.expected.expectations import read_expected
from app.evals.trace import COMPLETED, Event, Run, make_run
from app.evals.verdict import Policy
from app.formats.ids import parse_id
from app.models import AgentSession, CriteriaSet
from app.services.sessions.event_windows import iterate_events
from app.text.embeddings import embed, nearness_of
from app.text.similarity import Nearness


def compare_sessions(golden_id: UUID, replay_id: UUID, *, actor: Actor, policy: Policy | None = None) -> Comparison:
    """The verdict on the second session, measured by the first. If that is no golden, its recording counts."""
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
    return found.as_run(row.session_type, row.output_type, given if isinstance(given, list) else (), row.status)


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
    wanted = parse_id(named)
    if wanted is None:
        return None
    return db.session.scalar(
        select(CriteriaSet.dimensions).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == wanted)
    )


LOAD_EVENTS = """
SELECT session_id, event_type, payload::text, sequence FROM session_events
 WHERE tenant_id = %(tenant)s AND session_id = ANY (%(sessions)s::uuid[])
 ORDER BY session_id, occurred_at, sequence
"""


@dataclass(frozen=True)
class LoadedEvents:
    """The events of a session as the comparer takes them, and how they were read."""

    events: tuple[Event, ...]
    clipped: bool
    cut: bool

    def as_run(self, session_type: str, output_type: str | None, tools: Iterable[Any], status: str = COMPLETED) -> Run:
        """The session as the comparer takes it."""
        return make_run(
            self.events,
            session_type=session_type,
            status=status,
            output_type=output_type,
            tools=tools,
            clipped=self.clipped,
            cut=self.cut,
        )


def load_events(sizes: Mapping[UUID, int], *, actor: Actor, clip: bool = False) -> dict[UUID, LoadedEvents]:
    """The events of sessions that are compared, by id. `sizes` says how many bytes each holds. When one of them is
    large, all are clipped, since only what was read alike can be compared. One query for all that are small."""
    if not clip and all(size <= WHOLE_BYTES for size in sizes.values()):
        try:
            return _load_whole(sizes, actor)
        except TooDense:
            pass
    return {session_id: _load_clipped(session_id, actor) for session_id in sizes}


def _load_whole(session_ids: Collection[UUID], actor: Actor) -> dict[UUID, LoadedEvents]:
    rows: dict[UUID, list[tuple[str, str, int]]] = defaultdict(list)
    wanted = f"{{{','.join(map(str, session_ids))}}}"
    for session_id, kind, text, sequence in run(LOAD_EVENTS, {"tenant": actor.tenant_id, "sessions": wanted}):
        rows[session_id].append((kind, text, sequence))
    loaded = {one: read_events(rows[one], clip=False) for one in session_ids}
    return {one: LoadedEvents(tuple(found.events), clipped=False, cut=False) for one, found in loaded.items()}


def _load_clipped(session_id: UUID, actor: Actor) -> LoadedEvents:
    rows = iterate_events(session_id, actor=actor, as_text=True)
    found = read_events(((one.event_type, one.payload, one.sequence) for one in rows), clip=True)
    return LoadedEvents(tuple(found.events), clipped=True, cut=found.cut)
