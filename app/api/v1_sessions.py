"""Sessions over the API: told as they happen or afterwards, found again, ended, removed."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from flask import Blueprint, Flask, g
from pydantic import Field

from app.api.fields import Answer, Body, Id, Moment, Page, PastMoment, Slug
from app.api.route import route
from app.errors import Invalid, Refused
from app.learning import session_limits as limits
from app.services import agents, pages, runs, session_metadata, sessions
from app.services.filters import SessionFilters

Kind = Literal["chat", "agent", "response", "tool", "mixed"]
Status = Literal["pending", "running", "completed", "failed", "cancelled"]
EventType = Literal[
    "session.created", "session.claimed", "context.loaded", "user.message", "agent.message", "tool.call",
    "tool.result", "entity.created", "entity.updated", "response.submitted", "feedback.reviewed",
    "knowledge.changed", "agent.updated", "session.completed", "session.failed",
]  # fmt: skip
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME)]
Tag = Annotated[str, Field(min_length=1, max_length=limits.TAG)]

bp = Blueprint("v1_sessions", __name__)


class SessionEventBody(Body):
    """Something that happened."""

    event_type: EventType
    payload: dict[str, Any] = Field(
        {}, description="Messages `text`; `tool.call` `id, name, arguments`; `tool.result` `call_id, name, output`."
    )
    occurred_at: PastMoment | None = Field(None, description="When; now when left out.")


class NewSessionBody(Body):
    """A run of an agent."""

    agent: Slug = Field(description="The agent's slug; an unknown one is made.")
    agent_version: int | None = Field(None, ge=1, le=2_000_000_000, description="The current one when left out.")
    external_id: Name | None = Field(None, description="Your id. The same again gives the stored session back.")
    title: str | None = Field(None, min_length=1, max_length=limits.TITLE, description="The first words when left out.")
    session_type: Kind = "agent"
    output_type: str | None = Field(None, min_length=1, max_length=limits.OUTPUT_TYPE)
    status: Status = "pending"
    error: str | None = Field(None, max_length=limits.ERROR, description="Why it failed.")
    chat_id: Id | None = None
    entity_id: Id | None = None
    trace_id: Name | None = Field(None, description="Made when left out.")
    model: str | None = Field(None, min_length=1, max_length=limits.MODEL)
    input_tokens: int | None = Field(None, ge=0, le=limits.TOKENS)
    output_tokens: int | None = Field(None, ge=0, le=limits.TOKENS)
    cost: float | None = Field(None, ge=0, le=limits.COST, description="In your currency.")
    duration_ms: int | None = Field(None, ge=0, le=limits.DURATION_MS)
    environment: str | None = Field(None, min_length=1, max_length=limits.ENVIRONMENT)
    tags: list[Tag] = Field([], max_length=limits.TAGS)
    metadata: dict[str, Any] = {}
    created_at: PastMoment | None = None
    started_at: PastMoment | None = None
    finished_at: PastMoment | None = None
    events: list[SessionEventBody] = Field([], max_length=limits.EVENTS_AT_ONCE)


class NewEventsBody(Body):
    """Events in the order in which they happened."""

    events: list[SessionEventBody] = Field(min_length=1, max_length=limits.EVENTS_AT_ONCE)


class SessionChange(Body):
    """How it goes on."""

    status: Literal["running", "completed", "failed", "cancelled"]
    error: str | None = Field(None, max_length=limits.ERROR, description="Why it failed.")


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
    created_at: Moment
    finished_at: Moment | None
    metadata: dict[str, Any]


class SessionPage(Answer):
    """Some of them, newest first."""

    items: list[SessionAnswer]
    next_cursor: str | None


class EventAnswer(Answer):
    """An event with the number that the server gave it."""

    id: UUID
    sequence: int
    event_type: str
    payload: dict[str, Any]
    occurred_at: Moment


class SessionRead(SessionAnswer):
    """A session with its events, by time and then by number."""

    entity_id: UUID | None
    started_at: Moment | None
    events: list[EventAnswer]


class EventsAdded(Answer):
    """What was stored: the ids in the order of the request, and how many events the session has now."""

    session_id: UUID
    ids: list[UUID]
    event_count: int
    status: Status


def new_event(body: SessionEventBody) -> sessions.NewEvent:
    return sessions.NewEvent(body.event_type, body.payload, body.occurred_at)


@route(
    bp,
    "POST",
    "/api/v1/sessions",
    access=("member", "ingest"),
    body=NewSessionBody,
    answer=SessionAnswer,
    status=201,
    idempotent=True,
    summary="Store a session",
    also={200: "The `external_id` is known; the stored session, unchanged."},
    about="With or without events, in any state. A failed one writes a row of feedback in the same transaction."
    " Secrets are masked before anything is stored.",
)
def create_session(body: NewSessionBody) -> tuple[SessionAnswer, int]:
    given = body.model_dump(exclude={"events", "cost", "tags"})
    new = sessions.NewSession(
        **given,
        cost=None if body.cost is None else Decimal(str(body.cost)),
        tags=tuple(dict.fromkeys(body.tags)),
        events=[new_event(event) for event in body.events],
    )
    agent = agents.find_agent(new.agent, actor=g.actor)
    if agent is not None and agent.is_system and new.status in sessions.OPEN:
        raise Refused(f"{agent.name} is the product's own; it cannot be asked from outside.")
    stored, created = sessions.create_session(new, actor=g.actor)
    return shown(stored.id), 201 if created else 200


def shown(session_id: UUID) -> SessionAnswer:
    return SessionAnswer.model_validate(told(sessions.get_session(session_id, actor=g.actor)))


def told(found: sessions.SessionDetail) -> dict[str, Any]:
    """A session under the names of the API."""
    names = SessionRead.model_fields.keys() - {"agent", "agent_version", "metadata", "events"}
    values = {name: getattr(found.session, name) for name in names}
    metadata = session_metadata.shown_metadata(found.session.meta, actor=g.actor)
    return values | {"agent": found.agent, "agent_version": found.agent_version, "metadata": metadata}


@route(
    bp,
    "GET",
    "/api/v1/sessions",
    access=("member", "ingest"),
    query=SessionQuery,
    answer=SessionPage,
    summary="List sessions",
    about="The workspace's sessions, newest first.",
)
def list_sessions(query: SessionQuery) -> SessionPage:
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    found = sessions.list_sessions(SessionFilters(**wanted), pages.Page(query.limit, query.cursor), actor=g.actor)
    metadata = session_metadata.metadata_of([row.id for row in found.items], actor=g.actor)
    items = [SessionAnswer.model_validate({**vars(row), "metadata": metadata[row.id]}) for row in found.items]
    return SessionPage(items=items, next_cursor=found.next_cursor)


@route(
    bp,
    "GET",
    "/api/v1/sessions/<uuid:session_id>",
    access=("member", "ingest"),
    answer=SessionRead,
    summary="Read a session with its events",
    about="Events come by time, then by the number they were stored under.",
)
def read_session(session_id: UUID) -> SessionRead:
    found = sessions.get_session(session_id, actor=g.actor)
    events = sessions.events_of(session_id, actor=g.actor)
    return SessionRead.model_validate({**told(found), "events": events})


@route(
    bp,
    "POST",
    "/api/v1/sessions/<uuid:session_id>/events",
    access=("member", "ingest"),
    body=NewEventsBody,
    answer=EventsAdded,
    status=201,
    idempotent=True,
    summary="Add events",
    also={409: "The session is golden, is full, or is run here: then its agent writes its events."},
    about="All of them or none. The server numbers them; late ones find their place by `occurred_at`. A"
    " `session.completed` or `session.failed` ends an open session.",
)
def add_events(session_id: UUID, body: NewEventsBody) -> EventsAdded:
    if sessions.runs_here(session_id, actor=g.actor):
        raise Refused("This session is run here; what happens in it is written by its agent alone.")
    session, ids = sessions.add_events(session_id, [new_event(event) for event in body.events], actor=g.actor)
    return EventsAdded.model_validate(
        {"session_id": session_id, "ids": ids, "event_count": session.event_count, "status": session.status}
    )


@route(
    bp,
    "PATCH",
    "/api/v1/sessions/<uuid:session_id>",
    access=("member", "ingest"),
    body=SessionChange,
    answer=SessionAnswer,
    summary="Begin or end a session",
    also={409: "The session has ended another way, is golden, or is run here and can only be `cancelled`."},
    about="`pending` becomes `running` or ends; `running` ends. It ends once: the same end again changes nothing,"
    " and the first `error` stays; another end is refused. A failure writes a row of feedback in the same transaction.",
)
def change_session(session_id: UUID, body: SessionChange) -> SessionAnswer:
    if body.error is not None and body.status != "failed":
        raise Invalid("Field `error`: Only a failed session has one.", {"error": "Only a failed session has one."})
    if sessions.runs_here(session_id, actor=g.actor):
        if body.status != "cancelled":
            raise Refused("This session is run here; it can be cancelled, and ends by itself otherwise.")
        runs.stop_run(session_id, actor=g.actor)
    elif body.status == "running":
        sessions.begin_session(session_id, actor=g.actor)
    else:
        sessions.finish_session(session_id, body.status, actor=g.actor, error=body.error)
    return shown(session_id)


@route(
    bp,
    "DELETE",
    "/api/v1/sessions/<uuid:session_id>",
    access=("admin", "admin"),
    status=204,
    summary="Delete a session",
    also={409: "The session is golden, or a replay of an eval run, whose figures rest on it."},
    about="With its events. Feedback about it stays, without the link.",
)
def delete_session(session_id: UUID) -> None:
    sessions.delete_session(session_id, actor=g.actor)


def register(app: Flask) -> None:
    app.register_blueprint(bp)
