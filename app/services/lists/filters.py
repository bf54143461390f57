"""What each list may be narrowed by, beside what `filter_base` gives to all."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast
from uuid import UUID

from sqlalchemy import any_, func, literal, select

from app.formats.feedback_details import ERROR_CATEGORIES
from app.formats.ids import parse_id
from app.models import Agent, AgentSession, AgentVersion, Chat, Entity, EntityType, Feedback, SharedContext
from app.models.feedback import KINDS, ORIGINS, RATINGS, SIGNALS, SOURCES, STATUSES
from app.models.knowledge import KNOWLEDGE_STATES, KNOWLEDGE_TYPES
from app.models.sessions import SESSION_STATUSES, SESSION_TYPES
from app.services.lists import filter_values as values
from app.services.lists.filter_base import Condition, Filters

YES_NO = ("yes", "no")
ASSIGNEES = ("me", "nobody")


@dataclass(frozen=True, kw_only=True)
class FeedbackFilters(Filters):
    """What indexes know is in `conditions`, the rest in `sieve`; the assignee may be whoever asks, see `desk`."""

    status: str | None = None
    source_type: str | None = None
    rating: str | None = None
    signal: str | None = None
    origin: str | None = None
    kind: str | None = None
    agent: str | None = None
    agent_id: UUID | None = None
    session_id: UUID | None = None
    entity_id: UUID | None = None
    author_id: UUID | None = None
    chat_id: str | None = None
    trace_id: str | None = None
    assignee: str | None = None
    error_category: str | None = None
    version: int | None = None
    environment: str | None = None
    model: str | None = None
    tag: str | None = None

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "status": STATUSES,
        "source_type": SOURCES,
        "rating": RATINGS,
        "signal": SIGNALS,
        "origin": ORIGINS,
        "kind": KINDS,
        "error_category": ERROR_CATEGORIES,
    }
    slugs: ClassVar[tuple[str, ...]] = ("agent",)
    ids: ClassVar[tuple[str, ...]] = ("agent_id", "session_id", "entity_id", "author_id")
    texts: ClassVar[tuple[str, ...]] = ("chat_id", "trace_id", "environment", "model", "tag")
    numbers: ClassVar[tuple[str, ...]] = ("version",)
    kept: ClassVar[tuple[str, ...]] = ("source_type", "signal", "origin", "kind")
    of_session: ClassVar[tuple[str, ...]] = ("environment", "model", "tag", "version")

    @classmethod
    def _read(cls, field: str, name: str, value: str) -> Any:
        if field != "assignee":
            return super()._read(field, name, value)
        return value if value in ASSIGNEES else str(values.read_id(name, value))

    @property
    def order(self) -> Any:
        """What the list is in the order of, with an index: arrival; within days, when it was said, as the volume of
        each day counts it."""
        return Feedback.occurred_at if self.since or self.until else Feedback.created_at

    def conditions(self) -> list[Condition]:
        found = self._within(Feedback.occurred_at)
        for name in ("status", "rating", "trace_id", "agent_id", "session_id", "entity_id"):
            value = getattr(self, name)
            if value is not None:
                found.append(getattr(Feedback, name) == value)
        if self.chat_id:
            found.append(_about_chat(self.chat_id))
        if self.author_id:
            found.append(Feedback.created_by == self.author_id)
        if self.agent:
            found.append(Feedback.agent_id == _agent_called(self.agent))
        return found

    @property
    def sieves(self) -> bool:
        """Something is asked for that no index knows."""
        return any(getattr(self, name) is not None for name in (*self.kept, *self.of_session, "error_category"))

    def sieve(self, row: Any) -> list[Condition]:
        """The same for what no index knows, and for what only the session behind a row does. `row` has the columns
        of the feedback."""
        found: list[Condition] = [
            getattr(row, name) == getattr(self, name) for name in self.kept if getattr(self, name) is not None
        ]
        if self.error_category:
            found.append(literal(self.error_category) == any_(row.error_categories))
        if any(getattr(self, name) is not None for name in self.of_session):
            asked = SessionFilters(**{name: getattr(self, name) for name in self.of_session})
            behind = select(AgentSession.id).where(*asked.conditions(), *asked.sieve(AgentSession))
            found.append(row.session_id.in_(behind))
        return found


@dataclass(frozen=True, kw_only=True)
class SessionFilters(Filters):
    """One of the filters leads, by its index; the rest is a sieve over the stretch of rows that is then looked at. So a
    page costs the same whatever is combined."""

    status: str | None = None
    type: str | None = None
    agent: str | None = None
    agent_id: UUID | None = None
    version: int | None = None
    person_id: UUID | None = None
    chat_id: UUID | None = None
    entity_id: UUID | None = None
    golden: str | None = None
    golden_set: str | None = None
    replay: str | None = None
    environment: str | None = None
    model: str | None = None
    tag: str | None = None
    error: str | None = None
    longer: float | None = None
    shorter: float | None = None
    import_id: UUID | None = None
    trace_id: str | None = None
    external_id: str | None = None

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "status": SESSION_STATUSES,
        "type": SESSION_TYPES,
        "golden": YES_NO,
        "replay": YES_NO,
        "error": YES_NO,
    }
    slugs: ClassVar[tuple[str, ...]] = ("agent",)
    ids: ClassVar[tuple[str, ...]] = ("agent_id", "person_id", "chat_id", "entity_id", "import_id")
    texts: ClassVar[tuple[str, ...]] = ("environment", "model", "tag", "trace_id", "external_id", "golden_set")
    numbers: ClassVar[tuple[str, ...]] = ("version",)
    seconds: ClassVar[tuple[str, ...]] = ("longer", "shorter")
    # What has an index that is in the list's order, the most exact first. The first that is asked for leads.
    leads: ClassVar[tuple[str, ...]] = (
        "external_id", "trace_id", "chat_id", "import_id", "golden_set", "agent_id", "agent", "environment", "model",
        "status",
    )  # fmt: skip
    columns: ClassVar[tuple[str, ...]] = (
        "status", "session_type", "agent_id", "agent_version_id", "created_by", "chat_id", "entity_id", "golden_set",
        "environment", "model", "tags", "duration_ms", "import_id", "trace_id", "external_id",
    )  # fmt: skip

    def conditions(self) -> list[Condition]:
        """What an index narrows the list by: the days, and one thing more."""
        found = self._within(AgentSession.created_at)
        if self.leading:
            found.append(self._equal(AgentSession, self.leading))
        for wanted, column in ((self.golden, AgentSession.golden_set), (self.replay, AgentSession.eval_source)):
            if wanted:
                found.append(column.is_not(None) if wanted == "yes" else column.is_(None))
        return found

    @property
    def leading(self) -> str | None:
        return next((name for name in self.leads if getattr(self, name) is not None), None)

    @property
    def rest(self) -> list[str]:
        """The filters that no index helps with once the leading one is used."""
        plain = {"q", "since", "until", "sort", "zone", "golden", "replay", self.leading}
        names = (field.name for field in fields(self) if field.name not in plain)
        return [name for name in names if getattr(self, name) is not None]

    @property
    def sieves(self) -> bool:
        return bool(self.rest)

    def sieve(self, row: Any) -> list[Condition]:
        """The conditions of the rest. `row` has the session's columns, and whether it has an error."""
        return [self._sieved(row, name) for name in self.rest]

    def _sieved(self, row: Any, name: str) -> Condition:
        value = getattr(self, name)
        if name == "version":
            found: Condition = row.agent_version_id.in_(select(AgentVersion.id).where(AgentVersion.version == value))
        elif name == "tag":
            found = literal(value) == any_(row.tags)
        elif name == "error":
            found = row.has_error if value == "yes" else ~row.has_error
        elif name == "longer":
            found = row.duration_ms >= round(value * 1000)
        elif name == "shorter":
            found = row.duration_ms <= round(value * 1000)
        else:
            found = self._equal(row, name)
        return found

    def _equal(self, row: Any, name: str) -> Condition:
        if name == "agent":
            return cast(Condition, row.agent_id == _agent_called(str(self.agent)))
        column = {"type": "session_type", "person_id": "created_by"}.get(name, name)
        return cast(Condition, getattr(row, column) == getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class ChatFilters(Filters):
    """`rating` is how a conversation was received; its list finds that out, see `chat_lists`."""

    agent: str | None = None
    agent_id: UUID | None = None
    person_id: UUID | None = None
    rating: str | None = None
    project: str | None = None
    external_id: str | None = None

    choices: ClassVar[dict[str, tuple[str, ...]]] = {"rating": RATINGS}
    slugs: ClassVar[tuple[str, ...]] = ("agent",)
    ids: ClassVar[tuple[str, ...]] = ("agent_id", "person_id")
    texts: ClassVar[tuple[str, ...]] = ("project", "external_id")

    def conditions(self) -> list[Condition]:
        found = self._within(Chat.last_message_at)
        for name in ("agent_id", "project", "external_id"):
            value = getattr(self, name)
            if value is not None:
                found.append(getattr(Chat, name) == value)
        if self.person_id:
            found.append(Chat.user_id == self.person_id)
        if self.agent:
            found.append(Chat.agent_id == _agent_called(self.agent))
        return found


@dataclass(frozen=True, kw_only=True)
class KnowledgeFilters(Filters):
    """Deleted rows show only when their state is asked for."""

    type: str | None = None
    state: str | None = None
    scope: str | None = None
    agent: str | None = None
    agent_id: UUID | None = None
    entity_type: str | None = None

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "type": KNOWLEDGE_TYPES,
        "state": KNOWLEDGE_STATES,
        "scope": ("workspace", "agent", "entity_type", "both"),
    }
    slugs: ClassVar[tuple[str, ...]] = ("agent", "entity_type")
    ids: ClassVar[tuple[str, ...]] = ("agent_id",)

    def conditions(self) -> list[Condition]:
        found = self._within(SharedContext.updated_at)
        found.append(SharedContext.state == self.state if self.state else SharedContext.state != "deleted")
        if self.type:
            found.append(SharedContext.type == self.type)
        if self.agent_id:
            found.append(SharedContext.agent_id == self.agent_id)
        if self.agent:
            found.append(SharedContext.agent_id == _agent_called(self.agent))
        if self.entity_type:
            found.append(SharedContext.entity_type_id == _type_called(self.entity_type))
        if self.scope:
            found += self._in_scope(self.scope)
        return found

    @staticmethod
    def _in_scope(scope: str) -> list[Condition]:
        of_agent, of_type = SharedContext.agent_id.is_not(None), SharedContext.entity_type_id.is_not(None)
        return [
            of_agent if scope in ("agent", "both") else ~of_agent,
            of_type if scope in ("entity_type", "both") else ~of_type,
        ]


@dataclass(frozen=True, kw_only=True)
class EntityFilters(Filters):
    entity_type: str | None = None

    slugs: ClassVar[tuple[str, ...]] = ("entity_type",)

    def conditions(self) -> list[Condition]:
        found = self._within(Entity.updated_at)
        if self.entity_type:
            found.append(Entity.entity_type_id == _type_called(self.entity_type))
        if self.q:
            found.append(Entity.name.icontains(self.q, autoescape=True))
        return found


def _agent_called(slug: str) -> Any:
    """A name from before a merge or a renaming still means what it became."""
    return select(func.coalesce(Agent.merged_into, Agent.id)).where(Agent.slug == slug).scalar_subquery()


def _about_chat(name: str) -> Condition:
    """Feedback names a conversation by our id or by its sender's; whoever asks by ours means both."""
    exact = Feedback.chat_id == name
    ours = parse_id(name)
    if ours is None:
        return exact
    senders = select(Chat.external_id).where(Chat.id == ours).scalar_subquery()
    return exact | (Feedback.chat_id == senders)


def _type_called(slug: str) -> Any:
    return select(EntityType.id).where(EntityType.slug == slug).scalar_subquery()
