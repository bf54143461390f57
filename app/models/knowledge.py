"""Knowledge rows: the output of the loop, injected into every agent prompt."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKey,
    Index,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, json_object, uuid_pk
from app.models.base import Model, OfTenant, addressable, one_of, within

KNOWLEDGE_TYPES = ("correction", "lesson", "routing", "insight", "guideline")
KNOWLEDGE_STATES = ("proposed", "active", "inactive", "superseded", "deleted")


class SharedContext(OfTenant, Model):
    """One thing that agents should know. `active` is true exactly when its state is `active`."""

    __tablename__ = "shared_context"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id", ondelete="RESTRICT"),
        within("entity_types", "entity_type_id", ondelete="RESTRICT"),
        within("feedback", "source_feedback_id", ondelete="SET NULL"),
        within("agents", "created_by_agent_id", ondelete="SET NULL"),
        within("shared_context", "superseded_by", ondelete="SET NULL"),
        Index("idx_shared_context_tenant_type_active", "tenant_id", "type", "active", text("created_at DESC")),
        Index("idx_shared_context_agent", "agent_id", postgresql_where=text("agent_id IS NOT NULL")),
        Index("idx_shared_context_entity_type", "entity_type_id", postgresql_where=text("entity_type_id IS NOT NULL")),
        Index(
            "idx_shared_context_source_feedback",
            "source_feedback_id",
            postgresql_where=text("source_feedback_id IS NOT NULL"),
        ),
        Index("shared_context_recent_idx", "tenant_id", text("updated_at DESC"), text("id DESC")),
        Index("shared_context_state_idx", "tenant_id", "state", text("updated_at DESC"), text("id DESC")),
        Index(
            "shared_context_global_idx",
            "tenant_id",
            "type",
            text("rank DESC"),
            "id",
            postgresql_where=text("active AND agent_id IS NULL AND entity_type_id IS NULL"),
        ),
        Index(
            "shared_context_of_agent_idx",
            "tenant_id",
            "agent_id",
            "type",
            text("rank DESC"),
            "id",
            postgresql_where=text("active AND agent_id IS NOT NULL AND entity_type_id IS NULL"),
        ),
        Index(
            "shared_context_of_type_idx",
            "tenant_id",
            "entity_type_id",
            "type",
            text("rank DESC"),
            "id",
            postgresql_where=text("active AND agent_id IS NULL AND entity_type_id IS NOT NULL"),
        ),
        Index(
            "shared_context_of_both_idx",
            "tenant_id",
            "agent_id",
            "entity_type_id",
            "type",
            text("rank DESC"),
            "id",
            postgresql_where=text("active AND agent_id IS NOT NULL AND entity_type_id IS NOT NULL"),
        ),
        Index(
            "shared_context_same_key",
            "tenant_id",
            "type",
            text("coalesce(agent_id, '00000000-0000-0000-0000-000000000000'::uuid)"),
            text("coalesce(entity_type_id, '00000000-0000-0000-0000-000000000000'::uuid)"),
            "content_hash",
            unique=True,
            postgresql_where=text("active"),
        ),
        Index("shared_context_search_idx", "search", postgresql_using="gin"),
        CheckConstraint(one_of("type", KNOWLEDGE_TYPES), name="type_known"),
        CheckConstraint(one_of("state", KNOWLEDGE_STATES), name="state_known"),
        CheckConstraint("active = (state = 'active')", name="active_is_state"),
        CheckConstraint("content <> ''", name="says_something"),
    )

    id: Mapped[uuid_pk]
    type: Mapped[str]
    content: Mapped[str]
    context: Mapped[str | None]
    agent_id: Mapped[UUID | None]
    entity_type_id: Mapped[UUID | None]
    active: Mapped[bool] = mapped_column(server_default=text("true"))
    source_feedback_id: Mapped[UUID | None]
    created_by_agent_id: Mapped[UUID | None]
    created_by_user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    meta: Mapped[json_object] = mapped_column("metadata")
    created_at: Mapped[created_at]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    state: Mapped[str] = mapped_column(server_default="active")
    version: Mapped[int] = mapped_column(server_default=text("1"))
    superseded_by: Mapped[UUID | None]
    pinned: Mapped[bool] = mapped_column(server_default=text("false"))
    rank: Mapped[float] = mapped_column(REAL, server_default=text("1"))
    content_hash: Mapped[str] = mapped_column(
        Computed("md5(lower(regexp_replace(btrim(content), '\\s+', ' ', 'g')))", persisted=True)
    )
    search: Mapped[str] = mapped_column(
        TSVECTOR,
        Computed("to_tsvector('english', left(content || ' ' || coalesce(context, ''), 20000))", persisted=True),
        deferred=True,
    )


class SharedContextFeedback(OfTenant, Model):
    """All signals behind a knowledge row; `source_feedback_id` is the clearest of them."""

    __tablename__ = "shared_context_feedback"
    __table_args__ = (
        UniqueConstraint("tenant_id", "shared_context_id", "feedback_id"),
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
        within("feedback", "feedback_id", ondelete="CASCADE"),
        Index("shared_context_feedback_feedback_idx", "tenant_id", "feedback_id"),
    )

    id: Mapped[uuid_pk]
    shared_context_id: Mapped[UUID]
    feedback_id: Mapped[UUID]
    created_at: Mapped[created_at]


class SharedContextHistory(OfTenant, Model):
    """Each edit of a knowledge row: who, when, before, after. Append-only."""

    __tablename__ = "shared_context_history"
    __table_args__ = (
        UniqueConstraint("tenant_id", "shared_context_id", "version"),
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
    )

    id: Mapped[uuid_pk]
    shared_context_id: Mapped[UUID]
    version: Mapped[int]
    action: Mapped[str]
    before: Mapped[json_object]
    after: Mapped[json_object]
    reason: Mapped[str | None]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    agent_id: Mapped[UUID | None]
    created_at: Mapped[created_at] = mapped_column(server_default=func.clock_timestamp())


class ServedPrompt(OfTenant, Model):
    """A prompt served to an agent that runs elsewhere: proof that its session can have had these rows."""

    __tablename__ = "served_prompts"
    __table_args__ = (Index("served_prompts_age_idx", "tenant_id", "served_at"),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    row_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    served_at: Mapped[datetime]


class SharedContextUsage(OfTenant, Model):
    """How often a row was injected and how those sessions were received. Off the row that prompts read."""

    __tablename__ = "shared_context_usage"
    __table_args__ = (within("shared_context", "shared_context_id", ondelete="CASCADE"),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    shared_context_id: Mapped[UUID] = mapped_column(primary_key=True)
    injected: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    last_injected_at: Mapped[datetime | None]
    helpful: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    harmful: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class SharedContextEmbedding(OfTenant, Model):
    """The sentence vector of a row's text, by one model. `content_hash` says of which text."""

    __tablename__ = "shared_context_embeddings"
    __table_args__ = (within("shared_context", "shared_context_id", ondelete="CASCADE"),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    shared_context_id: Mapped[UUID] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    content_hash: Mapped[str]
    vector: Mapped[list[float]] = mapped_column(ARRAY(REAL))
    created_at: Mapped[created_at]
