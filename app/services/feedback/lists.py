"""Feedback as it is read: the feed, one row with all that belongs to it, and the counts on the tab.

Members read their own rows; the database sees to that, and the conditions repeat it so that an index serves them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import any_, func, literal, select
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.db.paging import Page, ScanWindow, Slice, empty, read_page
from app.errors import NotFound
from app.formats.feedback_details import (
    ASSESSMENT,
    ERROR_CATEGORIES,
    RETRACTED,
    merge_assessment,
    without_assessment,
)
from app.formats.ids import parse_id
from app.learning.signals import weight_of
from app.models import (
    Agent,
    AgentSession,
    AgentVersion,
    Chat,
    Entity,
    Feedback,
    Message,
    SharedContext,
    SharedContextFeedback,
    Tenant,
    User,
)
from app.models.feedback import KINDS, ORIGINS, RATINGS, SIGNALS, SOURCES, STATUSES
from app.services import audit
from app.services.feedback import teamwork
from app.services.lists import filters as declare
from app.services.lists import text_search
from app.services.lists.filters import Condition, Filters, parse_row_id
from app.services.privacy import A_MEMBER
from app.services.workspaces.store import cache_settings, get_settings

Reviewer = aliased(User)
ReviewAgent = aliased(Agent)
Assignee = aliased(User)
SCAN_LIMIT = 5000
MAX_ROWS = 100
ASSIGNEES = ("me", "nobody")


def _parse_assignee(name: str, value: str) -> str:
    return value if value in ASSIGNEES else str(parse_row_id(name, value))


def _is_chat(column: Any, name: str) -> Condition:
    """Feedback names a conversation by our id or by its sender's; our id finds both."""
    exact: Condition = column == name
    ours = parse_id(name)
    if ours is None:
        return exact
    found: Condition = exact | (column == select(Chat.external_id).where(Chat.id == ours).scalar_subquery())
    return found


def _is_in(column: Any, value: str) -> Condition:
    return literal(value) == any_(column)


@dataclass(frozen=True, kw_only=True)
class FeedbackFilters(Filters):
    """Filters with an index are in `conditions`, the others in `predicate`. `list_feedback` handles the assignee, who
    may be the reader."""

    status: str | None = declare.choice(STATUSES)
    source_type: str | None = declare.choice(SOURCES, label="source")
    rating: str | None = declare.choice(RATINGS)
    signal: str | None = declare.choice(SIGNALS)
    origin: str | None = declare.choice(ORIGINS)
    kind: str | None = declare.choice(KINDS)
    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    session_id: UUID | None = declare.id_of_row(label="session")
    entity_id: UUID | None = declare.id_of_row(label="record")
    author_id: UUID | None = declare.id_of_row(column="created_by", label="from")
    chat_id: str | None = declare.text(compare=_is_chat, label="conversation")
    trace_id: str | None = declare.text(label="trace")
    assignee: str | None = declare.declare(_parse_assignee)
    error_category: str | None = declare.choice(
        ERROR_CATEGORIES, column="error_categories", compare=_is_in, label="error category"
    )
    version: int | None = declare.number(label="agent version")
    environment: str | None = declare.text()
    model: str | None = declare.text()
    tag: str | None = declare.text()

    scanned: ClassVar[tuple[str, ...]] = ("source_type", "signal", "origin", "kind", "error_category")
    of_session: ClassVar[tuple[str, ...]] = ("environment", "model", "tag", "version")

    @property
    def order(self) -> Any:
        """The indexed column that orders the list: arrival, or within days when it was given, as the volume of each day
        counts it."""
        return Feedback.occurred_at if self.since or self.until else Feedback.created_at

    def conditions(self) -> list[Condition]:
        elsewhere = {*self.scanned, *self.of_session, "assignee"}
        return [
            *self._within(Feedback.occurred_at),
            *self._compare(Feedback, [name for name in self.chosen if name not in elsewhere]),
        ]

    @property
    def window(self) -> ScanWindow | None:
        """What no index covers, and what only the session behind a row knows."""
        if not {*self.scanned, *self.of_session} & {*self.chosen}:
            return None
        names = [self.declared()[name].column or name for name in self.scanned]
        return ScanWindow(
            {name: getattr(Feedback, name) for name in (*names, "session_id")}, self.predicate, SCAN_LIMIT
        )

    def predicate(self, row: Any) -> list[Condition]:
        found = self._compare(row, [name for name in self.chosen if name in self.scanned])
        behind = [self._of_session(name) for name in self.chosen if name in self.of_session]
        if behind:
            found.append(row.session_id.in_(select(AgentSession.id).where(*behind)))
        return found

    def _of_session(self, name: str) -> Condition:
        value = getattr(self, name)
        if name == "version":
            versions = select(AgentVersion.id).where(AgentVersion.version == value)
            return AgentSession.agent_version_id.in_(versions)
        found: Condition = _is_in(AgentSession.tags, value) if name == "tag" else getattr(AgentSession, name) == value
        return found


@dataclass(frozen=True)
class FeedbackRow:
    """Feedback in a list. `author` is "a member", without an id, where the workspace hides who said what."""

    id: UUID
    source_type: str
    kind: str
    rating: str
    signal: str | None
    origin: str
    confidence: float
    status: str
    comment: str | None
    session_id: UUID | None
    session_title: str | None
    entity_id: UUID | None
    agent_id: UUID | None
    agent: str | None
    agent_version: int | None
    chat_id: str | None
    message_id: str | None
    turn_id: str | None
    trace_id: str | None
    project: str
    edit_distance: int | None
    field_name: str | None
    tool_slug: str | None
    event_id: str | None
    error_categories: list[str]
    assignee_id: UUID | None
    assignee: str | None
    retracted: bool
    created_at: datetime
    occurred_at: datetime
    author_id: UUID | None
    author: str | None

    @property
    def weight(self) -> float:
        return weight_of(self.signal)


@dataclass(frozen=True)
class LinkedKnowledge:
    """A knowledge row that this feedback led to."""

    id: UUID
    type: str
    content: str
    state: str


@dataclass(frozen=True)
class FeedbackDetail:
    """One row of feedback, the moment it is about, and what became of it. `details` is what its author said;
    `assessment` is what an admin thinks, which only admins see."""

    row: FeedbackRow
    context: dict[str, Any]
    details: dict[str, Any]
    outcome: dict[str, Any]
    reviewed_at: datetime | None
    review_notes: str | None
    reviewer: str | None
    entity_name: str | None
    chat: UUID | None
    chat_title: str | None
    message_text: str | None
    message_index: int | None
    knowledge: list[LinkedKnowledge]
    assessment: dict[str, Any]


@dataclass(frozen=True)
class FeedbackContents:
    """What a row holds beside what lists show. Admins see `details` as they were assessed."""

    context: dict[str, Any]
    details: dict[str, Any]
    outcome: dict[str, Any]
    reviewed_at: datetime | None
    reviewed_by_user_id: UUID | None
    reviewed_by_agent_id: UUID | None
    review_notes: str | None


COLUMNS: tuple[Any, ...] = (
    Feedback.id, Feedback.source_type, Feedback.kind, Feedback.rating, Feedback.signal, Feedback.origin,
    Feedback.confidence, Feedback.status, Feedback.comment, Feedback.session_id, AgentSession.title,
    Feedback.entity_id, Feedback.agent_id, Agent.slug, AgentVersion.version, Feedback.chat_id, Feedback.message_id,
    Feedback.turn_id, Feedback.trace_id, Feedback.project,
    Feedback.details["output_review"]["edit_distance"].as_integer(), Feedback.context["field_name"].astext,
    Feedback.context["tool_slug"].astext, Feedback.context["event_id"].astext, Feedback.error_categories,
    Feedback.assignee_id, Assignee.name, Feedback.details.has_key(RETRACTED), Feedback.created_at,
    Feedback.occurred_at, Feedback.created_by, User.name,
)  # fmt: skip


def _with_names(*more: Any) -> Any:
    return (
        select(*COLUMNS, *more)
        .select_from(Feedback)
        .outerjoin(Agent, Agent.id == Feedback.agent_id)
        .outerjoin(AgentSession, AgentSession.id == Feedback.session_id)
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(User, User.id == Feedback.created_by)
        .outerjoin(Assignee, Assignee.id == Feedback.assignee_id)
    )


def _readable(actor: Actor) -> list[ColumnElement[bool]]:
    conditions = [Feedback.tenant_id == actor.tenant_id]
    return conditions if actor.is_admin else [*conditions, Feedback.created_by == actor.id]


def list_feedback(filters: FeedbackFilters, page: Page, *, actor: Actor) -> Slice[FeedbackRow]:
    """One page of the feed: all of the workspace for admins, one's own for members. At most five queries."""
    hides = _hides_authors(actor)
    where = [*_readable(actor), *filters.conditions()]
    if hides and filters.author_id and filters.author_id != actor.id:
        return empty()
    if filters.assignee:
        where.append(teamwork.is_assigned_to(filters.assignee, actor=actor))
    count = None
    if filters.q:
        matches = text_search.find_matches("feedback", filters, page)
        if not matches.ids:
            return empty()
        where.append(matches.are(Feedback.id))
        count = matches.count
    found = read_page(
        _with_names(),
        page,
        at=filters.order,
        id=Feedback.id,
        where=where,
        oldest_first=filters.oldest_first,
        count=count,
        window=filters.window,
    )
    return found.map(lambda row: _row(row, actor, hides))


def _hides_authors(actor: Actor) -> bool:
    return actor.is_admin and get_settings(actor).author_private


def _row(row: Any, actor: Actor, hides: bool) -> FeedbackRow:
    values = list(row[: len(COLUMNS)])
    if hides and values[5] == "user" and values[-2] != actor.id:
        values[-2:] = [None, A_MEMBER]
    return FeedbackRow(*values)


def get_feedback(feedback_id: UUID, *, actor: Actor, audit_read: bool = False) -> FeedbackDetail:
    """Return one row with the message it is about. With `audit_read`, an admin's reading of another person's row is
    audited."""
    more = (
        Feedback.context, Feedback.details, Feedback.outcome, Feedback.reviewed_at, Feedback.review_notes,
        func.coalesce(Reviewer.name, ReviewAgent.name), Entity.name,
    )  # fmt: skip
    statement = (
        _with_names(*more)
        .outerjoin(Reviewer, Reviewer.id == Feedback.reviewed_by_user_id)
        .outerjoin(ReviewAgent, ReviewAgent.id == Feedback.reviewed_by_agent_id)
        .outerjoin(Entity, Entity.id == Feedback.entity_id)
        .where(*_readable(actor), Feedback.id == feedback_id)
    )
    found: Any = db.session.execute(statement).one_or_none()
    if found is None:
        raise NotFound("There is no such feedback in this workspace.")
    author_id, origin = found[len(COLUMNS) - 2], found[5]
    if audit_read and actor.is_admin and origin == "user" and author_id != actor.id:
        audit.record(actor, "feedback.read", "feedback", feedback_id)
    row = _row(found, actor, _hides_authors(actor))
    context, details, *others = found[len(COLUMNS) :]
    assessment = details.get(ASSESSMENT, {}) if actor.is_admin else {}
    rest: tuple[Any, ...] = (*others, *_moment(row, author_id, actor), _knowledge_from(feedback_id, actor), assessment)
    return FeedbackDetail(row, context, without_assessment(details), *rest)


def _moment(row: FeedbackRow, author_id: UUID, actor: Actor) -> tuple[UUID | None, str | None, str | None, int | None]:
    """The conversation and the message, when they are ours and the reader may see them."""
    if row.message_id is None:
        return (*_chat_of(row, author_id, actor), None, None)
    ours = parse_id(row.message_id)
    found = db.session.execute(
        select(Chat.id, Chat.title, Message.content, Message.message_index)
        .join(Message, (Message.tenant_id == Chat.tenant_id) & (Message.chat_id == Chat.id))
        .where(
            Chat.tenant_id == actor.tenant_id,
            Message.id == ours if ours else Message.external_id == row.message_id,
        )
        .order_by(*_own_first(author_id))
        .limit(1)
    ).one_or_none()
    if found is None:
        return (*_chat_of(row, author_id, actor), None, None)
    return found[0], found[1], found[2], found[3]


def _own_first(author_id: UUID) -> tuple[Any, ...]:
    """People may give their conversations the same name; the author means their own."""
    return (Chat.user_id == author_id).desc(), Chat.created_at, Chat.id


def _chat_of(row: FeedbackRow, author_id: UUID, actor: Actor) -> tuple[UUID | None, str | None]:
    if not row.chat_id:
        return None, None
    wanted = Chat.id == ours if (ours := parse_id(row.chat_id)) else Chat.external_id == row.chat_id
    statement = select(Chat.id, Chat.title).where(Chat.tenant_id == actor.tenant_id, wanted)
    chat = db.session.execute(statement.order_by(*_own_first(author_id)).limit(1)).one_or_none()
    return (chat[0], chat[1]) if chat else (None, None)


def _knowledge_from(feedback_id: UUID, actor: Actor) -> list[LinkedKnowledge]:
    rows = db.session.execute(
        select(SharedContext.id, SharedContext.type, SharedContext.content, SharedContext.state)
        .join(SharedContextFeedback, SharedContextFeedback.shared_context_id == SharedContext.id)
        .where(SharedContextFeedback.tenant_id == actor.tenant_id, SharedContextFeedback.feedback_id == feedback_id)
        .order_by(SharedContext.created_at)
    )
    return [LinkedKnowledge(*row) for row in rows]


def load_contents(ids: list[UUID], *, actor: Actor) -> dict[UUID, FeedbackContents]:
    """What these rows hold, for programs that want all of it. One query."""
    rows = db.session.execute(
        select(
            Feedback.id, Feedback.context, Feedback.details, Feedback.outcome, Feedback.reviewed_at,
            Feedback.reviewed_by_user_id, Feedback.reviewed_by_agent_id, Feedback.review_notes,
        ).where(*_readable(actor), Feedback.id.in_(ids))
    )  # fmt: skip
    seen = merge_assessment if actor.is_admin else without_assessment
    return {row[0]: FeedbackContents(row[1], seen(row[2]), *row[3:]) for row in rows}


def feedback_about(*, actor: Actor, session_id: UUID | None = None, chats: Collection[str] = ()) -> list[FeedbackRow]:
    """The newest 100 rows about a session or about a chat, by whatever it is called. Members get their own. One query:
    whether authors are hidden is read along with them."""
    settings = select(Tenant.settings).where(Tenant.id == actor.tenant_id).scalar_subquery()
    about = Feedback.session_id == session_id if session_id else Feedback.chat_id.in_(chats)
    rows: list[Any] = list(
        db.session.execute(
            _with_names(settings)
            .where(*_readable(actor), about)
            .order_by(Feedback.created_at.desc(), Feedback.id.desc())
            .limit(MAX_ROWS)
        )
    )
    if not rows:
        return []
    hides = actor.is_admin and cache_settings(rows[0][-1], actor=actor).author_private
    return [_row(row, actor, hides) for row in rows]


def counted_ratings() -> tuple[Any, Any, Any]:
    """Return the counts of positive, negative and neutral rows that were not retracted."""
    not_retracted = ~Feedback.details.has_key(RETRACTED)
    positive, negative, neutral = (
        func.count().filter(Feedback.rating == rating, not_retracted) for rating in ("positive", "negative", "neutral")
    )
    return positive, negative, neutral
