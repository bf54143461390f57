"""Chats and their messages. A turn is a user message and what answered it; both carry its `turn_id`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db, get_own
from app.db.paging import not_a_cursor
from app.errors import Invalid, NotFound, Refused
from app.models import Agent, AgentSession, Chat, Message, User
from app.models.conversations import MESSAGE_ROLES
from app.services.agents import versions
from app.services.privacy import id_of, name_of
from app.services.workspaces.store import masking_for

MAX_AT_ONCE = 500
MAX_EARLIER_MESSAGES = 60
NO_CHAT = "There is no such conversation in this workspace."


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    """`turn_id` may be left out: a user message opens a turn, whatever follows belongs to it."""

    role: str
    content: str
    turn_id: str | None = None
    session_id: UUID | None = None
    external_id: str | None = None
    trace_id: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


@dataclass(frozen=True)
class ChatDetail:
    """One chat with its names and its messages in order. Without the person's id where they are hidden."""

    chat: Chat
    agent: str | None
    agent_name: str | None
    person_id: UUID | None
    person: str | None
    messages: list[Message]


def create_chat(
    *,
    actor: Actor,
    agent_slug: str,
    title: str,
    user_id: UUID | None = None,
    external_id: str | None = None,
    project: str = "default",
    created_at: datetime | None = None,
) -> Chat:
    """Begin a conversation. The same `external_id` again gives the stored one back."""
    known = find_chat(external_id, actor=actor) if external_id else None
    if known is not None:
        return known
    agent = versions.ensure_agent(agent_slug, actor=actor)
    moment = created_at or datetime.now(UTC)
    values = {
        "tenant_id": actor.tenant_id,
        "agent_id": agent.id,
        "title": masking_for(actor).text(" ".join(title.split()))[:300] or "Untitled",
        "user_id": user_id or actor.id,
        "external_id": external_id,
        "project": project,
        "created_at": moment,
        "last_message_at": moment,
    }
    statement = (
        insert(Chat)
        .values(values)
        .on_conflict_do_nothing(
            index_elements=["tenant_id", "external_id", "user_id"], index_where=Chat.external_id.is_not(None)
        )
        .returning(Chat.id)
    )
    made = db.session.scalar(statement)
    chat = db.session.get(Chat, made) if made else find_chat(external_id or "", actor=actor)
    if chat is None:
        raise Refused("This conversation is being stored by another request. Send it again.")
    return chat


def find_chat(external_id: str, *, actor: Actor) -> Chat | None:
    """The conversation that its sender calls so. Several people may use one name; then it is the actor's own, or the
    first."""
    return db.session.scalar(
        select(Chat)
        .where(Chat.tenant_id == actor.tenant_id, Chat.external_id == external_id)
        .order_by((Chat.user_id == actor.id).desc(), Chat.created_at, Chat.id)
        .limit(1)
    )


def append_messages(chat_id: UUID, messages: Sequence[NewMessage], *, actor: Actor) -> list[Message]:
    """Add messages at the end. Their places are given under a lock, so two who write at once do not collide."""
    chat = get_own(Chat, chat_id, "conversation", actor=actor, lock=True)
    _check(messages, actor)
    turn = _last_turn(chat)
    masking = masking_for(actor)
    now = datetime.now(UTC)
    rows = []
    for place, new in enumerate(messages, chat.message_count):
        turn = new.turn_id or (uuid4().hex if new.role == "user" or turn is None else turn)
        values = vars(new) | {"content": masking.text(new.content), "details": masking.value(new.details)}
        values |= {"turn_id": turn, "created_at": new.created_at or now, "message_index": place}
        rows.append(Message(tenant_id=chat.tenant_id, chat_id=chat.id, **values))
    db.session.add_all(rows)
    chat.message_count += len(rows)
    chat.last_message_at = max([chat.last_message_at, *(row.created_at for row in rows)])
    db.session.flush()
    return rows


def _check(messages: Sequence[NewMessage], actor: Actor) -> None:
    if len(messages) > MAX_AT_ONCE:
        raise Invalid(f"At most {MAX_AT_ONCE} messages at once. Send the rest in a second request.")
    for place, new in enumerate(messages):
        if new.role not in MESSAGE_ROLES:
            raise Invalid.of({f"messages.{place}.role": f"Use one of {', '.join(MESSAGE_ROLES)}."})
    linked = {new.session_id for new in messages if new.session_id}
    if linked:
        known = select(AgentSession.id).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(linked))
        missing = linked - set(db.session.scalars(known))
        if missing:
            raise Invalid(f"There is no session {min(missing)} in this workspace.")


def _last_turn(chat: Chat) -> str | None:
    if not chat.message_count:
        return None
    return db.session.scalar(
        select(Message.turn_id)
        .where(Message.tenant_id == chat.tenant_id, Message.chat_id == chat.id)
        .order_by(Message.message_index.desc())
        .limit(1)
    )


def get_chat(actor: Actor, chat_id: UUID, *, messages: bool = True) -> ChatDetail:
    """One chat with everything said in it. Two queries, or one without its messages."""
    row = db.session.execute(
        select(Chat, Agent.slug, Agent.name, id_of(Chat.user_id, actor), name_of(Chat.user_id, actor))
        .outerjoin(Agent, Agent.id == Chat.agent_id)
        .outerjoin(User, User.id == Chat.user_id)
        .where(Chat.tenant_id == actor.tenant_id, Chat.id == chat_id)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if row is None:
        raise NotFound(NO_CHAT)
    chat, agent, agent_name, person_id, person = row
    found = messages_of(chat_id, actor=actor) if messages else []
    return ChatDetail(chat, agent, agent_name, person_id, person, found)


def messages_of(chat_id: UUID, *, actor: Actor, session_id: UUID | None = None) -> list[Message]:
    """What was said, in order: all of it, or what one session said."""
    which = [Message.session_id == session_id] if session_id is not None else []
    return list(db.session.scalars(_messages(chat_id, *which, actor=actor)))


def _messages(chat_id: UUID, *which: Any, actor: Actor) -> Select[Message]:
    mine = (Message.tenant_id == actor.tenant_id, Message.chat_id == chat_id)
    return select(Message).where(*mine, *which).order_by(Message.message_index)


def page_of_messages(
    chat_id: UUID, limit: int, cursor: str | None, *, actor: Actor
) -> tuple[list[Message], str | None]:
    """Some messages in order, and where the rest begins. The cursor is the place of the last one."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 9):
        raise not_a_cursor()
    later = Message.message_index > (int(cursor) if cursor is not None else -1)
    found = list(db.session.scalars(_messages(chat_id, later, actor=actor).limit(limit + 1)))
    return found[:limit], str(found[limit - 1].message_index) if len(found) > limit else None


def earlier_messages(tenant_id: UUID, chat_id: UUID | None, turn_id: str | None) -> list[tuple[str, str]]:
    """Role and text of the chat's latest messages before this turn, in order."""
    if chat_id is None or turn_id is None:
        return []
    mine = [Message.tenant_id == tenant_id, Message.chat_id == chat_id]
    asked = select(Message.message_index).where(*mine, Message.turn_id == turn_id, Message.role == "user")
    place = db.session.scalar(asked.order_by(Message.message_index).limit(1))
    if place is None:
        return []
    rows = db.session.execute(
        select(Message.message_index, Message.role, Message.content, Message.details)
        .where(*mine, Message.message_index < place, Message.role.in_(("user", "agent")))
        .order_by(Message.message_index.desc())
        .limit(MAX_EARLIER_MESSAGES)
    ).all()
    # The model does not see an answer that was regenerated.
    replaced = {row.details.get("instead_of") for row in rows}
    return [(row.role, row.content) for row in reversed(rows) if row.message_index not in replaced]
