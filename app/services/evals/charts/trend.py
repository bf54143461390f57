"""The accuracy of a set over its runs, and what changed between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import NotFound
from app.evals.stats import wilson
from app.evals.verdict import FAIL, FLAKY, PASS

MAX_POINTS = 500
MAX_MARKERS = 500
# A run's figures over all goldens, those of one agent, or how many goldens passed one dimension.
_FIGURES = {
    "set": "r.figures",
    "agent": "r.figures -> 'agents' -> (SELECT id::text FROM agents WHERE tenant_id = %(tenant)s AND slug = %(part)s)",
    "dimension": "r.figures -> 'dimensions' -> %(part)s",
}
LOAD_POINTS = """
SELECT r.id, r.started_at, (f ->> 'passed')::int, (f ->> 'judged')::int, (f ->> 'mean')::float,
       a.slug, n.version, r.options ? 'trial', r.context_mode, r.triggered_by,
       r.figures -> 'verdicts', r.figures -> 'models', (r.figures ->> 'judged')::int,
       ARRAY(SELECT jsonb_object_keys(coalesce(r.figures -> 'agents', '{{}}'))),
       ARRAY(SELECT jsonb_object_keys(coalesce(r.figures -> 'dimensions', '{{}}')))
  FROM (SELECT * FROM eval_runs
         WHERE tenant_id = %(tenant)s AND set_name = %(set)s AND status = 'completed' {trials}
         ORDER BY created_at DESC, id DESC LIMIT %(limit)s) AS r
  LEFT JOIN agents AS a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
  LEFT JOIN agent_versions AS n ON n.tenant_id = r.tenant_id AND n.id = r.agent_version_id
 CROSS JOIN LATERAL (SELECT {figures} AS f) AS of
 ORDER BY r.started_at, r.created_at, r.id
"""
# What may have moved a set: new versions of its agents, knowledge that they get, and what its goldens are held to.
LOAD_MARKERS = """
WITH goldens AS (
    SELECT s.id, s.title, s.agent_id FROM sessions AS s
      LEFT JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id
     WHERE s.tenant_id = %(tenant)s AND s.golden_set = %(set)s AND (%(agent)s::text IS NULL OR a.slug = %(agent)s)
), of_set AS (
    SELECT id FROM agents
     WHERE tenant_id = %(tenant)s AND (%(agent)s::text IS NULL OR slug = %(agent)s)
       AND (id IN (SELECT agent_id FROM goldens) OR id = ANY (%(agents)s::uuid[]))
)
SELECT * FROM (
    SELECT n.created_at AS at, 'agent' AS kind, n.id, a.slug || ' v' || n.version AS title, n.version AS number,
           u.name AS who, a.id AS parent
      FROM agent_versions AS n
      JOIN agents AS a ON a.tenant_id = n.tenant_id AND a.id = n.agent_id
      LEFT JOIN users AS u ON u.id = n.created_by
     WHERE n.tenant_id = %(tenant)s AND n.agent_id IN (SELECT id FROM of_set) AND n.created_at >= %(since)s
       AND n.version > 0
    UNION ALL
    SELECT h.created_at, 'knowledge', r.id, left(coalesce(h.after ->> 'content', r.content), 160), h.version,
           coalesce(u.name, w.slug), r.id
      FROM shared_context AS r
      JOIN shared_context_history AS h ON h.tenant_id = r.tenant_id AND h.shared_context_id = r.id
      LEFT JOIN users AS u ON u.id = h.user_id
      LEFT JOIN agents AS w ON w.tenant_id = h.tenant_id AND w.id = h.agent_id
     WHERE r.tenant_id = %(tenant)s AND r.updated_at >= %(since)s AND h.created_at >= %(since)s
       AND (r.agent_id IS NULL OR r.agent_id IN (SELECT id FROM of_set))
       AND 'active' IN (h.before ->> 'state', h.after ->> 'state')
    UNION ALL
    SELECT l.created_at, 'golden', g.id, g.title, (l.details ->> 'revision')::int, u.name, g.id
      FROM goldens AS g
      JOIN audit_log AS l ON l.tenant_id = %(tenant)s AND l.subject_type = 'session' AND l.subject_id = g.id
      LEFT JOIN users AS u ON u.id = l.actor_user_id
     WHERE l.action = 'golden.expectations_changed' AND l.created_at >= %(since)s
) AS m
 ORDER BY at DESC, kind, id LIMIT %(limit)s
"""
LOAD_SLUGS = "SELECT slug FROM agents WHERE tenant_id = %(tenant)s AND id = ANY (%(ids)s::uuid[]) ORDER BY slug"
AGENT_EXISTS = "SELECT EXISTS (SELECT FROM agents WHERE tenant_id = %(tenant)s AND slug = %(part)s)"
SET_EXISTS = "SELECT EXISTS (SELECT FROM sessions WHERE tenant_id = %(tenant)s AND golden_set = %(set)s)"


@dataclass(frozen=True)
class Point:
    """How many of the judged goldens passed in a run, over all of them or in one part. `mean` is the mean score of a
    dimension."""

    run_id: UUID
    at: datetime
    passed: int
    judged: int
    mean: float | None
    agent: str | None
    version: int | None
    trial: bool
    context_mode: str
    triggered_by: str
    verdicts: dict[str, int]
    models: list[str]
    judged_of_set: int

    @property
    def rejected(self) -> int:
        """How many goldens of the run were judged and not counted, because their baseline was rejected."""
        return sum(self.verdicts.get(verdict, 0) for verdict in (PASS, FAIL, FLAKY)) - self.judged_of_set

    @property
    def accuracy(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson(self.passed, self.judged)


@dataclass(frozen=True)
class Marker:
    """A change of a knowledge row, an agent or what a golden is held to: `id` is the row, the version or the golden,
    `number` the version or revision, `parent_id` the row, the agent or the golden."""

    at: datetime
    kind: str
    id: UUID
    title: str
    number: int | None
    who: str | None
    parent_id: UUID


@dataclass(frozen=True)
class Trend:
    """The runs of a set, oldest first, and what changed since the first of them. `agents` and `dimensions` are the
    parts that the runs can be narrowed to."""

    set_name: str
    points: list[Point]
    markers: list[Marker]
    agents: list[str]
    dimensions: list[str]

    def gaps(self) -> list[list[Marker]]:
        """The markers between the points: those before each of them, and those after the last."""
        times = [point.at for point in self.points]
        between: list[list[Marker]] = [[] for _ in range(len(times) + 1)]
        for marker in self.markers:
            between[bisect_right(times, marker.at)].append(marker)
        return between


def load_trend(
    set_name: str,
    *,
    actor: Actor,
    agent: str | None = None,
    dimension: str | None = None,
    trials: bool = True,
    limit: int = MAX_POINTS,
) -> Trend:
    """The newest completed runs of a set, narrowed to one agent or one dimension. Four queries at most."""
    part = "agent" if agent else "dimension" if dimension else "set"
    asked = {"tenant": actor.tenant_id, "set": set_name, "part": agent or dimension, "limit": limit}
    statement = LOAD_POINTS.format(figures=_FIGURES[part], trials="" if trials else "AND NOT options ? 'trial'")
    rows = run(statement, asked)
    if not rows and not run(SET_EXISTS, asked)[0][0]:
        raise NotFound(f"No golden set {set_name[:60]}.")
    agent_ids = sorted({one for row in rows for one in row[13]})
    dimensions = sorted({one for row in rows for one in row[14]})
    if agent and not run(AGENT_EXISTS, asked)[0][0]:
        raise NotFound(f"There is no agent “{agent[:60]}” in this workspace.")
    if dimension and dimension not in dimensions:
        raise NotFound(f"No run of this set has a dimension “{dimension[:60]}”.")
    return Trend(
        set_name,
        points=[point for row in rows if (point := Point(*row[:13])).judged is not None],
        markers=_load_markers(set_name, rows[0][1], agent_ids, actor, agent) if rows else [],
        agents=_slugs_of(agent_ids, actor) if len(agent_ids) > 1 else [],
        dimensions=dimensions,
    )


def _load_markers(
    set_name: str, since: datetime, agent_ids: Sequence[str], actor: Actor, agent: str | None
) -> list[Marker]:
    """What changed since then that concerns the set or, of it, this one agent."""
    asked: dict[str, Any] = {
        "tenant": actor.tenant_id, "set": set_name, "since": since, "agents": f"{{{','.join(agent_ids)}}}",
        "agent": agent, "limit": MAX_MARKERS,
    }  # fmt: skip
    return [Marker(*row) for row in reversed(run(LOAD_MARKERS, asked))]


def _slugs_of(agent_ids: Sequence[str], actor: Actor) -> list[str]:
    asked = {"tenant": actor.tenant_id, "ids": f"{{{','.join(agent_ids)}}}"}
    return [slug for (slug,) in run(LOAD_SLUGS, asked)]
