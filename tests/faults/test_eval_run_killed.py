"""A worker killed in the middle of an eval run: every golden has its verdict, and each failure is said once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from bench.slow_model import SlowModel, slow_model
from tests.conftest import Server
from tests.faults.workers import Place, place, send, up, within

pytestmark = pytest.mark.process
GOLDENS = 40
PATIENCE = 150.0
JUDGED = "SELECT count(*) FROM sessions WHERE eval_run_id = %s AND metadata #> '{eval_result,verdict}' IS NOT NULL"


@pytest.fixture
def model() -> Iterator[SlowModel]:
    with slow_model(0.05) as one:
        yield one


@pytest.fixture
def office(server: Server, template: str, tmp_path: Path) -> Iterator[Place]:
    with place(server, template, tmp_path) as one:
        yield one


def replay_all(office: Place, tenant: UUID, *, promote: bool) -> UUID:
    from sqlalchemy import select

    from app.actor import Actor
    from app.db import acting_as, db, transaction
    from app.models import AgentSession
    from app.services.evals import promotion
    from app.services.evals import runs as eval_runs

    person = Actor(office.fetch("SELECT created_by FROM sessions LIMIT 1")[0][0], tenant, "admin", "Sam")
    with office.app.app_context(), acting_as(person), transaction():
        if promote:
            for session_id in db.session.scalars(select(AgentSession.id)).all():
                promotion.promote_session(session_id, promotion.Promotion(), actor=person)
        return eval_runs.start_run(eval_runs.NewRun(set_name="default"), actor=person).id


def worse(said: str) -> str:
    """Every other task is refused."""
    number = int("".join(letter for letter in said if letter.isdigit()) or 0)
    return "Nobody here is able to help with anything of that kind, sorry." if number % 2 else "That is done."


def test_a_run_of_forty_survives_the_death_of_its_worker(office: Place, model: SlowModel, full: bool) -> None:
    first, second = (office.worker(UPSHOT_OPENAI_BASE_URL=model.url, UPSHOT_SLOTS="5") for _ in range(2))
    up(first)
    up(second)
    tenant = office.ask(GOLDENS, {"model": "openai:slow"})
    within(PATIENCE, lambda: office.ended() == GOLDENS)
    model.answer, model.seconds = worse, 0.5
    for number in range(1, (8 if full else 1) + 1):
        run_id = replay_all(office, tenant, promote=number == 1)
        within(PATIENCE, lambda run_id=run_id: office.fetch(JUDGED, run_id)[0][0] >= 4)
        send(first, signal.SIGKILL)
        assert office.fetch(JUDGED, run_id)[0][0] < GOLDENS, "the worker died too late"
        third = office.worker(UPSHOT_OPENAI_BASE_URL=model.url, UPSHOT_SLOTS="5")
        ended = "SELECT status, passed_count, failed_count FROM eval_runs WHERE id = %s AND completed_at IS NOT NULL"
        within(PATIENCE, lambda run_id=run_id, ended=ended: office.fetch(ended, run_id))
        assert office.fetch(ended, run_id) == [("completed", GOLDENS // 2, GOLDENS // 2)]
        assert office.fetch(JUDGED, run_id) == [(GOLDENS,)]
        finished = "SELECT count(*) FROM audit_log WHERE action = 'eval_run.finished' AND subject_id = %s"
        assert office.fetch(finished, run_id) == [(1,)]
        said = office.fetch(
            "SELECT context ->> 'golden_session_id', jsonb_array_length(context -> 'replay_session_ids')"
            "  FROM feedback WHERE kind = 'replay_failure'"
        )
        assert len({golden for golden, _ in said}) == len(said) == GOLDENS // 2
        assert {replays for _, replays in said} == {number}
        first, second = second, up(third)
    taken_over = "SELECT count(*) FROM sessions WHERE eval_source IS NOT NULL AND attempt > 1"
    assert office.fetch(taken_over)[0][0], "no replay was taken over"


def test_eight_lost_workers_leave_no_golden_without_a_verdict(office: Place, model: SlowModel, full: bool) -> None:
    """Each time a worker is in the middle of several replays, it is killed and another takes over."""
    slots = 8
    goldens, kills = (GOLDENS, 8) if full else (slots, 3)
    settings = {"UPSHOT_OPENAI_BASE_URL": model.url, "UPSHOT_SLOTS": str(slots)}
    worker = up(office.worker(**settings))
    tenant = office.ask(goldens, {"model": "openai:slow"})
    within(PATIENCE, lambda: office.ended() == goldens)
    # No replay ends while workers are being killed, so every death takes several of them along.
    model.seconds = 60.0
    run_id = replay_all(office, tenant, promote=True)
    running = "SELECT count(*) FROM sessions WHERE eval_run_id = %s AND status = 'running' AND lease_owner LIKE %s"
    for number in range(1, kills + 1):
        within(PATIENCE, lambda mine=f"%:{worker.pid}:%": office.fetch(running, run_id, mine)[0][0] == slots)
        send(worker, signal.SIGKILL)
        model.seconds = 0.05 if number == kills else 60.0
        worker = up(office.worker(**settings))
    within(PATIENCE, lambda: office.fetch("SELECT 1 FROM eval_runs WHERE completed_at IS NOT NULL"))
    verdicts = office.fetch(
        "SELECT metadata #>> '{eval_result,verdict}', count(*) FROM sessions WHERE eval_run_id = %s GROUP BY 1", run_id
    )
    assert verdicts == [("pass", goldens)], "nothing errored, and nothing had to be tried again"
    counted = "SELECT max(lost_count), max(attempt - lost_count) FROM sessions WHERE eval_run_id = %s"
    [(lost, own)] = office.fetch(counted, run_id)
    assert lost >= 3, "some replay lost more processes than it has attempts"
    assert own == 1
