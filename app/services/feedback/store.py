"""The statements that write feedback: what a row is about, found out where the sender did not say, and the row itself
with its audit line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db, run
from app.errors import Invalid
from app.formats.ids import parse_id
from app.models import Chat, Feedback
from app.services import audit_entry
from app.services.webhooks.queue import QUEUE

if TYPE_CHECKING:
    from app.services.feedback.intake import NewFeedback

CHAT = "(c.id = %(chat_as_id)s::uuid OR c.external_id = %(chat)s)"
# The ways to a message. Its sender's ids may repeat from chat to chat, so one that comes with a chat is looked for in
# that chat only, and a turn without its chat is found only where no other chat has a turn with the same id.
LOOKUPS = {
    "id": "m.id = %(message_as_id)s::uuid",
    "external_id": "m.external_id = %(message)s",
    "external_id in chat": f"m.external_id = %(message)s AND {CHAT}",
    "place": f"m.message_index = %(index)s AND {CHAT}",
    "turn": """m.turn_id = %(turn)s AND m.role = 'agent' AND NOT EXISTS (SELECT FROM messages AS o
        WHERE o.tenant_id = m.tenant_id AND o.turn_id = m.turn_id AND o.chat_id <> m.chat_id)""",
    "turn in chat": f"m.turn_id = %(turn)s AND m.role = 'agent' AND {CHAT}",
    "none": "false",
    "trace": "m.trace_id = %(trace)s AND m.role = 'agent'",
}
MESSAGE = """(SELECT m.id, m.session_id, m.chat_id, m.turn_id, m.trace_id, m.message_index, c.agent_id, c.project,
               CASE WHEN %(edited)s THEN m.content END AS content
          FROM messages AS m JOIN chats AS c ON c.tenant_id = m.tenant_id AND c.id = m.chat_id
         WHERE m.tenant_id = %(tenant)s AND {way} ORDER BY m.message_index DESC LIMIT 1)"""
OUR_ROWS = """(SELECT e.id FROM entities AS e WHERE e.tenant_id = %(tenant)s AND e.id = %(entity)s::uuid) AS entity_id,
           (SELECT a.id FROM agents AS a WHERE a.tenant_id = %(tenant)s AND a.id = %(agent)s::uuid) AS our_agent_id"""
NO_OUR_ROWS = "NULL::uuid AS entity_id, NULL::uuid AS our_agent_id"
# A thumb and its opposite may come at the same moment, and neither would see the other. So one waits for the other here
# until that is committed; the statements after this one then see it.
THUMB_LOCK = "pg_advisory_xact_lock(hashtextextended('thumbs ' || %(author)s::uuid || ' ' || {message}, 0))"
THUMBS = f"""(SELECT true FROM feedback AS t WHERE t.kind = 'signal' AND t.tenant_id = %(tenant)s
               AND t.created_by = %(author)s::uuid AND t.signal IN ('helpful', 'not_helpful')
               AND t.message_id = about.name LIMIT 1) AS thumbed,
           {THUMB_LOCK.format(message="about.name")} AS held"""
NO_THUMBS = "false AS thumbed, NULL AS held"
SET_USER = "SELECT set_config('app.user_id', %(user)s::text, true)"
# The offset keeps the name in one piece. Row-level security lets no cast into the search of an index, and all thumbs of
# the author would be gone through.
MESSAGE_NAME = """CROSS JOIN LATERAL (SELECT coalesce(
               %(message)s, m.id::text, %(trace)s, m.trace_id, s.trace_id, s.id::text) AS name OFFSET 0) AS about"""
LINKS = """
    SELECT m.*, s.id AS run_id, s.agent_id AS run_agent_id, s.trace_id AS run_trace_id, s.chat_id AS run_chat_id,
           {ours}, {thumbs}
      FROM (SELECT 1) AS one
      LEFT JOIN LATERAL (SELECT * FROM ({message}) AS found LIMIT 1) AS m ON true
      LEFT JOIN LATERAL (
          SELECT * FROM (
              SELECT r.id, r.agent_id, r.trace_id, r.chat_id FROM sessions AS r
               WHERE r.tenant_id = %(tenant)s AND r.id = coalesce(%(session)s::uuid, m.session_id)
              UNION ALL
              (SELECT r.id, r.agent_id, r.trace_id, r.chat_id FROM sessions AS r
                WHERE r.tenant_id = %(tenant)s AND r.trace_id = coalesce(%(trace)s, m.trace_id)
                  AND coalesce(%(session)s::uuid, m.session_id) IS NULL
                ORDER BY r.created_at DESC LIMIT 1)) AS known
          LIMIT 1) AS s ON true
      {about}
"""


class LinkRow(NamedTuple):
    """What the statement gives: the message with its chat, the session, which of our own ids exist, and for a thumb
    whether its author gave one on the same message before."""

    id: UUID | None = None
    session_id: UUID | None = None
    chat_id: UUID | None = None
    turn_id: str | None = None
    trace_id: str | None = None
    message_index: int | None = None
    agent_id: UUID | None = None
    project: str | None = None
    content: str | None = None
    run_id: UUID | None = None
    run_agent_id: UUID | None = None
    run_trace_id: str | None = None
    run_chat_id: UUID | None = None
    entity_id: UUID | None = None
    our_agent_id: UUID | None = None
    thumbed: bool | None = None
    held: None = None


NOTHING = LinkRow()


def resolve_links(new: NewFeedback, actor: Actor) -> tuple[NewFeedback, LinkRow]:
    """Fill in the links as far as they can be known, and return them with what was found.

    Ids of messages, chats and traces are the sender's own words and may be unknown here, which another workspace's and
    another person's always are. Ids of sessions, entities and agents are ours and must exist.
    """
    new = replace(new, chat_id=new.chat_id or _text(new.context.get("chat_id")))
    found = NOTHING
    ways = _ways_to_message(new)
    if ways or new.session_id or new.trace_id or new.entity_id or new.agent_id:
        statement = _links_statement(ways, bool(new.entity_id or new.agent_id), new.opposite is not None)
        with _looking_for(actor):
            found = LinkRow(*run(statement, _sought(new, actor))[0])
        _check_ours(new, found)
        new = _filled(new, found)
    # Uniqueness hangs on the message, so a signal about a whole run takes the run's trace for it.
    if new.kind == "signal" and new.message_id is None:
        new = replace(new, message_id=new.trace_id or str(new.session_id))
    return new, found


@contextmanager
def _looking_for(actor: Actor) -> Iterator[None]:
    """A visitor from another site has no conversations here: theirs are those that their team's server stored, which
    belong to the person of the key that vouches for them. What such a person sees is not what the visitor is shown; the
    earlier thumbs of the visitor are not found this way."""
    if actor.vouched_by is None:
        yield
        return
    run(SET_USER, {"user": actor.vouched_by})
    yield
    run(SET_USER, {"user": actor.id})


def lock_thumbs(author: UUID, message_id: str) -> None:
    """Until the transaction ends, nobody else writes this person's thumbs on the message."""
    run(f"SELECT {THUMB_LOCK.format(message='%(message)s::text')}", {"author": author, "message": message_id})


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, UUID)) else None


def _ways_to_message(new: NewFeedback) -> tuple[str, ...]:
    """By its id, by its sender's id, by its place in a chat, by its turn, by its trace: the surest first."""
    in_chat = " in chat" if new.chat_id else ""
    if new.message_id:
        named = f"external_id{in_chat}"
        ways = ("id", named) if parse_id(new.message_id) else (named,)
        # Visitors name a message that they only know the trace of by that trace.
        return (*ways, "trace") if new.message_id == new.trace_id else ways
    if new.chat_id and isinstance(new.context.get("message_index"), int):
        return ("place",)
    if new.turn_id:
        return (f"turn{in_chat}",)
    return ("trace",) if new.trace_id and new.kind in ("signal", "reaction") else ()


@cache
def _links_statement(ways: tuple[str, ...], ours: bool, thumb: bool) -> str:
    """All that is asked, in one statement; a few texts in all, which PostgreSQL prepares once."""
    message = " UNION ALL ".join(MESSAGE.format(way=LOOKUPS[way]) for way in ways or ("none",))
    return LINKS.format(
        message=message,
        ours=OUR_ROWS if ours else NO_OUR_ROWS,
        thumbs=THUMBS if thumb else NO_THUMBS,
        about=MESSAGE_NAME if thumb else "",
    )


def _sought(new: NewFeedback, actor: Actor) -> dict[str, Any]:
    return {
        "tenant": actor.tenant_id,
        "message": new.message_id,
        "message_as_id": parse_id(new.message_id),
        "chat": new.chat_id,
        "chat_as_id": parse_id(new.chat_id),
        "index": new.context.get("message_index"),
        "turn": new.turn_id,
        "trace": new.trace_id,
        "edited": new.signal == "edit",
        "session": new.session_id,
        "entity": new.entity_id,
        "agent": new.agent_id,
        "author": actor.id,
    }


def is_chat(name: str) -> ColumnElement[bool]:
    """Match a chat by our id or by its sender's own name for it."""
    ours = parse_id(name)
    same = Chat.external_id == name
    return same | (Chat.id == ours) if ours else same


def _check_ours(new: NewFeedback, found: LinkRow) -> None:
    known = {"session_id": found.run_id, "entity_id": found.entity_id, "agent_id": found.our_agent_id}
    for name, there in known.items():
        wanted = getattr(new, name)
        if wanted is not None and there is None:
            noun = name.removesuffix("_id")
            raise Invalid(f"There is no {noun} {wanted} in this workspace.", {name: "Not in this workspace."})


def _filled(new: NewFeedback, found: LinkRow) -> NewFeedback:
    # Each person has one reaction to a turn, so reactions call their chat by our id, whichever name the sender used.
    named = None if new.kind == "reaction" and found.id else new.chat_id
    return replace(
        new,
        session_id=found.run_id or new.session_id or found.session_id,
        agent_id=new.agent_id or found.agent_id or found.run_agent_id,
        message_id=new.message_id or _text(found.id),
        chat_id=named or _text(found.chat_id) or _text(found.run_chat_id),
        turn_id=new.turn_id or found.turn_id,
        trace_id=new.trace_id or found.trace_id or found.run_trace_id,
        project=new.project or found.project,
    )


# The row

COLUMNS = (
    "id", "tenant_id", "source_type", "rating", "kind", "origin", "confidence", "signal", "comment", "session_id",
    "entity_id", "agent_id", "message_id", "chat_id", "turn_id", "trace_id", "project", "context", "details",
    "error_categories", "created_by", "created_at", "occurred_at", "status", "outcome", "reviewed_at",
    "reviewed_by_user_id", "reviewed_by_agent_id",
)  # fmt: skip
_json = json.JSONEncoder(default=str).encode
UNSET_COLUMNS = ("review_notes", "assignee_id", "replay_session_id")
# The admin's assessment survives a change by the author.
CHANGED_COLUMNS = """comment = excluded.comment, occurred_at = excluded.occurred_at,
    trace_id = coalesce(excluded.trace_id, f.trace_id), chat_id = coalesce(excluded.chat_id, f.chat_id),
    details = excluded.details || CASE WHEN f.details ? 'assessment'
        THEN jsonb_build_object('assessment', f.details -> 'assessment') ELSE '{}' END
        || CASE WHEN f.details ? 'sent' AND excluded.details ? 'sent'
        THEN jsonb_build_object('sent', (f.details -> 'sent') || (excluded.details -> 'sent')) ELSE '{}' END,
    error_categories = excluded.error_categories || ARRAY(
        SELECT c FROM jsonb_array_elements_text(coalesce(f.details #> '{assessment,error_categories}', '[]')) AS c
         WHERE c <> ALL (excluded.error_categories))"""
# A signal that is sent again may name more: the chat, and with it the session, the agent and the turn.
ON_CONFLICT = {
    "signal": f"""(tenant_id, message_id, created_by, signal) WHERE kind = 'signal' DO UPDATE SET {CHANGED_COLUMNS},
    session_id = coalesce(f.session_id, excluded.session_id), agent_id = coalesce(f.agent_id, excluded.agent_id),
    turn_id = coalesce(f.turn_id, excluded.turn_id),
    source_type = CASE WHEN f.chat_id IS NULL THEN excluded.source_type ELSE f.source_type END,
    context = CASE WHEN f.chat_id IS NULL THEN excluded.context ELSE f.context END""",
    "reaction": f"""(tenant_id, chat_id, turn_id, created_by) WHERE kind = 'reaction' AND origin = 'user'
    DO UPDATE SET {CHANGED_COLUMNS}, rating = excluded.rating, context = excluded.context""",
    None: "DO NOTHING",
}
OPPOSITE = """SELECT o.id FROM feedback AS o WHERE o.kind = 'signal' AND o.tenant_id = %(tenant_id)s
    AND o.message_id = %(message_id)s AND o.created_by = %(created_by)s AND o.signal = %(opposite)s
    AND NOT o.details ? 'retracted_at'"""
STATEMENT = """WITH written AS (INSERT INTO feedback AS f ({columns}) {row} ON CONFLICT {replacing}
    RETURNING f.id, f.tenant_id),
noted AS (INSERT INTO audit_log (tenant_id, actor_user_id, actor_agent_id, action, subject_type, subject_id, details,
        request_id)
    SELECT w.tenant_id, %(user)s::uuid, %(agent)s::uuid, %(action)s, 'feedback', w.id, %(noted)s::jsonb, %(request)s
      FROM written AS w){queued}
SELECT w.id, {opposite} FROM written AS w"""

# In the same statement, so that feedback takes no more round trips where a workspace has webhooks.
QUEUE_WRITTEN = QUEUE.format(
    written="written AS w, ", subject="w.id", details="'{}'::jsonb", tenant="w.tenant_id", event="'feedback.submitted'"
)
QUEUED = f""",
queued AS ({QUEUE_WRITTEN})"""


def write_row(
    values: dict[str, Any], *, actor: Actor, opposite: str | None = None, commit: bool = False
) -> tuple[Any, UUID | None]:
    """Write the row and return it with the columns of `feedback`, or None where it belongs to another person.

    Beside it comes the id of the `opposite` signal that is to be retracted now; the author of a thumb holds the lock on
    their thumbs. With `commit` nothing else happens in this transaction, and it is committed along with the row. Most
    rows are new, so only where one of the same kind exists, a second statement changes it.
    """
    whole = dict.fromkeys((*COLUMNS, *UNSET_COLUMNS)) | values
    row = _encoded(whole) | {"opposite": opposite}
    thumb = opposite is not None
    if written := run(
        _row_statement(None, thumb, commit),
        row | _noted("feedback.created", actor, source_type=values["source_type"], kind=values["kind"]),
        last=commit,
    ):
        return SimpleNamespace(**whole), written[0][1]
    if commit:
        # Nothing was written. Continue as the same person in another transaction.
        db.session.commit()
        if thumb:
            lock_thumbs(values["created_by"], values["message_id"])
            return write_row(values, actor=actor, opposite=opposite)
    if values["kind"] == "signal" or (values["kind"] == "reaction" and values["origin"] == "user"):
        noted = _noted("feedback.changed", actor, rating=values["rating"])
        changed = run(_row_statement(values["kind"], thumb), row | noted)
        if not changed:
            return None, None
        return db.session.get(Feedback, changed[0][0], populate_existing=True), changed[0][1]
    return _already_there(values), None


def _encoded(whole: dict[str, Any]) -> dict[str, Any]:
    """Encode the values for the driver."""
    texts = {name: _json(whole[name]) if whole[name] else "{}" for name in ("context", "details", "outcome")}
    return whole | texts | {"error_categories": f"{{{','.join(whole['error_categories'])}}}"}


def _noted(action: str, actor: Actor, **details: Any) -> dict[str, Any]:
    """Return the parameters of the audit line."""
    return {
        "action": action,
        "user": actor.id,
        "agent": actor.agent_id,
        "request": actor.request_id,
        "noted": _json(audit_entry.details_of(actor, **details)),
    }


@cache
def _row_statement(replaced: str | None, thumb: bool, commit: bool = False) -> str:
    """Build the statement. A thumb that commits is not written while its opposite exists, since that could not be
    retracted afterwards."""
    values = ", ".join(f"%({name})s" for name in COLUMNS)
    return STATEMENT.format(
        columns=", ".join(COLUMNS),
        row=f"SELECT {values} WHERE NOT EXISTS ({OPPOSITE})" if thumb and commit else f"VALUES ({values})",
        replacing=ON_CONFLICT[replaced],
        queued=QUEUED if replaced is None else "",
        opposite=f"({OPPOSITE})" if thumb and not commit else "NULL::uuid",
    )


def _already_there(values: dict[str, Any]) -> Feedback | None:
    if values["origin"] == "machine":
        same = (Feedback.turn_id == values["turn_id"], Feedback.kind == "reaction", Feedback.origin == "machine")
        found = Feedback.details["detected_in"].astext == values["details"]["detected_in"]
        return db.session.scalar(select(Feedback).where(Feedback.tenant_id == values["tenant_id"], found, *same))
    failure = values["kind"] == "session_failure"
    column = Feedback.session_id if failure else Feedback.replay_session_id
    wanted = values["session_id"] if failure else values["context"]["replay_session_ids"][0]
    return db.session.execute(
        select(Feedback).where(
            Feedback.tenant_id == values["tenant_id"], Feedback.kind == values["kind"], column == wanted
        )
    ).scalar_one_or_none()
