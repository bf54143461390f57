"""Conversations in a list: who asked, what first, how it was received."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Text, Uuid, any_, cast, func, select
from sqlalchemy.dialects.postgresql import array

from app.actor import Actor
from app.db.paging import Page, ScanWindow, Slice, Source, read_kept_page
from app.db.queries import ASKING, NAMES, Query, value
from app.models import Agent, AgentSession, AgentVersion, Chat, Feedback, Message, User
from app.services.feedback.lists import RECEPTIONS, counted_ratings, has_feedback
from app.services.lists import filters as declare
from app.services.lists.filters import MATCHED, Condition, Filters, counted_matches, find_matches
from app.services.privacy import id_of, is_hidden, name_of

SCAN_LIMIT = 1000


@dataclass(frozen=True, kw_only=True)
class ChatFilters(Filters):
    """`rating` is how a conversation was received; the window of the list finds that out."""

    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    person_id: UUID | None = declare.id_of_row(column="user_id", label="person", menu="people")
    rating: str | None = declare.choice(RECEPTIONS, label="feedback")
    project: str | None = declare.text(menu="projects")
    external_id: str | None = declare.outside_id(label="external id")

    @property
    def scanned(self) -> list[str]:
        """The chosen filters that no index covers, beside the rating."""
        return [name for name in self.chosen if name != "rating" and (name == "project" or name in self.excluded)]

    def conditions(self) -> list[Condition]:
        names = [name for name in self.chosen if name not in ("rating", *self.scanned)]
        return [*self._within(Chat.last_message_at), *self.compare(Chat, names)]


# A conversation in a list; the last three are how it was received.
ROW = (
    "id", "external_id", "project", "title", "person_id", "person", "agent_id", "agent", "agent_version",
    "message_count", "turns", "golden_set", "created_at", "last_message_at", "positive", "negative", "neutral",
)  # fmt: skip


def list_chats(filters: ChatFilters, page: Page, *, actor: Actor, own: bool = False) -> Slice[Any]:
    """One page of the workspace's conversations, by last activity. With `own` they are the actor's, and so is the
    feedback that is counted. At most four queries."""
    matches = find_matches("chats", filters, page) if filters.q else None
    if matches and not matches.ids:
        return Slice([])
    same, values = filters.as_parameters()
    key = same, own, matches is not None
    found = read_kept_page(_source, key, page, actor=actor, **counted_matches(matches), **values)
    names = {name: row[0] for row in found.items for name in (str(row[0]), row[1]) if name}
    received = _ratings_of(names, own, actor)
    return found.map(lambda row: SimpleNamespace(**dict(zip(ROW, row + received.get(row[0], (0, 0, 0)), strict=True))))


def _source(filters: ChatFilters, own: bool, matched: bool) -> Source:
    where: list[Any] = [Chat.tenant_id == ASKING.tenant_id, *filters.conditions()]
    if own:
        where.append(Chat.user_id == ASKING.id)
    if filters.person_id is not None:
        where.append(~is_hidden(Chat.user_id, ASKING))
    if matched:
        where.append(Chat.id == MATCHED)
    golden = _of_this_chat(AgentSession.golden_set, AgentSession, AgentSession.golden_set.is_not(None)).limit(1)
    statement = (
        select(
            Chat.id, Chat.external_id, Chat.project, Chat.title, id_of(Chat.user_id, ASKING),
            name_of(Chat.user_id, ASKING), Chat.agent_id, Agent.slug, _version(), Chat.message_count,
            _of_this_chat(func.count(), Message, Message.role == "user").scalar_subquery(), golden.scalar_subquery(),
            Chat.created_at, Chat.last_message_at,
        )
        .outerjoin(Agent, Agent.id == Chat.agent_id)
        .outerjoin(User, User.id == Chat.user_id)
    )  # fmt: skip
    return Source(statement, Chat.last_message_at, Chat.id, where, filters.oldest_first, _window(filters))


def _window(filters: ChatFilters) -> ScanWindow | None:
    """Filter conversations by what no index covers and by how they were received.

    Our own id is carried as text: compared with the feedback's opaque one only after a cast, the policy on feedback
    would keep PostgreSQL from using the index.
    """
    if not (filters.rating or filters.scanned):
        return None

    def predicate(row: Any) -> list[Any]:
        found: list[Any] = filters.compare(row, filters.scanned)
        if filters.rating:
            mine = Feedback.tenant_id == ASKING.tenant_id, Feedback.chat_id == any_(array([row.name, row.external_id]))
            found.append(filters.unless_excluded("rating", has_feedback(filters.rating, *mine)))
        return found

    needed = {filters.declared()[name].column or name for name in (*filters.scanned, "external_id")}
    columns = {"name": cast(Chat.id, Text), **{name: getattr(Chat, name) for name in sorted(needed)}}
    return ScanWindow(columns, predicate, SCAN_LIMIT)


def _of_this_chat(column: Any, model: Any, *where: Any) -> Any:
    mine = (model.tenant_id == Chat.tenant_id, model.chat_id == Chat.id)
    return select(column).select_from(model).where(*mine, *where).correlate(Chat)


def _version() -> Any:
    """The agent's version in the chat's latest session."""
    return (
        _of_this_chat(AgentVersion.version, AgentSession)
        .join(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .order_by(AgentSession.created_at.desc())
        .limit(1)
        .scalar_subquery()
    )


@Query
def find_ratings() -> Any:
    author = func.coalesce(value("author", Uuid), Feedback.created_by)
    return (
        select(Feedback.chat_id, *counted_ratings())
        .where(Feedback.tenant_id == ASKING.tenant_id, Feedback.chat_id == NAMES, Feedback.created_by == author)
        .group_by(Feedback.chat_id)
    )


def _ratings_of(names: dict[str, UUID], own: bool, actor: Actor) -> dict[UUID, tuple[int, ...]]:
    """How each chat was received, by all or by the actor. Feedback names a chat by our id or by the id that its own
    product gave it."""
    rows = find_ratings(actor, names=list(names), author=actor.id if own else None) if names else []
    found: dict[UUID, tuple[int, ...]] = {}
    for name, *counts in rows:
        before = found.get(names[name], (0, 0, 0))
        found[names[name]] = tuple(map(sum, zip(before, counts, strict=True)))
    return found
