"""Reports on reactions: which turns of a conversation have them, and which conversations have them in a period.

They count reactions alone, by origin and by what was said. Members get what they said themselves, admins everything;
the database sees to that.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, func, select, tuple_
from sqlalchemy.dialects.postgresql import distinct_on

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.formats.ids import parse_id
from app.learning.reactions import Counts, Reaction, by_turn, user_type_of
from app.models import Chat, Feedback, Membership, Message
from app.services.feedback.intake import NOT_RETRACTED
from app.services.feedback.reactions import Conversation
from app.services.privacy import is_hidden

COUNT_NAMES = {"user": "user", "machine": "machine", "positive": "ok", "negative": "not_ok", "neutral": "neutral"}
NEWEST_NAME = func.coalesce(Feedback.context["chat_id"].astext, Feedback.chat_id)


@dataclass(frozen=True)
class TurnMessage:
    """A message of a turn."""

    message_id: UUID
    text: str
    at: datetime


@dataclass(frozen=True)
class ReactedTurn:
    turn_id: str
    reactions: list[Reaction]
    user: TurnMessage | None = None
    assistant: TurnMessage | None = None

    @property
    def at(self) -> datetime:
        return max(reaction.at for reaction in self.reactions)


@dataclass(frozen=True)
class ReactedConversation:
    """A conversation with reactions in the period."""

    conversation_id: str
    last_activity_at: datetime
    started_at: datetime | None
    counts: Counts
    turns: list[ReactedTurn] | None = None


@dataclass(frozen=True, kw_only=True)
class Period:
    """Which reactions are wanted: those of a project from `start` to `end`, both included."""

    project: str
    start: datetime
    end: datetime
    include_turns: bool = False
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True)
class ReportCursor:
    """Where a page ended."""

    at: datetime
    chat_id: str

    def text(self) -> str:
        return base64.urlsafe_b64encode(f"{self.at.isoformat()}|{self.chat_id}".encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> ReportCursor:
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            at, mark, chat_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition("|")
            moment = datetime.fromisoformat(at)
            if not mark or moment.tzinfo is None or "\x00" in chat_id:
                raise ValueError
            return cls(moment, chat_id)
        except (ValueError, binascii.Error):
            sentence = "Not a cursor of this report; leave it out to begin at the first page."
            raise Invalid.of({"cursor": sentence}) from None


@dataclass
class PageParts:
    """Conversations of one page by the id that their rows carry."""

    names: dict[str, str] = field(default_factory=dict)
    started: dict[str, datetime] = field(default_factory=dict)
    reactions: dict[str, list[Reaction]] = field(default_factory=dict)


def turns_with_feedback(
    conversation: Conversation, turn_ids: Sequence[str] | None, days: int, *, actor: Actor
) -> list[ReactedTurn]:
    """The turns of a conversation that were reacted to in the last days, oldest first, with what was said in them."""
    since = datetime.now(UTC) - timedelta(days=days)
    which = [Feedback.chat_id == str(conversation.id), Feedback.occurred_at >= since]
    if turn_ids is not None:
        which.append(Feedback.turn_id.in_(turn_ids))
    turns = by_turn(reaction for _, reaction in _reactions(which, actor, conversation.name))
    said = _messages_of(conversation, list(turns), actor)
    return [ReactedTurn(turn_id, found, *said.get(turn_id, (None, None))) for turn_id, found in turns.items()]


def conversations_in_period(period: Period, *, actor: Actor) -> tuple[list[ReactedConversation], str | None]:
    """Conversations with reactions in the period, the latest active first, and the cursor of the next page."""
    if period.start > period.end:
        raise Invalid.of({"start": "This is after `end`."})
    rows = _grouped(period, actor)
    more = len(rows) > period.limit
    rows = rows[: period.limit]
    groups = _described(period, [row.chat_id for row in rows], actor) if rows else PageParts()
    items = [_activity(row, groups, period.include_turns) for row in rows]
    following = ReportCursor(rows[-1].at, rows[-1].chat_id).text() if more else None
    return items, following


def _of_period(period: Period, actor: Actor) -> list[ColumnElement[bool]]:
    return [
        *_counted(actor),
        Feedback.project == period.project,
        Feedback.occurred_at >= period.start,
        Feedback.occurred_at <= period.end,
        Feedback.chat_id.is_not(None),
        Feedback.turn_id.is_not(None),
    ]


def _counted(actor: Actor) -> list[ColumnElement[bool]]:
    return [
        Feedback.tenant_id == actor.tenant_id,
        Feedback.kind == "reaction",
        Feedback.origin.in_(("user", "machine")),
        NOT_RETRACTED,
        *([] if actor.is_admin else [Feedback.created_by == actor.id]),
    ]


def _grouped(period: Period, actor: Actor) -> Sequence[Any]:
    latest = func.max(Feedback.occurred_at)
    counts = [
        func.count().filter((Feedback.origin if value in ("user", "machine") else Feedback.rating) == value).label(name)
        for value, name in COUNT_NAMES.items()
    ]
    statement = (
        select(Feedback.chat_id, latest.label("at"), *counts)
        .where(*_of_period(period, actor))
        .group_by(Feedback.chat_id)
        .order_by(latest.desc(), Feedback.chat_id.desc())
        .limit(period.limit + 1)
    )
    if period.cursor is not None:
        place = ReportCursor.read(period.cursor)
        statement = statement.having(tuple_(latest, Feedback.chat_id) < tuple_(place.at, place.chat_id))
    return db.session.execute(statement).all()


def _described(period: Period, chat_ids: list[str], actor: Actor) -> PageParts:
    """Names, beginnings and, when they are wanted, the reactions themselves."""
    groups = PageParts()
    which = [*_of_period(period, actor), Feedback.chat_id.in_(chat_ids)]
    if period.include_turns:
        for chat_id, reaction in _reactions(which, actor):
            groups.reactions.setdefault(chat_id, []).append(reaction)
            groups.names[chat_id] = reaction.conversation_id
    else:
        names = (
            select(Feedback.chat_id, NEWEST_NAME.label("name"))
            .where(*which)
            .ext(distinct_on(Feedback.chat_id))
            .order_by(Feedback.chat_id, Feedback.occurred_at.desc(), Feedback.id.desc())
        )
        groups.names = {row.chat_id: row.name for row in db.session.execute(names)}
    ours = [found for chat_id in chat_ids if (found := parse_id(chat_id))]
    begun = select(Chat.id, Chat.created_at).where(Chat.tenant_id == actor.tenant_id, Chat.id.in_(ours))
    groups.started = {str(row.id): row.created_at for row in db.session.execute(begun)}
    return groups


def _reactions(which: list[ColumnElement[bool]], actor: Actor, name: str | None = None) -> list[tuple[str, Reaction]]:
    """Reactions in the order they were given, each with the id of its chat. A hidden author has no type."""
    hidden = is_hidden(Feedback.created_by, actor)
    rows = db.session.execute(
        select(
            Feedback.id, Feedback.chat_id, NEWEST_NAME.label("name"), Feedback.turn_id, Feedback.rating,
            Feedback.comment, Feedback.confidence, Feedback.origin, Feedback.occurred_at, Membership.role,
            case((hidden, True), else_=False).label("hidden"),
        )
        .outerjoin(
            Membership,
            and_(Membership.tenant_id == Feedback.tenant_id, Membership.user_id == Feedback.created_by),
        )
        .where(*_counted(actor), *which)
        .order_by(Feedback.occurred_at, Feedback.id)
    )  # fmt: skip
    return [
        (
            row.chat_id,
            Reaction(
                row.id, name or row.name, row.turn_id, row.rating, row.comment, row.confidence, row.origin,
                row.occurred_at, None if row.hidden else user_type_of(row.role, row.origin),
            ),
        )
        for row in rows
    ]  # fmt: skip


def _messages_of(
    conversation: Conversation, turn_ids: list[str], actor: Actor
) -> dict[str, tuple[TurnMessage | None, TurnMessage | None]]:
    """For each turn the first thing the person said and the last answer."""
    found: dict[str, tuple[TurnMessage | None, TurnMessage | None]] = {}
    rows = db.session.execute(
        select(Message.id, Message.turn_id, Message.role, Message.content, Message.created_at)
        .where(
            Message.tenant_id == actor.tenant_id,
            Message.chat_id == conversation.id,
            Message.turn_id.in_(turn_ids),
            Message.role.in_(("user", "agent")),
        )
        .order_by(Message.message_index)
    )
    for row in rows:
        user, assistant = found.get(row.turn_id, (None, None))
        said = TurnMessage(row.id, row.content, row.created_at)
        found[row.turn_id] = (user or said, assistant) if row.role == "user" else (user, said)
    return found


def _activity(row: Any, groups: PageParts, include_turns: bool) -> ReactedConversation:
    counts = Counts(**{name: getattr(row, name) for name in COUNT_NAMES.values()})
    turns = None
    if include_turns:
        turns = [
            ReactedTurn(turn_id, found) for turn_id, found in by_turn(groups.reactions.get(row.chat_id, [])).items()
        ]
    name = groups.names.get(row.chat_id, row.chat_id)
    return ReactedConversation(name, row.at, groups.started.get(row.chat_id), counts, turns)
