"""Two processes carry out reviews: each tick is reviewed once, and killing one of them loses none."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.cli.servers import environment
from tests.conftest import Server
from tests.faults.workers import LEASE, Place, place, within

pytestmark = pytest.mark.process
TICKS = 10
KILLED_AT = 5
# A worker whose clock does not pause.
WORK = """
import os, time
from app import create_app
from app.jobs.executor import Executor
from app.jobs.process import start_due_tasks
app = create_app()
executor = Executor(app)
executor.start()
print("up", flush=True)
with app.app_context():
    while True:
        start_due_tasks(str(os.getpid()))
        time.sleep(0.01)
"""
DUE = "UPDATE tasks SET next_run_at = clock_timestamp() WHERE slug = 'feedback-review' AND enabled RETURNING id"
REVIEWS = "SELECT count(*) FROM review_runs AS r JOIN sessions AS s ON s.id = r.session_id WHERE s.status = %s"


@pytest.fixture
def office(server: Server, template: str, tmp_path: Path) -> Iterator[Place]:
    with place(server, template, tmp_path) as one:
        yield one


def product(tenant_id: UUID) -> Any:
    from app.services.workspaces import store as workspace_store

    return workspace_store.system_actor(tenant_id)


def enable(office: Place, tenant_id: UUID) -> None:
    from app.db import acting_as, transaction
    from app.services.workspaces import store as workspace_store

    with office.app.app_context():
        system = product(tenant_id)
        with acting_as(system), transaction():
            workspace_store.change_settings({"review_enabled": True, "review_cron": "0 0 1 1 *"}, actor=system)


def complain(office: Place, tenant_id: UUID, number: int) -> None:
    from app.db import acting_as, transaction
    from app.services.feedback.intake import NewFeedback, record_feedback

    with office.app.app_context():
        system = product(tenant_id)
        with acting_as(system), transaction():
            for place_ in range(30):
                words = f"Report {number} has a wrong total in column {place_}."
                record_feedback(NewFeedback(source_type="session", rating="negative", comment=words), actor=system)


def test_ten_ticks_are_ten_reviews_and_a_killed_process_loses_none(office: Place, tmp_path: Path) -> None:
    busy, disabled = office.ask(0, {}), office.ask(0, {})
    enable(office, busy)
    complain(office, disabled, 0)
    env = environment(
        tmp_path, UPSHOT_DATABASE_URL=office.app_url, UPSHOT_SECRET_KEY="0123456789abcdef" * 3,
        UPSHOT_LEASE_SECONDS=str(LEASE),
    )  # fmt: skip
    working = {
        one.pid: one
        for one in (
            subprocess.Popen([sys.executable, "-c", WORK], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
        )
    }
    try:
        for one in working.values():
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
        for tick in range(1, TICKS + 1):
            complain(office, busy, tick)
            office.fetch(DUE)
            if tick == KILLED_AT:
                within(60, lambda tick=tick: office.fetch("SELECT count(*) FROM review_runs")[0][0] == tick)
                [(owner,)] = office.fetch("SELECT owner FROM task_ticks ORDER BY created_at DESC LIMIT 1")
                working[int(owner)].send_signal(signal.SIGKILL)
            within(60, lambda tick=tick: office.fetch(REVIEWS, "completed")[0][0] == tick)
        # Nothing changed since, so the eleventh tick is skipped.
        office.fetch(DUE)
        within(60, lambda: office.fetch("SELECT count(*) FROM task_ticks WHERE status = 'skipped'")[0][0] == 1)
    finally:
        for one in working.values():
            one.kill()
            one.wait(60)
    assert office.fetch("SELECT tenant_id, count(*) FROM review_runs GROUP BY 1") == [(busy, TICKS)]
    assert office.fetch("SELECT status, count(*) FROM task_ticks GROUP BY 1 ORDER BY 1") == [
        ("done", TICKS), ("skipped", 1),
    ]  # fmt: skip
