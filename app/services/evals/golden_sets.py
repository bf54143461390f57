"""Golden sets: their scores, their policies and their names."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, text, update

from app.actor import Actor
from app.db import db
from app.errors import NotFound, Refused
from app.evals.verdict import read_policy
from app.models import AgentSession, EvalRun, GoldenSet, Task
from app.services import audit
from app.services.evals import golden, run_lists
from app.services.evals.runs import OPEN_STATUSES


def list_set_rows(*, actor: Actor) -> list[dict[str, Any]]:
    """The sets by name, each with its latest run and the one under way, if there are. Three queries."""
    sets = golden.list_sets(actor=actor)
    names = [one.name for one in sets]
    courses = run_lists.trends_of(names, actor=actor) if names else {}
    running = open_runs(names, actor=actor)
    return [
        {
            "name": one.name,
            "sessions": one.sessions,
            "why_not": one.why_not,
            "another": one.another,
            "course": course,
            "score": course.last.score if course else None,
            "under_way": running.get(one.name),
        }
        for one in sets
        for course in [courses.get(one.name)]
    ]


def open_runs(names: Sequence[str], *, actor: Actor) -> dict[str, UUID]:
    """The newest run of each set that has not ended."""
    if not names:
        return {}
    rows = db.session.execute(
        select(EvalRun.set_name, EvalRun.id)
        .where(EvalRun.tenant_id == actor.tenant_id, EvalRun.set_name.in_(names), EvalRun.status.in_(OPEN_STATUSES))
        .order_by(EvalRun.created_at)
    )
    return {str(name): run_id for name, run_id in rows}


def results_of(run_id: UUID, *, actor: Actor) -> dict[str, dict[str, Any]]:
    """The result of each golden in a completed run, without its divergences."""
    rows = db.session.execute(
        text(
            "SELECT key, value - 'divergences' - 'trials' FROM eval_runs, jsonb_each(results -> 'bySession')"
            " WHERE tenant_id = :tenant AND eval_runs.id = :run"
        ),
        {"tenant": actor.tenant_id, "run": run_id},
    )
    return {str(key): value for key, value in rows}


def policy_of(name: str, *, actor: Actor) -> dict[str, Any]:
    """What the set asks for, as it is stored; empty when it has no wishes."""
    found = db.session.scalar(
        select(GoldenSet.policy).where(GoldenSet.tenant_id == actor.tenant_id, GoldenSet.name == name)
    )
    return dict(found or {})


def save_policy(name: str, policy: dict[str, Any], *, actor: Actor) -> bool:
    """Change what decides in a set, from its next verdict on. Returns whether anything changed."""
    golden.require_admin(actor, "decides about golden sets")
    read_policy(policy)
    _require_goldens(name, actor)
    row = db.session.get(GoldenSet, (actor.tenant_id, name), with_for_update=True)
    before = dict(row.policy) if row else {}
    if before == policy:
        return False
    if row is None:
        db.session.add(GoldenSet(tenant_id=actor.tenant_id, name=name, policy=policy))
    elif policy:
        row.policy, row.updated_at = policy, datetime.now(UTC)
    else:
        db.session.delete(row)
    db.session.flush()
    audit.record(actor, "golden_set.policy_changed", "golden_set", None, set=name, policy=policy)
    return True


def rename_set(name: str, new_name: str, *, actor: Actor) -> int:
    """Rename a set with its runs, policy and schedules; returns how many goldens moved."""
    golden.require_admin(actor, "decides about golden sets")
    target = golden.clean_set_name(new_name)
    ids = _require_goldens(name, actor)
    if target == name:
        return 0
    if _golden_ids(target, actor):
        raise Refused(f"There is a set {target} already; select the goldens and move them there.", current=target)
    if open_runs([name], actor=actor):
        raise Refused(f"A run of {name} is under way; rename the set when it has ended.")
    moved = 0
    for start in range(0, len(ids), golden.MAX_SESSIONS):
        moved += golden.move_goldens(ids[start : start + golden.MAX_SESSIONS], target, actor=actor)
    for model, column in ((EvalRun, EvalRun.set_name), (GoldenSet, GoldenSet.name)):
        renamed = update(model).where(model.tenant_id == actor.tenant_id, column == name).values({column: target})
        db.session.execute(renamed.execution_options(synchronize_session=False))
    _rename_in_schedules(name, target, actor)
    return moved


def _rename_in_schedules(name: str, target: str, actor: Actor) -> None:
    replay: Any = Task.replay
    tasks = db.session.scalars(
        select(Task)
        .where(Task.tenant_id == actor.tenant_id, replay["set"].astext == name)
        .order_by(Task.id)
        .with_for_update()
    ).all()
    for task in tasks:
        task.replay = {**(task.replay or {}), "set": target}
        audit.record(actor, "task.changed", "task", task.id, before={"set": name}, after={"set": target})
    db.session.flush()


def _require_goldens(name: str, actor: Actor) -> list[UUID]:
    ids = _golden_ids(name, actor)
    if not ids:
        raise NotFound(f"There is no golden set {name[:60]}.")
    return ids


def _golden_ids(name: str, actor: Actor) -> list[UUID]:
    return list(
        db.session.scalars(
            select(AgentSession.id).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set == name)
        )
    )
