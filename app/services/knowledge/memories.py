"""What agents remember about a person. Only that person sees it, and only their own prompts hold it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.learning.prompt import format_memories, one_line
from app.models import AgentSession, Tenant, User, UserMemory
from app.services import audit
from app.services.workspaces.store import masking_for
from app.text.hidden_characters import describe_hidden

MAX_LENGTH = 500
MAX_MEMORIES = 200
MAX_IN_PROMPT = 30


@dataclass(frozen=True)
class MemorySection:
    """The part of a prompt that holds a person's memories, empty when there are none."""

    text: str
    ids: list[UUID]
    contents: list[str]


def save_memory(
    content: str, *, actor: Actor, session_id: UUID | None = None, at: datetime | None = None
) -> UserMemory:
    """Remember something about the person for whom the work is done. The same words again change nothing."""
    user_id = _find_person(actor, session_id)
    words = masking_for(actor).text(one_line(content))
    if not words or len(words) > MAX_LENGTH:
        raise Invalid.of({"content": f"Enter up to {MAX_LENGTH} characters."})
    if hidden := describe_hidden(words):
        raise Invalid.of({"content": hidden})
    known = db.session.scalar(select(UserMemory).where(*_mine(actor, user_id), UserMemory.content == words))
    if known is not None:
        return known
    number = db.session.scalar(select(func.count()).where(*_mine(actor, user_id))) or 0
    if number >= MAX_MEMORIES:
        sentence = "There are {} memories of this person already. They can delete some on their account page."
        raise Refused(sentence.format(MAX_MEMORIES))
    memory = UserMemory(tenant_id=actor.tenant_id, user_id=user_id, content=words, session_id=session_id)
    if at:
        memory.created_at = at
    db.session.add(memory)
    db.session.flush()
    audit.record(actor, "memory.saved", "memory", memory.id)
    return memory


def list_memories(*, actor: Actor) -> Sequence[Any]:
    """One's own memories, newest first, as `id, content, session_id, session_title, created_at`. One query."""
    session = AgentSession
    return db.session.execute(
        select(
            UserMemory.id, UserMemory.content, UserMemory.session_id, session.title.label("session_title"),
            UserMemory.created_at,
        )
        .outerjoin(session, (session.tenant_id == UserMemory.tenant_id) & (session.id == UserMemory.session_id))
        .where(*_mine(actor, actor.id))
        .order_by(UserMemory.created_at.desc(), UserMemory.id.desc())
        .limit(MAX_MEMORIES)
    ).all()  # fmt: skip


def delete_memory(memory_id: UUID, *, actor: Actor) -> None:
    """Delete one of the actor's memories. Other people's are not found, even by admins."""
    if not _delete(actor, UserMemory.id == memory_id):
        raise NotFound("There is no such memory of yours.")
    audit.record(actor, "memory.deleted", "memory", memory_id)


def delete_memories(*, actor: Actor) -> int:
    """Forget everything about oneself; how many memories that were."""
    gone = _delete(actor)
    if gone:
        audit.record(actor, "memory.all_deleted", "memory", None, number=gone)
    return gone


def _delete(actor: Actor, *which: Any) -> int:
    gone = delete(UserMemory).where(*_mine(actor, actor.id), *which).returning(UserMemory.id)
    return len(db.session.scalars(gone).all())


def _mine(actor: Actor, user_id: UUID) -> tuple[Any, ...]:
    return UserMemory.tenant_id == actor.tenant_id, UserMemory.user_id == user_id


def memory_section(user_id: UUID | None, *, actor: Actor) -> MemorySection:
    """What belongs into the prompts of this person, newest first. One query, and none when there is no person."""
    if user_id is None:
        return MemorySection("", [], [])
    rows = db.session.execute(
        select(UserMemory.id, UserMemory.content, Tenant.secret)
        .join(Tenant, Tenant.id == UserMemory.tenant_id)
        .where(*_mine(actor, user_id))
        .order_by(UserMemory.created_at.desc(), UserMemory.id.desc())
        .limit(MAX_IN_PROMPT)
    ).all()
    contents = [row.content for row in rows]
    text = format_memories(contents, secret=rows[0].secret) if rows else ""
    return MemorySection(text, [row.id for row in rows], contents)


def format_section(contents: list[str], *, actor: Actor) -> MemorySection:
    """The same part of a prompt from memories that were kept elsewhere."""
    secret = db.session.scalar(select(Tenant.secret).where(Tenant.id == actor.tenant_id)) if contents else ""
    return MemorySection(format_memories(contents, secret=secret or "") if contents else "", [], contents)


def _find_person(actor: Actor, session_id: UUID | None) -> UUID:
    """Whose memory it is: the actor's, or the session's person's when the product itself acts."""
    if actor.role != "system":
        return actor.id
    person = db.session.scalar(
        select(AgentSession.created_by)
        .join(User, User.id == AgentSession.created_by)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id, User.is_system.is_(False))
    )
    if person is None:
        raise Refused("There is nobody here to remember this about.")
    return person
