"""Tell webhooks when a set drops: a run that counts passes a smaller share than the one that counted before."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Integer, cast, select

from app.actor import Actor
from app.db import db
from app.models import EvalRun
from app.services.webhooks.queue import queue_event


def queue_drop(ended: EvalRun, results: Mapping[str, Any], *, actor: Actor) -> None:
    """Queue `eval.regressed` for a run that just ended, if its set dropped with it."""
    if ended.status != "completed" or ended.set_name is None or "trial" in ended.options or not results["judged"]:
        return
    passed, judged = (cast(EvalRun.figures[name].astext, Integer) for name in ("passed", "judged"))
    before = db.session.execute(
        select(EvalRun.id, passed.label("passed"), judged.label("judged"))
        .where(
            EvalRun.tenant_id == actor.tenant_id,
            EvalRun.set_name == ended.set_name,
            EvalRun.status == "completed",
            ~EvalRun.options.has_key("trial"),
            EvalRun.created_at < ended.created_at,
            judged > 0,
        )
        .order_by(EvalRun.created_at.desc(), EvalRun.id.desc())
        .limit(1)
    ).one_or_none()
    if before is None or results["passed"] * before.judged >= before.passed * results["judged"]:
        return
    now, then = ({"passed": one["passed"], "judged": one["judged"]} for one in (results, before._mapping))
    queue_event(
        "eval.regressed", ended.id, actor=actor, set=ended.set_name, before_run_id=str(before.id), before=then, now=now
    )
