"""Sessions over the API: create, list, read, add events, end and delete."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from flask import Response, g
from pydantic import BeforeValidator, Field, WithJsonSchema

from app.api.agents import bp
from app.api.kit.fields import Answer, Body, Cursor, Id, Moment, Page, Query, format_moment, read_limit
from app.api.kit.route import route
from app.db import db, paging
from app.errors import Invalid, Refused
from app.formats import session_limits as limits
from app.ingest.fields import Kind, Name, PastMoment, SessionFields, Status
from app.services.agents import versions
from app.services.sessions import lists as session_lists
from app.services.sessions import start as session_start
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import Event, EventCursor, cursor_after, read_window
from app.services.sessions.events import NewEvent, SessionFull, mark_full, session_budget
from app.services.sessions.lists import SessionFilters

EventType = Literal[
    "session.created", "session.claimed", "context.loaded", "user.message", "agent.message", "tool.call",
    "tool.result", "entity.created", "entity.updated", "response.submitted", "feedback.reviewed",
    "knowledge.changed", "agent.updated", "session.completed", "session.failed",
]  # fmt: skip

# What one answer holds of a session's events.
MAX_EVENTS = 1000
MAX_BYTES = 2_000_000
EventLimit = Annotated[int, BeforeValidator(partial(read_limit, most=MAX_EVENTS)), WithJsonSchema({"type": "integer"})]
INGEST = ("member", "ingest")
ONE = "/api/v1/sessions/<uuid:session_id>"


class SessionEventBody(Body):
    """An event."""

    event_type: EventType
    payload: dict[str, Any] = Field(
        {},
        description=(
            "Messages take `text`, `tool.call` takes `id, name, arguments`, `tool.result` takes `call_id,"
            " name, output`."
        ),
    )
    occurred_at: PastMoment | None = Field(
        None, description="Defaults to the time of the event before it, or to now if no event in the request has one."
    )


class NewSessionBody(SessionFields, Body):
    """One agent run."""

    agent_version: int | None = Field(None, ge=1, le=2_000_000_000, description="Defaults to the current version.")
    output_type: str | None = Field(None, min_length=1, max_length=limits.OUTPUT_TYPE)
    status: Status = "pending"
    chat_id: Id | None = None
    entity_id: Id | None = None
    events: list[SessionEventBody] = Field([], max_length=limits.EVENTS_AT_ONCE)


class NewEventsBody(Body):
    """Events, oldest first."""

    events: list[SessionEventBody] = Field(min_length=1, max_length=limits.EVENTS_AT_ONCE)


class SessionChange(Body):
    """A change of the session's status."""

    status: Literal["running", "completed", "failed", "cancelled"]
    error: str | None = Field(None, max_length=limits.ERROR, description="Why it failed.")
    started_at: PastMoment | None = Field(None, description="Start time, with `running`. Defaults to now.")
    finished_at: PastMoment | None = Field(None, description="End time, with a final status. Defaults to now.")


class EventQuery(Query):
    limit: EventLimit = Field(1000, validate_default=False, description="Number of events, 1 to 1,000.")
    cursor: Cursor | None = Field(None, description="`next_cursor` of the previous page.")


class SessionQuery(Page):
    agent: str | None = Field(None, max_length=120, description="The agent's slug.")
    status: Status | None = None
    type: Kind | None = None
    trace_id: Name | None = None
    external_id: Name | None = None


class SessionAnswer(Answer):
    """A session."""

    id: UUID
    external_id: str | None
    trace_id: str | None
    title: str
    agent: str
    agent_id: UUID
    agent_version: int | None
    session_type: Kind
    output_type: str | None
    status: Status
    error: str | None
    chat_id: UUID | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    duration_ms: int | None
    environment: str | None
    tags: list[str]
    event_count: int
    truncated: bool = Field(description="A length limit cut off one of its answers.")
    created_at: Moment
    finished_at: Moment | None
    metadata: dict[str, Any]


class SessionPage(Answer):
    """One page, newest first."""

    items: list[SessionAnswer]
    next_cursor: str | None


class EventAnswer(Answer):
    """An event with its server-assigned number."""

    id: UUID
    sequence: int
    event_type: str
    payload: dict[str, Any]
    occurred_at: Moment


class EventPage(Answer):
    """One page of a session's events, by time and then by number."""

    events: list[EventAnswer]
    next_cursor: str | None


class SessionRead(SessionAnswer):
    """A session with its first events, by time and then by number. `next_cursor` leads to the next events. `full_at`
    is when the session reached its size limit and events were first refused."""

    entity_id: UUID | None
    started_at: Moment | None
    event_bytes: int
    max_event_bytes: int
    full_at: Moment | None
    next_cursor: str | None
    events: list[EventAnswer]


class EventsAdded(Answer):
    """The stored ids in request order, and the session's event count and size in bytes."""

    session_id: UUID
    ids: list[UUID]
    event_count: int
    event_bytes: int
    status: Status


def new_events(bodies: Sequence[SessionEventBody]) -> list[NewEvent]:
    return [NewEvent(body.event_type, body.payload, body.occurred_at) for body in bodies]


@route(
    bp,
    "POST",
    "/api/v1/sessions",
    access=INGEST,
    status=201,
    idempotent=True,
    also={200: "A session with this `external_id` exists. Returns it unchanged."},
)
def create_session(body: NewSessionBody) -> tuple[SessionAnswer, int]:
    """Create a session. With or without events, in any status. A failed session also creates a feedback row. Secrets
    are masked before anything is stored."""
    agent = versions.find_agent(body.agent, actor=g.actor)
    if agent is not None and agent.is_system and body.status in session_store.OPEN_STATUSES:
        raise Refused(f"{agent.name} is the product's own. It cannot be asked from outside.")
    new = session_store.NewSession(**body.values("events"), events=new_events(body.events))
    stored, created = session_store.create_session(new, actor=g.actor)
    return session_answer(stored.id), 201 if created else 200


def session_answer(session_id: UUID) -> SessionAnswer:
    return SessionAnswer.model_validate(session_values(session_store.get_session(session_id, actor=g.actor)))


def session_values(found: Any) -> dict[str, Any]:
    """A session under the names of the API."""
    session = found.session
    columns = {name: value for name in SessionRead.model_fields if (value := getattr(session, name, ...)) is not ...}
    metadata = session_store.public_metadata(session.meta, actor=g.actor)
    return columns | {"agent": found.agent, "agent_version": found.agent_version, "metadata": metadata}


@route(bp, "GET", "/api/v1/sessions", access=INGEST)
def list_sessions(query: SessionQuery) -> SessionPage:
    """List sessions. Newest first."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    found = session_lists.list_sessions(SessionFilters(**wanted), paging.Page(query.limit, query.cursor), actor=g.actor)
    metadata = session_store.metadata_of([row.id for row in found.items], actor=g.actor)
    items = [SessionAnswer.model_validate({**vars(row), "metadata": metadata[row.id]}) for row in found.items]
    return SessionPage(items=items, next_cursor=found.next_cursor)


@route(bp, "GET", ONE, access=INGEST, answer=SessionRead)
def read_session(session_id: UUID) -> Response:
    """Get a session with its first events. Returns up to 1,000 events or 2 MB, by time and then by number. Use
    `next_cursor` as the `cursor` of `GET /api/v1/sessions/{session_id}/events` to get the rest."""
    found = session_store.get_session(session_id, actor=g.actor)
    events, following = _read_events(session_id)
    apart: dict[str, Any] = {"max_event_bytes": session_budget(), "next_cursor": following, "events": []}
    return with_events(SessionRead.model_validate(session_values(found) | apart), events)


@route(bp, "GET", f"{ONE}/events", access=INGEST, answer=EventPage)
def read_events(session_id: UUID, query: EventQuery) -> Response:
    """List a session's events. By time and then by number, in pages of up to 1,000 events or 2 MB."""
    session_store.get_session(session_id, actor=g.actor)
    after = EventCursor.parse(query.cursor) if query.cursor else None
    events, following = _read_events(session_id, after, query.limit)
    return with_events(EventPage(events=[], next_cursor=following), events)


def _read_events(
    session_id: UUID, after: EventCursor | None = None, most: int = MAX_EVENTS
) -> tuple[list[Event], str | None]:
    """Some events with their payloads as text, and the cursor of those that follow."""
    events, more = read_window(session_id, after, actor=g.actor, most=most, most_bytes=MAX_BYTES, as_text=True)
    return events, cursor_after(events[-1]).text() if more else None


def with_events(head: SessionRead | EventPage, events: Sequence[Event]) -> Response:
    """An answer with its events. Their payloads stay JSON text: parsed, a page could take a hundred megabytes."""
    parts = [f'{head.model_dump_json(exclude={"events"})[:-1]},"events":['.encode()]
    for place, one in enumerate(events):
        parts.append(
            f'{"," if place else ""}{{"id":"{one.id}","sequence":{one.sequence},"event_type":"{one.event_type}",'
            f'"occurred_at":"{format_moment(one.occurred_at)}","payload":{one.payload}}}'.encode()
        )
    return Response([*parts, b"]}"], mimetype="application/json")


@route(
    bp,
    "POST",
    f"{ONE}/events",
    access=INGEST,
    status=201,
    idempotent=True,
    also={
        409: "The session is golden, or runs in Upshot, where its agent writes the events.",
        413: "The body is too large, or the session would exceed its size limit (`budget_bytes`).",
    },
)
def add_events(session_id: UUID, body: NewEventsBody) -> EventsAdded:
    """Add events. All or none are stored. The server numbers them and sorts late ones by `occurred_at`. A
    `session.completed` or `session.failed` event ends an open session."""
    try:
        added = session_store.report_events(session_id, new_events(body.events), actor=g.actor)
    except SessionFull:
        # What the request wrote is gone; that it was refused stays with the session.
        db.session.rollback()
        mark_full(session_id, actor=g.actor)
        db.session.commit()
        raise
    return EventsAdded(session_id=session_id, **vars(added))


@route(
    bp,
    "PATCH",
    ONE,
    access=INGEST,
    also={409: "The session ended with another status, is golden, or runs in Upshot and can only be `cancelled`."},
)
def change_session(session_id: UUID, body: SessionChange) -> SessionAnswer:
    """Start or end a session. `pending` can become `running` or end, `running` can end. Sending the same final
    status again changes nothing and keeps the first `error`. Another final status is refused. A failure also creates
    a feedback row."""
    _check_change(body)
    if session_store.runs_here(session_id, actor=g.actor):
        if body.status != "cancelled":
            raise Refused("This session runs in Upshot. You can only cancel it.")
        session_start.stop_run(session_id, actor=g.actor)
    elif body.status == "running":
        session_store.begin_session(session_id, actor=g.actor, started_at=body.started_at)
    else:
        session_store.finish_session(
            session_id, body.status, actor=g.actor, error=body.error, finished_at=body.finished_at
        )
    return session_answer(session_id)


def _check_change(body: SessionChange) -> None:
    """An error belongs to a failure, and a time to what it is the time of."""
    running = body.status == "running"
    wrong = {
        "error": "Only a failed session has one." if body.error is not None and body.status != "failed" else "",
        "finished_at": "Send it with a final status." if body.finished_at and running else "",
        "started_at": "Send it with `running`." if body.started_at and not running else "",
    }
    for name, sentence in wrong.items():
        if sentence:
            raise Invalid.of({name: sentence})


@route(
    bp,
    "DELETE",
    ONE,
    access=("admin", "admin"),
    status=204,
    also={409: "The session is golden, or part of an eval run."},
)
def delete_session(session_id: UUID) -> None:
    """Delete a session. Deletes its events too. Feedback about it stays, without its link."""
    session_lists.delete_sessions([session_id], actor=g.actor)
