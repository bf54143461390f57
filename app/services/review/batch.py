"""What a review reads: open feedback in parts of bounded size, each row with the moment it is about, and the agents,
kinds of record, rules and earlier patterns that it is judged with."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.formats.agent_config import TOOLS_OF_GROUP, read_config
from app.formats.ids import parse_id
from app.learning.review.groups import words_of
from app.learning.review.types import Agent, Call, EntityType, KnownPattern, Rule, Signal, Tool
from app.text.embeddings import embed

PART = 500
MAX_RULES = 2000
MAX_KNOWN = 2000
SAMPLES = 2
NEAR_KNOWN = 0.4
MAX_NEAR = 2
# How far back retried extractions count as signals, though nothing about them is open.
RETRIED = timedelta(days=30)
BEGINNING = datetime.min.replace(tzinfo=UTC)
TEXT = 1500
MAX_EVENTS = 60
MAX_CALLS = 12
MISSING = (
    (re.compile(r"Replay fails: the answer does not mention (“\w[^”A-Z\d]*”)\."), r"Mention \1 in the answer."),
    (re.compile(r"Replay fails: (\w+) was not called\."), r"Call \1 first."),
    (re.compile(r"Replay fails: (\w+) was not called with the expected arguments\."), r"Check the arguments of \1."),
    (re.compile(r"Replay fails: ([\w ]+) was not (created|updated)\."), r"Make sure that the \1 is \2."),
)
WRITING_GROUPS = ("entities-write", "agents-admin")

# Open feedback behind no proposal, and retried extractions that no rule was made of. What the reviewer's own
# runs brought is left out.
OPEN = """
  FROM (SELECT * FROM feedback AS o
         WHERE o.tenant_id = %(tenant)s AND o.status = 'pending'
           AND NOT EXISTS (SELECT FROM shared_context_feedback AS k
                             JOIN shared_context AS c ON c.tenant_id = k.tenant_id AND c.id = k.shared_context_id
                            WHERE k.tenant_id = o.tenant_id AND k.feedback_id = o.id AND c.state = 'proposed')
           AND NOT EXISTS (SELECT FROM change_drafts AS d
                            WHERE d.tenant_id = o.tenant_id AND d.status = 'open' AND d.feedback_ids @> ARRAY[o.id])
         UNION ALL
        SELECT * FROM feedback AS x
         WHERE x.tenant_id = %(tenant)s AND x.occurred_at > %(retried)s AND x.kind = 'extraction_rejection'
           AND x.status = 'applied'
           AND NOT EXISTS (SELECT FROM shared_context_feedback AS k
                            WHERE k.tenant_id = x.tenant_id AND k.feedback_id = x.id)) AS f
  LEFT JOIN agents AS own ON own.tenant_id = f.tenant_id AND own.id = f.agent_id
 WHERE NOT coalesce(own.is_system, false) AND NOT f.details ? 'retracted_at'
"""
COUNT = f"""
SELECT count(*), count(*) FILTER (WHERE f.occurred_at < %(expired)s),
       coalesce(sum(hashtextextended(concat_ws('|', f.id, f.rating, f.comment, f.details, f.status), 0)::numeric), 0)
{OPEN}
"""
LAST_CHANGE = "SELECT max(updated_at) FROM shared_context WHERE tenant_id = %(tenant)s"
ROWS = """
SELECT f.id, f.kind, f.source_type, f.rating, f.origin, f.occurred_at, f.signal, f.comment,
       f.details ->> 'preferred_answer', f.error_categories,
       f.kind = 'flag' AND EXISTS (SELECT FROM memberships AS m WHERE m.tenant_id = f.tenant_id
                                      AND m.user_id = f.created_by AND m.role IN ('admin', 'owner')),
       CASE WHEN f.origin = 'user' THEN f.created_by END, f.session_id, f.agent_id,
       coalesce(e.entity_type_id, s.entity_type_id, (
           SELECT t.id FROM entity_types AS t
            WHERE t.tenant_id = f.tenant_id AND t.id::text = f.context ->> 'entity_type_id')),
       f.context ->> 'field_name', f.status <> 'pending',
       f.context ->> 'golden_session_id', f.message_id, f.chat_id, f.turn_id
  FROM feedback AS f
  LEFT JOIN entities AS e ON e.tenant_id = f.tenant_id AND e.id = f.entity_id
  LEFT JOIN LATERAL (SELECT o.entity_type_id FROM sessions AS n JOIN entities AS o
                         ON o.tenant_id = n.tenant_id AND o.id = n.entity_id
                      WHERE n.tenant_id = f.tenant_id AND n.id = f.session_id) AS s ON true
"""
PART_OF = f"""
SELECT f.id {OPEN}
   AND (f.occurred_at, f.id) > (%(at)s::timestamptz, %(after)s::uuid)
 ORDER BY f.occurred_at, f.id LIMIT {PART}
"""
# The last columns of ROWS, which say where the moment is.
PLACE = ("golden_session_id", "message_id", "chat_id", "turn_id")
# The message that feedback names, what was asked before it and what its person said next.
MOMENTS = f"""
SELECT w.n, left(m.content, {TEXT}), left(q.content, {TEXT}), left(u.content, {TEXT})
  FROM unnest(%(n)s::integer[], %(ids)s::uuid[], %(external)s::text[], %(turns)s::text[], %(sessions)s::uuid[])
       AS w (n, id, external, turn, session)
 CROSS JOIN LATERAL (
       SELECT * FROM (
           SELECT o.*, 1 AS surest FROM messages AS o WHERE o.tenant_id = %(tenant)s AND o.id = w.id
            UNION ALL
           SELECT o.*, 2 FROM messages AS o WHERE o.tenant_id = %(tenant)s AND o.external_id = w.external
              AND (w.session IS NULL OR o.session_id = w.session)
            UNION ALL
           SELECT o.*, 3 FROM messages AS o WHERE o.tenant_id = %(tenant)s AND o.turn_id = w.turn
              AND o.role = 'agent' AND (w.session IS NULL OR o.session_id = w.session)) AS a
        ORDER BY surest LIMIT 1) AS m
  LEFT JOIN LATERAL (SELECT o.content FROM messages AS o
                      WHERE o.tenant_id = %(tenant)s AND o.chat_id = m.chat_id AND o.role = 'user'
                        AND o.message_index < m.message_index
                      ORDER BY o.message_index DESC LIMIT 1) AS q ON true
  LEFT JOIN LATERAL (SELECT o.content FROM messages AS o
                      WHERE o.tenant_id = %(tenant)s AND o.chat_id = m.chat_id AND o.role = 'user'
                        AND o.message_index > m.message_index
                      ORDER BY o.message_index LIMIT 1) AS u ON true
"""
EVENTS = f"""
SELECT w.id, e.event_type, left(e.payload ->> 'text', {TEXT}), e.payload ->> 'id', e.payload ->> 'call_id',
       e.payload ->> 'name',
       CASE WHEN e.payload_bytes < 4000 THEN e.payload -> 'arguments' END, (e.payload ->> 'is_error') = 'true',
       CASE WHEN e.payload_bytes < 4000 THEN e.payload -> 'output'
            ELSE to_jsonb(left(e.payload ->> 'output', {TEXT})) END
  FROM unnest(%(sessions)s::uuid[]) AS w (id)
 CROSS JOIN LATERAL (
       SELECT * FROM session_events AS o WHERE o.tenant_id = %(tenant)s AND o.session_id = w.id
          AND o.event_type IN ('user.message', 'agent.message', 'tool.call', 'tool.result')
        ORDER BY o.occurred_at, o.sequence LIMIT {MAX_EVENTS}) AS e
"""
AGENTS = """
SELECT a.id, a.slug, a.name, v.config FROM agents AS a
  JOIN agent_versions AS v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.current_version
 WHERE a.tenant_id = %(tenant)s AND a.merged_into IS NULL AND a.archived_at IS NULL AND NOT a.is_system
"""
TYPES = """
SELECT id, slug, name, fields FROM entity_types WHERE tenant_id = %(tenant)s AND archived_at IS NULL ORDER BY slug
"""
# A proposal that is out of use, and was neither in use nor withdrawn, was rejected by a person.
RULES = f"""
SELECT r.id, r.type, r.content, r.context, r.agent_id, r.entity_type_id, r.state,
       r.state IN ('inactive', 'deleted') AND r.metadata ? 'proposed' AND NOT EXISTS (
           SELECT FROM shared_context_history AS h
            WHERE h.tenant_id = r.tenant_id AND h.shared_context_id = r.id
               AND h.action IN ('active', 'withdrawn'))
  FROM shared_context AS r
 WHERE r.tenant_id = %(tenant)s AND NOT r.metadata ?| ARRAY['replaces', 'retires']
 ORDER BY r.state IN ('active', 'proposed') DESC, r.updated_at DESC, r.id LIMIT {MAX_RULES}
"""
KNOWN = f"""
SELECT id, label, shared_context_id FROM feedback_patterns
 WHERE tenant_id = %(tenant)s
 ORDER BY last_seen_at DESC, id DESC LIMIT {MAX_KNOWN}
"""
SAMPLED = f"""
SELECT w.id, r.feedback_id FROM unnest(%(patterns)s::uuid[]) AS w (id)
 CROSS JOIN LATERAL (SELECT o.feedback_id FROM feedback_pattern_rows AS o
                      WHERE o.tenant_id = %(tenant)s AND o.pattern_id = w.id
                      ORDER BY o.occurred_at DESC, o.feedback_id DESC LIMIT {SAMPLES}) AS r
"""
SPREAD = f"""
SELECT f.id {OPEN}
   AND f.id IN (SELECT r.feedback_id FROM feedback_pattern_rows AS r
                 WHERE r.tenant_id = %(tenant)s AND r.pattern_id = ANY (%(patterns)s::uuid[]))
 ORDER BY f.occurred_at, f.id LIMIT {PART}
"""


@dataclass(frozen=True)
class Backlog:
    """How much is open. `fingerprint` changes when any of it does, when a row has waited long enough, or when knowledge
    changed."""

    total: int
    fingerprint: str


@dataclass(frozen=True)
class World:
    """What feedback is judged with."""

    agents: Sequence[Agent]
    entity_types: Sequence[EntityType]
    rules: Sequence[Rule]


def load_backlog(now: datetime, wait_days: int, *, actor: Actor) -> Backlog:
    """Count what is open. Two queries."""
    [(total, expired, hashed)] = run(COUNT, _given(now, actor) | {"expired": now - timedelta(days=wait_days)})
    changed = run(LAST_CHANGE, {"tenant": actor.tenant_id})[0][0]
    return Backlog(total, "|".join(map(str, (total, expired, int(hashed), changed))))


def load_part(after: Signal | None, now: datetime, *, actor: Actor) -> list[Signal]:
    """The next open rows, the oldest first. Rows about several agents may complain about one thing. Four queries."""
    place = {"at": after.occurred_at if after else BEGINNING, "after": after.id if after else UUID(int=0)}
    found = run(PART_OF, _given(now, actor) | place)
    return load_signals([row[0] for row in found], actor=actor)


def load_spread(pattern_ids: Collection[UUID], now: datetime, *, actor: Actor) -> list[Signal]:
    """The open rows of these patterns."""
    found = run(SPREAD, _given(now, actor) | {"patterns": list(pattern_ids)})
    return load_signals([row[0] for row in found], actor=actor)


def load_world(*, actor: Actor) -> World:
    """Three queries."""
    tenant = {"tenant": actor.tenant_id}
    agents = [_agent(*row) for row in run(AGENTS, tenant)]
    types = [EntityType(row[0], row[1], row[2], tuple(row[3] or ())) for row in run(TYPES, tenant)]
    return World(agents, types, [Rule(*row) for row in run(RULES, tenant)])


def _agent(id: UUID, slug: str, name: str, stored: dict[str, Any]) -> Agent:
    config = read_config(stored)
    ours = [Tool(tool, group in WRITING_GROUPS) for group in config.tool_groups for tool in TOOLS_OF_GROUP[group]]
    own = [
        Tool(tool.name, tool.writes, tool.description, tuple(tool.parameters.get("properties") or ()))
        for tool in config.http_tools
    ]
    return Agent(id, slug, name, config.instructions, (*ours, *own))


def load_known(signals: Sequence[Signal], *, actor: Actor) -> list[KnownPattern]:
    """Earlier patterns that say something near to what these rows say, each with its latest rows. At most five
    queries."""
    import numpy

    texts = [text for signal in signals if (text := words_of(signal))]
    known = run(KNOWN, {"tenant": actor.tenant_id})
    if not known or not texts:
        return []
    labels = numpy.asarray(embed([row[1] for row in known]), dtype=numpy.float32)
    near = numpy.asarray(embed(texts), dtype=numpy.float32) @ labels.T
    best = numpy.argpartition(-near, min(MAX_NEAR, len(known)) - 1, axis=1)[:, :MAX_NEAR]
    chosen = {int(place) for row, places in zip(near, best, strict=True) for place in places if row[place] > NEAR_KNOWN}
    sampled = run(SAMPLED, {"tenant": actor.tenant_id, "patterns": [known[place][0] for place in sorted(chosen)]})
    rows = {signal.id: signal for signal in load_signals([row[1] for row in sampled], actor=actor)}
    samples = defaultdict(list)
    for pattern_id, feedback_id in sampled:
        if feedback_id in rows:
            samples[pattern_id].append(rows[feedback_id])
    rules = {row[0]: row[2] for row in known}
    return [KnownPattern(pattern_id, tuple(some), rules[pattern_id]) for pattern_id, some in samples.items()]


def load_signals(ids: Sequence[UUID], *, actor: Actor) -> list[Signal]:
    """Rows of feedback with the moments that they are about, in the order of the ids. Three queries."""
    if not ids:
        return []
    tenant = {"tenant": actor.tenant_id}
    rows = run(f"{ROWS} WHERE f.tenant_id = %(tenant)s AND f.id = ANY (%(ids)s::uuid[])", tenant | {"ids": list(ids)})
    signals = {row[0]: _signal(row[: -len(PLACE)]) for row in rows}
    goldens = {row[0]: id for row in rows if (id := parse_id(row[-len(PLACE)]))}
    told = _moments(rows, tenant)
    sessions = {signal.session_id for signal in signals.values() if signal.session_id}
    events = _events(sessions | set(goldens.values()), tenant)
    return [
        _with_moment(signals[id], told.get(id), events, events.get(goldens[id], []) if id in goldens else [])
        for id in ids
        if id in signals
    ]


def _signal(row: Sequence[Any]) -> Signal:
    names = (
        "id", "kind", "source_type", "rating", "origin", "occurred_at", "signal", "comment", "preferred_answer",
        "error_categories", "admin_flag", "author_id", "session_id", "agent_id", "entity_type_id", "field_name",
        "settled",
    )  # fmt: skip
    values = dict(zip(names, row, strict=True))
    if values["kind"] == "replay_failure":
        values["comment"] = instruct(values["comment"])
    return Signal(**values | {"error_categories": tuple(values["error_categories"] or ())})


def instruct(comment: str | None) -> str | None:
    """What a failed replay says as an instruction, where what was missing is plain. A figure or a name is missing in
    one answer only."""
    for told, order in MISSING:
        if comment and (found := told.fullmatch(comment)):
            return found.expand(order)
    return comment


def _moments(rows: Sequence[Any], tenant: dict[str, Any]) -> dict[UUID, tuple[str | None, ...]]:
    """Answer, question and what was said next, by row. Turn ids count only within a session."""
    wanted = [row for row in rows if row[-3] or (row[-1] and row[12])]
    given = {
        "n": list(range(len(wanted))),
        "ids": [parse_id(row[-3]) for row in wanted],
        "external": [row[-3] for row in wanted],
        "turns": [row[-1] if row[12] else None for row in wanted],
        "sessions": [row[12] for row in wanted],
    }
    return {wanted[row[0]][0]: tuple(row[1:]) for row in run(MOMENTS, tenant | given)} if wanted else {}


def _events(sessions: Collection[UUID], tenant: dict[str, Any]) -> dict[UUID, list[Any]]:
    found: dict[UUID, list[Any]] = defaultdict(list)
    for session_id, *event in run(EVENTS, tenant | {"sessions": sorted(sessions)}) if sessions else ():
        found[session_id].append(event)
    return found


def _with_moment(
    signal: Signal, told: tuple[str | None, ...] | None, events: Mapping[UUID, list[Any]], golden: Sequence[Any]
) -> Signal:
    """The row with its turn: that of the message it names, the first that a golden had otherwise, else the last of its
    session."""
    answer, question, follow_up = told or (None, None, None)
    turns = _split_turns(events.get(signal.session_id, []) if signal.session_id else [])
    place = next((n for n, turn in enumerate(turns) if question and turn[0][1] == question), len(turns) - 1)
    pairs = zip(map(_calls, turns), map(_calls, _split_turns(golden)), strict=False)
    differ = [(n, expected) for n, (called, expected) in enumerate(pairs) if _done(called) != _done(expected)]
    if differ:
        place, expected = differ[0]
        signal = replace(signal, expected=expected)
    if turns:
        turn = turns[place]
        said = [event[1] for event in turn if event[0] == "agent.message"]
        question = question or (turn[0][1] if turn[0][0] == "user.message" else None)
        answer = answer or (said[-1] if said else None)
        follow_up = follow_up or (turns[place + 1][0][1] if place + 1 < len(turns) else None)
        return replace(signal, question=question, answer=answer, follow_up=follow_up, calls=_calls(turn))
    return replace(signal, question=question, answer=answer, follow_up=follow_up)


def _split_turns(events: Iterable[Any]) -> list[list[Any]]:
    turns: list[list[Any]] = []
    for event in events:
        if event[0] == "user.message" or not turns:
            turns.append([])
        turns[-1].append(event)
    return turns


def _done(calls: Sequence[Call]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(call.name, call.arguments) for call in calls]


def _calls(turn: Sequence[Any]) -> tuple[Call, ...]:
    results = {event[3]: event for event in turn if event[0] == "tool.result"}
    calls: list[Call] = []
    for event in turn:
        if event[0] == "tool.call" and len(calls) < MAX_CALLS:
            result = results.get(event[2])
            arguments = event[5] if isinstance(event[5], dict) else {}
            failed, output = (bool(result[6]), result[7]) if result else (False, None)
            calls.append(Call(event[4] or "", arguments, failed, output))
    return tuple(calls)


def _given(now: datetime, actor: Actor) -> dict[str, Any]:
    return {"tenant": actor.tenant_id, "retried": now - RETRIED}
