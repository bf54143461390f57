"""Load stored sessions, whole or clipped, and compare any two of them. Nothing is written."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, select

from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.evals.compare.clipping import WHOLE_BYTES, LoadedEvents, TooDense, read_events
from app.evals.compare.sessions import Comparison, Golden, compare
from app.evals.expected.expectations import read_expected
from app.evals.trace import Run
from app.evals.verdict import Policy
from app.formats.ids import parse_id
from app.models import Agent, AgentSession, AgentVersion, CriteriaSet
from app.services.sessions.event_windows import iterate_events
from app.text.embeddings import embed, nearness_of
from app.text.similarity import Nearness

LOAD_EVENTS = """
SELECT session_id, event_type, payload::text, sequence FROM session_events
 WHERE tenant_id = %(tenant)s AND session_id = ANY (%(sessions)s::uuid[])
 ORDER BY session_id, occurred_at, sequence
"""


def compare_sessions(golden_id: UUID, replay_id: UUID, *, actor: Actor, policy: Policy | None = None) -> Comparison:
    """The verdict on the second session, measured by the first. If that is no golden, its recording counts."""
    golden, replay = load_run(golden_id, replay_id, actor=actor)
    return compare(golden, replay, nearness(), policy)


@cache
def nearness() -> Nearness:
    """How near texts are in meaning, for all comparisons of this process."""
    return nearness_of(embed)


def load_sessions(golden_id: UUID, replay_id: UUID, *, actor: Actor) -> dict[UUID, Any]:
    """Both sessions by id, with what comparing and showing them needs; `who` names the agent and its version."""
    found = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.created_at, AgentSession.session_type,
            AgentSession.output_type, AgentSession.status, AgentSession.meta, AgentSession.event_bytes,
            AgentSession.truncated, AgentSession.golden_set, AgentSession.eval_source, AgentSession.eval_run_id,
            AgentSession.agent_id, AgentSession.agent_version_id,
            (Agent.slug + func.coalesce(" v" + cast(AgentVersion.version, Text), "")).label("who"),
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_({golden_id, replay_id}))
    ).all()  # fmt: skip
    if len(found) < len({golden_id, replay_id}):
        raise NotFound("There is no such session in this workspace.")
    return {row.id: row for row in found}


def load_run(
    golden_id: UUID, replay_id: UUID, *, actor: Actor, rows: Mapping[UUID, Any] | None = None
) -> tuple[Golden, Run]:
    """Both sessions as the comparer reads them, events in order of time. `rows` are the sessions if already loaded."""
    rows = rows or load_sessions(golden_id, replay_id, actor=actor)
    loaded = load_events({one: rows[one].event_bytes for one in (golden_id, replay_id)}, actor=actor)
    golden, replay = (_as_run(rows[one], loaded[one]) for one in (golden_id, replay_id))
    marks = rows[golden_id].meta.get("golden") or {}
    return golden_of(golden, marks, None if _frozen_criteria(marks) else _criteria(golden, actor)), replay


def _as_run(row: Any, found: LoadedEvents) -> Run:
    loaded = next((event.payload for event in found.events if event.event_type == "context.loaded"), {})
    snapshot = (row.meta.get("golden") or {}).get("snapshot") or {}
    given = row.meta.get("tools") or loaded.get("tools") or snapshot.get("tools")
    return found.as_run(row.session_type, row.output_type, given if isinstance(given, list) else (), row.status)


def golden_of(recorded: Run, marks: Mapping[str, Any], criteria: Mapping[str, Any] | None = None) -> Golden:
    """A golden as the comparer takes it, with what promoting froze; `criteria` apply where it froze none."""
    criteria = _frozen_criteria(marks) or criteria
    return Golden(recorded, read_expected(marks.get("expected")), criteria, marks.get("baseline_rejected") is True)


def _frozen_criteria(marks: Mapping[str, Any]) -> Any:
    return ((marks.get("snapshot") or {}).get("criteria") or {}).get("dimensions")


def _criteria(run: Run, actor: Actor) -> dict[str, Any] | None:
    """The criteria that the session's response was judged by."""
    submitted = (event.payload for event in run.events if event.event_type == "response.submitted")
    wanted = parse_id(next((named for payload in submitted if (named := payload.get("criteria_set_id"))), None))
    if wanted is None:
        return None
    return db.session.scalar(
        select(CriteriaSet.dimensions).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == wanted)
    )


def load_events(sizes: Mapping[UUID, int], *, actor: Actor, clip: bool = False) -> dict[UUID, LoadedEvents]:
    """The events of sessions that are compared, by id. `sizes` says how many bytes each holds. When one of them is
    large, all are clipped, since only what was read alike can be compared. One query for all that are small."""
    if not clip and all(size <= WHOLE_BYTES for size in sizes.values()):
        rows: dict[UUID, list[tuple[str, str, int]]] = defaultdict(list)
        wanted = {"tenant": actor.tenant_id, "sessions": f"{{{','.join(map(str, sizes))}}}"}
        for session_id, *event in run(LOAD_EVENTS, wanted):
            rows[session_id].append((event[0], event[1], event[2]))
        try:
            return {one: read_events(rows[one], clip=False) for one in sizes}
        except TooDense:
            pass
    windows = {session_id: iterate_events(session_id, actor=actor, as_text=True) for session_id in sizes}
    return {
        session_id: read_events(((one.event_type, one.payload, one.sequence) for one in events), clip=True)
        for session_id, events in windows.items()
    }
