"""Signals on messages: six of them, each at most once for a message and a person, and private to that person.

A key writes in its own workspace. A person in a browser may be in several: a signal with a known chat belongs to the
workspace of that chat, any other to the newest membership, and one that turns out to belong elsewhere moves there. All
of it is one transaction, which is bound to one workspace after the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, select, tuple_

from app.actor import Actor
from app.db import db
from app.db.paging import Cursor, Page, Slice
from app.learning.signals import OPPOSITE, weight_of
from app.models import Chat, Feedback
from app.services.feedback.intake import (
    NOT_RETRACTED,
    VISITOR_IDS,
    NewFeedback,
    is_untouched,
    record_feedback,
    retract_feedback,
)
from app.services.feedback.links import is_chat, lock_thumbs
from app.services.workspaces import identity

COLUMNS = (
    Feedback.id, Feedback.message_id, Feedback.chat_id, Feedback.trace_id, Feedback.signal, Feedback.comment,
    Feedback.rating, Feedback.status, Feedback.details, Feedback.created_at, Feedback.occurred_at,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NewSignal:
    """The ids are the sender's own words; without a message the trace says what it is about."""

    signal: str
    message_id: str | None = None
    chat_id: str | None = None
    trace_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class SignalRow:
    """A signal as its author sees it."""

    id: UUID
    message_id: str
    chat_id: str | None
    trace_id: str | None
    signal: str
    reason: str | None
    rating: str
    weight: float
    edit_distance: int | None
    status: str
    created_at: datetime
    occurred_at: datetime


@dataclass(frozen=True)
class SignalFilters:
    message_id: str | None = None
    chat_id: str | None = None
    trace_id: str | None = None
    signal: str | None = None

    def conditions(self, actor: Actor) -> list[ColumnElement[bool]]:
        given = {name: value for name, value in vars(self).items() if value is not None}
        return [_column(name, actor) == value for name, value in given.items()]


def _column(name: str, actor: Actor) -> Any:
    """Where what is asked for is found. A visitor asks for what they sent, not for what the server made of it."""
    if actor.vouched_by is not None and name in VISITOR_IDS:
        return Feedback.details["sent"][name].astext
    return getattr(Feedback, name)


@dataclass(frozen=True)
class OtherWorkspaceSignal:
    """The same signal in another workspace of the same person."""

    actor: Actor
    id: UUID
    chat_id: str | None
    trace_id: str | None
    created_at: datetime


def record_signal(new: NewSignal, *, actor: Actor, commit: bool = False) -> tuple[SignalRow, bool]:
    """Write the signal, or change the one that is there; say whether it is new. A thumb takes its opposite back. What
    is `last` in its transaction may be committed along the way."""
    if not _in_a_browser(actor):
        return _write(new, actor, commit=commit)
    places = identity.tenants_of(actor.id)
    if places == [actor.tenant_id]:
        return _write(new, actor)
    with _back_as(actor):
        return _anchor(new, places, actor)


def list_signals(filters: SignalFilters, page: Page, *, actor: Actor) -> Slice[SignalRow]:
    """One's own signals that stand, newest first: of the key's workspace, or of all one's workspaces in a browser."""
    cursor = Cursor.read(page.cursor) if page.cursor else None
    found: list[Row[Any]] = []
    for _ in _workspaces_of(actor):
        found += _own(filters.conditions(actor), cursor, page.limit + 1, actor)
    found.sort(key=lambda row: (row.created_at, row.id), reverse=True)
    shown = found[: page.limit]
    more = len(found) > page.limit
    following = Cursor(True, shown[-1].created_at, shown[-1].id).text() if more else None
    return Slice([_row(row, actor) for row in shown], following)


def retract_signal(message_id: str, signal: str, *, actor: Actor) -> None:
    """Take a signal back, wherever it was put. What is not there is taken back already."""
    for place in _workspaces_of(actor):
        _take_back(message_id, signal, place)


def _take_back(message_id: str, signal: str, place: Actor) -> None:
    retract_feedback(
        Feedback.kind == "signal", *SignalFilters(message_id, signal=signal).conditions(place), actor=place
    )


def _write(
    new: NewSignal, actor: Actor, id: UUID | None = None, created_at: datetime | None = None, *, commit: bool = False
) -> tuple[SignalRow, bool]:
    stored = record_feedback(
        NewFeedback(
            id=id,
            kind="signal",
            signal=new.signal,
            # The server would name a message that it finds by its trace with an id that a visitor may not learn.
            message_id=new.message_id or (new.trace_id if actor.vouched_by else None),
            chat_id=new.chat_id,
            trace_id=new.trace_id,
            comment=new.reason,
            created_at=created_at,
            occurred_at=datetime.now(UTC),
        ),
        actor=actor,
        commit=commit,
    )
    return _row(stored.row, actor), stored.created


def _anchor(new: NewSignal, places: list[UUID], actor: Actor) -> tuple[SignalRow, bool]:
    """Write it in the workspace it belongs to, and take it out of the others. The opposite goes from all of them."""
    target: Actor | None = None
    known: list[OtherWorkspaceSignal] = []
    name, opposite = new.message_id or new.trace_id, OPPOSITE.get(new.signal)
    if name and opposite:
        lock_thumbs(actor.id, name)
    for place in _workspaces_of(actor):
        if name and opposite:
            _take_back(name, opposite, place)
        known += _same_signal(new, place)
        if target is None and new.chat_id and _has_chat(new.chat_id, place):
            target = place
    if target is None:
        newest = identity.enter_workspace(actor.id, places[-1], actor.request_id) if places else None
        target = known[0].actor if known else newest or actor
    here = [one for one in known if one.actor.tenant_id == target.tenant_id]
    left = [one for one in known if one.actor.tenant_id != target.tenant_id]
    moving = [one for one in left if _take_out(one)]
    identity.work_as(target)
    if here or not moving:
        row, created = _write(new, target)
        return row, created and not left
    first = moving[0]
    more = replace(new, trace_id=new.trace_id or first.trace_id, chat_id=new.chat_id or first.chat_id)
    row, _ = _write(more, target, first.id, first.created_at)
    return row, False


def _same_signal(new: NewSignal, place: Actor) -> list[OtherWorkspaceSignal]:
    which = Feedback.message_id == new.message_id if new.message_id else Feedback.trace_id == new.trace_id
    rows = db.session.execute(
        select(Feedback.id, Feedback.chat_id, Feedback.trace_id, Feedback.created_at).where(
            Feedback.tenant_id == place.tenant_id,
            Feedback.created_by == place.id,
            Feedback.kind == "signal",
            Feedback.signal == new.signal,
            which,
            NOT_RETRACTED,
        )
    )
    return [OtherWorkspaceSignal(place, *row) for row in rows]


def _has_chat(chat_id: str, place: Actor) -> bool:
    found = select(Chat.id).where(Chat.tenant_id == place.tenant_id, is_chat(chat_id)).limit(1)
    return db.session.scalar(found) is not None


def _take_out(one: OtherWorkspaceSignal) -> bool:
    """Take the row out of its workspace; false when something was decided about it there, so that it stays, marked."""
    identity.work_as(one.actor)
    alone = db.session.scalar(select(is_untouched()).where(Feedback.id == one.id).with_for_update(of=Feedback))
    retract_feedback(Feedback.id == one.id, actor=one.actor)
    return bool(alone)


def _own(which: list[ColumnElement[bool]], cursor: Cursor | None, limit: int, actor: Actor) -> list[Row[Any]]:
    bound: Actor = db.session().info["actor"]
    statement = select(*COLUMNS).where(
        Feedback.tenant_id == bound.tenant_id,
        Feedback.created_by == actor.id,
        Feedback.kind == "signal",
        NOT_RETRACTED,
        *which,
    )
    if cursor is not None:
        statement = statement.where(tuple_(Feedback.created_at, Feedback.id) < tuple_(cursor.at, cursor.id))
    return list(db.session.execute(statement.order_by(Feedback.created_at.desc(), Feedback.id.desc()).limit(limit)))


def _row(row: Any, actor: Actor) -> SignalRow:
    """The row for its author. A visitor gets the ids that they sent, and no measure of the answer that they edited: the
    distance to guesses would tell them its words."""
    review = row.details.get("output_review", {})
    ids = {"chat_id": row.chat_id, "trace_id": row.trace_id}
    if actor.vouched_by is not None:
        review, ids = {}, {name: row.details.get("sent", {}).get(name) for name in VISITOR_IDS}
    return SignalRow(
        id=row.id,
        message_id=row.message_id,
        **ids,
        signal=row.signal,
        reason=row.comment,
        rating=row.rating,
        weight=weight_of(row.signal),
        edit_distance=review.get("edit_distance"),
        status=row.status,
        created_at=row.created_at,
        occurred_at=row.occurred_at,
    )


def _in_a_browser(actor: Actor) -> bool:
    return actor.scopes is None and actor.role != "system"


def _workspaces_of(actor: Actor) -> Iterator[Actor]:
    """Act in each workspace of the actor's in turn: the one they are in, then the others from the newest on."""
    yield actor
    if not _in_a_browser(actor):
        return
    others = [place for place in reversed(identity.tenants_of(actor.id)) if place != actor.tenant_id]
    if not others:
        return
    with _back_as(actor):
        for tenant_id in others:
            entered = identity.enter_workspace(actor.id, tenant_id, actor.request_id)
            if entered is not None:
                yield entered


@contextmanager
def _back_as(actor: Actor) -> Iterator[None]:
    """Whatever workspaces are visited inside, afterwards the actor acts where they did before."""
    try:
        yield
    except BaseException:
        db.session().info["actor"] = actor
        raise
    identity.work_as(actor)
