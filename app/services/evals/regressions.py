"""Tell webhooks when a set drops, as the alert in the app does."""

from app.actor import Actor
from app.models import EvalRun
from app.services.evals.charts.dropped import drop_of_run
from app.services.webhooks.queue import queue_event


def queue_drop(ended: EvalRun, *, actor: Actor) -> None:
    """Queue `eval.regressed` for a run that just ended, if its set dropped with it."""
    drop = drop_of_run(ended.id, actor=actor)
    if drop is not None:
        then, now = ({"passed": score.passed, "judged": score.judged} for score in (drop.before, drop.now))
        queue_event(
            "eval.regressed", ended.id, actor=actor, set=drop.set_name, before_run_id=str(drop.before_run_id),
            before=then, now=now,
        )  # fmt: skip
