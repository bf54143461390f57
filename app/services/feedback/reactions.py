"""Reactions to turns, and the two reports on them. Each person has one for a turn and may change or retract it.

The reports count reactions alone. Members get their own, admins everyone's; row-level security sees to that too.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, func, select, tuple_
from sqlalchemy.dialects.postgresql import aggregate_order_by

from app.actor import Actor
from app.db import db
from app.db.paging import MAX_ROWS
from app.errors import Invalid, NotFound
from app.formats.ids import parse_id
from app.learning.reactions import NAMES, Reaction, by_turn, user_type_of
from app.learning.signals import REACTIONS
from app.models import Agent, Chat, Feedback, Membership, Message
from app.services.feedback.intake import NOT_RETRACTED, NewFeedback, record_feedback, retract_feedback
from app.services.feedback.store import is_chat
from app.services.privacy import is_hidden

NOT_FOUND = "There is no such conversation or turn in this workspace."
COUNT_NAMES = {"user": "user", "machine": "machine", "positive": "ok", "negative": "not_ok", "neutral": "neutral"}
SENT_NAME = func.coalesce(Feedback.context["chat_id"].astext, Feedback.chat_id)


@dataclass(frozen=True)
class Conversation:
    """A chat under the name that the caller used for it: Upshot's id or the sender's own."""

    id: UUID
    tenant: str
    name: str
    project: str
    agent: str | None


@dataclass
class ReactedTurn:
    """A turn with its reactions, the first question in it and the last answer."""

    turn_id: str
    feedbacks: list[Reaction]
    user: Any = None
    assistant: Any = None

    @property
    def ts(self) -> datetime:
        return max(reaction.ts for reaction in self.feedbacks)


def find_conversation(name: str, *, tenant: str, project: str, actor: Actor) -> Conversation:
    """Find the project's conversation with this name. Another workspace's, another project's and another person's are
    unknown. Several people may use one name; then it is the actor's own, or the first."""
    row = db.session.execute(
        select(Chat.id, Agent.slug)
        .outerjoin(Agent, (Agent.tenant_id == Chat.tenant_id) & (Agent.id == Chat.agent_id))
        .where(Chat.tenant_id == actor.tenant_id, Chat.project == project, is_chat(name))
        .order_by((Chat.user_id == actor.id).desc(), Chat.created_at, Chat.id)
        .limit(1)
    ).one_or_none()
    if row is None:
        raise NotFound(NOT_FOUND)
    return Conversation(row.id, tenant, name, project, row.slug)


def set_reaction(
    conversation: Conversation,
    turn_id: str,
    reaction: str | None,
    *,
    actor: Actor,
    text: str | None = None,
    at: datetime | None = None,
) -> Reaction | None:
    """Replace the actor's reaction to the turn, or retract it with None."""
    known = select(Message.id).where(
        Message.tenant_id == actor.tenant_id, Message.chat_id == conversation.id, Message.turn_id == turn_id
    )
    if db.session.scalar(known.limit(1)) is None:
        raise NotFound(NOT_FOUND)
    chat_id = str(conversation.id)
    if reaction is None:
        own = (Feedback.kind == "reaction", Feedback.origin == "user")
        retract_feedback(*own, Feedback.chat_id == chat_id, Feedback.turn_id == turn_id, actor=actor)
        return None
    new = NewFeedback(
        kind="reaction",
        source_type="chat",
        rating=REACTIONS[reaction],
        comment=text,
        turn_id=turn_id,
        chat_id=chat_id,
        project=conversation.project,
        context={"chat_id": conversation.name},
        occurred_at=at,
    )
    row = record_feedback(new, actor=actor).row
    return _reaction(row, conversation.tenant, conversation.name, user_type_of(actor.role, row.origin))


def _reaction(row: Any, tenant: str, name: str, user_type: Any) -> Reaction:
    return Reaction(
        id=row.id,
        tenant=tenant,
        track_id=row.project,
        conversation_id=name,
        turn_id=row.turn_id,
        reaction=NAMES[row.rating],
        text=row.comment,
        confidence=row.confidence,
        origin=row.origin,
        ts=row.occurred_at,
        user_type=user_type,
    )


def turns_with_feedback(
    conversation: Conversation, turn_ids: Sequence[str] | None, days: int, *, actor: Actor
) -> list[ReactedTurn]:
    """Return the turns of a conversation with reactions in the last days, oldest first, each with its messages."""
    since = datetime.now(UTC) - timedelta(days=days)
    which = [Feedback.chat_id == str(conversation.id), Feedback.occurred_at >= since]
    if turn_ids is not None:
        which.append(Feedback.turn_id.in_(turn_ids))
    rows = _reactions(which, conversation.tenant, actor, conversation.name)
    turns = {name: ReactedTurn(name, found) for name, found in by_turn(reaction for _, reaction in rows).items()}
    messages = db.session.execute(
        select(
            Message.id.label("message_id"), Message.content.label("text"), Message.created_at.label("ts"),
            Message.turn_id, Message.role,
        )
        .where(
            Message.tenant_id == actor.tenant_id,
            Message.chat_id == conversation.id,
            Message.turn_id.in_(turns),
            Message.role.in_(("user", "agent")),
        )
        .order_by(Message.message_index)
    )  # fmt: skip
    for message in messages:
        turn = turns[message.turn_id]
        if message.role == "agent":
            turn.assistant = message
        else:
            turn.user = turn.user or message
    return list(turns.values())


def conversations_in_period(
    tenant: str,
    project: str,
    start: datetime,
    end: datetime,
    *,
    actor: Actor,
    include_turns: bool,
    limit: int,
    cursor: str | None,
) -> tuple[list[dict[str, Any]], str | None]:
    """Return conversations with reactions from `start` to `end`, both included, the latest active first, and the cursor
    of the next page."""
    if start > end:
        raise Invalid.of({"start": "This is after `end`."})
    which = [
        Feedback.project == project,
        Feedback.occurred_at.between(start, end),
        Feedback.chat_id.is_not(None),
        Feedback.turn_id.is_not(None),
    ]
    limit = min(max(limit, 1), MAX_ROWS)
    rows = _grouped(which, limit + 1, cursor, actor)
    shown = rows[:limit]
    chat_ids = [row.chat_id for row in shown]
    started = _start_times(chat_ids, actor)
    turns: dict[str, list[Reaction]] = {}
    if include_turns and shown:
        for chat_id, reaction in _reactions([*which, Feedback.chat_id.in_(chat_ids)], tenant, actor):
            turns.setdefault(chat_id, []).append(reaction)
    items = [
        {
            "conversation_id": row.name,
            "last_activity_at": row.at,
            "started_at": started.get(row.chat_id),
            "feedback_counts": {name: getattr(row, name) for name in COUNT_NAMES.values()}
            | {"total": row.user + row.machine},
            "turns": [ReactedTurn(*turn) for turn in by_turn(turns.get(row.chat_id, ())).items()]
            if include_turns
            else None,
        }
        for row in shown
    ]
    return items, _cursor_text(shown[-1].at, shown[-1].chat_id) if len(rows) > limit else None


def _start_times(chat_ids: Sequence[str], actor: Actor) -> dict[str, datetime]:
    """When the chats of ours among these began."""
    ours = [found for chat_id in chat_ids if (found := parse_id(chat_id))]
    if not ours:
        return {}
    known = select(Chat.id, Chat.created_at).where(Chat.tenant_id == actor.tenant_id, Chat.id.in_(ours))
    return {str(row.id): row.created_at for row in db.session.execute(known)}


def _counted(actor: Actor) -> list[ColumnElement[bool]]:
    return [
        Feedback.tenant_id == actor.tenant_id,
        Feedback.kind == "reaction",
        Feedback.origin.in_(("user", "machine")),
        NOT_RETRACTED,
        *([] if actor.is_admin else [Feedback.created_by == actor.id]),
    ]


def _grouped(which: list[ColumnElement[bool]], limit: int, cursor: str | None, actor: Actor) -> Sequence[Any]:
    """Return each conversation's counts, its latest reaction, and its name in that one."""
    latest = func.max(Feedback.occurred_at)
    names = func.array_agg(aggregate_order_by(SENT_NAME, Feedback.occurred_at.desc(), Feedback.id.desc()))
    counts = [
        func.count().filter((Feedback.origin if value in ("user", "machine") else Feedback.rating) == value).label(name)
        for value, name in COUNT_NAMES.items()
    ]
    statement = (
        select(Feedback.chat_id, latest.label("at"), names[1].label("name"), *counts)
        .where(*_counted(actor), *which)
        .group_by(Feedback.chat_id)
        .order_by(latest.desc(), Feedback.chat_id.desc())
        .limit(limit)
    )
    if cursor is not None:
        statement = statement.having(tuple_(latest, Feedback.chat_id) < tuple_(*_read_cursor(cursor)))
    return db.session.execute(statement).all()


def _reactions(
    which: list[ColumnElement[bool]], tenant: str, actor: Actor, name: str | None = None
) -> list[tuple[str, Reaction]]:
    """Return reactions in the order they were given, each with the id of its chat. A hidden author has no type."""
    hidden = case((is_hidden(Feedback.created_by, actor), True), else_=False)
    rows = db.session.execute(
        select(
            Feedback.id, Feedback.chat_id, SENT_NAME.label("name"), Feedback.turn_id, Feedback.rating,
            Feedback.comment, Feedback.confidence, Feedback.origin, Feedback.occurred_at, Feedback.project,
            Membership.role, hidden.label("hidden"),
        )
        .outerjoin(
            Membership, and_(Membership.tenant_id == Feedback.tenant_id, Membership.user_id == Feedback.created_by)
        )
        .where(*_counted(actor), *which)
        .order_by(Feedback.occurred_at, Feedback.id)
    )  # fmt: skip
    found = []
    for row in rows:
        user_type = None if row.hidden else user_type_of(row.role, row.origin)
        found.append((row.chat_id, _reaction(row, tenant, name or row.name, user_type)))
    return found


def _cursor_text(at: datetime, chat_id: str) -> str:
    return base64.urlsafe_b64encode(f"{at.isoformat()}|{chat_id}".encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[datetime, str]:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        at, mark, chat_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition("|")
        moment = datetime.fromisoformat(at)
        if not mark or moment.tzinfo is None or "\x00" in chat_id:
            raise ValueError
        return moment, chat_id
    except (ValueError, binascii.Error):
        sentence = "Not a cursor of this report. Leave it out to begin at the first page."
        raise Invalid.of({"cursor": sentence}) from None
