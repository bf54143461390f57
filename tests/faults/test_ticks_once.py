"""Five processes look at the clock at once: each time of each schedule is begun once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.servers import environment
from tests.conftest import Server
from tests.faults.workers import Place, place, within

pytestmark = pytest.mark.process
PROCESSES = 5
WORKSPACES = 3
# What the clock of a worker does every few seconds, without a pause.
LOOK = """
import os, time
from app import create_app
from app.jobs.process import start_due_tasks
app = create_app()
print("up", flush=True)
with app.app_context():
    while True:
        start_due_tasks(str(os.getpid()))
        time.sleep(0.01)
"""


@pytest.fixture
def office(server: Server, template: str, tmp_path: Path) -> Iterator[Place]:
    with place(server, template, tmp_path) as one:
        yield one


def schedule(office: Place, tenant_id: UUID, *, on: bool) -> None:
    """A task of the workspace's only admin."""
    from app.actor import Actor
    from app.db import acting_as, transaction
    from app.services.tasks import schedules as task_schedules

    [(user_id,)] = office.fetch(
        "SELECT user_id FROM memberships WHERE tenant_id = %s AND role = 'admin'", str(tenant_id)
    )
    admin = Actor(user_id, tenant_id, "admin", "Sam")
    plan = task_schedules.Plan("Report", "clerk", "Hello there", "0 0 1 1 *")
    with office.app.app_context(), acting_as(admin), transaction():
        task = task_schedules.create_task(plan, actor=admin)
        if not on:
            task_schedules.switch_task(task.id, False, actor=admin)


def test_a_tick_runs_once_however_many_processes_look(office: Place, full: bool, tmp_path: Path) -> None:
    from app.jobs.executor import Executor

    for place_ in range(WORKSPACES + 1):
        schedule(office, office.ask(0, {}), on=place_ < WORKSPACES)
    env = environment(tmp_path, UPSHOT_DATABASE_URL=office.app_url, UPSHOT_SECRET_KEY="0123456789abcdef" * 3)
    looking = [
        subprocess.Popen([sys.executable, "-c", LOOK], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    executor = Executor(office.app, slots=4)
    rounds = 20 if full else 4
    ticks = "SELECT count(*) FROM task_ticks"
    try:
        for one in looking:
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
        for number in range(1, rounds + 1):
            office.fetch(
                "UPDATE tasks SET next_run_at = clock_timestamp() + interval '0.3 s' WHERE message <> '' RETURNING id"
            )
            within(60, lambda number=number: office.fetch(ticks)[0][0] >= number * WORKSPACES)
            executor.drain()
    finally:
        executor.stop()
        for one in looking:
            one.kill()
            one.wait(60)
    assert office.fetch("SELECT status, count(*) FROM task_ticks GROUP BY status") == [("done", rounds * WORKSPACES)]
    assert office.fetch("SELECT status, count(*) FROM sessions GROUP BY status") == [("completed", rounds * WORKSPACES)]
    owners = office.fetch("SELECT count(DISTINCT owner) FROM task_ticks")[0][0]
    assert owners > 1, "one process took every tick, so nothing was tried"
