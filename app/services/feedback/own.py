"""A person's own feedback and its outcome. Never another person's rows, whatever the role of the reader."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, empty, read_page
from app.formats.feedback_details import RETRACTED
from app.formats.ids import parse_id
from app.models import (
    Agent,
    AgentSession,
    Chat,
    Entity,
    EntityResponse,
    Feedback,
    Message,
    SharedContext,
    SharedContextFeedback,
)
from app.services.feedback.lists import FeedbackFilters
from app.services.lists import text_search

MAX_ROWS = 500
# What a rule that was made of feedback is called while agents follow it.
IN_USE = ("active", "superseded")


@dataclass(frozen=True)
class OwnRow:
    """Feedback as its author sees it."""

    id: UUID
    source_type: str
    kind: str
    signal: str | None
    rating: str
    comment: str | None
    status: str
    chat_id: str | None
    message_id: str | None
    turn_id: str | None
    session_id: UUID | None
    entity_id: UUID | None
    details: dict[str, Any]
    context: dict[str, Any]
    outcome: dict[str, Any]
    review_notes: str | None
    reviewed_at: datetime | None
    created_at: datetime
    occurred_at: datetime

    @property
    def stands(self) -> bool:
        """It was not taken back. What was decided because of a row keeps the row."""
        return RETRACTED not in self.details

    @property
    def edit_distance(self) -> int | None:
        found = self.details.get("output_review", {}).get("edit_distance")
        return found if isinstance(found, int) else None


@dataclass(frozen=True)
class GivenIn:
    """Where a row was given, as far as its author may go there."""

    title: str
    chat_id: UUID | None = None
    entity_id: UUID | None = None
    session_id: UUID | None = None


@dataclass(frozen=True)
class LearnedRule:
    """What the agents were taught by a row."""

    id: UUID
    type: str
    content: str


@dataclass(frozen=True)
class Retry:
    """How it went to ask again after a rejection. `response` is the state of what was submitted then, if anything."""

    status: str
    error: str | None
    agent: str
    elsewhere: bool
    response: str | None


COLUMNS: tuple[Any, ...] = tuple(getattr(Feedback, field.name) for field in fields(OwnRow))


def _own(actor: Actor) -> list[ColumnElement[bool]]:
    return [Feedback.tenant_id == actor.tenant_id, Feedback.created_by == actor.id, Feedback.origin == "user"]


def list_own(filters: FeedbackFilters, page: Page, *, actor: Actor) -> Slice[OwnRow]:
    """One page of what the actor said, newest first. At most three queries."""
    where = [*_own(actor), *filters.conditions()]
    if filters.q:
        matches = text_search.Matches(text_search.find_ids("feedback", filters.q))
        if not matches.ids:
            return empty()
        where.append(matches.are(Feedback.id))
    found = read_page(
        select(*COLUMNS), page, at=Feedback.created_at, id=Feedback.id, where=where, oldest_first=filters.oldest_first
    )
    return found.map(lambda row: OwnRow(*row))


def rows_in_chat(chat: Chat, *, actor: Actor) -> list[OwnRow]:
    """Return the actor's feedback on a conversation that was not retracted, oldest first. One query."""
    names = [str(chat.id), *([chat.external_id] if chat.external_id else [])]
    return [row for row in _rows([Feedback.chat_id.in_(names)], actor) if row.stands]


def group_by_message(rows: Iterable[OwnRow], messages: Sequence[Message]) -> dict[UUID | None, list[OwnRow]]:
    """Group rows by the id of the message they are about; None has those about the whole conversation.

    A row is about the message it names, else about the one at its place, else about the answer in its turn. Rows about
    messages that are not given are left out.
    """
    named = {
        name: message.id for message in reversed(messages) for name in (str(message.id), message.external_id) if name
    }
    placed = {message.message_index: message.id for message in messages}
    answers = {message.turn_id: message.id for message in reversed(messages) if message.role != "user"}
    found: dict[UUID | None, list[OwnRow]] = {}
    for row in rows:
        index: Any = row.context.get("message_index")
        message_id = named.get(row.message_id or "") or placed.get(index) or answers.get(row.turn_id or "")
        if message_id or not (row.message_id or row.turn_id or index is not None):
            found.setdefault(message_id, []).append(row)
    return found


def rows_about(entity_id: UUID, *, actor: Actor) -> list[OwnRow]:
    """What the actor said about a record and the responses to it, oldest first. One query."""
    return _rows([Feedback.entity_id == entity_id], actor)


def _rows(where: list[ColumnElement[bool]], actor: Actor) -> list[OwnRow]:
    rows: list[Any] = list(
        db.session.execute(
            select(*COLUMNS).where(*_own(actor), *where).order_by(Feedback.created_at, Feedback.id).limit(MAX_ROWS)
        )
    )
    return [OwnRow(*row) for row in rows]


def learned_from(rows: Collection[OwnRow], *, actor: Actor) -> dict[UUID, LearnedRule]:
    """The rule that each row helped to make, where agents follow it. No query where nothing was decided."""
    ids = [row.id for row in rows if row.status in ("reviewed", "applied")]
    if not ids:
        return {}
    found = db.session.execute(
        select(SharedContextFeedback.feedback_id, SharedContext.id, SharedContext.type, SharedContext.content)
        .join(SharedContext, SharedContext.id == SharedContextFeedback.shared_context_id)
        .where(
            SharedContextFeedback.tenant_id == actor.tenant_id,
            SharedContextFeedback.feedback_id.in_(ids),
            SharedContext.state.in_(IN_USE),
        )
        .order_by(SharedContext.created_at)
    )
    return {row[0]: LearnedRule(*row[1:]) for row in found}


def retries_of(rows: Collection[OwnRow], *, actor: Actor) -> dict[str, Retry]:
    """How the retries of these rows went, by the retry's id. No query where there is none."""
    wanted = {str(row.context.get("retry_ref") or "") for row in rows}
    ids = [one for text in wanted if (one := parse_id(text))]
    if not ids:
        return {}
    found = db.session.execute(
        select(AgentSession.id, AgentSession.status, AgentSession.error, Agent.name, Agent.kind, EntityResponse.status)
        .join(Agent, Agent.id == AgentSession.agent_id)
        .outerjoin(
            EntityResponse,
            (EntityResponse.tenant_id == AgentSession.tenant_id) & (EntityResponse.session_id == AgentSession.id),
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(ids))
        .order_by(EntityResponse.created_at)
    )
    return {str(row[0]): Retry(row[1], row[2], row[3], row[4] == "external", row[5]) for row in found}


def places_of(rows: Collection[OwnRow], *, actor: Actor) -> dict[UUID, GivenIn]:
    """Where each row was given. Only conversations of the actor's own are named. At most two queries."""
    chats = _chats({row.chat_id for row in rows if row.chat_id}, actor)
    names = _names({value for row in rows for value in (row.entity_id, row.session_id) if value}, actor)
    found: dict[UUID, GivenIn] = {}
    for row in rows:
        if row.chat_id in chats:
            chat_id, title = chats[row.chat_id]
            found[row.id] = GivenIn(title, chat_id=chat_id)
        elif row.entity_id in names:
            found[row.id] = GivenIn(names[row.entity_id], entity_id=row.entity_id)
        elif row.session_id in names:
            found[row.id] = GivenIn(names[row.session_id], session_id=row.session_id)
    return found


def _chats(names: set[str], actor: Actor) -> dict[str | None, tuple[UUID, str]]:
    if not names:
        return {}
    ours = [one for name in names if (one := parse_id(name))]
    rows = db.session.execute(
        select(Chat.id, Chat.external_id, Chat.title).where(
            Chat.tenant_id == actor.tenant_id,
            Chat.user_id == actor.id,
            Chat.id.in_(ours) | Chat.external_id.in_(names),
        )
    )
    return {name: (row[0], row[2]) for row in rows for name in (str(row[0]), row[1]) if name}


def _names(wanted: set[UUID], actor: Actor) -> dict[UUID | None, str]:
    """What records and sessions are called."""
    if not wanted:
        return {}
    found = select(Entity.id, Entity.name).where(Entity.tenant_id == actor.tenant_id, Entity.id.in_(wanted))
    sessions = select(AgentSession.id, AgentSession.title).where(
        AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(wanted)
    )
    return {row[0]: row[1] for row in db.session.execute(found.union_all(sessions))}
