"""Many sessions at once: a handful of statements, however many there are."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.formats.truncation import is_truncated
from app.models import AgentSession
from app.services.agents import versions as agent_versions
from app.services.sessions.bulk_events import EventRow, add_rows_of
from app.services.sessions.events import reported, rows_of
from app.services.sessions.store import NewSession, check_new, report_failure, values_of
from app.services.workspaces.masking import masking_for


def create_sessions(sessions: Sequence[NewSession], *, actor: Actor) -> int:
    """Store sessions that all have an `external_id`; how many were new. Known ones stay as they are.

    Links to chats and records are not looked up one by one: the database refuses those of another workspace.
    """
    for new in sessions:
        check_new(new)
    named = {new.external_id: new for new in reversed(sessions)}
    known = set(_known([name for name in named if name], actor))
    fresh = [new for new in reversed(named.values()) if new.external_id not in known]
    if not fresh:
        return 0
    rows, events = _prepared(fresh, actor)
    made = _insert(rows)
    add_rows_of({made[name]: events[name] for name in made}, tenant_id=actor.tenant_id)
    for new in fresh:
        if new.status == "failed" and new.external_id in made:
            report_failure(db.session.get_one(AgentSession, made[new.external_id]), actor)
    return len(made)


def _known(names: list[str], actor: Actor) -> Sequence[str | None]:
    return db.session.scalars(
        select(AgentSession.external_id).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.external_id.in_(names)
        )
    ).all()


def _prepared(fresh: list[NewSession], actor: Actor) -> tuple[list[dict[str, Any]], dict[str, list[EventRow]]]:
    """The rows of the sessions, and of the events of each."""
    masking = masking_for(actor)
    found = {slug: agent_versions.ensure_agent(slug, actor=actor) for slug in dict.fromkeys(new.agent for new in fresh)}
    wanted = dict.fromkeys((new.agent, new.agent_version) for new in fresh)
    versions = {(slug, number): agent_versions.version_id(found[slug], number) for slug, number in wanted}
    rows, events = [], {}
    for new in fresh:
        events[str(new.external_id)] = own = rows_of(reported(new.events, actor), masking)
        row = values_of(new, found[new.agent], versions[new.agent, new.agent_version], masking, actor)
        truncated = any(is_truncated(event.event_type, event.payload) for event in new.events)
        rows.append(row | {"event_count": len(own), "truncated": truncated})
    return rows, events


def _insert(rows: list[dict[str, Any]]) -> dict[str, UUID]:
    """The ids of those that were new, by external id.

    All rows of one statement have the same columns, so rows go in by which they have. Always in the same order: two
    imports of one file then wait for each other instead of stopping each other.
    """
    made: dict[str, UUID] = {}
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: str(row["external_id"])):
        alike.setdefault(tuple(row), []).append(row)
    for _, group in sorted(alike.items(), key=lambda pair: pair[0]):
        statement = (
            insert(AgentSession.__table__)  # type: ignore[arg-type]
            .values(group)
            .on_conflict_do_nothing(
                index_elements=["tenant_id", "external_id", "owner_id"],
                index_where=AgentSession.external_id.is_not(None),
            )
            .returning(AgentSession.external_id, AgentSession.id)
        )
        made |= {str(name): session_id for name, session_id in db.session.execute(statement)}
    return made
