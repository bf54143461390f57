"""Chats and their messages."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, json_object, timestamp
from app.models.base import Row, addressable, index, one_of, search_vector, within

MESSAGE_ROLES = ("user", "agent", "system", "tool")


class Chat(Row):
    """A conversation, which exists for its person alone. Counts are kept here, so that the list reads one table."""

    __tablename__ = "chats"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id", ondelete="SET NULL"),
        index("chats_recent_idx", "tenant_id, last_message_at DESC, id DESC"),
        index("chats_external_key", "tenant_id, external_id, user_id", unique=True, where="external_id IS NOT NULL"),
        index("chats_person_idx", "tenant_id, user_id, last_message_at DESC"),
        index("chats_agent_idx", "tenant_id, agent_id, last_message_at DESC"),
        index("chats_unchecked_idx", "tenant_id, last_message_at", where="checked_count < message_count"),
        index("chats_search_idx", "search", postgresql_using="gin"),
    )

    external_id: Mapped[str | None]
    project: Mapped[str] = mapped_column(server_default="default")
    title: Mapped[str]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    agent_id: Mapped[UUID | None]
    message_count: Mapped[counter]
    last_message_at: Mapped[timestamp]
    checked_count: Mapped[counter]
    check_lease_until: Mapped[datetime | None]
    search: Mapped[str] = search_vector("title")


class Message(Row):
    """One message. A turn is a user message and what answered it; both carry its `turn_id`."""

    __tablename__ = "messages"
    __table_args__ = (
        addressable(),
        within("chats", "chat_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="SET NULL"),
        UniqueConstraint("tenant_id", "chat_id", "message_index"),
        index("messages_external_idx", "tenant_id, external_id", where="external_id IS NOT NULL"),
        index("messages_turn_idx", "tenant_id, turn_id"),
        index("messages_session_idx", "tenant_id, session_id", where="session_id IS NOT NULL"),
        index("messages_search_idx", "search", postgresql_using="gin"),
        CheckConstraint(one_of("role", MESSAGE_ROLES), name="role_known"),
    )

    chat_id: Mapped[UUID]
    session_id: Mapped[UUID | None]
    external_id: Mapped[str | None]
    message_index: Mapped[int]
    turn_id: Mapped[str]
    role: Mapped[str]
    content: Mapped[str]
    trace_id: Mapped[str | None]
    details: Mapped[json_object]
    search: Mapped[str] = search_vector("content")
