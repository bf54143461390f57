"""A run over 500 goldens with a model that takes a second, and one worker with 32 slots: how long until it has ended.

The ideal is 500 / 32, rounded up: 16 seconds. The goldens are recorded through the product with the same stub.
"""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.executor import start_worker
from bench.places import database, environment, folder, free_port
from bench.slow_model import slow_model

GOLDENS = 500
SLOTS = 32
SECONDS = 1.0
IDEAL = float(math.ceil(GOLDENS / SLOTS))
AT_MOST = 1.5 * IDEAL


def measure() -> dict[str, Any]:
    with folder() as path, database(path) as (app_url, owner_url, superuser), slow_model(0.01) as model:
        env = {
            **environment(path, free_port()),
            "UPSHOT_DATABASE_URL": app_url,
            "UPSHOT_SECRET_KEY": "only-for-a-measurement-0123456789",
            "UPSHOT_OPENAI_BASE_URL": model.url,
            "UPSHOT_SLOTS": str(SLOTS),
        }
        bench = Bench(app_url, owner_url, path)
        bench.ask()
        work_until(env, superuser, "SELECT count(*) FROM sessions WHERE status = 'completed'", GOLDENS)
        bench.promote_and_start()
        model.seconds = SECONDS
        spent = work_until(env, superuser, "SELECT count(*) FROM eval_runs WHERE status = 'completed'", 1)
        with psycopg.connect(superuser) as connection:
            judged = "SELECT count(*) FROM sessions WHERE metadata #>> '{eval_result,verdict}' = 'pass'"
            row = connection.execute(judged).fetchone()
    assert row is not None
    assert row[0] == GOLDENS, row
    return {"goldens": GOLDENS, "slots": SLOTS, "seconds": round(spent, 2), "ideal": IDEAL, "at_most": AT_MOST}


def work_until(env: dict[str, str], superuser: str, statement: str, wanted: int) -> float:
    """From a worker's word that it is up until the statement counts what is wanted."""
    worker = start_worker(env)
    began = time.monotonic()
    try:
        with psycopg.connect(superuser, autocommit=True) as connection:
            while time.monotonic() - began < 300:
                row = connection.execute(statement.encode()).fetchone()
                if row and row[0] >= wanted:
                    return time.monotonic() - began
                time.sleep(0.05)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    raise RuntimeError("work was left over")


class Bench:
    """A workspace with one agent, made through the product's services."""

    def __init__(
        self, app_url: str, owner_url: str, path: Path, model: str = "openai:slow", goldens: int = GOLDENS
    ) -> None:
        from app import create_app
        from app.config import Settings
        from app.db import acting_as, transaction
        from app.db.boot import Opened
        from app.services.agents import versions
        from app.services.workspaces import store as workspace_store

        self.goldens = goldens
        self.app = create_app(Settings(data_dir_text=str(path)), Opened(app_url, "s" * 48, owner_url))
        with self.app.app_context():
            with transaction():
                _, self.system = workspace_store.create_workspace(slug="bench", name="Bench")
            with acting_as(self.system), transaction():
                versions.ensure_agent("clerk", actor=self.system, kind="builtin", config={"model": model})

    def ask(self) -> None:
        from app.db import acting_as, transaction
        from app.services.sessions import start as session_start

        with self.app.app_context(), acting_as(self.system), transaction():
            for number in range(self.goldens):
                session_start.start_run("clerk", [f"Do number {number}."], actor=self.system)

    def promote_and_start(self, criteria_set_id: Any = None) -> None:
        from sqlalchemy import select

        from app.db import acting_as, db, transaction
        from app.models import AgentSession
        from app.services.evals import promotion
        from app.services.evals import runs as eval_runs

        with self.app.app_context(), acting_as(self.system), transaction():
            for session_id in db.session.scalars(select(AgentSession.id)).all():
                given = promotion.Promotion(criteria_set_id=criteria_set_id)
                promotion.promote_session(session_id, given, actor=self.system)
            eval_runs.start_run(eval_runs.NewRun(set_name="default"), actor=self.system)
