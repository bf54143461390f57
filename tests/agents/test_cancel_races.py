"""Whoever stops a run or replaces a golden while a replay ends waits for it; neither blocks the other for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.db import acting_as, db, transaction
from app.models import EvalRun
from app.services.evals import promotion
from app.services.evals import replays as eval_replays
from app.services.evals import results as eval_results
from app.services.sessions import leases
from app.services.sessions.events import NewEvent
from app.services.sessions.leases import Lease, RunOutcome
from tests.agents.test_replays import Bench
from tests.conftest import Workspace

# Unlike pg_stat_activity, pg_locks is looked at anew every time within a transaction.
BLOCKED = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
SAID = (NewEvent("user.message", {"text": "List entities"}), NewEvent("agent.message", {"text": "There are two."}))


@pytest.fixture
def bench(app: Flask, workspace: Workspace, run_sessions: Callable[[], int]) -> Bench:
    return Bench(app, workspace, run_sessions)


def claimed(bench: Bench, run: EvalRun) -> Lease:
    with bench.app.app_context(), acting_as(None), transaction():
        found = leases.claim("race", 100, timedelta(minutes=5))
    ours = {replay.id for replay in bench.replays(run)}
    return next(lease for lease in found if lease.session_id in ours)


def ends_while(bench: Bench, lease: Lease, work: Callable[[], Any]) -> Future[Any]:
    """A replay passes while `work` waits for it, in a transaction of its own."""

    def other() -> Any:
        with bench.acting():
            return work()

    with ThreadPoolExecutor(1) as pool:
        with bench.acting():
            held = leases.hold(lease)
            waits = pool.submit(other)
            for _ in range(200):
                if db.session.scalar(BLOCKED):
                    break
                time.sleep(0.02)
            else:
                raise AssertionError("The other did not come to wait for the replay.")
            result = eval_replays.errored_result("made up") | {
                "verdict": "pass",
                "passed": True,
                "overall_accuracy": 1.0,
            }
            eval_replays.finish_replay(held, RunOutcome(status="completed", events=SAID), result, actor=held.product)
        waits.exception(timeout=20)
    return waits


def test_a_run_is_cancelled_while_its_first_case_ends(bench: Bench) -> None:
    golden_id = bench.golden("List entities")
    run = bench.run(drain=False, golden_ids=[golden_id], trials=3)
    lease = claimed(bench, run)

    done = ends_while(bench, lease, lambda: eval_results.cancel_run(run.id, actor=bench.admin).id)

    assert done.result() == run.id
    # Of the others, those that wait are cancelled, and those that someone claimed are asked to stop.
    states = {replay.id: replay for replay in bench.replays(run)}
    assert states.pop(lease.session_id).status == "completed"
    assert all(one.status == "cancelled" or one.cancel_requested_at is not None for one in states.values())


def test_a_run_whose_last_case_ends_first_is_not_cancelled(bench: Bench) -> None:
    golden_id = bench.golden("List entities")
    run = bench.run(drain=False, golden_ids=[golden_id])

    done = ends_while(bench, claimed(bench, run), lambda: eval_results.cancel_run(run.id, actor=bench.admin))

    assert "already completed" in str(done.exception())
    assert bench.look(run.id).status == "completed"


def test_a_replay_takes_the_place_of_its_golden_while_it_ends(bench: Bench) -> None:
    golden_id = bench.golden("List entities", set_name="smoke")
    run = bench.run(drain=False, golden_ids=[golden_id])
    lease = claimed(bench, run)

    done = ends_while(
        bench,
        lease,
        lambda: promotion.promote_replay(golden_id, lease.session_id, actor=bench.admin).golden["set"],
    )

    assert done.result() == "smoke"
    assert bench.look(run.id).status == "completed"
