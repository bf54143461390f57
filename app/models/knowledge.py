"""Knowledge rows: the output of the loop, injected into every agent prompt."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import REAL, BigInteger, CheckConstraint, Computed, ForeignKey, Text, UniqueConstraint, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, flag, json_object, timestamp, write_time
from app.models.base import KeyedRow, Row, addressable, index, one_of, search_vector, within

NO_ID = "'00000000-0000-0000-0000-000000000000'::uuid"
KNOWLEDGE_TYPES = ("correction", "lesson", "routing", "insight", "guideline")
PROOF_STATUSES = ("running", "done", "cancelled")
KNOWLEDGE_STATES = ("proposed", "active", "inactive", "superseded", "deleted")


class SharedContext(Row):
    """One thing that agents should know. `active` is true exactly when its state is `active`."""

    __tablename__ = "shared_context"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id"),
        within("entity_types", "entity_type_id"),
        within("feedback", "source_feedback_id", ondelete="SET NULL"),
        within("agents", "created_by_agent_id", ondelete="SET NULL"),
        within("shared_context", "superseded_by", ondelete="SET NULL"),
        index("idx_shared_context_tenant_type_active", "tenant_id, type, active, created_at DESC"),
        index("idx_shared_context_agent", "agent_id", where="agent_id IS NOT NULL"),
        index("idx_shared_context_entity_type", "entity_type_id", where="entity_type_id IS NOT NULL"),
        index("idx_shared_context_source_feedback", "source_feedback_id", where="source_feedback_id IS NOT NULL"),
        index("shared_context_recent_idx", "tenant_id, updated_at DESC, id DESC"),
        index("shared_context_state_idx", "tenant_id, state, updated_at DESC, id DESC"),
        index(
            "shared_context_global_idx",
            "tenant_id, type, rank DESC, id",
            where="active AND agent_id IS NULL AND entity_type_id IS NULL",
        ),
        index(
            "shared_context_of_agent_idx",
            "tenant_id, agent_id, type, rank DESC, id",
            where="active AND agent_id IS NOT NULL AND entity_type_id IS NULL",
        ),
        index(
            "shared_context_of_type_idx",
            "tenant_id, entity_type_id, type, rank DESC, id",
            where="active AND agent_id IS NULL AND entity_type_id IS NOT NULL",
        ),
        index(
            "shared_context_of_both_idx",
            "tenant_id, agent_id, entity_type_id, type, rank DESC, id",
            where="active AND agent_id IS NOT NULL AND entity_type_id IS NOT NULL",
        ),
        index(
            "shared_context_same_key",
            f"tenant_id, type, coalesce(agent_id, {NO_ID}), coalesce(entity_type_id, {NO_ID}), content_hash",
            unique=True,
            where="active",
        ),
        index("shared_context_search_idx", "search", postgresql_using="gin"),
        CheckConstraint(one_of("type", KNOWLEDGE_TYPES), name="type_known"),
        CheckConstraint(one_of("state", KNOWLEDGE_STATES), name="state_known"),
        CheckConstraint("active = (state = 'active')", name="active_is_state"),
        CheckConstraint("content <> ''", name="says_something"),
    )

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
    updated_at: Mapped[timestamp]
    state: Mapped[str] = mapped_column(server_default="active")
    version: Mapped[int] = mapped_column(server_default=text("1"))
    superseded_by: Mapped[UUID | None]
    pinned: Mapped[flag]
    rank: Mapped[float] = mapped_column(REAL, server_default=text("1"))
    content_hash: Mapped[str] = mapped_column(
        Computed("md5(lower(regexp_replace(btrim(content), '\\s+', ' ', 'g')))", persisted=True)
    )
    search: Mapped[str] = search_vector("content || ' ' || coalesce(context, '')")


class SharedContextFeedback(Row):
    """All signals behind a knowledge row; `source_feedback_id` is the clearest of them."""

    __tablename__ = "shared_context_feedback"
    __table_args__ = (
        UniqueConstraint("tenant_id", "shared_context_id", "feedback_id"),
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
        within("feedback", "feedback_id", ondelete="CASCADE"),
        index("shared_context_feedback_feedback_idx", "tenant_id, feedback_id"),
    )

    shared_context_id: Mapped[UUID]
    feedback_id: Mapped[UUID]


class SharedContextHistory(Row):
    """Each edit of a knowledge row: who, when, before, after. Append-only."""

    __tablename__ = "shared_context_history"
    __table_args__ = (
        UniqueConstraint("tenant_id", "shared_context_id", "version"),
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
        index("shared_context_history_recent_idx", "tenant_id, created_at"),
    )

    shared_context_id: Mapped[UUID]
    version: Mapped[int]
    action: Mapped[str]
    before: Mapped[json_object]
    after: Mapped[json_object]
    reason: Mapped[str | None]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    agent_id: Mapped[UUID | None]
    created_at: Mapped[write_time] = mapped_column()


class KnowledgeProof(Row):
    """Goldens replayed with a row and without it, and what it was measured on: the row's text, agent versions and
    goldens, each with a hash. `in_scope` counts all goldens of the agents that get the row. `cases` say of each golden
    what became of it. Proofs that were started together share a `batch_id`, and often the run without their rows."""

    __tablename__ = "knowledge_proofs"
    __table_args__ = (
        addressable(),
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
        within("eval_runs", "with_run_id", ondelete="SET NULL"),
        within("eval_runs", "without_run_id", ondelete="SET NULL"),
        index("knowledge_proofs_row_idx", "tenant_id, shared_context_id, created_at DESC, id"),
        index("knowledge_proofs_with_idx", "tenant_id, with_run_id"),
        index("knowledge_proofs_without_idx", "tenant_id, without_run_id"),
        index("knowledge_proofs_running_key", "tenant_id, shared_context_id", unique=True, where="status = 'running'"),
        CheckConstraint(one_of("status", PROOF_STATUSES), name="status_known"),
        CheckConstraint("(status = 'running') = (completed_at IS NULL)", name="ends"),
        CheckConstraint("cardinality(golden_ids) = cardinality(golden_hashes)", name="goldens_have_hashes"),
        CheckConstraint("(override_reason IS NULL) = (overridden_at IS NULL)", name="override_has_time"),
    )

    shared_context_id: Mapped[UUID]
    row_version: Mapped[int]
    row_hash: Mapped[str]
    batch_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(server_default="running")
    trials: Mapped[int]
    with_run_id: Mapped[UUID | None]
    without_run_id: Mapped[UUID | None]
    agent_version_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    golden_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    golden_hashes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    in_scope: Mapped[counter]
    left_out: Mapped[json_object]
    cases: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"), deferred=True)
    exercised: Mapped[counter]
    undecided: Mapped[counter]
    fixed: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    broken: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    completed_at: Mapped[datetime | None]
    override_reason: Mapped[str | None]
    overridden_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    overridden_at: Mapped[datetime | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[write_time] = mapped_column()


class ServedPrompt(KeyedRow):
    """A prompt served to an agent that runs elsewhere: proof that its session can have had these rows."""

    __tablename__ = "served_prompts"
    __table_args__ = (index("served_prompts_age_idx", "tenant_id, served_at"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    row_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    served_at: Mapped[datetime]


class SharedContextUsage(KeyedRow):
    """How often a row was injected, how those sessions were received, and how often people were not content with
    sessions that had it and that did not. Off the row that prompts read."""

    __tablename__ = "shared_context_usage"
    __table_args__ = (
        within("shared_context", "shared_context_id", ondelete="CASCADE"),
        index("shared_context_usage_harmful_idx", "tenant_id, shared_context_id", where="is_harmful"),
    )

    shared_context_id: Mapped[UUID] = mapped_column(primary_key=True)
    injected: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    last_injected_at: Mapped[datetime | None]
    helpful: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    harmful: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    exposed: Mapped[counter]
    exposed_negative: Mapped[counter]
    unexposed: Mapped[counter]
    unexposed_negative: Mapped[counter]
    is_harmful: Mapped[flag]
    negative_sessions: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))


class SharedContextEmbedding(KeyedRow):
    """The sentence vector of a row's text, by one model. `content_hash` says of which text."""

    __tablename__ = "shared_context_embeddings"
    __table_args__ = (within("shared_context", "shared_context_id", ondelete="CASCADE"),)

    shared_context_id: Mapped[UUID] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    content_hash: Mapped[str]
    vector: Mapped[list[float]] = mapped_column(ARRAY(REAL))
    created_at: Mapped[timestamp]
