"""What was observed of knowledge rows: how often sessions with a row in their prompt got negative feedback, and how
often those without it. Observed, not proved: the two kinds of sessions may differ in more than the row."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from app.actor import Actor
from app.db import db
from app.evals.stats import newcombe
from app.models import AgentSession, SharedContextUsage
from app.services.knowledge.usage import read_loaded

WINDOW = timedelta(days=90)
MAX_SESSIONS = 20_000
BATCH = 1000
# With fewer sessions on a side no figures are shown.
MIN_SHOWN = 30
MIN_HARMFUL = 20
MAX_NEGATIVE_SESSIONS = 20
TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('exposures:' || app_tenant()::text, 0))")
SESSIONS = text("""
    SELECT s.id, s.created_at, s.agent_id, n.entity_type_id, coalesce(r.harmful, 0) > 0 AS negative
      FROM sessions AS s
      LEFT JOIN session_receptions AS r ON r.tenant_id = s.tenant_id AND r.session_id = s.id
      LEFT JOIN entities AS n ON n.tenant_id = s.tenant_id AND n.id = s.entity_id
     WHERE s.tenant_id = app_tenant() AND s.created_at > now() - CAST(:window AS interval)
       AND s.eval_source IS NULL AND s.status IN ('completed', 'failed')
     ORDER BY s.created_at DESC LIMIT :most
""")
# Every row that may be exposed, and those that once were, so that what is too old goes out again.
SCOPES = text("""
    SELECT c.id, c.agent_id, c.entity_type_id, coalesce(u.exposed, 0) > 0 AS measured FROM shared_context AS c
      LEFT JOIN shared_context_usage AS u ON u.tenant_id = c.tenant_id AND u.shared_context_id = c.id
     WHERE c.tenant_id = app_tenant()
""")
# Rows in the order of their ids, so that two batches never wait for each other in a circle.
SAVE = text("""
    INSERT INTO shared_context_usage AS u (tenant_id, shared_context_id, exposed, exposed_negative, unexposed,
                                           unexposed_negative, is_harmful, negative_sessions)
    SELECT app_tenant(), g.id, g.exposed, g.exposed_negative, g.unexposed, g.unexposed_negative, g.is_harmful,
           g.negative_sessions
      FROM jsonb_to_recordset(CAST(:measured AS jsonb))
           AS g (id uuid, exposed integer, exposed_negative integer, unexposed integer, unexposed_negative integer,
                 is_harmful boolean, negative_sessions uuid[])
     ORDER BY g.id
    ON CONFLICT (tenant_id, shared_context_id) DO UPDATE
       SET exposed = excluded.exposed, exposed_negative = excluded.exposed_negative, unexposed = excluded.unexposed,
           unexposed_negative = excluded.unexposed_negative, is_harmful = excluded.is_harmful,
           negative_sessions = excluded.negative_sessions
     WHERE (u.exposed, u.exposed_negative, u.unexposed, u.unexposed_negative, u.is_harmful, u.negative_sessions)
           IS DISTINCT FROM
           (excluded.exposed, excluded.exposed_negative, excluded.unexposed, excluded.unexposed_negative,
            excluded.is_harmful, excluded.negative_sessions)
""")


@dataclass(frozen=True)
class Attribution:
    """Sessions with a row and without it, and how many of either got negative feedback from people."""

    exposed: int = 0
    exposed_negative: int = 0
    unexposed: int = 0
    unexposed_negative: int = 0

    @property
    def shown(self) -> bool:
        """Whether there are enough sessions on both sides to show rates."""
        return min(self.exposed, self.unexposed) >= MIN_SHOWN

    @property
    def rate_with(self) -> float | None:
        return self.exposed_negative / self.exposed if self.shown else None

    @property
    def rate_without(self) -> float | None:
        return self.unexposed_negative / self.unexposed if self.shown else None

    @property
    def difference(self) -> float | None:
        """The negative rate with the row minus the rate without it."""
        with_it, without = self.rate_with, self.rate_without
        return None if with_it is None or without is None else with_it - without

    @property
    def interval(self) -> tuple[float, float]:
        return newcombe(self.exposed_negative, self.exposed, self.unexposed_negative, self.unexposed)

    @property
    def low(self) -> float | None:
        return self.interval[0] if self.shown else None

    @property
    def high(self) -> float | None:
        return self.interval[1] if self.shown else None

    @property
    def harmful(self) -> bool:
        """Whether sessions that had the row were received worse, and not by chance alone."""
        return self.exposed >= MIN_HARMFUL and self.interval[0] > 0


# An agent and an entity type; None is any in the scope of a row, and none in that of a session.
Scope = tuple[UUID | None, UUID | None]


def _is_within(session: Scope, row: Scope) -> bool:
    return all(wanted is None or wanted == given for given, wanted in zip(session, row, strict=True))


@dataclass
class Tally:
    """How many sessions, how many of them got negative feedback, and the newest of those."""

    number: int = 0
    negative: int = 0
    newest: list[tuple[datetime, str]] = field(default_factory=list)

    def count(self, session: Any) -> None:
        """Count a session that is older than those before it."""
        self.number += 1
        self.negative += session.negative
        if session.negative and len(self.newest) < MAX_NEGATIVE_SESSIONS:
            self.newest.append((session.created_at, str(session.id)))

    def add(self, other: "Tally") -> None:
        self.number += other.number
        self.negative += other.negative
        self.newest += other.newest


def measure_exposures(*, actor: Actor) -> int:
    """Measure all rows of the actor's workspace over the newest sessions of the last 90 days; how many rows were in a
    prompt. Nothing while another process does the same."""
    if not db.session.scalar(TRY_LOCK):
        return 0
    scopes = {str(row.id): row for row in db.session.execute(SCOPES)}
    # Most sessions of an agent have the same knowledge, so they are counted together.
    alike: dict[tuple[Scope, frozenset[str]], Tally] = defaultdict(Tally)
    for session, row_ids in _read_sessions():
        scope = (session.agent_id, session.entity_type_id)
        alike[scope, frozenset(row_ids & scopes.keys())].count(session)
    had = {row_id for _, row_ids in alike for row_id in row_ids}
    wanted = had | {row_id for row_id, row in scopes.items() if row.measured}
    if wanted:
        measured = [_measure_row(scopes[row_id], row_id, alike) for row_id in sorted(wanted)]
        db.session.execute(SAVE, {"measured": json.dumps(measured)})
    return len(had)


def _measure_row(row: Any, row_id: str, alike: Mapping[tuple[Scope, frozenset[str]], Tally]) -> dict[str, Any]:
    """The other side are all sessions in the row's scope that did not have it, those before its time too."""
    exposed, others = Tally(), Tally()
    for (scope, row_ids), tally in alike.items():
        if row_id in row_ids:
            exposed.add(tally)
        elif _is_within(scope, (row.agent_id, row.entity_type_id)):
            others.add(tally)
    found = Attribution(exposed.number, exposed.negative, others.number, others.negative)
    newest = [session_id for _, session_id in sorted(exposed.newest, reverse=True)[:MAX_NEGATIVE_SESSIONS]]
    return {**vars(found), "id": row_id, "is_harmful": found.harmful, "negative_sessions": newest}


def _read_sessions() -> Iterator[tuple[Any, set[str]]]:
    """The newest sessions, each with the ids of the knowledge that it had. One that reports a prompt which Upshot did
    not give is left out: nobody knows what it had."""
    found = db.session.execute(SESSIONS, {"window": WINDOW, "most": MAX_SESSIONS}).all()
    for start in range(0, len(found), BATCH):
        part = found[start : start + BATCH]
        loaded: dict[UUID, set[str]] = defaultdict(set)
        unknown = set()
        for session_id, named in read_loaded([one.id for one in part]):
            if named is None:
                unknown.add(session_id)
            else:
                loaded[session_id] |= {one for one in named if isinstance(one, str)}
        yield from ((one, loaded[one.id]) for one in part if one.id not in unknown)


def negative_sessions(row_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The newest sessions that had a row and got negative feedback, as `id, title, created_at`. One query."""
    used = SharedContextUsage
    session = AgentSession
    return db.session.execute(
        select(session.id, session.title, session.created_at)
        .join(used, (used.tenant_id == session.tenant_id) & (session.id == used.negative_sessions.any_()))
        .where(session.tenant_id == actor.tenant_id, used.shared_context_id == row_id)
        .order_by(session.created_at.desc(), session.id)
    ).all()
