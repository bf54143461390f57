"""Reviews over the API: start, follow, list, and the patterns they found."""

from typing import Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Id, Moment, Page
from app.db import paging
from app.services.review import pattern_figures, runs
from app.services.review.pattern_figures import PatternFilters


class NewReview(Body):
    """Options of a review."""

    dry_run: bool = Field(
        False, description="Return what it would do, without changing anything. A dry run never asks a model."
    )


class ReviewStarted(Answer):
    """The review's session. Its ID is the review's ID."""

    id: UUID
    session_id: UUID
    status: str


class ReviewAnswer(Answer):
    """A review, identified by its session."""

    id: UUID
    session_id: UUID
    status: str
    error: str | None
    trigger: str
    dry_run: bool
    model: str | None = Field(description="The model that decided. Null without a model.")
    total: int = Field(description="Number of rows at the start.")
    considered: int
    patterns: int
    proposed: list[UUID] = Field(description="Number of proposed rules.")
    merged: list[UUID] = Field(description="Number of existing rules that gained feedback.")
    dismissed: int
    left_pending: int
    refused: list[dict[str, Any]] = Field(description="Refused actions, each with `what` and `why`.")
    decisions: list[dict[str, Any]] = Field([], description="What the dry run would do.")
    created_at: Moment
    finished_at: Moment | None


class ReviewPage(Answer):
    items: list[ReviewAnswer]
    next_cursor: str | None


@admin_route("POST", "/api/admin/review/runs", status=202, idempotent=True, also={409: "A review is already running."})
def start_review(body: NewReview) -> ReviewStarted:
    """Start a review. Reviews all pending feedback, even if scheduled reviews are off."""
    session_id = runs.start_review(actor=g.actor, dry_run=body.dry_run)
    return ReviewStarted(id=session_id, session_id=session_id, status="pending")


@admin_route("GET", "/api/admin/review/runs")
def list_reviews(query: Page) -> ReviewPage:
    """List reviews. Newest first."""
    found = runs.list_reviews(paging.Page(query.limit, query.cursor), actor=g.actor)
    return ReviewPage.model_validate(found.map(_describe))


@admin_route("GET", "/api/admin/review/runs/<uuid:session_id>")
def get_review(session_id: UUID) -> ReviewAnswer:
    """Get a review. Shows its progress while it runs."""
    found = _describe(runs.get_review(session_id, actor=g.actor))
    return ReviewAnswer.model_validate(found | {"decisions": runs.list_decisions(session_id, actor=g.actor)})


def _describe(review: runs.Review) -> dict[str, Any]:
    return {**vars(review), "id": review.session_id}


class PatternAnswer(Answer):
    """A group of feedback with the same complaint."""

    id: UUID
    label: str
    agent_id: UUID | None
    entity_type_id: UUID | None
    count: int
    first_seen: Moment
    last_seen: Moment
    shared_context_id: UUID | None = Field(description="The rule proposed for it.")
    proposal_state: str | None = Field(description="The rule's state.")
    severity: Literal["high", "medium", "low"] = Field(
        description="`high` is unsafe, flagged by an admin or failing a golden. `medium` is three or more people."
    )
    people: int
    sessions: int
    open: int = Field(description="Number of pending or reviewed rows.")
    agents: list[str] = Field(description="Agent slugs with versions, such as `deal-analyst v3`.")
    weeks: list[int] = Field(description="Rows per week for the last twelve weeks, oldest first.")
    active_since: Moment | None = Field(description="When its rule became active.")
    returned: int = Field(description="Number of rows since then.")


class PatternPage(Answer):
    items: list[PatternAnswer]
    next_cursor: str | None


class PatternQuery(Page):
    agent_id: Id | None = None


@admin_route("GET", "/api/admin/patterns")
def list_patterns(query: PatternQuery) -> PatternPage:
    """List feedback patterns. Last seen first."""
    page, filters = paging.Page(query.limit, query.cursor), PatternFilters(agent_id=query.agent_id)
    return PatternPage.model_validate(pattern_figures.list_patterns(filters, page, actor=g.actor))
