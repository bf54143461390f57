"""Load what a session needs before it runs: the agent, the person it acts for, and the conversation so far."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import NotFound, Refused
from app.formats.agent_config import AgentConfig, read_config
from app.formats.ids import parse_id
from app.learning.prompt import Prompt
from app.models.agents import REPLAYABLE_KINDS
from app.services.chats.store import earlier_messages
from app.services.evals.replays import Replay, load_replay
from app.services.knowledge.memories import MemorySection, format_section, memory_section
from app.services.knowledge.prompt import load_shared_context_prompt
from app.services.review.runs import is_dry_run
from app.services.sessions.event_windows import Event, events_of
from app.services.sessions.leases import Lease, LeasedSession
from app.services.workspaces.store import REVIEW_AGENT

# The agent with its version, the person who started the session, and its record.
LOAD_SURROUNDINGS = """
SELECT a.kind, a.slug, a.name, a.archived_at IS NOT NULL, v.version, v.config,
       u.name, u.is_system, u.external_tenant_id, m.role, e.id, e.name, k.id, k.slug
  FROM agents AS a
  JOIN agent_versions AS v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id
   AND (v.id = %(version)s OR (%(version)s::uuid IS NULL AND v.version = a.current_version))
  LEFT JOIN users AS u ON u.id = %(person)s
  LEFT JOIN memberships AS m ON m.tenant_id = a.tenant_id AND m.user_id = u.id
  LEFT JOIN (entities AS e JOIN entity_types AS k ON k.id = e.entity_type_id)
    ON e.tenant_id = a.tenant_id AND e.id = %(entity)s
 WHERE a.tenant_id = %(tenant)s AND a.id = %(agent)s
"""


@dataclass(frozen=True)
class Record:
    """The record that a session is about."""

    id: UUID
    name: str
    type_id: UUID
    type_slug: str


class Surroundings(NamedTuple):
    """The agent, person and record of a session. `person` is None when the person was deleted."""

    kind: str
    slug: str
    name: str
    is_archived: bool
    version: int
    config: dict[str, Any]
    person: str | None
    is_system: bool | None
    external_tenant_id: UUID | None
    role: str | None
    record: Record | None


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """A session that is about to run, or to go on after an attempt that died. `dry_run` says of a review of
    feedback whether it changes nothing; other sessions have none."""

    lease: Lease
    kind: str
    agent_slug: str
    agent_name: str
    version: int
    config: AgentConfig
    actor: Actor
    session_type: str
    output_type: str | None
    trace_id: str
    turns: list[str]
    earlier: list[tuple[str, str]]
    events: list[Event]
    record: Record | None
    prompt: Prompt
    memories: MemorySection
    chat_id: UUID | None = None
    turn_id: str | None = None
    live: bool = False
    replay: Replay | None = None
    criteria_set_id: UUID | None = None
    dry_run: bool | None = None


def load_inputs(session: LeasedSession) -> RunInputs:
    """Read everything at once, as the product; the agent acts for the person who started the session."""
    around = _load_surroundings(session)
    person = _acting_for(session, around)
    load = _run_inputs if session.eval_source is None else _replay_inputs
    return RunInputs(
        lease=session.lease,
        kind=around.kind,
        agent_slug=around.slug,
        agent_name=around.name,
        version=around.version,
        config=read_config(around.config),
        session_type=session.session_type,
        output_type=session.output_type,
        trace_id=session.trace_id or "",
        events=events_of(session.id, actor=session.product) if session.event_count else [],
        **load(session, around, person),
    )


def _run_inputs(session: LeasedSession, around: Surroundings, person: Actor) -> dict[str, Any]:
    meta, record = session.meta, around.record
    turn_id = meta.get("turn_id") if isinstance(meta.get("turn_id"), str) else None
    return {
        "actor": person,
        "chat_id": session.chat_id,
        "turn_id": turn_id,
        "turns": [text for text in meta.get("turns") or [] if isinstance(text, str)],
        "earlier": earlier_messages(session.tenant_id, session.chat_id, turn_id),
        "record": record,
        "criteria_set_id": parse_id(meta.get("criteria_set_id")),
        "prompt": _live_prompt(session, record),
        "memories": memory_section(None if person.role == "system" else person.id, actor=session.product),
        "live": session.chat_id is not None or bool(meta.get("live")),
        "dry_run": is_dry_run(session.id, actor=session.product) if around.slug == REVIEW_AGENT else None,
    }


def _replay_inputs(session: LeasedSession, around: Surroundings, person: Actor) -> dict[str, Any]:
    """A replay has the inputs of its golden. An agent that became an endpoint meanwhile is sent nothing."""
    if around.kind not in REPLAYABLE_KINDS:
        raise Refused(f"{around.name} no longer runs in Upshot, so this golden was not replayed.")
    replay, frozen = load_replay(session, actor=session.product)
    snapshot = replay.snapshot
    entity = snapshot.get("entity")
    record = Record(UUID(entity["id"]), entity["name"], UUID(entity["type_id"]), entity["type"]) if entity else None
    return {
        "actor": replace(person, hermetic=True),
        "turns": list(snapshot["turns"]),
        "earlier": [(role, said) for role, said in snapshot.get("earlier") or []],
        "record": record,
        "prompt": frozen or _live_prompt(session, record),
        "memories": format_section(snapshot["memories"].get("texts") or [], actor=session.product),
        "replay": replay,
    }


def _live_prompt(session: LeasedSession, record: Record | None) -> Prompt:
    return load_shared_context_prompt(session.tenant_id, session.agent_id, record.type_id if record else None)


def _load_surroundings(session: LeasedSession) -> Surroundings:
    given = {
        "tenant": session.tenant_id, "agent": session.agent_id, "version": session.agent_version_id,
        "person": session.created_by, "entity": session.entity_id,
    }  # fmt: skip
    found = run(LOAD_SURROUNDINGS, given)
    if not found:
        raise NotFound("The agent has no such version.")
    record = Record(*found[0][-4:]) if found[0][-4] else None
    around = Surroundings._make([*found[0][:-4], record])
    if around.is_archived:
        raise Refused(f"{around.name} is archived. Restore it first.")
    return around


def _acting_for(session: LeasedSession, around: Surroundings) -> Actor:
    """Who a run acts as: with the person's role of today, or the product's, and no more than the key's scopes then."""
    if around.is_system:
        role = "system"
    elif around.external_tenant_id == session.tenant_id:
        role = "member"
    elif around.person is None or around.role is None:
        raise Refused("The person who asked for this has left the workspace.")
    else:
        role = around.role
    actor = Actor(session.created_by, session.tenant_id, role, around.person or "", agent_id=session.agent_id)
    return actor.limited_to(session.key_scopes)
