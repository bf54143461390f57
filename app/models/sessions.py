"""Sessions and their events: the unit of work, of evidence and of evaluation."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Computed, ForeignKey, Numeric, Text, UniqueConstraint, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, flag, json_object, text_list, write_time
from app.models.base import KeyedRow, Row, addressable, index, one_of, search_vector, within

SESSION_TYPES = ("chat", "agent", "response", "tool", "mixed")
SESSION_STATUSES = ("pending", "running", "completed", "failed", "cancelled")
EVENT_TYPES = (
    "session.created", "session.claimed", "context.loaded", "user.message", "agent.message", "tool.call",
    "tool.result", "entity.created", "entity.updated", "response.submitted", "feedback.reviewed",
    "knowledge.changed", "agent.updated", "session.completed", "session.failed",
)  # fmt: skip


# What row-level security and the filters of a scan read of each row, so that it reads the index alone.
SCANNED = ["duration_ms", "owner_id"]


class AgentSession(Row):
    """One run of an agent, from its first input to its last event. Golden and replay sessions are ordinary sessions:
    the marks live in `meta` (`golden`, `eval_source`, `eval_result`). What lists show or filter on is a column of its
    own; lists never load `meta`."""

    __tablename__ = "sessions"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id"),
        within("agent_versions", "agent_version_id"),
        within("chats", "chat_id", ondelete="SET NULL"),
        within("entities", "entity_id", ondelete="SET NULL"),
        within("imports", "import_id", ondelete="SET NULL"),
        within("eval_runs", "eval_run_id", ondelete="NO ACTION", deferrable=True),
        index(
            "sessions_recent_idx", "tenant_id, created_at DESC, id DESC", postgresql_include=["session_type", *SCANNED]
        ),
        index("sessions_status_idx", "tenant_id, status, created_at DESC, id DESC"),
        index(
            "sessions_agent_idx",
            "tenant_id, agent_id, created_at DESC, id DESC",
            postgresql_include=["status", *SCANNED],
        ),
        index(
            "sessions_external_key",
            "tenant_id, external_id, owner_id",
            unique=True,
            postgresql_nulls_not_distinct=True,
            where="external_id IS NOT NULL",
        ),
        index("sessions_trace_idx", "tenant_id, trace_id", where="trace_id IS NOT NULL"),
        index("sessions_golden_idx", "tenant_id, golden_set, created_at DESC", where="golden_set IS NOT NULL"),
        index("sessions_replay_idx", "tenant_id, eval_source, created_at DESC", where="eval_source IS NOT NULL"),
        index("sessions_chat_idx", "tenant_id, chat_id", where="chat_id IS NOT NULL"),
        index("sessions_claim_idx", "lease_until, created_at", where="status IN ('pending', 'running')"),
        index("sessions_import_idx", "tenant_id, import_id, created_at DESC, id DESC", where="import_id IS NOT NULL"),
        index(
            "sessions_environment_idx",
            "tenant_id, environment, created_at DESC, id DESC",
            where="environment IS NOT NULL",
        ),
        index("sessions_model_idx", "tenant_id, model, created_at DESC, id DESC", where="model IS NOT NULL"),
        index("sessions_entity_idx", "tenant_id, entity_id, created_at DESC, id DESC", where="entity_id IS NOT NULL"),
        index(
            "sessions_eval_case_key",
            "tenant_id, eval_run_id, eval_source, (metadata ->> 'eval_config'), (metadata ->> 'eval_trial')",
            unique=True,
            where="eval_run_id IS NOT NULL",
        ),
        index(
            "sessions_rerun_idx", "tenant_id, (metadata ->> 'rerun_of'), created_at DESC", where="metadata ? 'rerun_of'"
        ),
        index("sessions_search_idx", "search", postgresql_using="gin"),
        CheckConstraint(one_of("session_type", SESSION_TYPES), name="type_known"),
        CheckConstraint(one_of("status", SESSION_STATUSES), name="status_known"),
    )

    external_id: Mapped[str | None]
    title: Mapped[str]
    session_type: Mapped[str] = mapped_column(server_default="agent")
    output_type: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default="pending")
    error: Mapped[str | None]
    agent_id: Mapped[UUID]
    agent_version_id: Mapped[UUID | None]
    chat_id: Mapped[UUID | None]
    entity_id: Mapped[UUID | None]
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    # The person of its conversation. Nobody else but admins sees it; without an owner it is the workspace's own work.
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    trace_id: Mapped[str | None]
    model: Mapped[str | None]
    input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    output_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cost: Mapped[Decimal | None] = mapped_column(Numeric(14, 6))
    duration_ms: Mapped[int | None] = mapped_column(BigInteger)
    environment: Mapped[str | None]
    tags: Mapped[text_list]
    import_id: Mapped[UUID | None]
    event_count: Mapped[counter]
    event_bytes: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    full_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    attempt: Mapped[counter]
    lost_count: Mapped[counter]
    truncated: Mapped[flag]
    cancel_requested_at: Mapped[datetime | None]
    # The scopes of the key that started it: its agent does no more than these allow. NULL when no key did.
    key_scopes: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    # `metadata` belongs to SQLAlchemy on a model class, so the attribute is `meta`.
    meta: Mapped[json_object] = mapped_column("metadata", deferred=True)
    golden_set: Mapped[str | None] = mapped_column(Computed("metadata #>> '{golden,set}'", persisted=True))
    # Changes when what a golden is held to changes, and is gone when the golden is revoked.
    golden_hash: Mapped[str | None] = mapped_column(
        Computed("md5(((metadata -> 'golden') - '{set,note,snapshot,revisions}'::text[])::text)", persisted=True)
    )
    eval_source: Mapped[str | None] = mapped_column(Computed("metadata ->> 'eval_source'", persisted=True))
    eval_run_id: Mapped[UUID | None] = mapped_column(
        Uuid, Computed("(metadata ->> 'eval_run_id')::uuid", persisted=True)
    )
    search: Mapped[str] = search_vector("title || ' ' || coalesce(error, '')")


class SessionEvent(Row):
    """What happened in a session. Append-only; readers order by (occurred_at, sequence)."""

    __tablename__ = "session_events"
    __table_args__ = (
        addressable(),
        within("sessions", "session_id", ondelete="CASCADE"),
        UniqueConstraint("tenant_id", "session_id", "sequence"),
        index("session_events_order_idx", "tenant_id, session_id, occurred_at, sequence"),
        index("session_events_loaded_idx", "tenant_id, session_id", where="event_type = 'context.loaded'"),
        CheckConstraint(one_of("event_type", EVENT_TYPES), name="type_known"),
    )

    session_id: Mapped[UUID]
    sequence: Mapped[int]
    event_type: Mapped[str]
    payload: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    payload_bytes: Mapped[int] = mapped_column(Computed("octet_length(payload::text)", persisted=True))
    occurred_at: Mapped[write_time]


class SessionReception(KeyedRow):
    """How people received a session, as it was last counted for the knowledge in its prompt."""

    __tablename__ = "session_receptions"
    __table_args__ = (
        within("sessions", "session_id", ondelete="CASCADE"),
        index("session_receptions_waiting_idx", "tenant_id, session_id", where="waiting"),
    )

    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    waiting: Mapped[bool] = mapped_column(server_default=text("true"))
    helpful: Mapped[counter]
    harmful: Mapped[counter]
    row_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))


class SessionDraft(KeyedRow):
    """What an agent has written so far of its answer. Gone when the session ends."""

    __tablename__ = "session_drafts"
    __table_args__ = (within("sessions", "session_id", ondelete="CASCADE"),)

    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    text: Mapped[str]
    updated_at: Mapped[write_time]


class Import(Row):
    """An imported file and its counts. Sessions name their import, so that it can be undone as a whole."""

    __tablename__ = "imports"
    __table_args__ = (addressable(), index("imports_recent_idx", "tenant_id, created_at DESC"))

    kind: Mapped[str]
    filename: Mapped[str | None]
    created: Mapped[counter]
    existing: Mapped[counter]
    failed: Mapped[counter]
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    finished_at: Mapped[datetime | None]
    undone_at: Mapped[datetime | None]
    undone_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
