"""Reviews over the API: started, followed, listed; and the patterns that they found."""

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
    """What to review: all that is pending."""

    dry_run: bool = Field(False, description="Say what it would do, and change nothing.")


class ReviewStarted(Answer):
    """The session that carries it out, which is also the id of the review."""

    id: UUID
    session_id: UUID
    status: str


class ReviewAnswer(Answer):
    """A review. It is known by its session."""

    id: UUID
    session_id: UUID
    status: str
    error: str | None
    trigger: str
    dry_run: bool
    model: str | None = Field(description="The model that decided; null without one.")
    total: int = Field(description="How many rows it began with.")
    considered: int
    patterns: int
    proposed: list[UUID] = Field(description="Rules that it proposed.")
    merged: list[UUID] = Field(description="Rules that got more signals.")
    dismissed: int
    left_pending: int
    refused: list[dict[str, Any]] = Field(description="What was tried and not allowed, each with `what` and `why`.")
    decisions: list[dict[str, Any]] = Field([], description="What a dry run would do.")
    created_at: Moment
    finished_at: Moment | None


class ReviewPage(Answer):
    items: list[ReviewAnswer]
    next_cursor: str | None


@admin_route("POST", "/api/admin/review/runs", status=202, idempotent=True, also={409: "A review is under way."})
def start_review(body: NewReview) -> ReviewStarted:
    """Review what is pending, whether reviews are turned on or not."""
    session_id = runs.start_review(actor=g.actor, dry_run=body.dry_run)
    return ReviewStarted(id=session_id, session_id=session_id, status="pending")


@admin_route("GET", "/api/admin/review/runs")
def list_reviews(query: Page) -> ReviewPage:
    """List reviews. Newest first."""
    found = runs.list_reviews(paging.Page(query.limit, query.cursor), actor=g.actor)
    return ReviewPage.model_validate(found.map(_describe))


@admin_route("GET", "/api/admin/review/runs/<uuid:session_id>")
def get_review(session_id: UUID) -> ReviewAnswer:
    """Read a review. While it is under way it says how far it is."""
    found = _describe(runs.get_review(session_id, actor=g.actor))
    return ReviewAnswer.model_validate(found | {"decisions": runs.list_decisions(session_id, actor=g.actor)})


def _describe(review: runs.Review) -> dict[str, Any]:
    return {**vars(review), "id": review.session_id}


class PatternAnswer(Answer):
    """Feedback that complains about the same thing."""

    id: UUID
    label: str
    agent_id: UUID | None
    entity_type_id: UUID | None
    count: int
    first_seen: Moment
    last_seen: Moment
    shared_context_id: UUID | None = Field(description="The rule that was proposed for it.")
    proposal_state: str | None = Field(description="How far that rule is.")
    severity: Literal["high", "medium", "low"] = Field(
        description="high: unsafe, flagged by an admin or fails a golden · medium: three people or more."
    )
    people: int
    sessions: int
    open: int = Field(description="How many of its rows are pending or reviewed.")
    agents: list[str] = Field(description="Slugs of agents with their versions, such as `deal-analyst v3`.")
    weeks: list[int] = Field(description="How many rows each of the last twelve weeks brought, the oldest first.")
    active_since: Moment | None = Field(description="Since when its rule is active.")
    returned: int = Field(description="How many rows came after that.")


class PatternPage(Answer):
    items: list[PatternAnswer]
    next_cursor: str | None


class PatternQuery(Page):
    agent_id: Id | None = None


@admin_route("GET", "/api/admin/patterns")
def list_patterns(query: PatternQuery) -> PatternPage:
    """List patterns of feedback. Last seen first."""
    page, filters = paging.Page(query.limit, query.cursor), PatternFilters(agent_id=query.agent_id)
    return PatternPage.model_validate(pattern_figures.list_patterns(filters, page, actor=g.actor))
