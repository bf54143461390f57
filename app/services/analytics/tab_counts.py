"""What waits for a decision, as the tabs say it."""

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import (
    Float,
    Integer,
    ScalarSelect,
    Select,
    Uuid,
    bindparam,
    cast,
    column,
    func,
    literal,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.models.agents import Task
from app.models.evals import EvalRun
from app.models.feedback import Feedback
from app.models.knowledge import SharedContext
from app.models.sessions import AgentSession
from app.services.evals.run_lists import counts_for_set

MAX_COUNT = 1000
TENANT = bindparam("tenant", type_=Uuid())


def count_tabs(*, actor: Actor) -> dict[str, Any]:
    """Pending feedback, what of it the actor has taken on, and proposed knowledge, each counted up to `MOST`: a tab
    says "1,000+" and stays quick. `oldest` is since when feedback waits, `tasks` how many schedules failed,
    `evals` the accuracy over all sets and its change. One query."""
    found = db.session.execute(_statement(), {"tenant": actor.tenant_id, "me": actor.id}).one()
    counted = dict(zip(("feedback", "knowledge", "oldest", "mine", "tasks", "evals"), found, strict=True))
    return counted | {"evals": _accuracy_change(counted["evals"])}


@cache
def _statement() -> Any:
    """The same for everybody, and put together once: it is asked for every page."""
    pending = select(literal(1)).where(Feedback.tenant_id == TENANT, Feedback.status == "pending")
    proposed = select(literal(1)).where(SharedContext.tenant_id == TENANT, SharedContext.state == "proposed")
    oldest = select(func.min(Feedback.created_at)).where(Feedback.tenant_id == TENANT, Feedback.status == "pending")
    mine = pending.where(Feedback.assignee_id == bindparam("me", type_=Uuid()))
    failed = select(literal(1)).where(Task.tenant_id == TENANT, Task.enabled, Task.last_outcome == "failed")
    return select(
        _count(pending), _count(proposed), oldest.scalar_subquery(), _count(mine), _count(failed), _accuracy_figures()
    )


def _accuracy_figures() -> Any:
    """Passed and judged over the newest run of each set that speaks for it, and both before the newest of these ended:
    four figures. Sets are walked through the index of goldens, and of each the newest run is looked up."""
    sets = _sets()
    newest = _newest_run(lambda run: run.set_name == sets.c.name).lateral("newest")
    now = select(newest).select_from(sets.join(newest, true())).cte("now")
    last = select(now).order_by(now.c.created_at.desc(), now.c.id.desc()).limit(1).cte("last")
    older = _newest_run(
        lambda run: (
            (run.set_name == last.c.set_name) & (tuple_(run.created_at, run.id) < tuple_(last.c.created_at, last.c.id))
        ),
    ).lateral("older")
    before = union_all(
        select(now.c.passed, now.c.judged).where(now.c.id != select(last.c.id).scalar_subquery()),
        select(older.c.passed, older.c.judged).select_from(last.join(older, true())),
    ).cte("before")

    def total(column: Any) -> Any:
        return select(func.coalesce(func.sum(column), 0)).scalar_subquery()

    return array([total(column) for found in (now, before) for column in (found.c.passed, found.c.judged)])


def _sets() -> Any:
    """The names of the sets, each found by the one before it."""

    def least(*where: Any) -> Any:
        name = func.min(AgentSession.golden_set).label("name")
        return select(name).where(AgentSession.tenant_id == TENANT, AgentSession.golden_set.is_not(None), *where)

    sets = least().cte("sets", recursive=True)
    following = least(AgentSession.golden_set > sets.c.name).correlate(sets).scalar_subquery()
    return sets.union_all(select(following).where(sets.c.name.is_not(None)))


def _newest_run(which: Callable[[Any], Any]) -> Select[*tuple[Any, ...]]:
    """The newest run that speaks for its set, of those in question, with its figures read from its results at once."""
    run = aliased(EvalRun)
    results = func.jsonb_to_record(run.results).table_valued(column("accuracy", Float), column("judged", Integer))
    results = results.render_derived(with_types=True)
    passed = cast(func.round(results.c.accuracy * results.c.judged), Integer).label("passed")
    return (
        select(run.id, run.set_name, run.created_at, passed, results.c.judged)
        .select_from(run)
        .join(results, true())
        .where(run.tenant_id == TENANT, counts_for_set(run), which(run))
        .order_by(run.created_at.desc(), run.id.desc())
        .limit(1)
    )


def _accuracy_change(figures: list[int]) -> tuple[float, float | None] | None:
    """The accuracy over all sets, and its change with the newest run."""
    passed, judged, passed_before, judged_before = figures
    if not judged:
        return None
    return passed / judged, passed / judged - passed_before / judged_before if judged_before else None


def _count(rows: Select[int]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MAX_COUNT).subquery()).scalar_subquery()
