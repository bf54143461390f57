"""Reactions to turns: each person has one for a turn, and may change it or take it back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import or_, select

from app.actor import Actor
from app.db import db
from app.errors import NotFound, Refused
from app.learning.reaction_shapes import Reaction, rating_of
from app.models import Agent, Chat, Feedback, Message
from app.services.intake import NewFeedback, give_feedback
from app.services.intake_links import AN_ID
from app.services.retractions import take_back

NOTHING = "There is no such conversation or turn in this workspace."


@dataclass(frozen=True)
class Conversation:
    """A chat under the name that the caller used for it: Upshot's id or the sender's own."""

    id: UUID
    name: str
    project: str
    agent: str | None


def find_conversation(name: str, *, project: str, actor: Actor) -> Conversation:
    """The conversation of the project with this name. Another workspace's and another project's are unknown."""
    same = Chat.external_id == name
    if AN_ID.fullmatch(name):
        same = or_(same, Chat.id == UUID(name))
    row = db.session.execute(
        select(Chat.id, Agent.slug)
        .outerjoin(Agent, (Agent.tenant_id == Chat.tenant_id) & (Agent.id == Chat.agent_id))
        .where(Chat.tenant_id == actor.tenant_id, Chat.project == project, same)
        .limit(1)
    ).one_or_none()
    if row is None:
        raise NotFound(NOTHING)
    return Conversation(row.id, name, project, row.slug)


def react(
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
    mine = (Feedback.kind == "reaction", Feedback.origin == "user", Feedback.turn_id == turn_id)
    if reaction is None:
        take_back(*mine, Feedback.chat_id == str(conversation.id), actor=actor)
        return None
    elsewhere = select(Feedback.id).where(
        Feedback.tenant_id == actor.tenant_id,
        Feedback.created_by == actor.id,
        *mine,
        Feedback.chat_id != str(conversation.id),
    )
    if db.session.scalar(elsewhere) is not None:
        raise Refused("You reacted to a turn with this id in another conversation; ids of turns must differ.")
    row = give_feedback(
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
    return Reaction(
        row.id, conversation.name, turn_id, row.rating, row.comment, row.confidence, row.origin, row.occurred_at
    )


def _check_turn(conversation: Conversation, turn_id: str, actor: Actor) -> None:
    known = select(Message.id).where(
        Message.tenant_id == actor.tenant_id, Message.chat_id == conversation.id, Message.turn_id == turn_id
    )
    if db.session.scalar(known.limit(1)) is None:
        raise NotFound(NOTHING)
