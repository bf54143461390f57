"""What feedback is about: the message, the turn, the session, the agent; found out where the sender did not say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import run
from app.errors import Invalid
from app.formats.ids import parse_id
from app.models import Chat

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

    id: UUID | None
    session_id: UUID | None
    chat_id: UUID | None
    turn_id: str | None
    trace_id: str | None
    message_index: int | None
    agent_id: UUID | None
    project: str | None
    content: str | None
    run_id: UUID | None
    run_agent_id: UUID | None
    run_trace_id: str | None
    run_chat_id: UUID | None
    entity_id: UUID | None
    our_agent_id: UUID | None
    thumbed: bool | None
    held: None


@dataclass(frozen=True)
class Links:
    session_id: UUID | None = None
    entity_id: UUID | None = None
    agent_id: UUID | None = None
    message_id: str | None = None
    chat_id: str | None = None
    turn_id: str | None = None
    trace_id: str | None = None
    project: str = "default"
    message_index: int | None = None
    message_text: str | None = None
    thumbed: bool = False

    def source_type(self, kind: str) -> str:
        """Where nothing was said: a flag is an observation, the rest belongs to its chat, else to its session."""
        if kind == "flag":
            return "observation"
        return "chat" if self.chat_id or self.message_index is not None else "session"

    def context(self, source: str) -> dict[str, Any]:
        """What the server knows of a source's context."""
        if source not in ("chat", "observation"):
            return {}
        known = {"chat_id": self.chat_id, "message_index": self.message_index}
        return {name: value for name, value in known.items() if value is not None}


def resolve_links(new: NewFeedback, actor: Actor) -> Links:
    """The links as far as they can be known. Links that name rows of another workspace, or of another person's
    conversation, are links to nothing.

    Ids of messages, chats and traces are the sender's own words and may be unknown here; ids of sessions, entities
    and agents are ours and must exist.
    """
    links = Links(
        session_id=new.session_id,
        entity_id=new.entity_id,
        agent_id=new.agent_id,
        message_id=new.message_id,
        chat_id=new.chat_id or _text(new.context.get("chat_id")),
        turn_id=new.turn_id,
        trace_id=new.trace_id,
        project=new.project or "default",
    )
    ways = _ways_to_message(links, new)
    if ways or links.session_id or links.trace_id or links.entity_id or links.agent_id:
        ours = bool(links.entity_id or links.agent_id)
        thumb = new.opposite is not None
        with _looking_for(actor):
            found = LinkRow(*run(_statement(ways, ours, thumb), _sought(links, new, actor))[0])
        _check_ours(links, found)
        thumbed = bool(found.thumbed or actor.vouched_by)
        links = replace(_from_session(_from_message(links, new, found), found), thumbed=thumbed)
    # Uniqueness hangs on the message, so a signal about a whole run takes the run's trace for it.
    if new.kind == "signal" and links.message_id is None:
        links = replace(links, message_id=links.trace_id or str(links.session_id))
    return links


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
    return value if isinstance(value, str) else None


def _ways_to_message(links: Links, new: NewFeedback) -> tuple[str, ...]:
    """By its id, by its sender's id, by its place in a chat, by its turn, by its trace: the surest first."""
    in_chat = " in chat" if links.chat_id else ""
    if links.message_id:
        named = f"external_id{in_chat}"
        ways = ("id", named) if parse_id(links.message_id) else (named,)
        # Visitors name a message that they only know the trace of by that trace.
        return (*ways, "trace") if links.message_id == links.trace_id else ways
    if links.chat_id and isinstance(new.context.get("message_index"), int):
        return ("place",)
    if links.turn_id:
        return (f"turn{in_chat}",)
    return ("trace",) if links.trace_id and new.kind in ("signal", "reaction") else ()


@cache
def _statement(ways: tuple[str, ...], ours: bool, thumb: bool) -> str:
    """All that is asked, in one statement; a few texts in all, which PostgreSQL prepares once."""
    message = " UNION ALL ".join(MESSAGE.format(way=LOOKUPS[way]) for way in ways or ("none",))
    return LINKS.format(
        message=message,
        ours=OUR_ROWS if ours else NO_OUR_ROWS,
        thumbs=THUMBS if thumb else NO_THUMBS,
        about=MESSAGE_NAME if thumb else "",
    )


def _sought(links: Links, new: NewFeedback, actor: Actor) -> dict[str, Any]:
    return {
        "tenant": actor.tenant_id,
        "message": links.message_id,
        "message_as_id": _as_id(links.message_id),
        "chat": links.chat_id,
        "chat_as_id": _as_id(links.chat_id),
        "index": new.context.get("message_index"),
        "turn": links.turn_id,
        "trace": links.trace_id,
        "edited": new.signal == "edit",
        "session": links.session_id,
        "entity": links.entity_id,
        "agent": links.agent_id,
        "author": actor.id,
    }


def is_chat(name: str) -> ColumnElement[bool]:
    """Match a chat by our id or by its sender's own name for it."""
    ours = parse_id(name)
    same = Chat.external_id == name
    return same | (Chat.id == ours) if ours else same


def _as_id(text: str | None) -> str | None:
    return text if parse_id(text) else None


def _check_ours(links: Links, found: LinkRow) -> None:
    known = {"session_id": found.run_id, "entity_id": found.entity_id, "agent_id": found.our_agent_id}
    for name, there in known.items():
        wanted = getattr(links, name)
        if wanted is not None and there is None:
            noun = name.removesuffix("_id")
            raise Invalid(f"There is no {noun} {wanted} in this workspace.", {name: "Not in this workspace."})


def _from_message(links: Links, new: NewFeedback, found: LinkRow) -> Links:
    if found.id is None:
        return links
    # Each person has one reaction to a turn, so reactions call their chat by our id, whichever name the sender used.
    named = None if new.kind == "reaction" else links.chat_id
    return replace(
        links,
        session_id=links.session_id or found.session_id,
        agent_id=links.agent_id or found.agent_id,
        message_id=links.message_id or str(found.id),
        chat_id=named or str(found.chat_id),
        turn_id=links.turn_id or found.turn_id,
        trace_id=links.trace_id or found.trace_id,
        project=new.project or found.project or links.project,
        message_index=found.message_index,
        message_text=found.content,
    )


def _from_session(links: Links, found: LinkRow) -> Links:
    if found.run_id is None:
        return links
    return replace(
        links,
        session_id=found.run_id,
        agent_id=links.agent_id or found.run_agent_id,
        trace_id=links.trace_id or found.run_trace_id,
        chat_id=links.chat_id or (str(found.run_chat_id) if found.run_chat_id else None),
    )
