"""Signals on messages: six of them, each at most once for a message and a person, and private to that person.

A key writes in its own workspace. A person in a browser may be in several: a signal with a known chat belongs to the
workspace of that chat, any other to the newest membership, and one that turns out to belong elsewhere moves there. All
of it is one transaction, which is bound to one workspace after the other.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, select, tuple_

from app.actor import Actor
from app.db import db
from app.db.paging import Cursor, Page, Slice
from app.learning.signals import weight_of
from app.models import Chat, Feedback
from app.services.feedback.intake import (
    NOT_RETRACTED,
    VISITOR_IDS,
    NewFeedback,
    StoredFeedback,
    is_untouched,
    record_feedback,
    retract_feedback,
)
from app.services.feedback.store import is_chat, lock_thumbs
from app.services.workspaces import identity

COLUMNS = (
    Feedback.id, Feedback.message_id, Feedback.chat_id, Feedback.trace_id, Feedback.signal, Feedback.comment,
    Feedback.rating, Feedback.status, Feedback.details, Feedback.created_at, Feedback.occurred_at,
)  # fmt: skip


def record_signal(new: NewFeedback, *, actor: Actor, commit: bool = False) -> StoredFeedback:
    """Write the signal, or change the one that exists. A thumb retracts its opposite. With `commit` it may be committed
    along the way."""
    if actor.vouched_by:
        # The server would name a message that it finds by its trace with an id that a visitor may not learn.
        new = replace(new, message_id=new.message_id or new.trace_id)
    if not _in_a_browser(actor):
        return record_feedback(new, actor=actor, commit=commit)
    places = identity.tenants_of(actor.id)
    if places == [actor.tenant_id]:
        return record_feedback(new, actor=actor)
    with _back_as(actor):
        return _record_where_it_belongs(new, places, actor)


def list_signals(wanted: Mapping[str, str], page: Page, *, actor: Actor) -> Slice[Any]:
    """Return the actor's own signals, newest first: of the key's workspace, or in a browser of all their workspaces."""
    cursor = Cursor.parse(page.cursor) if page.cursor else None
    where = [_column(name, actor) == value for name, value in wanted.items()]
    if cursor is not None:
        where.append(tuple_(Feedback.created_at, Feedback.id) < tuple_(cursor.at, cursor.id))
    found: list[Any] = []
    for place in _workspaces_of(actor):
        own = select(*COLUMNS).where(*_own_signals(place), *where)
        found += db.session.execute(
            own.order_by(Feedback.created_at.desc(), Feedback.id.desc()).limit(page.limit + 1)
        ).all()
    found.sort(key=lambda row: (row.created_at, row.id), reverse=True)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return Slice(shown, Cursor(True, shown[-1].created_at, shown[-1].id).text() if more else None)


def retract_signal(message_id: str, signal: str, *, actor: Actor) -> None:
    """Retract a signal in whichever workspace it is. Retracting what does not exist is fine."""
    for place in _workspaces_of(actor):
        _retract(message_id, signal, place)


def describe_signal(row: Any, actor: Actor) -> dict[str, Any]:
    """Return what its author reads. A visitor gets the ids that they sent, and no measure of the answer that they
    edited: the distance to guesses would tell them its words."""
    names = ("id", "message_id", "chat_id", "trace_id", "signal", "rating", "status", "created_at", "occurred_at")
    found = {name: getattr(row, name) for name in names}
    distance = row.details.get("output_review", {}).get("edit_distance")
    if actor.vouched_by is not None:
        distance = None
        found |= {name: row.details.get("sent", {}).get(name) for name in VISITOR_IDS}
    return found | {"reason": row.comment, "weight": weight_of(row.signal), "edit_distance": distance}


def _own_signals(place: Actor) -> list[ColumnElement[bool]]:
    own = (Feedback.tenant_id == place.tenant_id, Feedback.created_by == place.id)
    return [*own, Feedback.kind == "signal", NOT_RETRACTED]


def _column(name: str, actor: Actor) -> Any:
    """Where what is asked for is found. A visitor asks for what they sent, not for what the server made of it."""
    if actor.vouched_by is not None and name in VISITOR_IDS:
        return Feedback.details["sent"][name].astext
    return getattr(Feedback, name)


def _retract(message_id: str, signal: str, place: Actor) -> None:
    which = (Feedback.kind == "signal", Feedback.message_id == message_id, Feedback.signal == signal)
    retract_feedback(*which, actor=place)


def _record_where_it_belongs(new: NewFeedback, places: list[UUID], actor: Actor) -> StoredFeedback:
    """Write it in the workspace of its chat, and take it out of the others. The opposite goes from all of them."""
    target: Actor | None = None
    known: list[tuple[Actor, Any]] = []
    name = new.message_id or new.trace_id
    if name and new.opposite:
        lock_thumbs(actor.id, name)
    for place in _workspaces_of(actor):
        if name and new.opposite:
            _retract(name, new.opposite, place)
        known += [(place, row) for row in _same_signal(new, place)]
        if target is None and new.chat_id and _has_chat(new.chat_id, place):
            target = place
    if target is None:
        newest = identity.enter_workspace(actor.id, places[-1], actor.request_id) if places else None
        target = known[0][0] if known else newest or actor
    left = [(place, row) for place, row in known if place.tenant_id != target.tenant_id]
    moving = [row for place, row in left if _take_out(row.id, place)]
    identity.work_as(target)
    if len(left) == len(known) and moving:
        first = moving[0]
        ids = {name: getattr(new, name) or getattr(first, name) for name in ("trace_id", "chat_id")}
        new = replace(new, id=first.id, created_at=first.created_at, occurred_at=datetime.now(UTC), **ids)
    stored = record_feedback(new, actor=target)
    return replace(stored, created=stored.created and not left)


def _same_signal(new: NewFeedback, place: Actor) -> list[Any]:
    which = Feedback.message_id == new.message_id if new.message_id else Feedback.trace_id == new.trace_id
    rows = select(*COLUMNS).where(*_own_signals(place), Feedback.signal == new.signal, which)
    return list(db.session.execute(rows))


def _has_chat(chat_id: str, place: Actor) -> bool:
    found = select(Chat.id).where(Chat.tenant_id == place.tenant_id, is_chat(chat_id)).limit(1)
    return db.session.scalar(found) is not None


def _take_out(row_id: UUID, place: Actor) -> bool:
    """Take the row out of its workspace; false when something was decided about it there, so that it stays, marked."""
    identity.work_as(place)
    alone = db.session.scalar(select(is_untouched()).where(Feedback.id == row_id).with_for_update(of=Feedback))
    retract_feedback(Feedback.id == row_id, actor=place)
    return bool(alone)


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
