"""What feedback is about: the message, the turn, the session, the agent; found out where the sender did not say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, null, or_, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.models import Agent, AgentSession, Chat, Entity, Message

if TYPE_CHECKING:
    from app.services.intake import NewFeedback

FOUND = (
    Message.id, Message.session_id, Message.chat_id, Message.turn_id, Message.trace_id, Message.message_index,
    Chat.agent_id, Chat.project,
)  # fmt: skip
AN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Links:
    session_id: UUID | None = None
    entity_id: UUID | None = None
    agent_id: UUID | None = None
    message_id: str | None = None
    chat_id: str | None = None
    turn_id: str | None = None
    trace_id: str | None = None
    project: str = "default"
    message_index: int | None = None
    message_text: str | None = None

    def source_type(self, kind: str) -> str:
        """Where nothing was said: a flag is an observation, the rest belongs to its chat, else to its session."""
        if kind == "flag":
            return "observation"
        return "chat" if self.chat_id or self.message_index is not None else "session"

    def context(self, source: str) -> dict[str, Any]:
        """What the server knows of a source's context."""
        if source not in ("chat", "observation"):
            return {}
        known = {"chat_id": self.chat_id, "message_index": self.message_index}
        return {name: value for name, value in known.items() if value is not None}


def resolve(new: NewFeedback, actor: Actor) -> Links:
    """The links as far as they can be known. Links that name another workspace's rows are links to nothing.

    Ids of messages, chats and traces are the sender's own words and may be unknown here; ids of sessions, entities
    and agents are ours and must exist.
    """
    links = Links(
        session_id=new.session_id,
        entity_id=new.entity_id,
        agent_id=new.agent_id,
        message_id=new.message_id,
        chat_id=new.chat_id or _text(new.context.get("chat_id")),
        turn_id=new.turn_id,
        trace_id=new.trace_id,
        project=new.project or "default",
    )
    _check_ours(links, actor)
    links = _from_message(links, new, actor)
    links = _from_session(links, actor)
    # Uniqueness hangs on the message, so a signal about a whole run takes the run's trace for it.
    if new.kind == "signal" and links.message_id is None:
        links = replace(links, message_id=links.trace_id or str(links.session_id))
    return links


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _check_ours(links: Links, actor: Actor) -> None:
    for name, model in (("session_id", AgentSession), ("entity_id", Entity), ("agent_id", Agent)):
        wanted = getattr(links, name)
        if wanted is None:
            continue
        found = select(model.id).where(model.tenant_id == actor.tenant_id, model.id == wanted)
        if db.session.scalar(found) is None:
            noun = name.removesuffix("_id")
            raise Invalid(f"There is no {noun} {wanted} in this workspace.", {name: "Not in this workspace."})


def _from_message(links: Links, new: NewFeedback, actor: Actor) -> Links:
    row: Any = None
    for statement in _ways_to_message(links, new, actor):
        row = db.session.execute(statement.limit(1)).one_or_none()
        if row is not None:
            break
    if row is None:
        return links
    return replace(
        links,
        session_id=links.session_id or row.session_id,
        agent_id=links.agent_id or row.agent_id,
        message_id=links.message_id or str(row.id),
        chat_id=links.chat_id or str(row.chat_id),
        turn_id=links.turn_id or row.turn_id,
        trace_id=links.trace_id or row.trace_id,
        project=new.project or row.project,
        message_index=row.message_index,
        message_text=row.content,
    )


def _ways_to_message(links: Links, new: NewFeedback, actor: Actor) -> list[Select[*tuple[Any, ...]]]:
    """By its id, by its sender's id, by its place in a chat, by its turn, by its trace: the surest first. The sender's
    ids may repeat from chat to chat, so one that comes with a chat is looked for in that chat only."""
    text = Message.content if new.signal == "edit" else null()
    base: Select[*tuple[Any, ...]] = (
        select(*FOUND, text.label("content"))
        .join(Chat, (Chat.tenant_id == Message.tenant_id) & (Chat.id == Message.chat_id))
        .where(Message.tenant_id == actor.tenant_id)
    )
    answers = base.where(Message.role == "agent").order_by(Message.message_index.desc())
    index = new.context.get("message_index")
    ways = []
    if links.message_id:
        if AN_ID.fullmatch(links.message_id):
            ways.append(base.where(Message.id == UUID(links.message_id)))
        named = base.where(Message.external_id == links.message_id)
        ways.append(named.where(_is_chat(links.chat_id)) if links.chat_id else named)
    elif links.chat_id and isinstance(index, int):
        ways.append(base.where(Message.message_index == index, _is_chat(links.chat_id)))
    elif links.turn_id:
        turn = answers.where(Message.turn_id == links.turn_id)
        ways.append(turn.where(_is_chat(links.chat_id)) if links.chat_id else turn)
    elif links.trace_id and new.kind in ("signal", "reaction"):
        ways.append(answers.where(Message.trace_id == links.trace_id))
    return ways


def _is_chat(chat_id: str) -> ColumnElement[bool]:
    if AN_ID.fullmatch(chat_id):
        return or_(Chat.id == UUID(chat_id), Chat.external_id == chat_id)
    return Chat.external_id == chat_id


def _from_session(links: Links, actor: Actor) -> Links:
    wanted = select(AgentSession.id, AgentSession.agent_id, AgentSession.trace_id, AgentSession.chat_id).where(
        AgentSession.tenant_id == actor.tenant_id
    )
    if links.session_id:
        wanted = wanted.where(AgentSession.id == links.session_id)
    elif links.trace_id:
        wanted = wanted.where(AgentSession.trace_id == links.trace_id).order_by(AgentSession.created_at.desc())
    else:
        return links
    row = db.session.execute(wanted.limit(1)).one_or_none()
    if row is None:
        return links
    return replace(
        links,
        session_id=row.id,
        agent_id=links.agent_id or row.agent_id,
        trace_id=links.trace_id or row.trace_id,
        chat_id=links.chat_id or (str(row.chat_id) if row.chat_id else None),
    )
