"""Agents and their immutable versions; scheduled tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, json_object, uuid_pk
from app.models.base import Model, OfTenant, addressable, one_of, within

AGENT_KINDS = ("builtin", "endpoint", "external")
# What an endpoint does, it does for real, and it has no way yet to say that it can tell a replay from a request.
REPLAYABLE_KINDS = ("builtin",)
TICK_STATUSES = ("claimed", "done", "failed", "skipped", "abandoned")


class Agent(OfTenant, Model):
    """Who answers. Archived rather than deleted; its knowledge then deactivates."""

    __tablename__ = "agents"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "slug"),
        within("agents", "merged_into"),
        CheckConstraint(one_of("kind", AGENT_KINDS), name="kind_known"),
        CheckConstraint("slug ~ '^[a-z0-9][a-z0-9._-]{0,119}$'", name="slug_form"),
    )

    id: Mapped[uuid_pk]
    slug: Mapped[str]
    name: Mapped[str]
    description: Mapped[str | None]
    kind: Mapped[str] = mapped_column(server_default="external")
    is_system: Mapped[bool] = mapped_column(server_default=text("false"))
    current_version: Mapped[int] = mapped_column(server_default=text("1"))
    archived_at: Mapped[datetime | None]
    # An agent made by a typo points at the one that took its work over.
    merged_into: Mapped[UUID | None]
    created_at: Mapped[created_at]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AgentVersion(OfTenant, Model):
    """What an agent was at one time: instructions, model, tools. Never changed after it was written."""

    __tablename__ = "agent_versions"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "agent_id", "version"),
        within("agents", "agent_id", ondelete="CASCADE"),
    )

    id: Mapped[uuid_pk]
    agent_id: Mapped[UUID]
    version: Mapped[int]
    config: Mapped[json_object]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[created_at]
    # Why it was written, in the words of whoever did.
    note: Mapped[str | None]


class Task(OfTenant, Model):
    """Scheduled work of a workspace and its last outcome."""

    __tablename__ = "tasks"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "slug"),
        within("agents", "agent_id", ondelete="SET NULL"),
        Index("tasks_due_idx", "next_run_at", postgresql_where=text("enabled")),
    )

    id: Mapped[uuid_pk]
    slug: Mapped[str]
    name: Mapped[str]
    agent_id: Mapped[UUID | None]
    message: Mapped[str] = mapped_column(server_default="")
    replay: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    cron: Mapped[str]
    enabled: Mapped[bool] = mapped_column(server_default=text("false"))
    next_run_at: Mapped[datetime | None]
    last_run_at: Mapped[datetime | None]
    last_outcome: Mapped[str | None]
    last_detail: Mapped[str | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    created_at: Mapped[created_at]


class TaskTick(OfTenant, Model):
    """One due time of a task. The process that inserts the row runs it; the key makes it run once."""

    __tablename__ = "task_ticks"
    __table_args__ = (
        UniqueConstraint("tenant_id", "task_id", "scheduled_for"),
        within("tasks", "task_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="SET NULL"),
        within("eval_runs", "eval_run_id", ondelete="SET NULL"),
        Index("task_ticks_session_idx", "tenant_id", "session_id", postgresql_where=text("session_id IS NOT NULL")),
        Index("task_ticks_eval_run_idx", "tenant_id", "eval_run_id", postgresql_where=text("eval_run_id IS NOT NULL")),
        CheckConstraint(one_of("status", TICK_STATUSES), name="status_known"),
        CheckConstraint("(status = 'claimed') = (finished_at IS NULL)", name="ends"),
    )

    id: Mapped[uuid_pk]
    task_id: Mapped[UUID]
    scheduled_for: Mapped[datetime]
    status: Mapped[str] = mapped_column(server_default="claimed")
    owner: Mapped[str]
    lease_until: Mapped[datetime | None]
    session_id: Mapped[UUID | None]
    eval_run_id: Mapped[UUID | None]
    detail: Mapped[str | None]
    created_at: Mapped[created_at] = mapped_column(server_default=func.clock_timestamp())
    finished_at: Mapped[datetime | None]
