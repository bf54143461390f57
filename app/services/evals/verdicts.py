"""The verdicts of ended runs as rows, by which runs are compared and the matrix and the trend are drawn."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select

from app.actor import Actor
from app.db import db, run
from app.evals import stats
from app.evals.verdict import FAIL, PASS
from app.models import AgentSession, EvalRun, EvalVerdict

# The newest of each cell. A run that was deleted or is taken up again gives its place to the one before.
MARK_LATEST = """
UPDATE eval_verdicts AS v SET latest = NOT v.latest
  FROM (SELECT run_id, golden_id, row_number() OVER (PARTITION BY golden_id, agent_version_id, context_mode, knowledge
                                                       ORDER BY ended_at DESC, run_id) AS place
          FROM eval_verdicts WHERE tenant_id = %(tenant)s AND golden_id = ANY (%(goldens)s::uuid[])) AS n
 WHERE v.tenant_id = %(tenant)s AND v.run_id = n.run_id AND v.golden_id = n.golden_id AND v.latest <> (n.place = 1)
"""


def knowledge_key(options: Mapping[str, Any]) -> str:
    """The knowledge that a trial changed, as one text: equal for runs that tried the same."""
    plus, minus = (
        [f"{sign}{row}" for row in options.get(name) or ()] for name, sign in (("plus", "+"), ("minus", "-"))
    )
    return " ".join(sorted([*plus, *minus]))


def store_verdicts(ended: EvalRun, results: Mapping[str, Mapping[str, Any]], *, actor: Actor) -> None:
    """Write a row for each golden of a run that has just ended. Goldens that were deleted meanwhile have none."""
    replays = [UUID(one["replay_session_id"]) for one in results.values()]
    of_tenant = AgentSession.tenant_id == actor.tenant_id
    tested = dict(
        db.session.execute(
            select(AgentSession.id, AgentSession.agent_version_id).where(of_tenant, AgentSession.id.in_(replays))
        ).all()
    )
    known = set(db.session.scalars(select(AgentSession.id).where(of_tenant, AgentSession.id.in_(map(UUID, results)))))
    rows = [
        {
            "tenant_id": actor.tenant_id,
            "run_id": ended.id,
            "golden_id": UUID(golden_id),
            "agent_version_id": tested[UUID(one["replay_session_id"])],
            "context_mode": ended.context_mode,
            "knowledge": knowledge_key(ended.options),
            "trial": "trial" in ended.options,
            "verdict": one["verdict"],
            "accuracy": one["overall_accuracy"],
            **_count_trials(one["trials"]),
            "reason": one["reason"],
            "baseline": one["baseline"],
            "replay_session_id": UUID(one["replay_session_id"]),
            "ended_at": ended.completed_at,
        }
        for golden_id, one in results.items()
        if UUID(golden_id) in known
    ]
    if rows:
        db.session.execute(insert(EvalVerdict), rows)
        mark_latest([row["golden_id"] for row in rows], actor=actor)


def _count_trials(trials: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = stats.count_verdicts(trial["verdict"] for trial in trials)
    return {"trials_passed": found[PASS], "trials_judged": found[PASS] + found[FAIL]}


def remove_verdicts(run_id: UUID, *, actor: Actor) -> None:
    """Remove what a run found, because it is deleted or taken up again."""
    goldens = db.session.scalars(
        delete(EvalVerdict)
        .where(EvalVerdict.tenant_id == actor.tenant_id, EvalVerdict.run_id == run_id)
        .returning(EvalVerdict.golden_id)
    ).all()
    if goldens:
        mark_latest(goldens, actor=actor)


def mark_latest(golden_ids: Collection[UUID], *, actor: Actor) -> None:
    """Mark the newest verdict of each cell of these goldens."""
    run(MARK_LATEST, {"tenant": actor.tenant_id, "goldens": f"{{{','.join(map(str, golden_ids))}}}"})
