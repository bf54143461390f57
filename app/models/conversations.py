"""Chats and their messages."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Computed, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, json_object, uuid_pk
from app.models.base import Model, OfTenant, addressable, one_of, within

MESSAGE_ROLES = ("user", "agent", "system", "tool")


class Chat(OfTenant, Model):
    """A conversation, which belongs to its person: for other members it does not exist. Counts and the last activity
    are kept here, so that the list reads one table."""

    __tablename__ = "chats"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id", ondelete="SET NULL"),
        Index("chats_recent_idx", "tenant_id", text("last_message_at DESC"), text("id DESC")),
        Index(
            "chats_external_key",
            "tenant_id",
            "external_id",
            "user_id",
            unique=True,
            postgresql_where=text("external_id IS NOT NULL"),
        ),
        Index("chats_person_idx", "tenant_id", "user_id", text("last_message_at DESC")),
        Index("chats_agent_idx", "tenant_id", "agent_id", text("last_message_at DESC")),
        Index("chats_search_idx", "search", postgresql_using="gin"),
    )

    id: Mapped[uuid_pk]
    external_id: Mapped[str | None]
    project: Mapped[str] = mapped_column(server_default="default")
    title: Mapped[str]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    agent_id: Mapped[UUID | None]
    message_count: Mapped[int] = mapped_column(server_default=text("0"))
    last_message_at: Mapped[datetime] = mapped_column(server_default=func.now())
    created_at: Mapped[created_at]
    search: Mapped[str] = mapped_column(
        TSVECTOR, Computed("to_tsvector('english', left(title, 20000))", persisted=True), deferred=True
    )


class Message(OfTenant, Model):
    """One message. A turn is a user message and what answered it; both carry its `turn_id`."""

    __tablename__ = "messages"
    __table_args__ = (
        addressable(),
        within("chats", "chat_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="SET NULL"),
        UniqueConstraint("tenant_id", "chat_id", "message_index"),
        Index("messages_external_idx", "tenant_id", "external_id", postgresql_where=text("external_id IS NOT NULL")),
        Index("messages_turn_idx", "tenant_id", "turn_id"),
        Index("messages_session_idx", "tenant_id", "session_id", postgresql_where=text("session_id IS NOT NULL")),
        Index("messages_search_idx", "search", postgresql_using="gin"),
        CheckConstraint(one_of("role", MESSAGE_ROLES), name="role_known"),
    )

    id: Mapped[uuid_pk]
    chat_id: Mapped[UUID]
    session_id: Mapped[UUID | None]
    external_id: Mapped[str | None]
    message_index: Mapped[int]
    turn_id: Mapped[str]
    role: Mapped[str]
    content: Mapped[str]
    trace_id: Mapped[str | None]
    details: Mapped[json_object]
    created_at: Mapped[created_at]
    search: Mapped[str] = mapped_column(
        TSVECTOR, Computed("to_tsvector('english', left(content, 20000))", persisted=True), deferred=True
    )
