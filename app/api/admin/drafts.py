"""Drafts over the API: read, try and decide on changes to agents and entity types that agents propose."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Moment, Page
from app.db import paging
from app.services.review import drafts
from app.services.review.drafts import DraftFilters, DraftRow

Status = Literal["open", "approved", "rejected", "withdrawn"]


class DraftQuery(Page):
    status: Status | None = None


class DraftDecision(Body):
    """A decision about a draft."""

    status: Literal["approved", "rejected", "open"] = Field(description="`open` undoes a rejection.")
    note: Annotated[str, Field(max_length=2000)] | None = Field(None, description="The reason, kept with the draft.")


class DraftItem(Answer):
    """A draft."""

    id: UUID
    kind: Literal["agent", "entity_type"]
    target: str = Field(description="The slug of the agent or the entity type.")
    agent_id: UUID | None
    entity_type_id: UUID | None
    base_version: int | None = Field(description="The agent version the draft changes.")
    status: Status
    stale: bool = Field(description="The agent or type has changed since, so the draft can't be approved.")
    reason: str | None
    author: str | None
    author_agent: str | None
    session_id: UUID | None
    trial_run_ids: list[UUID]
    decided_by: str | None
    decided_at: Moment | None
    decision_note: str | None
    created_at: Moment


class DraftPage(Answer):
    """One page, newest first."""

    items: list[DraftItem]
    next_cursor: str | None


class GoldensSay(Answer):
    """A trial run's results so far, compared with the set's last score."""

    run_id: UUID
    set: str | None
    status: str
    accuracy: float | None
    better: int | None
    worse: int | None
    same: int | None


class DraftRead(DraftItem):
    """A draft with the full text before and after, and its trial results."""

    before: dict[str, Any]
    after: dict[str, Any]
    trials: list[GoldensSay]


class TrialStarted(Answer):
    """One run per set of the agent's goldens."""

    run_ids: list[UUID]


@admin_route("GET", "/api/admin/drafts")
def list_drafts(query: DraftQuery) -> DraftPage:
    """List drafts. Newest first."""
    page = paging.Page(query.limit, query.cursor)
    found = drafts.list_drafts(DraftFilters(status=query.status), page, actor=g.actor)
    items = [_describe(row) for row in found.items]
    return DraftPage.model_validate({"items": items, "next_cursor": found.next_cursor})


@admin_route("GET", "/api/admin/drafts/<uuid:draft_id>")
def read_draft(draft_id: UUID) -> DraftRead:
    """Get a draft. Includes trial results once goldens were replayed."""
    return DraftRead.model_validate(_describe_whole(draft_id))


@admin_route(
    "PATCH",
    "/api/admin/drafts/<uuid:draft_id>",
    also={409: "Someone else decided first, or the agent or type has changed since."},
)
def decide_draft(draft_id: UUID, body: DraftDecision) -> DraftRead:
    """Approve or reject a draft. Approving creates the agent's next version or changes the entity type."""
    if body.status == "open":
        drafts.reopen_draft(draft_id, actor=g.actor)
    else:
        decide = drafts.approve_draft if body.status == "approved" else drafts.reject_draft
        decide(draft_id, actor=g.actor, note=body.note)
    return DraftRead.model_validate(_describe_whole(draft_id))


@admin_route(
    "POST",
    "/api/admin/drafts/<uuid:draft_id>/trial",
    status=202,
    also={409: "The draft was already decided, its agent changed or has no goldens, or it changes an entity type."},
)
def try_draft(draft_id: UUID) -> TrialStarted:
    """Try a draft on the agent's goldens. Trial runs don't change scores or create feedback."""
    return TrialStarted(run_ids=drafts.start_trial(draft_id, actor=g.actor))


def _describe_whole(draft_id: UUID) -> dict[str, Any]:
    row = drafts.get_draft(draft_id, actor=g.actor)
    found = drafts.trials_of([row], actor=g.actor)[row.id]
    return {**_describe(row), "trials": [_describe_trial(one) for one in found]}


def _describe(row: DraftRow) -> dict[str, Any]:
    return {**vars(row), **{name: getattr(row, name) for name in ("kind", "target", "stale")}}


def _describe_trial(one: drafts.Trial) -> dict[str, Any]:
    changes = {name: getattr(one.changes, name) if one.changes else None for name in ("better", "worse", "same")}
    run = {name: getattr(one.run, name) for name in ("status", "accuracy")}
    return {"run_id": one.run.id, "set": one.run.set_name, **run, **changes}
