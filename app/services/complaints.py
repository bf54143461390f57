"""What people think of a session, whatever their word hangs on: the session, a message or turn of it, or its trace."""

from __future__ import annotations

from collections.abc import Collection
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
    return bool(complained_of([session_id], actor=actor))


def complained_of(session_ids: Collection[UUID], *, actor: Actor) -> set[UUID]:
    """Those sessions that somebody was unhappy with and nobody decided about yet. One query."""
    about = _about(session_ids, actor).subquery()
    found = select(about.c.session_id).distinct().join(Feedback, Feedback.id == about.c.id)
    return set(db.session.scalars(found.where(*_complaint(actor), Feedback.status.in_(OPEN))))


def pending_about(session_id: UUID, *, actor: Actor) -> list[UUID]:
    """The complaints about the session that nobody has touched yet. One query."""
    about = _about([session_id], actor).subquery()
    found = select(Feedback.id).where(Feedback.id.in_(select(about.c.id)), *_complaint(actor))
    return list(db.session.scalars(found.where(Feedback.status == "pending").order_by(Feedback.id)))


def preferred_answer(session_id: UUID, *, actor: Actor) -> str | None:
    """What somebody would rather have read, from the newest edit of the session."""
    preferred = Feedback.details["preferred_answer"].astext
    about = _about([session_id], actor).subquery()
    found = db.session.scalar(
        select(preferred)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(select(about.c.id)))
        .where(preferred.is_not(None), ~Feedback.details.has_key("retracted_at"))
        .order_by(Feedback.created_at.desc())
        .limit(1)
    )
    return found or None


def _complaint(actor: Actor) -> tuple[Any, ...]:
    return (
        Feedback.tenant_id == actor.tenant_id,
        Feedback.rating == "negative",
        Feedback.replay_session_id.is_(None),
        ~Feedback.details.has_key("retracted_at"),
    )


def _about(session_ids: Collection[UUID], actor: Actor) -> Any:
    """The rows about sessions, each with its session. One that came before its session was known names only a message,
    a turn or a trace."""
    row = aliased(Feedback)
    # A sender's ids of messages and turns may repeat from chat to chat.
    same_chat = or_(row.chat_id.is_(None), row.chat_id == cast(Chat.id, Text), row.chat_id == Chat.external_id)
    of_message = or_(
        row.message_id == cast(Message.id, Text),
        and_(row.message_id == Message.external_id, same_chat),
        and_(row.turn_id == Message.turn_id, row.kind == "reaction", row.origin == "user", same_chat),
    )
    own, loose = row.tenant_id == actor.tenant_id, row.session_id.is_(None)
    by_message = (
        select(row.id, Message.session_id)
        .join(Message, Message.tenant_id == row.tenant_id)
        .join(Chat, and_(Chat.tenant_id == Message.tenant_id, Chat.id == Message.chat_id))
        .where(own, loose, Message.session_id.in_(session_ids), of_message)
    )
    by_trace = (
        select(row.id, AgentSession.id)
        .join(AgentSession, and_(AgentSession.tenant_id == row.tenant_id, AgentSession.trace_id == row.trace_id))
        .where(own, loose, AgentSession.id.in_(session_ids))
    )
    return union_all(select(row.id, row.session_id).where(own, row.session_id.in_(session_ids)), by_message, by_trace)
