"""What runs took, and what a run is likely to take by what earlier replays took."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.formats.agent_config import OFFLINE
from app.models.agents import REPLAYABLE_KINDS

# How many earlier replays of each golden are looked at, and of how many goldens.
RECENT = 5
MAX_SAMPLED = 200
# What the replays and their judge took. A cost is known only if that of every part is.
OF_RUNS = """
SELECT r.id,
       coalesce(sum(t.input_tokens), 0)::bigint, coalesce(sum(t.output_tokens), 0)::bigint,
       CASE WHEN bool_or(t.unknown) THEN NULL ELSE coalesce(sum(t.cost), 0) END::float8,
       extract(epoch FROM coalesce(r.completed_at, clock_timestamp()) - r.started_at)::float8
  FROM eval_runs AS r
  LEFT JOIN LATERAL (
       SELECT s.input_tokens, s.output_tokens, s.cost, s.cost IS NULL AND s.status = 'completed' AS unknown
         FROM sessions AS s WHERE s.tenant_id = r.tenant_id AND s.eval_run_id = r.id
        UNION ALL
       SELECT j.input_tokens, j.output_tokens, j.cost, j.cost IS NULL AND j.finished_at IS NOT NULL
         FROM judgements AS j WHERE j.tenant_id = r.tenant_id AND j.run_id = r.id) AS t ON true
 WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(runs)s::uuid[])
 GROUP BY r.id, r.completed_at, r.started_at
"""
# The newest replays of each golden that ran here with what their judge took, and how many seconds each of their runs
# took for a replay. Those that were recorded elsewhere and imported say nothing about this machine.
EARLIER = """
WITH replays AS (
    SELECT g.id AS golden_id, s.*
      FROM unnest(%(goldens)s::uuid[]) AS g (id)
     CROSS JOIN LATERAL (
           SELECT s.id, s.agent_version_id, s.model, s.input_tokens, s.output_tokens, s.cost, s.duration_ms,
                  s.eval_run_id
             FROM sessions AS s
            WHERE s.tenant_id = %(tenant)s AND s.eval_source = g.id::text AND s.status = 'completed'
              AND s.attempt > 0
            ORDER BY s.created_at DESC LIMIT %(recent)s) AS s
), paces AS (
    SELECT c.eval_run_id, extract(epoch FROM max(c.finished_at) - min(c.started_at)) / count(*) AS pace
      FROM sessions AS c
     WHERE c.tenant_id = %(tenant)s AND c.eval_run_id IN (SELECT DISTINCT eval_run_id FROM replays LIMIT 20)
       AND c.finished_at IS NOT NULL AND c.started_at IS NOT NULL
     GROUP BY c.eval_run_id
)
SELECT r.golden_id, r.agent_version_id, r.model,
       coalesce(r.input_tokens, 0) + coalesce(r.output_tokens, 0) + coalesce(j.input_tokens + j.output_tokens, 0),
       (r.cost + CASE WHEN j.id IS NULL THEN 0 ELSE j.cost END)::float8,
       coalesce(r.duration_ms, 0) / 1000.0::float8, p.pace::float8
  FROM replays AS r
  LEFT JOIN paces AS p ON p.eval_run_id = r.eval_run_id
  LEFT JOIN judgements AS j ON j.tenant_id = %(tenant)s AND j.session_id = r.id
"""

# What would be replayed, by the versions that were chosen, else by the current one of each golden's own agent.
TESTED = """
SELECT s.id, v.id, coalesce(nullif(v.config ->> 'model', ''), s.model, '')
  FROM sessions AS s
  JOIN agents AS a ON a.tenant_id = s.tenant_id
  JOIN agent_versions AS v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id
 WHERE s.tenant_id = %(tenant)s AND s.golden_set IS NOT NULL
   AND (s.golden_set = ANY (%(sets)s::text[]) OR s.id = %(golden)s::uuid)
   AND a.kind = ANY (%(kinds)s::text[]) AND a.archived_at IS NULL
   AND CASE WHEN cardinality(%(versions)s::uuid[]) = 0 THEN a.id = s.agent_id AND v.version = a.current_version
            ELSE v.id = ANY (%(versions)s::uuid[]) END
 LIMIT %(most)s
"""
MAX_TESTED = 20_000


@dataclass(frozen=True)
class Usage:
    """Tokens, dollars and seconds from start to end. `cost` is None where that of a replay is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Both together. Two runs that belong together run at the same time, so the longer one's time counts."""
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        tokens = self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        return Usage(*tokens, cost, max(self.seconds, other.seconds))


@dataclass(frozen=True)
class Estimate:
    """What a run is likely to take. Figures are None where nothing is known. `basis` says what they rest on:
    `version`, earlier replays of the same version; `model`, of another version with the same model."""

    goldens: int
    trials: int
    sides: int
    replays: int
    tokens: int | None
    cost: float | None
    seconds: float | None
    basis: str | None
    offline: bool


@dataclass(frozen=True)
class Replayed:
    """What one earlier replay took. `pace` are the seconds per replay of its whole run, which had several at once."""

    golden_id: UUID
    version_id: UUID | None
    model: str | None
    tokens: int
    cost: float | None
    seconds: float
    pace: float | None


def usage_of_runs(run_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, Usage]:
    """What these runs have taken so far, with all that was tried again. One query."""
    rows = run(OF_RUNS, {"tenant": actor.tenant_id, "runs": list(run_ids)}) if run_ids else []
    return {run_id: Usage(*figures) for run_id, *figures in rows}


def usage_of_run(run_id: UUID, *, actor: Actor) -> Usage:
    return usage_of_runs([run_id], actor=actor).get(run_id, Usage())


def estimate_request(
    *,
    actor: Actor,
    set_names: Sequence[str] = (),
    golden_id: UUID | None = None,
    version_ids: Sequence[UUID] = (),
    trials: int = 1,
) -> Estimate:
    """What the runs take that would be started with this. A query, and one for each version."""
    asked = {
        "tenant": actor.tenant_id, "sets": list(set_names), "golden": golden_id, "versions": list(version_ids),
        "kinds": list(REPLAYABLE_KINDS), "most": MAX_TESTED,
    }  # fmt: skip
    of_versions: dict[UUID | None, dict[UUID, tuple[UUID, str]]] = {}
    for one, version_id, model in run(TESTED, asked):
        of_versions.setdefault(version_id if version_ids else None, {})[one] = (version_id, model)
    parts = [estimate_run(tested, actor=actor, trials=trials) for tested in of_versions.values()]
    return add_estimates(parts)


def add_estimates(parts: Sequence[Estimate]) -> Estimate:
    """Several runs together. Where nothing is known of one, nothing is known of all."""

    def total(figure: str) -> Any:
        found = [getattr(part, figure) for part in parts]
        return None if None in found or not found else sum(found)

    bases = {part.basis for part in parts}
    return Estimate(
        goldens=sum(part.goldens for part in parts),
        trials=max((part.trials for part in parts), default=1),
        sides=1,
        replays=sum(part.replays for part in parts),
        tokens=total("tokens"),
        cost=total("cost"),
        seconds=total("seconds"),
        basis=None if None in bases or not bases else "version" if bases == {"version"} else "model",
        offline=bool(parts) and all(part.offline for part in parts),
    )


def estimate_run(tested: Mapping[UUID, tuple[UUID, str]], *, actor: Actor, trials: int = 1, sides: int = 1) -> Estimate:
    """What replaying these goldens takes, each with the version and the model that it is replayed with. One query."""
    found = [Replayed(*row) for row in run(EARLIER, _sampled(tested, actor))]
    same_version = [one for one in found if one.version_id == tested[one.golden_id][0]]
    same_model = [one for one in found if one.model and one.model == tested[one.golden_id][1]]
    known = same_version or same_model
    offline = bool(tested) and all(model == OFFLINE for _, model in tested.values())
    number = len(tested) * trials * sides
    tokens = round(_mean_by_golden(known, "tokens") * number) if known else 0 if offline else None
    costs_known = all(one.cost is not None for one in known)
    return Estimate(
        goldens=len(tested),
        trials=trials,
        sides=sides,
        replays=number,
        tokens=tokens,
        cost=(_mean_by_golden(known, "cost") * number if costs_known else None) if known else 0.0 if offline else None,
        seconds=_seconds(known, number) if known else None,
        basis=("version" if same_version else "model") if known else None,
        offline=offline,
    )


def _sampled(tested: Mapping[UUID, Any], actor: Actor) -> dict[str, Any]:
    return {"tenant": actor.tenant_id, "goldens": list(tested)[:MAX_SAMPLED], "recent": RECENT}


def _mean_by_golden(replays: Sequence[Replayed], figure: str) -> float:
    """The mean over goldens of what each takes: a golden that was replayed more often does not weigh more."""
    of_goldens: dict[UUID, list[float]] = {}
    for one in replays:
        of_goldens.setdefault(one.golden_id, []).append(float(getattr(one, figure)))
    return mean(mean(figures) for figures in of_goldens.values())


def _seconds(replays: Sequence[Replayed], number: int) -> float:
    """By the quickest of the earlier runs: others shared the machine with runs beside them. No run is quicker than one
    of its replays."""
    paces = [one.pace for one in replays if one.pace is not None]
    shortest = min(one.seconds for one in replays)
    return max(shortest, min(paces) * number) if paces else shortest * number
