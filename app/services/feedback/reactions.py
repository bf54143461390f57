"""Reactions to turns: each person has one for a turn, and may change it or take it back."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.learning.reactions import Reaction, rating_of, user_type_of
from app.models import Agent, Chat, Feedback, Message
from app.services.feedback.intake import NewFeedback, record_feedback, retract_feedback
from app.services.feedback.links import is_chat

NOT_FOUND = "There is no such conversation or turn in this workspace."


@dataclass(frozen=True)
class Conversation:
    """A chat under the name that the caller used for it: Upshot's id or the sender's own."""

    id: UUID
    name: str
    project: str
    agent: str | None


def find_conversation(name: str, *, project: str, actor: Actor) -> Conversation:
    """The conversation of the project with this name. Another workspace's, another project's and another person's are
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
    return Conversation(row.id, name, project, row.slug)


def set_reaction(
    conversation: Conversation,
    turn_id: str,
    reaction: str | None,
    *,
    actor: Actor,
    text: str | None = None,
    at: datetime | None = None,
) -> Reaction | None:
    """Say what the turn was like, instead of what one said before; None takes that back."""
    _check_turn(conversation, turn_id, actor)
    if reaction is None:
        retract_feedback(
            Feedback.kind == "reaction",
            Feedback.origin == "user",
            Feedback.chat_id == str(conversation.id),
            Feedback.turn_id == turn_id,
            actor=actor,
        )
        return None
    stored = record_feedback(
        NewFeedback(
            kind="reaction",
            source_type="chat",
            rating=rating_of(reaction),
            comment=text,
            turn_id=turn_id,
            chat_id=str(conversation.id),
            project=conversation.project,
            context={"chat_id": conversation.name},
            occurred_at=at,
        ),
        actor=actor,
    )
    row = stored.row
    return Reaction(
        row.id, conversation.name, turn_id, row.rating, row.comment, row.confidence, row.origin, row.occurred_at,
        user_type_of(actor.role, row.origin),
    )  # fmt: skip


def _check_turn(conversation: Conversation, turn_id: str, actor: Actor) -> None:
    known = select(Message.id).where(
        Message.tenant_id == actor.tenant_id, Message.chat_id == conversation.id, Message.turn_id == turn_id
    )
    if db.session.scalar(known.limit(1)) is None:
        raise NotFound(NOT_FOUND)
