"""Knowledge over the API: listed, written, changed with a version, deleted to a tombstone."""

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
    """One thing that agents should know."""

    type: Kind
    content: Content = Field(description="The rule, in a sentence or two that an agent can follow.")
    context: When | None = Field(None, description="When it applies.")
    agent_id: Id | None = Field(None, description="Only for this agent; the whole workspace when left out.")
    entity_type_id: Id | None = Field(None, description="Only for records of this type; any when left out.")
    pinned: bool = Field(False, description="Whether it goes before all others of its type.")
    source_feedback_id: Id | None = Field(None, description="The clearest signal behind it.")
    feedback_ids: list[Id] = Field([], max_length=200, description="All signals behind it.")


class KnowledgeChange(Body):
    """What to change; what is left out stays. `null` clears a condition or widens the scope."""

    content: Content | None = Field(None, description="Its new words; send `version` too.")
    context: When | None = Field(None, description="When it applies from now on; send `version` too.")
    type: Kind | None = None
    agent_id: Id | None = Field(None, description="The agent it is for; null for all.")
    entity_type_id: Id | None = Field(None, description="The entity type it is for; null for any.")
    pinned: bool | None = None
    active: bool | None = Field(
        None, description="true approves or brings back, false takes out of use and needs a reason."
    )
    reason: Reason | None = Field(None, description="Why; kept in the history.")
    override_reason: Reason | None = Field(
        None,
        description="Why it is brought into use although its proof broke a golden or a check found that it addresses"
        " the model; kept.",
    )
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The version that was read. If someone changed the row since, nothing is changed."
    )


class KnowledgeQuery(Page):
    type: Kind | None = None
    state: State | None = Field(None, description="All but deleted ones when left out.")
    agent: str | None = Field(None, max_length=120, description="Slug of an agent: what is for that agent alone.")
    entity_type: str | None = Field(None, max_length=120, description="Slug of an entity type: what is for it alone.")
    harmful: Literal["yes", "no"] | None = Field(None, description="Whether it is flagged as harmful.")
    q: str | None = Field(None, max_length=200, description="Words that it should have.")


class FindingAnswer(Answer):
    """What a check found: the reason quotes the words, the fix says what would put it right."""

    check: Check
    reason: str
    fix: str
    other_id: UUID | None = Field(description="The row that it clashes with.")


class AttributionAnswer(Answer):
    """Sessions of the last 90 days with the row and without it, in its scope, and how many of either got negative
    feedback from people. Observed, not proved. The figures need 30 sessions on each side."""

    exposed: int
    exposed_negative: int
    unexposed: int
    unexposed_negative: int
    rate_with: float | None
    rate_without: float | None
    difference: float | None = Field(description="The negative rate with it minus the rate without it.")
    low: float | None = Field(description="The lower end of its 95 % interval.")
    high: float | None
    harmful: bool = Field(description="20 exposures or more, and the lower end is above 0.")


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
    kind: Literal["new", "change", "retire"] = Field(description="What a proposal asks for.")
    target_id: UUID | None = Field(description="The row that a proposal would change or retire.")
    retire_reason: str | None
    feedback_ids: list[UUID] = Field([], description="All signals behind it.")
    findings: list[FindingAnswer] = Field([], description="What the checks say. In a list, of proposals only.")


class KnowledgePage(Answer):
    """Some of them, last changed first."""

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
    """A row with the newest 100 signals behind it."""

    feedback: list[SignalBehind]


@admin_route("GET", "/api/admin/shared-context")
def list_knowledge(query: KnowledgeQuery) -> KnowledgePage:
    """List knowledge. Last changed first. Deleted rows come only when `state=deleted` asks for them."""
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
    also={409: "An active row of this type says the same in the same scope."},
)
def add_knowledge(body: NewKnowledge) -> KnowledgeItem:
    """Write a knowledge row. It is active at once and in the next prompt of every agent in its scope. `findings` is
    what the checks say of it; they do not stop it, except that characters which nobody sees are refused."""
    row = knowledge_rows.add_row(knowledge_rows.NewRow(**body.model_dump()), actor=g.actor)
    return KnowledgeItem.model_validate(_read_checked(row.id))


@admin_route("GET", "/api/admin/shared-context/<uuid:row_id>")
def read_knowledge(row_id: UUID) -> KnowledgeRead:
    """Read one knowledge row. With the feedback behind it and what the checks say of it now."""
    return KnowledgeRead.model_validate(_read_checked(row_id))


@admin_route(
    "PATCH",
    "/api/admin/shared-context/<uuid:row_id>",
    also={
        409: "Someone changed it first (`current` is what it says now), its state does not allow this, its proof broke"
        " goldens (`broken`), or a check of a proposal is not answered (`findings`)."
    },
)
def change_knowledge(row_id: UUID, body: KnowledgeChange) -> KnowledgeItem:
    """Change a knowledge row. Words, kind, scope, pin and whether it is in use. `version` is needed for new words;
    deactivating needs a `reason`. Deciding about a proposed row decides about the feedback behind it; of two who decide
    at once, the second is refused."""
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
        raise Invalid("Send new words or active false, not both; what is rejected is not edited.")
    elif not (body.reason or "").strip():
        raise Invalid.of({"reason": "Say why."})
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
        raise Invalid.of({empty: "null is no value for it; leave it out."})
    if {"content", "context"} & changes.keys() and sent.get("version") is None:
        raise Invalid.of({"version": "New words need the version that was read."})
    if not changes and "active" not in sent:
        raise Invalid("There is nothing to change; send at least one field.")


class MergeInto(Body):
    """Where the signals of a proposal go."""

    into: Id = Field(description="The active row whose words stay.")
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(None, description="The version that was read.")


@admin_route(
    "POST",
    "/api/admin/shared-context/<uuid:row_id>/merge",
    also={409: "It is no proposal any more, someone changed it first, or the other row is not active."},
)
def merge_knowledge(row_id: UUID, body: MergeInto) -> KnowledgeItem:
    """Merge a proposal into an active row. Its signals join that row and are applied. Answers the row that stays."""
    version = body.version or proposals.get_model(row_id, actor=g.actor).version
    knowledge_rows.merge_row(row_id, body.into, actor=g.actor, version=version)
    return KnowledgeItem.model_validate(_read_checked(body.into))


@admin_route("DELETE", "/api/admin/shared-context/<uuid:row_id>", status=204)
def delete_knowledge(row_id: UUID) -> None:
    """Delete a knowledge row. It leaves a tombstone: no prompt gets it again, and its history stays. Deleting twice is
    deleting once."""
    knowledge_rows.set_state(row_id, "deleted", actor=g.actor)


def _read_checked(row_id: UUID) -> dict[str, Any]:
    found = knowledge_lists.get_row(row_id, actor=g.actor)
    findings = hygiene.check_rows([row_id], actor=g.actor).get(row_id, [])
    signals = knowledge_lists.signal_ids_of([row_id], actor=g.actor).get(row_id, [])
    return {**_describe(found.row, signals, findings), "feedback": found.signals}
