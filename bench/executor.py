"""200 sessions wait for a model that takes a second, and one worker has 32 slots: how long until all have ended.

The ideal is 200 / 32, rounded up: 7 seconds. The model is a stub on loopback; everything else is the product.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.places import UPSHOT, database, environment, folder, free_port
from bench.slow_model import slow_model

SESSIONS = 200
SLOTS = 32
SECONDS = 1.0
IDEAL = 7.0
AT_MOST = 1.5 * IDEAL


def measure() -> dict[str, Any]:
    with folder() as path, database(path) as (app_url, owner_url, superuser), slow_model(SECONDS) as model:
        env = {
            **environment(path, free_port()),
            "UPSHOT_DATABASE_URL": app_url,
            "UPSHOT_SECRET_KEY": "only-for-a-measurement-0123456789",
            "UPSHOT_OPENAI_BASE_URL": model.url,
            "UPSHOT_SLOTS": str(SLOTS),
        }
        ask(app_url, owner_url, path)
        worker = start_worker(env)
        try:
            before = cpu_of(worker.pid)
            spent = until_done(superuser)
            used = cpu_of(worker.pid) - before
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
    assert model.asked == SESSIONS, model.asked
    return {
        "sessions": SESSIONS,
        "slots": SLOTS,
        "seconds": round(spent, 2),
        "ideal": IDEAL,
        "at_most": AT_MOST,
        "cpu_ms_per_session": round(used * 1000 / SESSIONS, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def cpu_of(pid: int) -> float:
    """How many seconds a process has computed so far, where the system tells. Whatever else keeps the machine busy
    makes the clock go on, but hardly this."""
    path = Path(f"/proc/{pid}/stat")
    if not path.exists():
        return 0.0
    user, system = path.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def ask(app_url: str, owner_url: str, path: Path) -> None:
    """A workspace with an agent and its sessions, made through the product's services. They cannot be claimed before
    the worker is up: the clock begins when it begins with the first."""
    from app import create_app
    from app.config import Settings
    from app.db import acting_as, transaction
    from app.db.boot import Opened
    from app.services.agents import versions
    from app.services.sessions import start as session_start
    from app.services.workspaces import store as workspace_store

    app = create_app(Settings(data_dir_text=str(path)), Opened(app_url, "s" * 48, owner_url))
    with app.app_context():
        with transaction():
            _, system = workspace_store.create_workspace(slug="bench", name="Bench")
        with acting_as(system), transaction():
            versions.ensure_agent("clerk", actor=system, kind="builtin", config={"model": "openai:slow"})
            for number in range(SESSIONS):
                session_start.start_run("clerk", [f"Do number {number}."], actor=system)


def start_worker(env: dict[str, str]) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [UPSHOT, "worker"], env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert worker.stdout is not None
    assert "sessions at once" in worker.stdout.readline()
    return worker


def until_done(superuser: str) -> float:
    """From the worker's word that it is up until the last session has ended well."""
    began = time.monotonic()
    with psycopg.connect(superuser, autocommit=True) as connection:
        while time.monotonic() - began < 120:
            row = connection.execute("SELECT count(*) FROM sessions WHERE status = 'completed'").fetchone()
            if row and row[0] == SESSIONS:
                return time.monotonic() - began
            time.sleep(0.05)
    raise RuntimeError("sessions were left over")
