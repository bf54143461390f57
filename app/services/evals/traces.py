"""Sessions read for a comparison: whole where they are small, clipped where they are large, never held twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.evals.compare.clipping import WHOLE_BYTES, TooDense, read_events
from app.evals.trace import Event
from app.services.sessions.event_windows import iterate_raw_events

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
    rows = iterate_raw_events(session_id, actor=actor)
    found = read_events(((one.event_type, one.payload, one.sequence) for one in rows), clip=True)
    return LoadedEvents(tuple(found.events), clipped=True, cut=found.cut)
