"""A person's own feedback and its outcome. Never another person's rows, whatever the role of the reader."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import literal, null, select, text, union_all
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
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
)
from app.services.feedback.lists import FeedbackFilters
from app.services.lists.filters import Matches, find_ids

MAX_ROWS = 500
# A row that was replaced or merged is followed to the row in its place, and a proposal to retire one to that row. A row
# that is retired and comes back undoes what the feedback led to.
RULES = text("""
    WITH RECURSIVE behind AS (
        SELECT l.feedback_id, c.id, c.content, c.state, c.superseded_by, 0 AS depth, c.metadata ? 'retires' AS retires
          FROM shared_context_feedback AS l
          JOIN shared_context AS c ON c.tenant_id = l.tenant_id AND c.id = l.shared_context_id
         WHERE l.tenant_id = :tenant AND l.feedback_id = ANY (:ids)
        UNION ALL
        SELECT b.feedback_id, c.id, c.content, c.state, c.superseded_by, b.depth + 1, b.retires
          FROM behind AS b JOIN shared_context AS c ON c.tenant_id = :tenant AND c.id = b.superseded_by
         WHERE b.state = 'superseded' AND b.depth < 10
    )
    SELECT DISTINCT ON (feedback_id) feedback_id, id, content,
           CASE WHEN NOT retires OR depth = 0 THEN state WHEN state = 'active' THEN 'inactive'
                ELSE 'retired' END AS state
      FROM behind WHERE state <> 'superseded'
     ORDER BY feedback_id, array_position(ARRAY['active', 'proposed'], state), depth, id
""")


@dataclass(frozen=True)
class LearnedRule:
    """A knowledge row that feedback led to; `retired` is one that it led out of the prompts."""

    id: UUID
    content: str
    state: str


# A chat, an entity or a session: which of these, its id, its name.
Place = tuple[str, UUID, str]


def _own(actor: Actor) -> list[ColumnElement[bool]]:
    return [Feedback.tenant_id == actor.tenant_id, Feedback.created_by == actor.id, Feedback.origin == "user"]


def list_own(filters: FeedbackFilters, page: Page, *, actor: Actor) -> Slice[Feedback]:
    """One page of what the actor said, newest first. At most three queries."""
    where = [*_own(actor), *filters.conditions()]
    if filters.q:
        matches = Matches(find_ids("feedback", filters.q))
        if not matches.ids:
            return Slice([])
        where.append(Feedback.id == matches.any)
    found = read_page(
        select(Feedback), page, at=Feedback.created_at, id=Feedback.id, where=where, oldest_first=filters.oldest_first
    )
    return found.map(lambda row: row[0])


def rows_in_chat(chat: Chat, *, actor: Actor) -> list[Feedback]:
    """Return the actor's feedback on a conversation that was not retracted, oldest first. One query."""
    names = [str(chat.id), *([chat.external_id] if chat.external_id else [])]
    return [row for row in _rows([Feedback.chat_id.in_(names)], actor) if not is_retracted(row)]


def group_by_message(rows: Iterable[Feedback], messages: Sequence[Message]) -> dict[UUID | None, list[Feedback]]:
    """Group rows by the id of the message they are about; None has those about the whole conversation.

    A row is about the message it names, else about the one at its place, else about the answer in its turn. Rows about
    messages that are not given are left out.
    """
    named = {
        name: message.id for message in reversed(messages) for name in (str(message.id), message.external_id) if name
    }
    placed = {message.message_index: message.id for message in messages}
    answers = {message.turn_id: message.id for message in reversed(messages) if message.role != "user"}
    found: dict[UUID | None, list[Feedback]] = {}
    for row in rows:
        index: Any = row.context.get("message_index")
        message_id = named.get(row.message_id or "") or placed.get(index) or answers.get(row.turn_id or "")
        if message_id or not (row.message_id or row.turn_id or index is not None):
            found.setdefault(message_id, []).append(row)
    return found


def rows_about(entity_id: UUID, *, actor: Actor) -> list[Feedback]:
    """What the actor said about a record and the responses to it, oldest first. One query."""
    return _rows([Feedback.entity_id == entity_id], actor)


def _rows(where: list[ColumnElement[bool]], actor: Actor) -> list[Feedback]:
    statement = select(Feedback).where(*_own(actor), *where).order_by(Feedback.created_at, Feedback.id).limit(MAX_ROWS)
    # Feedback is written in plain SQL, so that what the session has read before may be out of date.
    return list(db.session.scalars(statement.execution_options(populate_existing=True)))


def is_retracted(row: Feedback) -> bool:
    """Tell whether its author retracted a row that stays because something was decided about it."""
    return RETRACTED in row.details


def learned_from(rows: Collection[Feedback], *, actor: Actor) -> dict[UUID, LearnedRule]:
    """Return the rule that each row helped to make: one that agents get, else a proposal, else one that was withdrawn.
    No query where everything was dismissed."""
    ids = [row.id for row in rows if row.status != "dismissed"]
    if not ids:
        return {}
    found = db.session.execute(RULES, {"tenant": actor.tenant_id, "ids": ids})
    return {row.feedback_id: LearnedRule(row.id, row.content, row.state) for row in found}


def retries_of(rows: Collection[Feedback], *, actor: Actor) -> dict[str, Any]:
    """Return how the retries of these rows went, by the retry's id: the session's state, and that of the response which
    it submitted. No query where there is none."""
    ids = {one for row in rows if (one := parse_id(row.context.get("retry_ref")))}
    if not ids:
        return {}
    found = db.session.execute(
        select(
            AgentSession.id, AgentSession.status, AgentSession.error, Agent.name.label("agent"), Agent.kind,
            EntityResponse.status.label("response"),
        )
        .join(Agent, Agent.id == AgentSession.agent_id)
        .outerjoin(
            EntityResponse,
            (EntityResponse.tenant_id == AgentSession.tenant_id) & (EntityResponse.session_id == AgentSession.id),
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(ids))
        .order_by(EntityResponse.created_at)
    )  # fmt: skip
    return {str(row.id): row for row in found}


def places_of(rows: Collection[Feedback], *, actor: Actor) -> dict[UUID, Place]:
    """Return where each row was given. Only conversations of the actor's own are named. One query."""
    chats = {row.chat_id for row in rows if row.chat_id}
    ids = {value for row in rows for value in (row.entity_id, row.session_id) if value}
    is_named = Chat.id.in_([one for name in chats if (one := parse_id(name))]) | Chat.external_id.in_(chats)
    places: Any = union_all(
        select(literal("chat"), Chat.id, Chat.title, Chat.external_id).where(
            Chat.tenant_id == actor.tenant_id, Chat.user_id == actor.id, is_named
        ),
        select(literal("entity"), Entity.id, Entity.name, null()).where(
            Entity.tenant_id == actor.tenant_id, Entity.id.in_(ids)
        ),
        select(literal("session"), AgentSession.id, AgentSession.title, null()).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(ids)
        ),
    )
    known = {
        (kind, name): (kind, place_id, title)
        for kind, place_id, title, external_id in db.session.execute(places)
        for name in (str(place_id), external_id)
    }
    found = {}
    for row in rows:
        names = (("chat", row.chat_id or ""), ("entity", str(row.entity_id)), ("session", str(row.session_id)))
        if place := next((known[name] for name in names if name in known), None):
            found[row.id] = place
    return found
