"""Evals: criteria, golden sets and runs over them. The cases of a run are sessions."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Computed, ForeignKey, Numeric, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, flag, json_object, timestamp, write_time
from app.models.base import KeyedRow, Row, addressable, index, one_of, within

RUN_STATUSES = ("queued", "running", "completed", "failed", "cancelled")
OPEN_STATUSES = ("queued", "running")
TRIGGERS = ("manual", "scheduled", "post-deploy")
CONTEXT_MODES = ("frozen", "live")
JUDGEMENT_STATUSES = ("pending", "running", "judged", "errored", "not_judged")
OPEN_JUDGEMENTS = ("pending", "running")
VERDICTS = ("pass", "fail", "flaky", "errored", "unknown")


class CriteriaSet(Row):
    """What a response or a golden is judged by, as it is now. `dimensions` maps a name to its kind, weight and more
    (`app.formats.criteria`)."""

    __tablename__ = "criteria_sets"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "slug"),
        CheckConstraint("version >= 1", name="version_counts"),
    )

    slug: Mapped[str]
    name: Mapped[str]
    dimensions: Mapped[json_object]
    version: Mapped[int] = mapped_column(server_default=text("1"))
    updated_at: Mapped[timestamp]


class CriteriaSetVersion(Row):
    """A criteria set as it was from one change to the next; the newest is what it is now. Append-only."""

    __tablename__ = "criteria_set_versions"
    __table_args__ = (
        UniqueConstraint("tenant_id", "criteria_set_id", "version"),
        within("criteria_sets", "criteria_set_id", ondelete="CASCADE"),
        CheckConstraint("version >= 1", name="version_counts"),
    )

    criteria_set_id: Mapped[UUID]
    version: Mapped[int]
    name: Mapped[str]
    dimensions: Mapped[json_object]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))


class GoldenSet(KeyedRow):
    """How the verdicts of a set come about, where it differs from the usual. A set without a row has no wishes."""

    __tablename__ = "golden_sets"
    __table_args__ = (CheckConstraint("name ~ '^[a-z0-9-]{1,60}$'", name="name_is_slug"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    policy: Mapped[json_object]
    updated_at: Mapped[timestamp]


class EvalRun(Row):
    """One pass over goldens with one configuration. Its cases are the sessions with its `eval_run_id`; the results are
    read from them and written here when the run ends. `figures` is what the results say of the run as a whole: lists
    and charts read it, because PostgreSQL unpacks all of `results` for each value that is taken from it."""

    __tablename__ = "eval_runs"
    __table_args__ = (
        addressable(),
        within("agents", "agent_id"),
        within("agent_versions", "agent_version_id"),
        index("eval_runs_recent_idx", "tenant_id, created_at DESC, id DESC"),
        index("eval_runs_set_idx", "tenant_id, set_name, created_at DESC, id DESC"),
        # The last scheduled run of a set, however many others came after it.
        index(
            "eval_runs_scheduled_idx",
            "tenant_id, set_name, created_at DESC, id DESC",
            where="triggered_by = 'scheduled' AND status = 'completed'",
        ),
        index("eval_runs_open_idx", "tenant_id, id", where="status IN ('queued', 'running')"),
        CheckConstraint(one_of("status", RUN_STATUSES), name="status_known"),
        CheckConstraint(one_of("triggered_by", TRIGGERS), name="trigger_known"),
        CheckConstraint(one_of("context_mode", CONTEXT_MODES), name="context_known"),
        CheckConstraint("trials BETWEEN 1 AND 20", name="some_trials"),
        CheckConstraint("(status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)", name="ends"),
    )

    name: Mapped[str]
    set_name: Mapped[str | None]
    agent_id: Mapped[UUID | None]
    agent_version_id: Mapped[UUID | None]
    triggered_by: Mapped[str] = mapped_column(server_default="manual")
    status: Mapped[str] = mapped_column(server_default="queued")
    context_mode: Mapped[str] = mapped_column(server_default="frozen")
    trials: Mapped[int] = mapped_column(server_default=text("1"))
    options: Mapped[json_object]
    config_hash: Mapped[str]
    ref: Mapped[str | None]
    error: Mapped[str | None]
    started_at: Mapped[timestamp]
    completed_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    golden_session_count: Mapped[counter]
    passed_count: Mapped[counter]
    failed_count: Mapped[counter]
    results: Mapped[json_object]
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSONB, Computed("results - 'bySession'", persisted=True))
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))


class EvalVerdict(KeyedRow):
    """What an ended run found of one golden. `latest` marks the newest of its cell: golden, version, context mode and
    knowledge. `knowledge` lists the rows that a trial run added (`+id`) and took away (`-id`). Trials that errored or
    could not be judged are not in `trials_judged`."""

    __tablename__ = "eval_verdicts"
    __table_args__ = (
        within("eval_runs", "run_id", ondelete="CASCADE"),
        within("sessions", "golden_id", ondelete="CASCADE"),
        within("sessions", "replay_session_id", ondelete="CASCADE"),
        within("agent_versions", "agent_version_id"),
        index(
            "eval_verdicts_cell_idx",
            "tenant_id, golden_id, agent_version_id, context_mode, knowledge, ended_at DESC",
        ),
        index("eval_verdicts_latest_idx", "tenant_id, golden_id", where="latest"),
        index("eval_verdicts_replay_idx", "tenant_id, replay_session_id"),
        CheckConstraint(one_of("verdict", VERDICTS), name="verdict_known"),
        CheckConstraint(one_of("context_mode", CONTEXT_MODES), name="context_known"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    golden_id: Mapped[UUID] = mapped_column(primary_key=True)
    agent_version_id: Mapped[UUID | None]
    context_mode: Mapped[str]
    knowledge: Mapped[str] = mapped_column(server_default=text("''"))
    trial: Mapped[bool]
    verdict: Mapped[str]
    accuracy: Mapped[float | None]
    trials_passed: Mapped[counter]
    trials_judged: Mapped[counter]
    reason: Mapped[str | None]
    baseline: Mapped[str | None]
    replay_session_id: Mapped[UUID]
    ended_at: Mapped[datetime]
    latest: Mapped[flag]


class Judgement(Row):
    """What a model says of one replay by a criteria set. `dimensions` are its own scores, which never change; what an
    admin overruled stands beside them. It is leased while it is worked on. `content_hash` names what was asked: the
    same question about the same work is answered from an earlier judgement (`cached`)."""

    __tablename__ = "judgements"
    __table_args__ = (
        addressable(),
        UniqueConstraint("tenant_id", "session_id"),
        within("eval_runs", "run_id", ondelete="CASCADE"),
        within("sessions", "session_id", ondelete="CASCADE"),
        within("criteria_sets", "criteria_set_id", ondelete="CASCADE"),
        index("judgements_run_idx", "tenant_id, run_id"),
        index("judgements_open_idx", "tenant_id, created_at, id", where="status IN ('pending', 'running')"),
        index("judgements_content_idx", "tenant_id, content_hash", where="status = 'judged'"),
        index("judgements_spent_idx", "tenant_id, finished_at", where="finished_at IS NOT NULL"),
        index("judgements_judge_idx", "tenant_id, criteria_set_id, model", where="status = 'judged'"),
        CheckConstraint(one_of("status", JUDGEMENT_STATUSES), name="status_known"),
        CheckConstraint("(status IN ('judged', 'errored', 'not_judged')) = (finished_at IS NOT NULL)", name="ends"),
        CheckConstraint("status = 'judged' OR dimensions = '{}'::jsonb", name="only_judged_score"),
    )

    run_id: Mapped[UUID]
    session_id: Mapped[UUID]
    criteria_set_id: Mapped[UUID]
    criteria_version: Mapped[int | None]
    model: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default="pending")
    attempt: Mapped[counter]
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    content_hash: Mapped[str | None]
    cached: Mapped[flag]
    dimensions: Mapped[json_object]
    error: Mapped[str | None]
    input_tokens: Mapped[counter]
    output_tokens: Mapped[counter]
    cost: Mapped[Decimal | None] = mapped_column(Numeric(14, 6))
    finished_at: Mapped[datetime | None]
    created_at: Mapped[write_time] = mapped_column()


class JudgementOverrule(Row):
    """What an admin said in place of the judge of one dimension; the newest counts. Append-only."""

    __tablename__ = "judgement_overrules"
    __table_args__ = (
        within("judgements", "judgement_id", ondelete="CASCADE"),
        index("judgement_overrules_judgement_idx", "tenant_id, judgement_id, created_at"),
        index("judgement_overrules_recent_idx", "tenant_id, created_at DESC, id DESC"),
    )

    judgement_id: Mapped[UUID]
    dimension: Mapped[str]
    passed: Mapped[bool]
    reason: Mapped[str]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    created_at: Mapped[write_time] = mapped_column()


class JudgeLabel(Row):
    """What a person said of a judged dimension without seeing the judge's verdict. Append-only: it outlives the run."""

    __tablename__ = "judge_labels"
    __table_args__ = (
        UniqueConstraint("tenant_id", "judgement_id", "dimension", "created_by"),
        within("criteria_sets", "criteria_set_id", ondelete="CASCADE"),
        within("judgements", "judgement_id", ondelete="SET NULL"),
        index("judge_labels_judge_idx", "tenant_id, criteria_set_id, model, created_at"),
    )

    criteria_set_id: Mapped[UUID]
    model: Mapped[str]
    judgement_id: Mapped[UUID | None]
    dimension: Mapped[str]
    passed: Mapped[bool]
    judge_passed: Mapped[bool]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    created_at: Mapped[write_time] = mapped_column()


class KnowledgeScorecard(Row):
    """What the artifact evals found at one time. `summary` has the name, state and size of each suite, for lists."""

    __tablename__ = "knowledge_scorecards"
    __table_args__ = (index("knowledge_scorecards_recent_idx", "tenant_id, created_at DESC, id DESC"),)

    passed: Mapped[bool]
    summary: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"))
    scorecard: Mapped[json_object] = mapped_column(deferred=True)
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    created_at: Mapped[write_time] = mapped_column()
