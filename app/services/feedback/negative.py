"""Negative feedback by session, whether it names the session, a message, a turn or the trace."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import Text, and_, any_, cast, func, or_, select, union_all

from app.actor import Actor
from app.db import db
from app.models import AgentSession, Chat, Feedback, Message
from app.services.feedback.intake import NOT_RETRACTED
from app.services.feedback.machine import not_outvoted

OPEN_STATUSES = ("pending", "reviewed")
NEGATIVE = (Feedback.rating == "negative", Feedback.replay_session_id.is_(None), NOT_RETRACTED, not_outvoted())


def has_open_negative(session_id: UUID, *, actor: Actor) -> bool:
    """Tell whether a session has negative feedback without a decision."""
    return bool(sessions_with_negative([session_id], actor=actor))


def had_negative(session_id: UUID, *, actor: Actor) -> bool:
    """Tell whether a session ever had negative feedback, decided or not."""
    found = _about([session_id], actor, *NEGATIVE).subquery()
    return db.session.scalar(select(found.c.id).limit(1)) is not None


def sessions_with_negative(session_ids: Collection[UUID], *, actor: Actor) -> set[UUID]:
    """Return those sessions that have negative feedback without a decision. One query."""
    found = _about(session_ids, actor, *NEGATIVE, Feedback.status.in_(OPEN_STATUSES)).subquery()
    return set(db.session.scalars(select(found.c.session_id).distinct()))


def pending_negative(session_id: UUID, *, actor: Actor) -> list[UUID]:
    """Return the ids of a session's negative feedback that is still pending. One query."""
    found = _about([session_id], actor, *NEGATIVE, Feedback.status == "pending").subquery()
    return list(db.session.scalars(select(found.c.id).distinct().order_by(found.c.id)))


def preferred_answer(session_id: UUID, *, actor: Actor) -> str | None:
    """Return the preferred answer of the newest edit of the session."""
    preferred = Feedback.details["preferred_answer"].astext
    edits = _about([session_id], actor, preferred.is_not(None), NOT_RETRACTED).subquery()
    found = db.session.scalar(
        select(preferred)
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(select(edits.c.id)))
        .order_by(Feedback.created_at.desc())
        .limit(1)
    )
    return found or None


def _about(session_ids: Collection[UUID], actor: Actor, *where: Any) -> Any:
    """The rows about sessions, each with its session. One that came before its session was known names only a message,
    a turn or a trace. Each way by itself, so that each can be looked up."""
    own = (Feedback.tenant_id == actor.tenant_id, *where)
    # A sender's ids of messages and turns may repeat from chat to chat. A reaction always names its chat.
    same_chat = or_(Feedback.chat_id == cast(Chat.id, Text), Feedback.chat_id == Chat.external_id)
    same_or_no_chat = or_(Feedback.chat_id.is_(None), same_chat)
    reaction = and_(Feedback.kind == "reaction", Feedback.origin == "user")

    def by_message(given: Any, named: Any, *more: Any) -> Any:
        known = select(named).where(Message.tenant_id == actor.tenant_id, Message.session_id.in_(session_ids))
        return (
            select(Feedback.id, Message.session_id)
            .join(Message, and_(Message.tenant_id == Feedback.tenant_id, given == named))
            .join(Chat, and_(Chat.tenant_id == Message.tenant_id, Chat.id == Message.chat_id))
            .where(*own, _one_of(given, known), Message.session_id.in_(session_ids), *more)
        )

    session = AgentSession
    known = select(session.trace_id).where(session.tenant_id == actor.tenant_id, session.id.in_(session_ids))
    by_trace = (
        select(Feedback.id, session.id)
        .join(session, and_(session.tenant_id == Feedback.tenant_id, session.trace_id == Feedback.trace_id))
        .where(*own, _one_of(Feedback.trace_id, known), session.id.in_(session_ids))
    )
    return union_all(
        select(Feedback.id, Feedback.session_id).where(*own, Feedback.session_id.in_(session_ids)),
        by_message(Feedback.message_id, cast(Message.id, Text)),
        by_message(Feedback.message_id, Message.external_id, same_or_no_chat),
        by_message(Feedback.turn_id, Message.turn_id, reaction, same_chat),
        by_trace,
    )


def _one_of(given: Any, known: Any) -> Any:
    """Loose rows that name one of a few things. They are looked up by these names, however many there are."""
    return and_(Feedback.session_id.is_(None), given == any_(func.array(known.scalar_subquery())))
