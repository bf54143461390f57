"""Tools for workspace knowledge, proposals and memories about a person."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, model_validator

from app.db.paging import Page
from app.errors import Forbidden, Invalid
from app.models import SharedContext
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import memories, proposals, validation
from app.services.knowledge import prompt as knowledge_prompt
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.lists import KnowledgeFilters
from app.services.sessions.events import NewEvent
from app.tools.base import Arguments, Cursor, Limit, Outcome, ToolScope, answer, pick, tool

GROUP = "context"
Content = Annotated[str, Field(min_length=1, max_length=validation.MAX_CONTENT)]
When = Annotated[str, Field(max_length=validation.MAX_CONTEXT)]
Slug = Annotated[str, Field(min_length=1, max_length=120)]
SHOWN = (
    "type", "state", "context", "agent", "entity_type", "pinned", "helpful", "harmful", "signals",
    "source_feedback_id", "updated_at",
)  # fmt: skip


class GetContext(Arguments):
    agent: Slug | None = Field(None, description="Slug of an agent, to include what only that agent should know.")
    entity_type: Slug | None = Field(None, description="Slug of a kind of record, such as deal.")


class AddKnowledge(Arguments):
    content: Content = Field(description="The rule in one or two plain sentences.")
    context: When | None = Field(None, description="When it applies, such as: when comparing deals.")
    agent_id: UUID | None = Field(None, description="Only for this agent; leave out for the whole workspace.")
    entity_type_id: UUID | None = Field(None, description="Only for this kind of record; leave out for all.")
    source_feedback_id: UUID | None = Field(None, description="The feedback that it was learned from.")


class UpdateSharedContext(Arguments):
    id: UUID = Field(description="The knowledge row.")
    content: Content | None = Field(None, description="Its new words.")
    context: When | None = Field(None, description="When it applies from now on.")
    active: bool | None = Field(None, description="false takes it out of use; only a person brings a row into use.")

    @model_validator(mode="before")
    @classmethod
    def flat(cls, given: Any) -> Any:
        """Accept changes in an object of their own, as some models send them."""
        if isinstance(given, dict) and isinstance(given.get("changes"), dict):
            return {name: value for name, value in given.items() if name != "changes"} | given["changes"]
        return given


class DeactivateSharedContext(Arguments):
    id: UUID = Field(description="The knowledge row.")
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(description="Why it should no longer apply.")


class ListSharedContext(Arguments):
    type: Literal["correction", "lesson", "routing", "insight", "guideline"] | None = None
    state: Literal["proposed", "active", "inactive", "superseded", "deleted"] | None = Field(
        None,
        description="proposed: waiting for approval; active: in use; inactive: switched off; superseded: replaced.",
    )
    agent: Slug | None = Field(None, description="Slug of an agent: only what is for that agent alone.")
    entity_type: Slug | None = Field(None, description="Slug of a kind of record: only what is for that kind alone.")
    query: Annotated[str, Field(max_length=200)] | None = Field(None, description="Words that it should have.")
    limit: Limit = 25
    cursor: Cursor | None = None


class SaveMemory(Arguments):
    content: Annotated[str, Field(min_length=1, max_length=memories.MAX_LENGTH)] = Field(
        description="One thing worth remembering about this person."
    )


@tool(GROUP, scope="context")
def get_context(arguments: GetContext, scope: ToolScope) -> Outcome:
    """Get the workspace knowledge that belongs into a prompt: what is active, the best of each type. Put `prompt` into
    your instructions as it is."""
    agent_id, type_id = _find_scope(arguments, scope)
    found = knowledge_prompt.load_shared_context_prompt(
        scope.actor.tenant_id, agent_id=agent_id, entity_type_id=type_id
    )
    if scope.session_id is None:
        # An external agent puts this into its prompt; our own runs had it there from the start.
        knowledge_usage.note_served(found, actor=scope.actor)
    rows = [pick(row, "id", "type") for row in found.rows]
    return answer(prompt=found.text, row_ids=found.row_ids, rows=rows, sha256=found.sha256)


def _find_scope(arguments: GetContext, scope: ToolScope) -> tuple[UUID | None, UUID | None]:
    agent_id = scope.agent_id
    if arguments.agent is not None:
        agent_id = versions.resolve_agent(arguments.agent, actor=scope.actor).id
    if arguments.entity_type is None:
        return agent_id, None
    return agent_id, entity_store.find_type(arguments.entity_type, actor=scope.actor).id


@tool(GROUP, scope="admin")
def list_shared_context(arguments: ListSharedContext, scope: ToolScope) -> Outcome:
    """List the workspace's knowledge: the rules, corrections, lessons, routing, insights and guidelines that agents
    know, those in use and those that wait for approval, with their ids, states and scope, last changed first."""
    given = arguments.model_dump(include={"type", "state", "agent", "entity_type"})
    filters = KnowledgeFilters(**given, q=arguments.query or None)
    found = knowledge_lists.list_rows(filters, Page(arguments.limit, arguments.cursor), actor=scope.actor)
    return answer(items=[_item(row) for row in found.items], nextCursor=found.next_cursor)


def _item(row: knowledge_lists.KnowledgeRow) -> dict[str, Any]:
    return {"id": row.id, "name": row.content, **pick(row, *SHOWN)}


@tool(GROUP, writes=True, scope="knowledge")
def add_correction(arguments: AddKnowledge, scope: ToolScope) -> Outcome:
    """Propose a correction, also called a fix: something that agents get wrong and what is right instead. A person
    approves it before it reaches any prompt."""
    return _propose("correction", arguments, scope)


@tool(GROUP, writes=True, scope="knowledge")
def add_lesson(arguments: AddKnowledge, scope: ToolScope) -> Outcome:
    """Propose a lesson or a habit: a way of working that turned out well or badly. A person approves it before it
    reaches any prompt."""
    return _propose("lesson", arguments, scope)


@tool(GROUP, writes=True, scope="knowledge")
def add_insight(arguments: AddKnowledge, scope: ToolScope) -> Outcome:
    """Propose an insight or background fact: a lasting pattern about the work that is neither a correction nor a
    lesson. A person approves it before it reaches any prompt."""
    return _propose("insight", arguments, scope)


def _propose(kind: str, arguments: AddKnowledge, scope: ToolScope) -> Outcome:
    new = knowledge_rows.NewRow(type=kind, **arguments.model_dump())
    row = proposals.propose_row(new, actor=scope.actor, session_id=scope.session_id)
    return _answer_change(row, "proposed", kind="new")


def _answer_change(row: SharedContext, action: str, **more: Any) -> Outcome:
    shown = pick(row, "type", "state", "content")
    payload = {"shared_context_id": row.id, "action": action, **shown, "context": row.context, **more}
    return answer(NewEvent("knowledge.changed", payload), id=row.id, **shown, **more)


@tool(GROUP, writes=True, scope="admin")
def update_shared_context(arguments: UpdateSharedContext, scope: ToolScope) -> Outcome:
    """Propose other words for a knowledge row, or to take it out of use with active false. The row stays as it is until
    a person approves. On a proposal of your own this changes or withdraws it."""
    words = arguments.model_dump(include={"content", "context"}, exclude_unset=True)
    if arguments.active:
        raise Forbidden("Only a person brings knowledge into use, on the Knowledge page or over the API.")
    if arguments.active is False and words:
        raise Invalid("Send new words or active false, not both.")
    if arguments.active is False:
        return _propose_retirement(arguments.id, "A tool asked to take it out of use and gave no reason.", scope)
    if not words:
        raise Invalid("Send `content`, `context` or `active`.")
    if "content" in words and words["content"] is None:
        raise Invalid("`content`: Enter the rule or fact.")
    row = proposals.propose_edit(arguments.id, words, actor=scope.actor, session_id=scope.session_id)
    more = {} if row.id == arguments.id else {"replaces": arguments.id}
    return _answer_change(row, "edit_proposed", kind=proposals.kind_of(row), **more)


@tool(GROUP, writes=True, scope="admin")
def deactivate_shared_context(arguments: DeactivateSharedContext, scope: ToolScope) -> Outcome:
    """Propose to take a stale or wrong knowledge row out of use. It stays in use until a person approves. A proposal of
    your own is withdrawn at once."""
    return _propose_retirement(arguments.id, arguments.reason, scope)


def _propose_retirement(row_id: UUID, reason: str, scope: ToolScope) -> Outcome:
    row = proposals.propose_retirement(row_id, reason, actor=scope.actor, session_id=scope.session_id)
    if row.id == row_id:
        return _answer_change(row, "withdrawn", kind=proposals.kind_of(row))
    return _answer_change(row, "retirement_proposed", kind="retire", retires=row_id)


@tool(GROUP, writes=True, scope="feedback")
def save_memory(arguments: SaveMemory, scope: ToolScope) -> Outcome:
    """Remember one thing about the person you are talking to, such as a preference. Only they see it and only their
    own conversations get it; they can delete it."""
    memory = memories.save_memory(arguments.content, actor=scope.actor, session_id=scope.session_id)
    return answer(**pick(memory, "id", "content"))
