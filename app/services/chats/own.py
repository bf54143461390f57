"""A person's own conversations, and what they said about the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.models import AgentSession, Chat, Feedback, Message
from app.services.feedback import own as feedback_own

MAX_MESSAGES = 200
MAX_RECENT = 8
LAST_PLACE = 2**31 - 1


@dataclass(frozen=True)
class ChatMessage:
    """A message, and of the session behind it the model and how it ended."""

    message: Message
    model: str | None
    status: str | None
    error: str | None


@dataclass(frozen=True)
class Answer:
    """An agent's message to this person, with the feedback that they gave on it."""

    chat: Chat
    message: Message
    rows: Sequence[Feedback] = ()


def _own(actor: Actor) -> list[Any]:
    return [Chat.tenant_id == actor.tenant_id, Chat.user_id == actor.id]


def list_recent(chat_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """Return id, title and last activity of the actor's latest other conversations. One query."""
    return db.session.execute(
        select(Chat.id, Chat.title, Chat.last_message_at)
        .where(*_own(actor), Chat.id != chat_id)
        .order_by(Chat.last_message_at.desc(), Chat.id.desc())
        .limit(MAX_RECENT)
    ).all()


def read_messages(
    chat: Chat, *, actor: Actor, before: int | None = None, at: int | None = None
) -> tuple[list[ChatMessage], int | None]:
    """Return the latest messages of a conversation of the actor's, those before a place, or those around one that is
    further back; and where the page before them ends, None when they begin with the first. One query."""
    if before is None and at is not None and at < chat.message_count - MAX_MESSAGES:
        before = at + MAX_MESSAGES // 2
    where = [] if before is None else [Message.message_index < before]
    said = _messages(chat.id, where, actor, Message.message_index.desc())[::-1]
    return said, (said[0].message.message_index if said else 0) or None


def _messages(chat_id: UUID, where: list[Any], actor: Actor, order: Any = Message.message_index) -> list[ChatMessage]:
    rows = db.session.execute(
        select(Message, AgentSession.model, AgentSession.status, AgentSession.error)
        .outerjoin(AgentSession, AgentSession.id == Message.session_id)
        .join(Chat, (Chat.tenant_id == Message.tenant_id) & (Chat.id == Message.chat_id))
        .where(*_own(actor), Chat.id == chat_id, *where)
        .order_by(order)
        .limit(MAX_MESSAGES)
    )
    return [ChatMessage(*row) for row in rows]


def get_answer(chat_id: UUID, index: int, *, actor: Actor) -> Answer:
    """Return an agent's answer in a conversation of the actor's, with their feedback on it. Three queries.

    Feedback on another answer to the same question is not about this one.
    """
    wanted = (
        select(Chat, Message)
        .join(Message, (Message.tenant_id == Chat.tenant_id) & (Message.chat_id == Chat.id))
        .where(*_own(actor), Chat.id == chat_id, Message.message_index == index, Message.role == "agent")
    )
    row = db.session.execute(wanted).one_or_none() if index <= LAST_PLACE else None
    if row is None:
        raise NotFound("There is no such answer in a conversation of yours.")
    chat, message = row
    beside = [one.message for one in answers_in_turn(message, actor=actor)]
    rows = feedback_own.group_by_message(feedback_own.rows_in_chat(chat, actor=actor), beside)
    return Answer(chat, message, rows.get(message.id, []))


def messages_after(chat_id: UUID, index: int, *, actor: Actor) -> list[ChatMessage]:
    """What was said in a conversation of the actor's after a place in it. One query."""
    return _messages(chat_id, [Message.message_index > index], actor)


def answers_in_turn(answer: Message, *, actor: Actor) -> list[ChatMessage]:
    """The first 200 answers in the turn of this one, in order. One query."""
    return _messages(answer.chat_id, [Message.role == "agent", Message.turn_id == answer.turn_id], actor)
