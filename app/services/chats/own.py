"""A person's own conversations, and how they rate the answers: a thumb, the reasons for it, or the wanted answer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound
from app.formats.feedback_details import ERROR_CATEGORIES
from app.learning.edits import edit_distance
from app.models import AgentSession, Chat, Feedback, Message
from app.services.feedback import own as feedback_own
from app.services.feedback.intake import NewFeedback, record_feedback, retract_feedback
from app.services.feedback.store import lock_thumbs

MAX_MESSAGES = 200
MAX_RECENT = 8


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
    messages = _messages(chat.id, where, actor, Message.message_index.desc())[::-1]
    return messages, (messages[0].message.message_index if messages else 0) or None


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
    row = db.session.execute(wanted).one_or_none()
    if row is None:
        raise NotFound("You have no conversation with this answer.")
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


# Ratings

UP = ("helpful",)
# Two of the reasons are signals of their own; they come and go with a thumb down.
SHARPER = ("inaccurate", "unsafe")
DOWN = ("not_helpful", *SHARPER)
REASONS = (*SHARPER, *ERROR_CATEGORIES)


def rate_answer(chat_id: UUID, index: int, signal: str, *, actor: Actor) -> None:
    """Give a thumb, which removes the other one. Reasons given with it before are kept."""
    if signal not in ("helpful", "not_helpful"):
        raise Invalid.of({"signal": "Use helpful or not_helpful."})
    answer = get_answer(chat_id, index, actor=actor)
    # The lock comes before any row lock everywhere, so that two requests never wait for each other.
    lock_thumbs(actor.id, _message_name(answer, signal))
    _retract(answer, DOWN if signal in UP else UP, actor)
    if not any(row.signal == signal for row in answer.rows):
        _record(answer, signal, actor)


def retract_rating(chat_id: UUID, index: int, signal: str, *, actor: Actor) -> None:
    """Retract a thumb with its reasons, or an edit."""
    answer = get_answer(chat_id, index, actor=actor)
    _retract(answer, DOWN if signal == "not_helpful" else (signal,), actor)


def explain_rating(
    chat_id: UUID, index: int, *, reasons: Collection[str], missing: str, comment: str, actor: Actor
) -> None:
    """Set the reasons for a thumb down, in place of those given before.

    The comment is stored with the thumb; a reason that is a signal of its own is only a mark beside it.
    """
    if set(reasons) - set(REASONS):
        raise Invalid("Choose the reasons from the list.", {"reasons": f"Use {', '.join(REASONS)}."})
    answer = get_answer(chat_id, index, actor=actor)
    lock_thumbs(actor.id, _message_name(answer, "not_helpful"))
    _retract(answer, UP, actor)
    categories = [name for name in ERROR_CATEGORIES if name in reasons]
    given = {"error_categories": categories, "missing_context": missing}
    details = {name: value for name, value in given.items() if value}
    _record(answer, "not_helpful", actor, comment=comment or None, details=details)
    known = {row.signal for row in answer.rows}
    for signal in SHARPER:
        if signal in reasons and signal not in known:
            _record(answer, signal, actor)
    _retract(answer, [name for name in SHARPER if name not in reasons], actor)


def prefer_answer(chat_id: UUID, index: int, text: str, *, actor: Actor) -> int:
    """Store the answer that the person wanted and return by how many percent it differs."""
    answer = get_answer(chat_id, index, actor=actor)
    if not text.strip():
        raise Invalid.at("text", "Enter the answer you wanted.")
    if answer.message.content.split() == text.split():
        raise Invalid("Nothing changed.", {"text": "You didn’t change the answer. Edit it or cancel."})
    _record(answer, "edit", actor, details={"preferred_answer": text})
    return edit_distance(answer.message.content, text).percent


def request_another(answer: Answer, *, actor: Actor) -> None:
    """Record that the person asked for another answer to the same question."""
    _record(answer, "regenerate", actor)


def _record(answer: Answer, signal: str, actor: Actor, **more: Any) -> None:
    message_id, chat_id = _message_name(answer, signal), str(answer.chat.id)
    new = NewFeedback(kind="signal", signal=signal, message_id=message_id, chat_id=chat_id, **more)
    record_feedback(new, actor=actor)


def _message_name(answer: Answer, signal: str) -> str:
    """Return the message id to store. A product's own widget may have written a row under another name; using that name
    changes the row instead of adding a second one."""
    known = next((row.message_id for row in answer.rows if row.signal == signal and row.message_id), None)
    return known or str(answer.message.id)


def _retract(answer: Answer, names: Collection[str], actor: Actor) -> None:
    ids = [row.id for row in answer.rows if row.signal in names]
    if ids:
        retract_feedback(Feedback.id.in_(ids), actor=actor)
