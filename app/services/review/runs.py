"""Reviews: asked for by a schedule or a person, carried out by the executor as sessions of their own, and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import NotFound, Refused
from app.models import AgentSession, ReviewRun
from app.services import audit
from app.services.review.batch import Backlog, load_backlog
from app.services.sessions.store import OPEN_STATUSES, NewSession, create_session
from app.services.workspaces.store import REVIEW_AGENT, get_settings, system_actor

TITLE = "Feedback review"
DRY_TITLE = "Dry run of the feedback review"
MAX_REFUSALS = 100
MAX_DECISIONS = 200
BUSY = "A review is in progress. Wait for it or stop it."
NOTHING_CHANGED = "Nothing changed since the last review."
LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
# What a run reports, with the names that the API and the command line use.
REPORT = ("considered", "patterns", "proposed", "merged", "dismissed", "left_pending", "refused")


@dataclass(frozen=True)
class Review:
    """A review with the state of its session."""

    session_id: UUID
    trigger: str
    dry_run: bool
    model: str | None
    total: int
    considered: int
    patterns: int
    proposed: list[UUID]
    merged: list[UUID]
    dismissed: int
    left_pending: int
    refused: list[dict[str, Any]]
    fingerprint: str | None
    created_at: datetime
    finished_at: datetime | None
    status: str
    error: str | None

    @property
    def open(self) -> bool:
        return self.status in OPEN_STATUSES

    def report(self) -> dict[str, Any]:
        """What it did, as programs read it."""
        return {"session_id": self.session_id, **{name: getattr(self, name) for name in REPORT}}


OWN_COLUMNS = [getattr(ReviewRun, one.name) for one in fields(Review) if one.name not in ("status", "error")]


def start_review(*, actor: Actor, trigger: str = "manual", dry_run: bool = False, task_id: UUID | None = None) -> UUID:
    """Ask for a review, which the executor carries out as the product; its session. None is started while one is
    under way that is no dry run."""
    actor.check_admin("Only admins can start a review.")
    if _is_busy(actor):
        raise Refused(BUSY)
    system = system_actor(actor.tenant_id)
    marks = {"task_id": str(task_id)} if task_id else {}
    session, _ = create_session(
        # People's words are in it, so it is for admins only.
        NewSession(agent=REVIEW_AGENT, title=DRY_TITLE if dry_run else TITLE, marks=marks, owner_id=system.id),
        actor=system,
    )
    run = ReviewRun(tenant_id=actor.tenant_id, session_id=session.id, trigger=trigger, dry_run=dry_run)
    db.session.add(run)
    db.session.flush()
    audit.record(actor, "review.started", "session", session.id, trigger=trigger, dry_run=dry_run)
    return session.id


def _is_busy(actor: Actor) -> bool:
    """Locks the workspace's reviews, so that two who ask at once do not both start one."""
    busy = _select(actor).where(~ReviewRun.dry_run, AgentSession.status.in_(OPEN_STATUSES)).limit(1)
    db.session.execute(LOCK, {"name": f"review:{actor.tenant_id}"})
    return db.session.execute(busy).first() is not None


def why_skipped(*, actor: Actor) -> str | None:
    """Why there is nothing to start on a schedule, if there is a reason."""
    if is_unchanged(actor=actor):
        return NOTHING_CHANGED
    return BUSY if _is_busy(actor) else None


def is_unchanged(*, actor: Actor) -> bool:
    """Whether a review would find what the last one left behind, or nothing at all."""
    backlog = waiting(actor=actor)
    last = last_review(actor=actor)
    return not backlog.total or (last is not None and last.fingerprint == backlog.fingerprint)


def waiting(*, actor: Actor) -> Backlog:
    """What a review would look at now."""
    return load_backlog(datetime.now(UTC), get_settings(actor).review_wait_days, actor=actor)


def last_review(*, actor: Actor, dry_run: bool = False) -> Review | None:
    """The latest review."""
    found = _select(actor).where(ReviewRun.dry_run == dry_run)
    newest = found.order_by(ReviewRun.created_at.desc(), ReviewRun.session_id.desc()).limit(1)
    row = db.session.execute(newest).one_or_none()
    return Review(*row) if row else None


def get_review(session_id: UUID, *, actor: Actor) -> Review:
    actor.check_admin("Only admins can see reviews.")
    row = db.session.execute(_select(actor).where(ReviewRun.session_id == session_id)).one_or_none()
    if row is None:
        raise NotFound("There is no such review in this workspace.")
    return Review(*row)


def list_reviews(page: Page, *, actor: Actor) -> Slice[Review]:
    """Reviews, the latest first."""
    actor.check_admin("Only admins can see reviews.")
    own = [ReviewRun.tenant_id == actor.tenant_id]
    found = read_page(_select(actor), page, at=ReviewRun.created_at, id=ReviewRun.session_id, where=own)
    return found.map(lambda row: Review(*row))


def list_decisions(session_id: UUID, *, actor: Actor) -> list[dict[str, Any]]:
    """What a dry run would do, proposals first; what it would dismiss for the same reason is one."""
    mine = ReviewRun.tenant_id == actor.tenant_id, ReviewRun.session_id == session_id
    found: list[dict[str, Any]] = db.session.scalar(select(ReviewRun.decisions).where(*mine)) or []
    dismissed: dict[str, dict[str, Any]] = {}
    for one in (one for one in found if one["what"] == "dismiss"):
        same = dismissed.setdefault(one["reason"], {**one, "signal_ids": [], "signals": 0})
        same["signal_ids"], same["signals"] = same["signal_ids"] + one["signal_ids"], same["signals"] + one["signals"]
    order = ("propose", "merge")
    return [one for what in order for one in found if one["what"] == what] + list(dismissed.values())


def _select(actor: Actor) -> Any:
    session = (AgentSession.tenant_id == ReviewRun.tenant_id) & (AgentSession.id == ReviewRun.session_id)
    columns = select(*OWN_COLUMNS, AgentSession.status, AgentSession.error).select_from(ReviewRun)
    return columns.join(AgentSession, session).where(ReviewRun.tenant_id == actor.tenant_id)


# While a review runs, each step is reported in the transaction that does it.


def is_dry_run(session_id: UUID, *, actor: Actor) -> bool | None:
    """Whether the review that a session carries out changes nothing; None when it is no review. One query."""
    mine = ReviewRun.tenant_id == actor.tenant_id, ReviewRun.session_id == session_id
    return db.session.scalar(select(ReviewRun.dry_run).where(*mine))


def begin_run(session_id: UUID, model: str | None, *, actor: Actor) -> Backlog:
    """Begin counting, also for an attempt after one that was lost: what that one did stays reported."""
    run = _own_run(session_id, actor)
    backlog = waiting(actor=actor)
    run.total, run.considered, run.patterns, run.left_pending, run.model = backlog.total, 0, 0, 0, model
    db.session.flush()
    return backlog


def note_step(session_id: UUID, *, actor: Actor, decisions: Sequence[dict[str, Any]] = (), **done: Any) -> None:
    """Add to what a run reports: numbers are added, and ids and refusals join those that are there."""
    run = _own_run(session_id, actor)
    for name, more in done.items():
        now = getattr(run, name)
        if isinstance(more, int):
            setattr(run, name, now + more)
        else:
            joined = [*now, *(one for one in more if name == "refused" or one not in now)]
            setattr(run, name, joined[:MAX_REFUSALS] if name == "refused" else joined)
    if decisions:
        run.decisions = [*run.decisions, *decisions][:MAX_DECISIONS]
    db.session.flush()


def finish_run(session_id: UUID, *, complete: bool, actor: Actor) -> str:
    """End a run and say what it did. With `complete`, the next is skipped until something changes."""
    run = _own_run(session_id, actor)
    run.finished_at = datetime.now(UTC)
    if not run.dry_run:
        left = waiting(actor=actor)
        run.left_pending, run.fingerprint = left.total, left.fingerprint if complete else None
    db.session.flush()
    return _summarise(run)


def _summarise(run: ReviewRun) -> str:
    counts = [
        (len(run.proposed), "proposed"), (len(run.merged), "merged"), (run.dismissed, "dismissed"),
        (run.left_pending, "left pending"), (len(run.refused), "refused"),
    ]  # fmt: skip
    if run.dry_run:
        counts[0] = (sum(one["what"] == "propose" for one in run.decisions), "to propose")
    rows = f"{run.considered:,} row{'' if run.considered == 1 else 's'}"
    said = [f"{number:,} {word}" for place, (number, word) in enumerate(counts) if number or not place]
    return f"Reviewed {rows}: {', '.join(said)}."


def _own_run(session_id: UUID, actor: Actor) -> ReviewRun:
    return db.session.get_one(ReviewRun, (actor.tenant_id, session_id), populate_existing=True)
