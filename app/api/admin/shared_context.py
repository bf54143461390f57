"""Knowledge over the API: list, create, update, delete."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Id, Moment, Page
from app.db import paging
from app.errors import Invalid
from app.learning.hygiene.checks import Finding
from app.services.knowledge import decisions, hygiene, proposals, validation
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.lists import KnowledgeFilters, KnowledgeRow

Kind = Literal["correction", "lesson", "routing", "insight", "guideline"]
State = Literal["proposed", "active", "inactive", "superseded", "deleted"]
Check = Literal["duplicate", "contradiction", "vague", "unscoped", "addresses the model", "hidden", "stale"]
Content = Annotated[str, Field(min_length=1, max_length=validation.MAX_CONTENT)]
When = Annotated[str, Field(max_length=validation.MAX_CONTEXT)]
Reason = Annotated[str, Field(max_length=2000)]


class NewKnowledge(Body):
    """A new knowledge row."""

    type: Kind
    content: Content = Field(description="The rule, in one or two sentences.")
    context: When | None = Field(None, description="When it applies.")
    agent_id: Id | None = Field(None, description="Limits the row to this agent. Defaults to the whole workspace.")
    entity_type_id: Id | None = Field(None, description="Limits the row to this entity type. Defaults to all.")
    pinned: bool = Field(False, description="Puts the row before all others of its type.")
    source_feedback_id: Id | None = Field(None, description="The clearest feedback row behind it.")
    feedback_ids: list[Id] = Field([], max_length=200, description="All feedback rows behind it.")


class KnowledgeChange(Body):
    """Fields to change. Omitted fields stay the same. `null` clears a condition or widens the scope."""

    content: Content | None = Field(None, description="The new text. Send `version` too.")
    context: When | None = Field(None, description="The new condition. Send `version` too.")
    type: Kind | None = None
    agent_id: Id | None = Field(None, description="The agent it is for. Null means all agents.")
    entity_type_id: Id | None = Field(None, description="The entity type it is for. Null means all types.")
    pinned: bool | None = None
    active: bool | None = Field(
        None, description="True approves or reactivates the row. False deactivates it and needs a reason."
    )
    reason: Reason | None = Field(None, description="The reason, kept in the history.")
    override_reason: Reason | None = Field(
        None,
        description="The reason to activate it despite a broken golden or a failed check. Kept in the history.",
    )
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The version you read. 409 if the row has changed since."
    )


class KnowledgeQuery(Page):
    type: Kind | None = None
    state: State | None = Field(None, description="Defaults to all except deleted.")
    agent: str | None = Field(None, max_length=120, description="Only rows for the agent with this slug.")
    entity_type: str | None = Field(None, max_length=120, description="Only rows for the entity type with this slug.")
    harmful: Literal["yes", "no"] | None = Field(
        None, description=("Only rows that are, or are not, flagged as harmful.")
    )
    q: str | None = Field(None, max_length=200, description="Words to search for.")


class FindingAnswer(Answer):
    """A finding of a check. The reason quotes the text, the fix says what to change."""

    check: Check
    reason: str
    fix: str
    other_id: UUID | None = Field(description="The conflicting row.")


class AttributionAnswer(Answer):
    """Sessions in scope in the last 90 days with and without the row, and how many got negative feedback. Observed,
    not proved. Null below 30 sessions on either side."""

    exposed: int
    exposed_negative: int
    unexposed: int
    unexposed_negative: int
    rate_with: float | None
    rate_without: float | None
    difference: float | None = Field(description="Negative rate with the row minus the rate without it.")
    low: float | None = Field(description="Lower end of the 95% interval.")
    high: float | None
    harmful: bool = Field(description="At least 20 exposures, and the lower end is above 0.")


class KnowledgeItem(Answer):
    """A knowledge row."""

    id: UUID
    type: Kind
    content: str
    context: str | None
    state: State
    active: bool
    version: int
    pinned: bool
    rank: float
    agent_id: UUID | None
    agent: str | None
    entity_type_id: UUID | None
    entity_type: str | None
    source_feedback_id: UUID | None
    superseded_by: UUID | None
    author: str | None
    author_agent: str | None
    injected: int
    last_injected_at: Moment | None
    helpful: int
    harmful: int
    signals: int
    people: int
    sessions: int
    attribution: AttributionAnswer
    created_at: Moment
    updated_at: Moment
    kind: Literal["new", "change", "retire"] = Field(description="The kind of proposal.")
    target_id: UUID | None = Field(description="The row a proposal would change or retire.")
    retire_reason: str | None
    feedback_ids: list[UUID] = Field([], description="All feedback rows behind it.")
    findings: list[FindingAnswer] = Field([], description="Findings of the checks. In lists, only for proposals.")


class KnowledgePage(Answer):
    """One page, last changed first."""

    items: list[KnowledgeItem]
    next_cursor: str | None


class SignalBehind(Answer):
    """Feedback behind a row."""

    id: UUID
    rating: str
    comment: str | None
    author: str | None
    session_id: UUID | None
    created_at: Moment


class KnowledgeRead(KnowledgeItem):
    """A row with the newest 100 feedback rows behind it."""

    feedback: list[SignalBehind]


@admin_route("GET", "/api/admin/shared-context")
def list_knowledge(query: KnowledgeQuery) -> KnowledgePage:
    """List knowledge. Last changed first. Deleted rows are only returned for `state=deleted`."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    found = knowledge_lists.list_rows(KnowledgeFilters(**wanted), paging.Page(query.limit, query.cursor), actor=g.actor)
    signals = knowledge_lists.signal_ids_of([row.id for row in found.items], actor=g.actor)
    findings = hygiene.check_rows([row.id for row in found.items if row.state == "proposed"], actor=g.actor)
    items = [_describe(row, signals.get(row.id, []), findings.get(row.id, [])) for row in found.items]
    return KnowledgePage.model_validate({"items": items, "next_cursor": found.next_cursor})


def _describe(row: KnowledgeRow, signals: list[UUID], findings: list[Finding]) -> dict[str, Any]:
    derived = {name: getattr(row, name) for name in ("active", "kind", "target_id", "attribution")}
    return {**vars(row), **derived, "feedback_ids": signals, "findings": findings}


@admin_route(
    "POST",
    "/api/admin/shared-context",
    status=201,
    idempotent=True,
    also={409: "An active row of this type and scope has the same text."},
)
def add_knowledge(body: NewKnowledge) -> KnowledgeItem:
    """Create a knowledge row. It is active at once and goes into the next prompt of every agent in its scope.
    `findings` lists what the checks found. Only invisible characters are refused."""
    row = knowledge_rows.add_row(knowledge_rows.NewRow(**body.model_dump()), actor=g.actor)
    return KnowledgeItem.model_validate(_read_checked(row.id))


@admin_route("GET", "/api/admin/shared-context/<uuid:row_id>")
def read_knowledge(row_id: UUID) -> KnowledgeRead:
    """Get a knowledge row. Includes the feedback behind it and current findings."""
    return KnowledgeRead.model_validate(_read_checked(row_id))


@admin_route(
    "PATCH",
    "/api/admin/shared-context/<uuid:row_id>",
    also={
        409: "Someone else changed it first (see `current`), its state doesn't allow this, its proof broke "
        "goldens (`broken`), or a failed check needs an `override_reason` (`findings`)."
    },
)
def change_knowledge(row_id: UUID, body: KnowledgeChange) -> KnowledgeItem:
    """Update a knowledge row. Changes text, type, scope, pin or state. New text needs `version`, deactivating needs
    a `reason`. Deciding a proposal also decides the feedback behind it. A proposal that fails a check is only activated
    with an `override_reason`. If two people decide at once, the second is refused."""
    sent = body.model_dump(include=body.model_fields_set)
    changes = {name: sent[name] for name in knowledge_rows.EDITABLE if name in sent}
    _check_change(sent, changes)
    row = proposals.get_model(row_id, actor=g.actor) if body.active is not None else None
    if row is not None and row.state == "proposed":
        _decide(row_id, body, changes)
    else:
        if row is not None and not changes:
            decisions.check_undecided(row, bool(body.active))
        _change(row_id, body, changes)
    return KnowledgeItem.model_validate(_read_checked(row_id))


def _decide(row_id: UUID, body: KnowledgeChange, changes: dict[str, Any]) -> None:
    if body.active:
        decisions.approve_proposal(
            row_id, actor=g.actor, version=body.version, changes=changes, reason=body.reason,
            override_reason=body.override_reason,
        )  # fmt: skip
    elif changes:
        raise Invalid("Send new text or `active: false`, not both.")
    elif not (body.reason or "").strip():
        raise Invalid.of({"reason": "Enter a reason."})
    else:
        decisions.reject_proposal(row_id, actor=g.actor, version=body.version, reason=body.reason)


def _change(row_id: UUID, body: KnowledgeChange, changes: dict[str, Any]) -> None:
    if changes:
        knowledge_rows.edit_row(row_id, changes, body.version, actor=g.actor, reason=body.reason)
    if body.active is not None:
        state, version = "active" if body.active else "inactive", None if changes else body.version
        knowledge_rows.set_state(
            row_id, state, actor=g.actor, reason=body.reason, version=version, override_reason=body.override_reason
        )


def _check_change(sent: dict[str, Any], changes: dict[str, Any]) -> None:
    empty = next((name for name in ("content", "type", "pinned", "active") if sent.get(name, True) is None), None)
    if empty:
        raise Invalid.of({empty: "This can't be null. Leave it out."})
    if {"content", "context"} & changes.keys() and sent.get("version") is None:
        raise Invalid.of({"version": "Send the version you read with new text."})
    if not changes and "active" not in sent:
        raise Invalid("Send at least one field to change.")


class MergeInto(Body):
    """The row to merge a proposal into."""

    into: Id = Field(description="The active row that keeps its text.")
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(None, description="The version you read.")


@admin_route(
    "POST",
    "/api/admin/shared-context/<uuid:row_id>/merge",
    also={409: "The row is no longer a proposal, someone else changed it first, or the other row isn't active."},
)
def merge_knowledge(row_id: UUID, body: MergeInto) -> KnowledgeItem:
    """Merge a proposal into an active row. Its feedback moves to that row and is applied. Returns the active row."""
    version = body.version or proposals.get_model(row_id, actor=g.actor).version
    knowledge_rows.merge_row(row_id, body.into, actor=g.actor, version=version)
    return KnowledgeItem.model_validate(_read_checked(body.into))


@admin_route("DELETE", "/api/admin/shared-context/<uuid:row_id>", status=204)
def delete_knowledge(row_id: UUID) -> None:
    """Delete a knowledge row. It never goes into a prompt again. Its history stays. Safe to repeat."""
    knowledge_rows.set_state(row_id, "deleted", actor=g.actor)


def _read_checked(row_id: UUID) -> dict[str, Any]:
    found = knowledge_lists.get_row(row_id, actor=g.actor)
    findings = hygiene.check_rows([row_id], actor=g.actor).get(row_id, [])
    signals = knowledge_lists.signal_ids_of([row_id], actor=g.actor).get(row_id, [])
    return {**_describe(found.row, signals, findings), "feedback": found.signals}
