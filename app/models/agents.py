"""Agents and their immutable versions; scheduled tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import flag, json_object, timestamp, write_time
from app.models.base import Row, addressable, index, one_of, within

AGENT_KINDS = ("builtin", "endpoint", "external")
# What an endpoint does, it does for real, and it has no way yet to say that it can tell a replay from a request.
REPLAYABLE_KINDS = ("builtin",)
DRAFT_STATUSES = ("open", "approved", "rejected", "withdrawn")
TICK_STATUSES = ("claimed", "done", "failed", "skipped", "abandoned")


class Agent(Row):
    """Who answers. Archived rather than deleted; its knowledge then deactivates."""

    __tablename__ = "agents"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "slug"),
        within("agents", "merged_into"),
        CheckConstraint(one_of("kind", AGENT_KINDS), name="kind_known"),
        CheckConstraint("slug ~ '^[a-z0-9][a-z0-9._-]{0,119}$'", name="slug_form"),
    )

    slug: Mapped[str]
    name: Mapped[str]
    description: Mapped[str | None]
    kind: Mapped[str] = mapped_column(server_default="external")
    is_system: Mapped[flag]
    current_version: Mapped[int] = mapped_column(server_default=text("1"))
    archived_at: Mapped[datetime | None]
    # An agent made by a typo points at the one that took its work over.
    merged_into: Mapped[UUID | None]
    updated_at: Mapped[timestamp]


class AgentVersion(Row):
    """What an agent was at one time: instructions, model, tools. Never changed after it was written. Numbers below zero
    are drafts that were tried out on goldens: no version that the agent had."""

    __tablename__ = "agent_versions"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "agent_id", "version"),
        within("agents", "agent_id", ondelete="CASCADE"),
    )

    agent_id: Mapped[UUID]
    version: Mapped[int]
    config: Mapped[json_object]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    # Why it was written, in the words of its author.
    note: Mapped[str | None]


class ChangeDraft(Row):
    """A change of an agent or an entity type that an agent proposed. `before` and `after` hold all of it; it is stale
    once the agent or the type is no longer what `before` says."""

    __tablename__ = "change_drafts"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id", ondelete="CASCADE"),
        within("entity_types", "entity_type_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="SET NULL"),
        within("agents", "created_by_agent_id", ondelete="SET NULL"),
        within("agent_versions", "trial_version_id", ondelete="SET NULL"),
        index("change_drafts_status_idx", "tenant_id, status, created_at DESC, id DESC"),
        index("change_drafts_recent_idx", "tenant_id, created_at DESC, id DESC"),
        index("change_drafts_feedback_idx", "feedback_ids", postgresql_using="gin"),
        index("change_drafts_agent_idx", "tenant_id, agent_id", where="agent_id IS NOT NULL"),
        CheckConstraint(one_of("status", DRAFT_STATUSES), name="status_known"),
        CheckConstraint("coalesce(agent_id, entity_type_id) IS NOT NULL", name="has_target"),
        CheckConstraint("agent_id IS NULL OR base_version IS NOT NULL", name="agent_has_base"),
        CheckConstraint("(status = 'open') = (decided_at IS NULL)", name="ends"),
    )

    agent_id: Mapped[UUID | None]
    entity_type_id: Mapped[UUID | None]
    base_version: Mapped[int | None]
    before: Mapped[dict[str, Any]] = mapped_column(JSONB)
    after: Mapped[dict[str, Any]] = mapped_column(JSONB)
    reason: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default="open")
    session_id: Mapped[UUID | None]
    # The feedback behind it: open while the draft is, applied or dismissed with it.
    feedback_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    created_by_agent_id: Mapped[UUID | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    trial_version_id: Mapped[UUID | None]
    trial_run_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    decided_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    decided_at: Mapped[datetime | None]
    decision_note: Mapped[str | None]
    created_at: Mapped[write_time] = mapped_column()


class Task(Row):
    """Scheduled work of a workspace and its last outcome."""

    __tablename__ = "tasks"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "slug"),
        within("agents", "agent_id", ondelete="SET NULL"),
        index("tasks_due_idx", "next_run_at", where="enabled"),
    )

    slug: Mapped[str]
    name: Mapped[str]
    agent_id: Mapped[UUID | None]
    message: Mapped[str] = mapped_column(server_default="")
    replay: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    cron: Mapped[str]
    enabled: Mapped[flag]
    next_run_at: Mapped[datetime | None]
    last_run_at: Mapped[datetime | None]
    last_outcome: Mapped[str | None]
    last_detail: Mapped[str | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))


class TaskTick(Row):
    """One due time of a task. The process that inserts the row runs it; the key makes it run once."""

    __tablename__ = "task_ticks"
    __table_args__ = (
        UniqueConstraint("tenant_id", "task_id", "scheduled_for"),
        within("tasks", "task_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="SET NULL"),
        within("eval_runs", "eval_run_id", ondelete="SET NULL"),
        index("task_ticks_session_idx", "tenant_id, session_id", where="session_id IS NOT NULL"),
        index("task_ticks_eval_run_idx", "tenant_id, eval_run_id", where="eval_run_id IS NOT NULL"),
        CheckConstraint(one_of("status", TICK_STATUSES), name="status_known"),
        CheckConstraint("(status = 'claimed') = (finished_at IS NULL)", name="ends"),
    )

    task_id: Mapped[UUID]
    scheduled_for: Mapped[datetime]
    status: Mapped[str] = mapped_column(server_default="claimed")
    owner: Mapped[str]
    lease_until: Mapped[datetime | None]
    session_id: Mapped[UUID | None]
    eval_run_id: Mapped[UUID | None]
    detail: Mapped[str | None]
    created_at: Mapped[write_time] = mapped_column()
    finished_at: Mapped[datetime | None]
