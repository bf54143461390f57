"""Feedback as it is read: the feed, one row with all that belongs to it, and the counts on the tab.

Members read their own rows; the database sees to that, and the conditions repeat it so that an index serves them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import Uuid, and_, any_, case, cast, func, literal, literal_column, not_, select, true
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.db.paging import Page, ScanWindow, Slice, at_most, read_page
from app.db.queries import ASKING, NAMES, keep_queries, value
from app.errors import NotFound
from app.formats.feedback_details import ASSESSMENT, ERROR_CATEGORIES, merge_assessment, without_assessment
from app.formats.ids import parse_id
from app.models import (
    Agent,
    AgentSession,
    AgentVersion,
    ChangeDraft,
    Chat,
    Entity,
    EvalRun,
    Feedback,
    FeedbackPatternRow,
    Message,
    SharedContext,
    SharedContextFeedback,
    User,
)
from app.models.feedback import KINDS, ORIGINS, RATINGS, SIGNALS, SOURCES, STATUSES
from app.services import audit
from app.services.feedback.intake import NOT_RETRACTED
from app.services.feedback.review import decision_for_author
from app.services.feedback.store import is_chat
from app.services.lists import filters as declare
from app.services.lists.filters import Condition, Filters, find_matches, parse_row_id
from app.services.privacy import A_MEMBER, is_hidden

Reviewer = aliased(User)
ReviewAgent = aliased(Agent)
Assignee = aliased(User)
Golden = aliased(AgentSession)
SCAN_LIMIT = 5000
MAX_ROWS = 100
ASSIGNEES = ("me", "nobody")
# How a session or a conversation was received: by what was not taken back. What was detected in messages does not
# count: it never outvotes a person.
COUNTED = (NOT_RETRACTED, Feedback.origin != "machine")
RECEPTIONS = (*RATINGS, "none")


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


def _session_has(name: str, session_id: Any, value: Any) -> Condition:
    """Compare what only the session behind a row knows."""
    which: Condition = getattr(AgentSession, name, None) == value
    if name == "version":
        which = AgentSession.agent_version_id.in_(select(AgentVersion.id).where(AgentVersion.version == value))
    elif name == "tag":
        which = _is_in(AgentSession.tags, value)
    found: Condition = session_id.in_(select(AgentSession.id).where(which))
    return found


def _of_session(name: str) -> dict[str, Any]:
    return {"column": "session_id", "compare": partial(_session_has, name)}


@dataclass(frozen=True, kw_only=True)
class FeedbackFilters(Filters):
    """Filters with an index are in `conditions`, the `scanned` ones in `window`. `list_feedback` handles the assignee,
    who may be the reader."""

    status: str | None = declare.choice(STATUSES)
    source_type: str | None = declare.choice(SOURCES, label="source")
    rating: str | None = declare.choice(RATINGS)
    signal: str | None = declare.choice(SIGNALS)
    origin: str | None = declare.choice(ORIGINS)
    kind: str | None = declare.choice(KINDS)
    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    session_id: UUID | None = declare.id_of_row(label="session", offered=False)
    run: UUID | None = declare.id_of_row(column="eval_run_id", offered=False)
    entity_id: UUID | None = declare.id_of_row(label="record", offered=False)
    author_id: UUID | None = declare.id_of_row(column="created_by", label="from", key="author", menu="people")
    chat_id: str | None = declare.outside_id(compare=_is_chat, label="conversation")
    trace_id: str | None = declare.outside_id(label="trace")
    assignee: str | None = declare.declare(_parse_assignee, options=ASSIGNEES, menu="admins")
    error_category: str | None = declare.choice(
        ERROR_CATEGORIES, column="error_categories", compare=_is_in, label="error category"
    )
    version: int | None = declare.number(label="agent version", key="version", **_of_session("version"))
    environment: str | None = declare.text(menu="environments", **_of_session("environment"))
    model: str | None = declare.text(menu="models", **_of_session("model"))
    tag: str | None = declare.text(menu="tags", **_of_session("tag"))

    scanned: ClassVar[tuple[str, ...]] = (
        "source_type", "signal", "origin", "kind", "error_category", "version", "environment", "model", "tag",
    )  # fmt: skip

    def order(self, row: Any = Feedback) -> Any:
        """The indexed column that orders the list: arrival, or within days when it was given, as the volume of each day
        counts it."""
        return row.occurred_at if self.since or self.until else row.created_at

    def conditions(self, row: Any = Feedback) -> list[Condition]:
        indexed = [name for name in self.chosen if name not in (*self.unindexed, "assignee")]
        return [*self._within(row.occurred_at), *self.compare(row, indexed)]

    @property
    def unindexed(self) -> list[str]:
        """The chosen filters that no index covers; to leave a value out, most rows may have to be passed over."""
        return [name for name in self.chosen if name in {*self.scanned, *(self.excluded - {"assignee"})}]

    def scanned_conditions(self, row: Any = Feedback) -> list[Condition]:
        """What no index covers, on a row that something else has found."""
        return self.compare(row, self.unindexed)

    @property
    def window(self) -> ScanWindow | None:
        """What no index covers, and what only the session behind a row knows."""
        names = self.unindexed
        if not names:
            return None
        columns = {self.declared()[name].column or name for name in names}
        shown = {name: getattr(Feedback, name) for name in columns}
        return ScanWindow(shown, self.scanned_conditions, SCAN_LIMIT)


# Feedback in a list: its `OWN_COLUMNS`, the `SHOWN` ones, and its author, who is "a member", without an id, where the
# workspace hides authors.
FeedbackRow = SimpleNamespace
OWN_COLUMNS = (
    "id", "source_type", "kind", "rating", "signal", "origin", "confidence", "status", "comment", "session_id",
    "entity_id", "agent_id", "chat_id", "message_id", "turn_id", "trace_id", "project", "error_categories",
    "assignee_id", "created_at", "occurred_at",
)  # fmt: skip


SHOWN: dict[str, Any] = {
    "session_title": AgentSession.title,
    "golden_title": Golden.title,
    "eval_run_id": Feedback.eval_run_id,
    "agent": Agent.slug,
    "agent_version": AgentVersion.version,
    "edit_distance": Feedback.details["output_review"]["edit_distance"].as_integer(),
    "field_name": Feedback.context["field_name"].astext,
    "tool_slug": Feedback.context["tool_slug"].astext,
    "event_id": Feedback.context["event_id"].astext,
    "assignee": Assignee.name,
    "retracted": ~NOT_RETRACTED,
}
# What a row holds besides what lists show.
CONTENTS = (
    "context", "details", "outcome", "reviewed_at", "reviewed_by_user_id", "reviewed_by_agent_id", "review_notes",
)  # fmt: skip


def row_columns(actor: Actor) -> dict[str, Any]:
    """Return what a `FeedbackRow` has. Only people who give feedback are hidden, not the product."""
    hidden = and_(is_hidden(Feedback.created_by, actor), Feedback.origin == "user")
    author_id = case((not_(hidden), Feedback.created_by))
    author = case((hidden, A_MEMBER), else_=User.name)
    own = {name: getattr(Feedback, name) for name in OWN_COLUMNS}
    return own | SHOWN | {"author_id": author_id, "author": author}


ROW_NAMES = tuple(row_columns(ASKING))


def select_rows(columns: dict[str, Any], *more: Any) -> Any:
    """Rows with the names that belong to them. The golden of a failed replay is known by its id in the context. The
    offset keeps that id in one piece: row-level security lets no cast into the search of an index, and every session of
    the workspace would be compared with it."""
    golden_id = cast(Feedback.context["golden_session_id"].astext, Uuid).label("id")
    golden = select(golden_id).correlate(Feedback).offset(literal_column("0")).lateral("golden")
    return (
        select(*columns.values(), *more)
        .select_from(Feedback)
        .outerjoin(Agent, Agent.id == Feedback.agent_id)
        .outerjoin(AgentSession, AgentSession.id == Feedback.session_id)
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(User, User.id == Feedback.created_by)
        .outerjoin(Assignee, Assignee.id == Feedback.assignee_id)
        .join(golden, true())
        .outerjoin(Golden, Golden.id == golden.c.id)
    )


def make_row(columns: Iterable[str], values: Sequence[Any]) -> FeedbackRow:
    return FeedbackRow(**dict(zip(columns, values, strict=False)))


def _readable(actor: Actor, row: Any = Feedback) -> list[ColumnElement[bool]]:
    conditions = [row.tenant_id == actor.tenant_id]
    return conditions if actor.is_admin else [*conditions, row.created_by == actor.id]


def conditions_of(
    filters: FeedbackFilters, matched: Any = None, *, actor: Actor, row: Any = Feedback
) -> list[ColumnElement[bool]]:
    """What the filters ask of a row, but for what no index covers; and that its id is one of those `matched`."""
    where = [*_readable(actor, row), *filters.conditions(row)]
    if filters.author_id is not None:
        where.append(~is_hidden(row.created_by, actor))
    if filters.assignee:
        nobody, mine = filters.assignee == "nobody", filters.assignee == "me"
        wanted = None if nobody else actor.id if mine else UUID(filters.assignee)
        same = row.assignee_id.is_not_distinct_from(wanted) if nobody else row.assignee_id == wanted
        where.append(filters.unless_excluded("assignee", same))
    return where if matched is None else [*where, row.id == matched]


def list_feedback(filters: FeedbackFilters, page: Page, *, actor: Actor) -> Slice[FeedbackRow]:
    """One page of the feed: all of the workspace for admins, one's own for members. At most four queries."""
    columns = row_columns(actor)
    matches = find_matches("feedback", filters, page) if filters.q else None
    if matches and not matches.ids:
        return Slice([])
    where, count = conditions_of(filters, matches and matches.any, actor=actor), matches.count if matches else None
    order: dict[str, Any] = {"at": filters.order(), "id": Feedback.id, "oldest_first": filters.oldest_first}
    found = read_page(select_rows(columns), page, where=where, count=count, window=filters.window, **order)
    return found.map(lambda values: make_row(columns, values))


def get_feedback(feedback_id: UUID, *, actor: Actor, audit_read: bool = False, ahead: bool = False) -> FeedbackRow:
    """Return a row with its `CONTENTS`, the names of its reviewer and entity, its chat and message, and the knowledge
    made of it. `details` is what its author said; `assessment` is what an admin thinks, which only admins get. Members
    get no word of who decided, and of the knowledge only what agents get.

    With `audit_read` an admin's reading of what someone else said is put into the audit log. A panel that a page
    fetched `ahead` of a click counts as read, since the text has reached the browser. Its audit row says so.
    """
    contents: dict[str, Any] = {name: getattr(Feedback, name) for name in CONTENTS}
    names = {
        "reviewer": func.coalesce(ReviewAgent.slug, Reviewer.name),
        "entity_name": Entity.name,
        "run_set": EvalRun.set_name,
    }
    columns = row_columns(actor) | contents | names
    statement = (
        select_rows(columns, Feedback.created_by)
        .outerjoin(Reviewer, Reviewer.id == Feedback.reviewed_by_user_id)
        .outerjoin(ReviewAgent, ReviewAgent.id == Feedback.reviewed_by_agent_id)
        .outerjoin(Entity, Entity.id == Feedback.entity_id)
        .outerjoin(EvalRun, (EvalRun.tenant_id == Feedback.tenant_id) & (EvalRun.id == Feedback.eval_run_id))
        .where(*_readable(actor), Feedback.id == feedback_id)
    )
    found: Any = db.session.execute(statement).one_or_none()
    if found is None:
        raise NotFound("There is no such feedback in this workspace.")
    row, author_id = make_row(columns, found), found[-1]
    if audit_read and actor.is_admin and row.origin == "user" and author_id != actor.id:
        audit.record(actor, "feedback.read", "feedback", feedback_id, **({"ahead": True} if ahead else {}))
    row.chat, row.chat_title, row.message_text, row.message_index = _message_of(row, author_id, actor)
    row.knowledge = db.session.execute(
        select(SharedContext.id, SharedContext.type, SharedContext.content, SharedContext.state)
        .join(SharedContextFeedback, SharedContextFeedback.shared_context_id == SharedContext.id)
        .where(SharedContextFeedback.tenant_id == actor.tenant_id, SharedContextFeedback.feedback_id == feedback_id)
        .order_by(SharedContext.created_at)
    ).all()
    row.drafts = _drafts_of(feedback_id, actor) if actor.is_admin else []
    row.waits = _why_it_waits(feedback_id, actor) if actor.is_admin and row.status == "pending" else None
    if not actor.is_admin:
        vars(row).update(decision_for_author(row), reviewer=None)
        row.knowledge = [one for one in row.knowledge if one.state == "active"]
    row.assessment = row.details.get(ASSESSMENT, {}) if actor.is_admin else {}
    row.details = without_assessment(row.details)
    return row


def _why_it_waits(feedback_id: UUID, actor: Actor) -> str | None:
    """Why the last review left feedback pending."""
    link = FeedbackPatternRow
    mine = link.tenant_id == actor.tenant_id, link.feedback_id == feedback_id
    return db.session.scalar(select(link.waits).where(*mine))


def _drafts_of(feedback_id: UUID, actor: Actor) -> Sequence[Any]:
    """The drafts that were made of feedback, as `id, reason, status`."""
    made_of = ChangeDraft.tenant_id == actor.tenant_id, ChangeDraft.feedback_ids.contains([feedback_id])
    wanted = select(ChangeDraft.id, ChangeDraft.reason, ChangeDraft.status).where(*made_of)
    return db.session.execute(wanted.order_by(ChangeDraft.created_at)).all()


def _message_of(row: FeedbackRow, author_id: UUID, actor: Actor) -> tuple[Any, ...]:
    """Return the chat's id and title, and the message's text and place, when they are ours and the reader may see them.
    People may give their conversations the same name; the author means their own."""
    chat = (
        select(Chat.id, Chat.title)
        .where(Chat.tenant_id == actor.tenant_id)
        .order_by((Chat.user_id == author_id).desc(), Chat.created_at, Chat.id)
        .limit(1)
    )
    if row.message_id:
        ours = parse_id(row.message_id)
        message = (
            chat.add_columns(Message.content, Message.message_index)
            .join(Message, (Message.tenant_id == Chat.tenant_id) & (Message.chat_id == Chat.id))
            .where(Message.id == ours if ours else Message.external_id == row.message_id)
        )
        if found := db.session.execute(message).one_or_none():
            return tuple(found)
    named = db.session.execute(chat.where(is_chat(row.chat_id))).one_or_none() if row.chat_id else None
    return (*(named or (None, None)), None, None)


def load_contents(ids: list[UUID], *, actor: Actor) -> dict[UUID, dict[str, Any]]:
    """Return what these rows hold besides what lists show. Admins get the details as they were assessed, and members no
    word of who decided. One query."""
    columns = [getattr(Feedback, name) for name in ("id", "status", *CONTENTS)]
    rows = db.session.execute(select(*columns).where(*_readable(actor), Feedback.id.in_(ids)))
    seen = merge_assessment if actor.is_admin else without_assessment
    return {
        row.id: row._asdict() | {"details": seen(row.details)} | ({} if actor.is_admin else decision_for_author(row))
        for row in rows
    }


def feedback_about(*, actor: Actor, session_id: UUID | None = None, chats: Collection[str] = ()) -> list[FeedbackRow]:
    """The newest 100 rows about a session or about a chat, by whatever it is called. Members get their own. One
    query."""
    found = find_about("session" if session_id else "chat", actor.is_admin)
    return [make_row(ROW_NAMES, row) for row in found(actor, session_id=session_id, names=list(chats))]


@keep_queries
def find_about(what: str, is_admin: bool) -> Any:
    about = Feedback.session_id == value("session_id", Uuid) if what == "session" else Feedback.chat_id == NAMES
    asking = replace(ASKING, role="admin" if is_admin else "member")
    return (
        select_rows(row_columns(asking))
        .where(*_readable(asking), about)
        .order_by(Feedback.created_at.desc(), Feedback.id.desc())
        .limit(at_most(MAX_ROWS))
    )


def counted_ratings() -> tuple[Any, Any, Any]:
    """Return the counts of positive, negative and neutral rows."""
    positive, negative, neutral = (
        func.count().filter(Feedback.rating == rating, *COUNTED) for rating in ("positive", "negative", "neutral")
    )
    return positive, negative, neutral


def has_feedback(reception: str, *about: Condition) -> Condition:
    """Whether there is feedback of this rating, or none at all, about a row of a scan. With a limit PostgreSQL looks it
    up by index; without one it would hash all feedback of the rating."""
    counted = select(Feedback.id).where(*about, *COUNTED).limit(1)
    if reception == "none":
        return counted.scalar_subquery().is_(None)
    return counted.where(Feedback.rating == reception).scalar_subquery().is_not(None)
