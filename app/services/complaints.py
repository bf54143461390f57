"""What people think of a session, whatever their word hangs on: the session, a message or turn of it, or its trace."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Text, and_, cast, or_, select, union_all
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.models import AgentSession, Chat, Feedback, Message

OPEN = ("pending", "reviewed")


def has_open_complaint(session_id: UUID, *, actor: Actor) -> bool:
    """Whether somebody was unhappy with the session and nobody decided about it yet."""
    found = _complaints(session_id, actor).where(Feedback.status.in_(OPEN)).limit(1)
    return db.session.scalar(found) is not None


def pending_about(session_id: UUID, *, actor: Actor) -> list[UUID]:
    """The complaints about the session that nobody has touched yet. One query."""
    found = _complaints(session_id, actor).where(Feedback.status == "pending").order_by(Feedback.id)
    return list(db.session.scalars(found))


def preferred_answer(session_id: UUID, *, actor: Actor) -> str | None:
    """What somebody would rather have read, from the newest edit of the session."""
    preferred = Feedback.details["preferred_answer"].astext
    found = db.session.scalar(
        select(preferred)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(_about(session_id, actor)))
        .where(preferred.is_not(None), ~Feedback.details.has_key("retracted_at"))
        .order_by(Feedback.created_at.desc())
        .limit(1)
    )
    return found or None


def _complaints(session_id: UUID, actor: Actor) -> Any:
    return select(Feedback.id).where(
        Feedback.tenant_id == actor.tenant_id,
        Feedback.id.in_(_about(session_id, actor)),
        Feedback.rating == "negative",
        Feedback.replay_session_id.is_(None),
        ~Feedback.details.has_key("retracted_at"),
    )


def _about(session_id: UUID, actor: Actor) -> Any:
    """The rows about a session. One that came before its session was known names only a message, a turn or a trace."""
    row = aliased(Feedback)
    rows = select(row.id).where(row.tenant_id == actor.tenant_id)
    trace = select(AgentSession.trace_id).where(
        AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
    )
    # A sender's ids of messages and turns may repeat from chat to chat.
    same_chat = or_(row.chat_id.is_(None), row.chat_id == cast(Chat.id, Text), row.chat_id == Chat.external_id)
    of_message = or_(
        row.message_id == cast(Message.id, Text),
        and_(row.message_id == Message.external_id, same_chat),
        and_(row.turn_id == Message.turn_id, row.kind == "reaction", row.origin == "user", same_chat),
    )
    loose = rows.where(row.session_id.is_(None))
    by_message = (
        loose.join(Message, Message.tenant_id == row.tenant_id)
        .join(Chat, and_(Chat.tenant_id == Message.tenant_id, Chat.id == Message.chat_id))
        .where(Message.session_id == session_id, of_message)
    )
    return union_all(
        rows.where(row.session_id == session_id),
        by_message,
        loose.where(row.trace_id == trace.scalar_subquery()),
    )
