"""Workers killed, frozen and stopped in the middle of sessions: each session ends, and ends once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.slow_model import SlowModel, slow_model
from tests.conftest import Server
from tests.faults.workers import LEASE, WRONG, Place, place, send, up, within

pytestmark = pytest.mark.process
AGENT = {"model": "openai:slow", "tool_groups": ["context"]}
SESSIONS = 50
# A machine that is busy with other things is slower than the promise, which is about one that is not.
PATIENCE = 120.0


@pytest.fixture
def model() -> Iterator[SlowModel]:
    with slow_model(0.5, ("saveMemory", "content")) as one:
        yield one


@pytest.fixture
def office(server: Server, template: str, tmp_path: Path) -> Iterator[Place]:
    with place(server, template, tmp_path) as one:
        yield one


def worker(office: Place, model: SlowModel) -> subprocess.Popen[str]:
    return office.worker(UPSHOT_OPENAI_BASE_URL=model.url, UPSHOT_SLOTS="10")


def test_workers_that_are_killed_leave_nothing_behind_and_nothing_happens_twice(
    office: Place, model: SlowModel, full: bool
) -> None:
    first, second = worker(office, model), worker(office, model)
    up(first)
    up(second)
    for _ in range(10 if full else 1):
        before = office.ended()
        office.ask(SESSIONS, AGENT)
        within(PATIENCE, lambda before=before: office.ended() >= before + 8)
        send(first, signal.SIGKILL)
        running = "SELECT count(*) FROM sessions WHERE lease_until > clock_timestamp()"
        assert office.fetch(running)[0][0], "nothing was running when the worker died"
        took = within(PATIENCE, lambda before=before: office.ended() == before + SESSIONS)
        assert took < LEASE + 15
        assert office.fetch(WRONG) == []
        first, second = second, up(worker(office, model))
    taken_over = "SELECT count(*) FROM sessions WHERE attempt > 1"
    assert office.fetch(taken_over)[0][0], "no session was taken over, so the worker died too late"


def test_a_worker_that_comes_back_from_the_dead_writes_nothing(office: Place, model: SlowModel, full: bool) -> None:
    frozen, other = worker(office, model), worker(office, model)
    up(frozen)
    up(other)
    held = "SELECT count(*) FROM sessions WHERE status = 'running' AND lease_owner LIKE %s"
    for _ in range(5 if full else 1):
        before = office.ended()
        office.ask(20, AGENT)
        within(PATIENCE, lambda: office.fetch(held, f"%:{frozen.pid}:%")[0][0] >= 5)
        send(frozen, signal.SIGSTOP)
        within(PATIENCE, lambda before=before: office.ended() == before + 20)
        state = "SELECT id, status, attempt, event_count, finished_at FROM sessions ORDER BY id"
        ended = office.fetch(state)
        send(frozen, signal.SIGCONT)
        time.sleep(3)
        assert office.fetch(state) == ended
        assert office.fetch(WRONG) == []
    assert office.fetch("SELECT count(*) FROM sessions WHERE attempt > 1")[0][0]


def test_a_worker_that_is_stopped_gives_its_sessions_back(office: Place, model: SlowModel) -> None:
    model.seconds = 30.0
    office.ask(10, AGENT)
    first = up(worker(office, model))
    within(PATIENCE, lambda: model.asked >= 10)
    send(first, signal.SIGTERM)
    assert first.wait(60) == 0
    # On a machine with too much to do a lease may have run out before; then a second attempt was given back.
    given_back = "SELECT DISTINCT status, attempt < 2, lease_owner FROM sessions"
    assert office.fetch(given_back) == [("pending", True, None)]
    model.seconds = 0.1
    up(worker(office, model))
    within(PATIENCE, lambda: office.ended() == 10)
    assert office.fetch(WRONG) == []
