"""Knowledge as it is read: the list, one row with its signals, its history, and the counts on the tab."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Uuid, case, cast, func, select
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, Source, read_kept_page
from app.db.queries import ASKING, IDS, Query, value
from app.errors import NotFound
from app.learning.prompt import scope_of
from app.models import (
    Agent,
    EntityType,
    Feedback,
    SharedContext,
    SharedContextFeedback,
    SharedContextHistory,
    SharedContextUsage,
    User,
)
from app.models.knowledge import KNOWLEDGE_STATES, KNOWLEDGE_TYPES
from app.services.knowledge.attribution import Attribution
from app.services.lists import filters as declare
from app.services.lists.filters import (
    MATCHED,
    YES_NO,
    Condition,
    Filters,
    Matches,
    counted_matches,
    find_ids,
    is_type,
)
from app.services.privacy import name_of
from app.text.hidden_characters import hidden_signs

Writer = aliased(Agent)
Measured = aliased(SharedContextUsage)
MAX_SIGNALS = 100


def _is_harmful(row_id: Any, wanted: str) -> Any:
    """Rows that are flagged as harmful, or all others."""
    flagged = row_id.in_(select(Measured.shared_context_id).where(Measured.is_harmful))
    return flagged if wanted == "yes" else ~flagged


@dataclass(frozen=True, kw_only=True)
class KnowledgeFilters(Filters):
    """Deleted rows show only when their state is chosen."""

    type: str | None = declare.choice(KNOWLEDGE_TYPES, label="kind")
    state: str | None = declare.choice(KNOWLEDGE_STATES)
    scope: str | None = declare.choice(("workspace", "agent", "entity_type", "both"), excludable=False)
    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    entity_type: str | None = declare.slug(column="entity_type_id", compare=is_type, label="entity type", menu="types")
    harmful: str | None = declare.choice(YES_NO, column="id", compare=_is_harmful)

    def conditions(self) -> list[Condition]:
        found = self._within(SharedContext.updated_at)
        found += self.compare(SharedContext, [name for name in self.chosen if name != "scope"])
        if not self.state or "state" in self.excluded:
            found.append(SharedContext.state != "deleted")
        if self.scope:
            of_agent, of_type = SharedContext.agent_id.is_not(None), SharedContext.entity_type_id.is_not(None)
            found.append(of_agent if self.scope in ("agent", "both") else ~of_agent)
            found.append(of_type if self.scope in ("entity_type", "both") else ~of_type)
        return found


@dataclass(frozen=True)
class KnowledgeRow:
    id: UUID
    type: str
    content: str
    context: str | None
    state: str
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
    last_injected_at: datetime | None
    helpful: int
    harmful: int
    signals: int
    people: int
    sessions: int
    created_at: datetime
    updated_at: datetime
    # The row whose words a proposal would change, and the session that a tool wrote it in.
    replaces: UUID | None = None
    proposed_in: UUID | None = None
    author_agent_id: UUID | None = None
    # The row that a proposal would take out of use, and why.
    retires: UUID | None = None
    retire_reason: str | None = None
    target_version: int | None = None
    exposed: int = 0
    exposed_negative: int = 0
    unexposed: int = 0
    unexposed_negative: int = 0
    is_harmful: bool = False

    @property
    def kind(self) -> str:
        """What a proposal asks for."""
        return "retire" if self.retires else "change" if self.replaces else "new"

    @property
    def target_id(self) -> UUID | None:
        """The row that a proposal is about."""
        return self.retires or self.replaces

    @property
    def attribution(self) -> Attribution:
        """How sessions with the row were received, and those without it."""
        return Attribution(self.exposed, self.exposed_negative, self.unexposed, self.unexposed_negative)

    @property
    def hides_text(self) -> bool:
        """Whether it has hidden characters. It was then stored before saving refused them, and no prompt gets it."""
        return bool(hidden_signs(self.content) or hidden_signs(self.context or ""))

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def scope(self) -> str:
        return scope_of(self.agent_id, self.entity_type_id)


@dataclass(frozen=True)
class Target:
    """What a row says now that a proposal is about."""

    id: UUID
    content: str
    context: str | None
    state: str
    version: int


@dataclass(frozen=True)
class KnowledgeDetail:
    """A row, the newest feedback behind it, and the words of the rows that it is linked with."""

    row: KnowledgeRow
    signals: list[Any]
    superseded_by_content: str | None
    target: Target | None


# Who said it; what the product noted itself is said by nobody.
PERSON = case((Feedback.origin == "user", Feedback.created_by))


def _count_signals(what: Any) -> Any:
    """A count over the signals behind a row."""
    link = SharedContextFeedback
    return (
        select(func.count(what))
        .select_from(link)
        .join(Feedback, (Feedback.tenant_id == link.tenant_id) & (Feedback.id == link.feedback_id))
        .where(link.tenant_id == SharedContext.tenant_id, link.shared_context_id == SharedContext.id)
        .correlate(SharedContext)
        .scalar_subquery()
    )


def _select_rows() -> Any:
    row, used = SharedContext, SharedContextUsage
    return (
        select(
            row.id, row.type, row.content, row.context, row.state, row.version, row.pinned, row.rank, row.agent_id,
            Agent.slug, row.entity_type_id, EntityType.slug, row.source_feedback_id, row.superseded_by, User.name,
            Writer.slug, func.coalesce(used.injected, 0), used.last_injected_at, func.coalesce(used.helpful, 0),
            func.coalesce(used.harmful, 0), _count_signals(Feedback.id), _count_signals(PERSON.distinct()),
            _count_signals(Feedback.session_id.distinct()), row.created_at, row.updated_at,
            cast(row.meta["replaces"]["id"].astext, Uuid), cast(row.meta["proposed"]["session_id"].astext, Uuid),
            row.created_by_agent_id, cast(row.meta["retires"]["id"].astext, Uuid), row.meta["retires"]["reason"].astext,
            cast(func.coalesce(row.meta["replaces"], row.meta["retires"])["version"].astext, Integer),
            func.coalesce(used.exposed, 0), func.coalesce(used.exposed_negative, 0),
            func.coalesce(used.unexposed, 0), func.coalesce(used.unexposed_negative, 0),
            func.coalesce(used.is_harmful, False),
        )
        .select_from(row)
        .outerjoin(Agent, Agent.id == row.agent_id)
        .outerjoin(EntityType, EntityType.id == row.entity_type_id)
        .outerjoin(User, User.id == row.created_by_user_id)
        .outerjoin(Writer, Writer.id == row.created_by_agent_id)
        .outerjoin(used, used.shared_context_id == row.id)
    )  # fmt: skip


def list_rows(filters: KnowledgeFilters, page: Page, *, actor: Actor) -> Slice[KnowledgeRow]:
    """One page of knowledge, last changed first. At most two queries."""
    matches = Matches(find_ids("knowledge", filters.q)) if filters.q else None
    if matches and not matches.ids:
        return Slice([])
    same, values = filters.as_parameters()
    key = same, matches is not None
    found = read_kept_page(_source, key, page, actor=actor, **counted_matches(matches), **values)
    return found.map(lambda row: KnowledgeRow(*row))


def _source(filters: KnowledgeFilters, matched: bool) -> Source:
    where = [SharedContext.tenant_id == ASKING.tenant_id, *filters.conditions()]
    if matched:
        where.append(SharedContext.id == MATCHED)
    return Source(_select_rows(), SharedContext.updated_at, SharedContext.id, where, filters.oldest_first)


def get_row(row_id: UUID, *, actor: Actor) -> KnowledgeDetail:
    """One row and the feedback behind it."""
    found = get_rows([row_id], actor=actor)
    if not found:
        raise NotFound("There is no such knowledge row in this workspace.")
    row = found[0]
    linked = [other for other in (row.superseded_by, row.target_id) if other]
    known = targets_of(linked, actor=actor)
    signals = evidence_of([row_id], actor=actor, each=MAX_SIGNALS).get(row_id, [])
    heir, target = (known.get(other) if other else None for other in (row.superseded_by, row.target_id))
    return KnowledgeDetail(row, signals, heir.content if heir else None, target)


def targets_of(row_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, Target]:
    """What the rows say that proposals are about. One query, none for none."""
    if not row_ids:
        return {}
    row = SharedContext
    mine = row.tenant_id == actor.tenant_id, row.id.in_(row_ids)
    columns = row.id, row.content, row.context, row.state, row.version
    return {found.id: Target(*found) for found in db.session.execute(select(*columns).where(*mine))}


def get_rows(row_ids: Sequence[UUID], *, actor: Actor) -> list[KnowledgeRow]:
    """These rows, in this order, as far as there are such. One query."""
    rows = db.session.execute(
        _select_rows().where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(row_ids))
    )
    found = {row.id: row for row in (KnowledgeRow(*row) for row in rows)}
    return [found[row_id] for row_id in row_ids if row_id in found]


def evidence_of(row_ids: Sequence[UUID], *, actor: Actor, each: int = 3) -> dict[UUID, list[Any]]:
    """The feedback behind each of these rows, the clearest first, as `id, rating, comment, preferred_answer, author,
    session_id, created_at`. One query."""
    found: dict[UUID, list[Any]] = {}
    for row in find_evidence.rows(actor, ids=list(row_ids), each=each) if row_ids else ():
        found.setdefault(row.shared_context_id, []).append(row)
    return found


@Query
def find_evidence() -> Any:
    link = SharedContextFeedback
    preferred = Feedback.details["preferred_answer"].astext
    behind = (
        select(
            link.shared_context_id, Feedback.id, Feedback.rating, Feedback.comment, preferred.label("preferred_answer"),
            name_of(Feedback.created_by, ASKING, Feedback.origin == "user").label("author"),
            Feedback.session_id, Feedback.created_at,
            func.row_number().over(partition_by=link.shared_context_id, order_by=_clearest()).label("place"),
        )
        .join(SharedContext, (SharedContext.tenant_id == link.tenant_id) & (SharedContext.id == link.shared_context_id))
        .join(Feedback, (Feedback.tenant_id == link.tenant_id) & (Feedback.id == link.feedback_id))
        .outerjoin(User, User.id == Feedback.created_by)
        .where(link.tenant_id == ASKING.tenant_id, link.shared_context_id == IDS)
        .subquery()
    )  # fmt: skip
    return select(behind).where(behind.c.place <= value("each", Integer)).order_by(behind.c.place)


def _clearest() -> tuple[Any, ...]:
    """The order of signals behind a row: the one that it was made of, people, flags, edits, reasons, the newest."""
    return (
        (Feedback.id == SharedContext.source_feedback_id).desc().nulls_last(),
        (Feedback.origin == "user").desc(),
        (Feedback.kind == "flag").desc(),
        Feedback.details.has_key("preferred_answer").desc(),
        Feedback.comment.is_(None),
        Feedback.created_at.desc(),
        Feedback.id,
    )


def signal_ids_of(row_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, list[UUID]]:
    """The ids of all feedback behind each of these rows, in the order in which it came. One query."""
    link = SharedContextFeedback
    behind = (
        select(link.shared_context_id, link.feedback_id)
        .where(link.tenant_id == actor.tenant_id, link.shared_context_id.in_(row_ids))
        .order_by(link.created_at, link.id)
    )
    found: dict[UUID, list[UUID]] = {}
    for row_id, feedback_id in db.session.execute(behind) if row_ids else ():
        found.setdefault(row_id, []).append(feedback_id)
    return found


def history_of(row_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """Every change of a row, newest first, as `version, action, before, after, reason, author, created_at`."""
    history = SharedContextHistory
    author = func.coalesce(User.name, Agent.slug).label("author")
    return db.session.execute(
        select(
            history.version, history.action, history.before, history.after, history.reason, author, history.created_at
        )
        .outerjoin(User, User.id == history.user_id)
        .outerjoin(Agent, Agent.id == history.agent_id)
        .where(history.tenant_id == actor.tenant_id, history.shared_context_id == row_id)
        .order_by(history.version.desc())
    ).all()


def count_rows(actor: Actor) -> dict[str, int]:
    """How many rows there are: active ones by type, the others by state, together all but deleted ones. One query."""
    return dict(find_counts(actor))


@Query
def find_counts() -> Any:
    kind = case((SharedContext.active, SharedContext.type), else_=SharedContext.state).label("kind")
    return (
        select(kind, func.count())
        .where(SharedContext.tenant_id == ASKING.tenant_id, SharedContext.state != "deleted")
        .group_by("kind")
    )
