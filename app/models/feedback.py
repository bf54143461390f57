"""Feedback: the input of the loop. One table for every signal."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Computed, ForeignKey, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, flag, json_object, text_list, timestamp, write_time
from app.models.base import KeyedRow, Row, addressable, index, one_of, search_vector, within

SOURCES = ("chat", "response", "extraction", "tool", "session", "observation")
RATINGS = ("positive", "negative", "neutral")
STATUSES = ("pending", "reviewed", "applied", "dismissed")
ORIGINS = ("user", "machine", "system")
SIGNALS = ("helpful", "not_helpful", "inaccurate", "unsafe", "edit", "regenerate")
KINDS = (
    "reaction", "signal", "flag", "response_rejection", "extraction_rejection", "tool_observation",
    "session_failure", "replay_failure", "comment",
)  # fmt: skip
REVIEW_TRIGGERS = ("scheduled", "manual")


class Feedback(Row):
    """One piece of feedback about an agent's work, and its outcome."""

    __tablename__ = "feedback"
    __table_args__ = (
        addressable(),
        within("sessions", "session_id", ondelete="SET NULL"),
        within("entities", "entity_id", ondelete="SET NULL"),
        within("agents", "agent_id", ondelete="SET NULL"),
        within("agents", "reviewed_by_agent_id", ondelete="SET NULL"),
        index("idx_feedback_tenant_status", "tenant_id, status, created_at DESC"),
        index("idx_feedback_session", "session_id", where="session_id IS NOT NULL"),
        index("idx_feedback_entity", "entity_id", where="entity_id IS NOT NULL"),
        index("idx_feedback_agent", "agent_id", where="agent_id IS NOT NULL"),
        index("idx_feedback_trace", "trace_id", where="trace_id IS NOT NULL"),
        index("feedback_recent_idx", "tenant_id, created_at DESC, id DESC"),
        index("feedback_author_idx", "tenant_id, created_by, created_at DESC, id DESC"),
        index("feedback_rating_idx", "tenant_id, rating, status, created_at DESC, id DESC"),
        index("feedback_message_idx", "tenant_id, message_id", where="message_id IS NOT NULL"),
        index("feedback_chat_idx", "tenant_id, chat_id", where="chat_id IS NOT NULL"),
        index(
            "feedback_assignee_idx", "tenant_id, assignee_id, created_at DESC, id DESC", where="assignee_id IS NOT NULL"
        ),
        index("feedback_occurred_idx", "tenant_id, occurred_at"),
        index("feedback_search_idx", "search", postgresql_using="gin"),
        index(
            "feedback_one_reaction_key",
            "tenant_id, chat_id, turn_id, created_by",
            unique=True,
            where="kind = 'reaction' AND origin = 'user'",
        ),
        index(
            "feedback_one_signal_key", "tenant_id, message_id, created_by, signal", unique=True, where="kind = 'signal'"
        ),
        index(
            "feedback_one_detection_key",
            "tenant_id, (details ->> 'detected_in'), turn_id",
            unique=True,
            where="kind = 'reaction' AND origin = 'machine'",
        ),
        index("feedback_one_failure_key", "tenant_id, session_id", unique=True, where="kind = 'session_failure'"),
        index("feedback_run_idx", "tenant_id, eval_run_id, created_at DESC, id DESC", where="eval_run_id IS NOT NULL"),
        index("feedback_one_replay_key", "tenant_id, replay_session_id", unique=True, where="kind = 'replay_failure'"),
        index(
            "feedback_open_replay_key",
            "tenant_id, (context ->> 'golden_session_id'), (context ->> 'agent_version_id'),"
            " (context ->> 'context_mode')",
            unique=True,
            where="kind = 'replay_failure' AND status IN ('pending', 'reviewed')",
        ),
        CheckConstraint(one_of("source_type", SOURCES), name="source_type_known"),
        CheckConstraint(one_of("rating", RATINGS), name="rating_known"),
        CheckConstraint(one_of("status", STATUSES), name="status_known"),
        CheckConstraint(one_of("origin", ORIGINS), name="origin_known"),
        CheckConstraint(one_of("kind", KINDS), name="kind_known"),
        CheckConstraint(f"signal IS NULL OR {one_of('signal', SIGNALS)}", name="signal_known"),
        CheckConstraint("(kind = 'signal') = (signal IS NOT NULL)", name="signal_named"),
        CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence_range"),
        CheckConstraint("origin <> 'user' OR confidence = 1", name="people_are_sure"),
        CheckConstraint("origin <> 'machine' OR confidence >= 0.70", name="machine_is_sure_enough"),
        CheckConstraint("(status = 'pending') = (reviewed_at IS NULL)", name="reviewed_when"),
        # A reviewer may be deleted later; a trigger requires one when the status changes.
        CheckConstraint(
            "status = 'pending' OR num_nonnulls(reviewed_by_user_id, reviewed_by_agent_id) <= 1", name="reviewed_by_one"
        ),
        CheckConstraint("status <> 'dismissed' OR coalesce(review_notes, '') <> ''", name="dismissed_has_notes"),
    )

    source_type: Mapped[str]
    rating: Mapped[str]
    comment: Mapped[str | None]
    session_id: Mapped[UUID | None]
    entity_id: Mapped[UUID | None]
    agent_id: Mapped[UUID | None]
    context: Mapped[json_object]
    status: Mapped[str] = mapped_column(server_default="pending")
    reviewed_by_agent_id: Mapped[UUID | None]
    reviewed_by_user_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("users.id", ondelete="SET NULL (reviewed_by_user_id)")
    )
    reviewed_at: Mapped[datetime | None]
    review_notes: Mapped[str | None]
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    kind: Mapped[str] = mapped_column(server_default="comment")
    origin: Mapped[str] = mapped_column(server_default="user")
    confidence: Mapped[float] = mapped_column(server_default=text("1"))
    signal: Mapped[str | None]
    trace_id: Mapped[str | None]
    chat_id: Mapped[str | None]
    message_id: Mapped[str | None]
    turn_id: Mapped[str | None]
    project: Mapped[str] = mapped_column(server_default="default")
    details: Mapped[json_object]
    error_categories: Mapped[text_list]
    assignee_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    outcome: Mapped[json_object]
    occurred_at: Mapped[timestamp]
    replay_session_id: Mapped[UUID | None] = mapped_column(
        Uuid, Computed("(context #>> '{replay_session_ids,0}')::uuid", persisted=True)
    )
    eval_run_id: Mapped[UUID | None] = mapped_column(
        Uuid, Computed("(context ->> 'eval_run_id')::uuid", persisted=True)
    )
    search: Mapped[str] = search_vector("coalesce(comment, '')")


class FeedbackComment(Row):
    """An admin's comment on a feedback row. The author of the row never sees it."""

    __tablename__ = "feedback_comments"
    __table_args__ = (
        within("feedback", "feedback_id", ondelete="CASCADE"),
        index("feedback_comments_feedback_idx", "tenant_id, feedback_id, created_at"),
        CheckConstraint("body <> ''", name="says_something"),
    )

    feedback_id: Mapped[UUID]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    body: Mapped[str]
    created_at: Mapped[write_time] = mapped_column()


class FeedbackDaily(KeyedRow):
    """How much feedback of each rating a day brought, in the workspace's time zone. Counted in batches."""

    __tablename__ = "feedback_daily"
    __table_args__ = (CheckConstraint(one_of("rating", RATINGS), name="rating_known"),)

    day: Mapped[date] = mapped_column(primary_key=True)
    rating: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int] = mapped_column(BigInteger)
    counted_at: Mapped[timestamp]


class FeedbackPattern(Row):
    """Feedback that complains about the same thing, as reviews found it. `shared_context_id` is the rule that was
    proposed for it."""

    __tablename__ = "feedback_patterns"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id", ondelete="SET NULL"),
        within("entity_types", "entity_type_id", ondelete="SET NULL"),
        within("shared_context", "shared_context_id", ondelete="SET NULL"),
        index("feedback_patterns_recent_idx", "tenant_id, last_seen_at DESC, id DESC"),
        index("feedback_patterns_agent_idx", "tenant_id, agent_id, last_seen_at DESC, id DESC"),
        index("feedback_patterns_row_idx", "tenant_id, shared_context_id", where="shared_context_id IS NOT NULL"),
        CheckConstraint("label <> ''", name="says_something"),
        CheckConstraint("first_seen_at <= last_seen_at", name="seen_in_order"),
    )

    label: Mapped[str]
    agent_id: Mapped[UUID | None]
    entity_type_id: Mapped[UUID | None]
    shared_context_id: Mapped[UUID | None]
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    signal_count: Mapped[int] = mapped_column(server_default=text("0"))


class FeedbackPatternRow(KeyedRow):
    """A feedback row in a pattern. A row is in one pattern at most. `waits` is why the last review left it pending."""

    __tablename__ = "feedback_pattern_rows"
    __table_args__ = (
        within("feedback", "feedback_id", ondelete="CASCADE"),
        within("feedback_patterns", "pattern_id", ondelete="CASCADE"),
        index("feedback_pattern_rows_pattern_idx", "tenant_id, pattern_id, occurred_at DESC, feedback_id DESC"),
    )

    feedback_id: Mapped[UUID] = mapped_column(primary_key=True)
    pattern_id: Mapped[UUID]
    occurred_at: Mapped[datetime]
    waits: Mapped[str | None]


class ReviewRun(KeyedRow):
    """What a review did, known by its session. `fingerprint` says what it left behind: while that is the same, there is
    nothing to review. `decisions` are listed by a dry run, which changes nothing."""

    __tablename__ = "review_runs"
    __table_args__ = (
        within("sessions", "session_id", ondelete="CASCADE"),
        index("review_runs_recent_idx", "tenant_id, created_at DESC, session_id DESC"),
        CheckConstraint(one_of("trigger", REVIEW_TRIGGERS), name="trigger_known"),
    )

    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    trigger: Mapped[str]
    dry_run: Mapped[flag]
    model: Mapped[str | None]
    total: Mapped[counter]
    considered: Mapped[counter]
    patterns: Mapped[counter]
    proposed: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    merged: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'::uuid[]"))
    dismissed: Mapped[counter]
    left_pending: Mapped[counter]
    refused: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    decisions: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"), deferred=True)
    fingerprint: Mapped[str | None]
    created_at: Mapped[write_time] = mapped_column()
    finished_at: Mapped[datetime | None]
