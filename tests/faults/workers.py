"""Real `upshot worker` processes on a database of the test's own, and what they made of its sessions."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from flask import Flask

from tests.cli.servers import PATIENCE, UPSHOT, environment
from tests.conftest import Server

LEASE = 4
# Each session ended once, whatever happened to who ran it: one end, one last answer, one line in the audit trail, no
# gap in its events, nobody's lease. What its tool wrote is there once, or not at all where that was interrupted.
WRONG = """
SELECT s.id, s.status, s.attempt, s.error, e.*, a.ends, m.number
  FROM sessions AS s
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE event_type = 'agent.message' AND NOT payload ? 'interim') AS answers,
              count(*) FILTER (WHERE event_type = 'session.completed') AS completions,
              count(*) FILTER (WHERE event_type = 'user.message') AS said,
              count(*) FILTER (WHERE event_type = 'tool.call') AS calls,
              count(*) FILTER (WHERE event_type = 'tool.result') AS results,
              count(*) AS events, coalesce(max(sequence), 0) AS last, coalesce(sum(payload_bytes), 0) AS bytes
         FROM session_events AS e WHERE e.session_id = s.id) AS e
 CROSS JOIN LATERAL (
       SELECT count(*) AS ends FROM audit_log AS l WHERE l.subject_id = s.id AND l.action = 'session.finished') AS a
 CROSS JOIN LATERAL (SELECT count(*) AS number FROM user_memories AS u WHERE u.session_id = s.id) AS m
 WHERE s.status <> 'completed' OR s.lease_owner IS NOT NULL OR s.attempt > 3 OR e.answers <> 1 OR e.completions <> 1
    OR e.said <> 1 OR e.calls <> 1 OR e.results <> 1 OR a.ends <> 1 OR m.number > 1
    OR e.events <> e.last OR e.events <> s.event_count OR e.bytes <> s.event_bytes
"""


class Place:
    """A database and the product on it, in this process and in workers."""

    def __init__(self, server: Server, name: str, folder: Path) -> None:
        from app import create_app
        from app.config import Settings
        from app.db.boot import Opened

        self.app_url = server.conninfo("app", name)
        self.superuser_url = server.conninfo("superuser", name)
        self.folder = folder
        opened = Opened(self.app_url, secrets.token_urlsafe(48), server.conninfo("owner", name))
        self.app: Flask = create_app(Settings(data_dir_text=str(folder)), opened)
        self.workers: list[subprocess.Popen[str]] = []

    def worker(self, **more: str) -> subprocess.Popen[str]:
        """Another worker. Others may be on their way up beside it."""
        env = environment(
            self.folder, UPSHOT_DATABASE_URL=self.app_url, UPSHOT_SECRET_KEY=secrets.token_urlsafe(48),
            UPSHOT_LEASE_SECONDS=str(LEASE), **more,
        )  # fmt: skip
        log = (self.folder / f"worker-{len(self.workers)}.log").open("w")
        one = subprocess.Popen([UPSHOT, "worker"], env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        self.workers.append(one)
        return one

    def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.superuser_url, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def ended(self) -> int:
        return int(self.fetch("SELECT count(*) FROM sessions WHERE status NOT IN ('pending', 'running')")[0][0])

    def ask(self, number: int, config: dict[str, Any]) -> UUID:
        """A workspace where so many sessions wait for one agent."""
        from app.actor import Actor
        from app.db import acting_as, transaction
        from app.services.agents import versions
        from app.services.sessions import start as session_start
        from app.services.workspaces import people
        from app.services.workspaces import store as workspace_store

        slug = f"t-{secrets.token_hex(6)}"
        with self.app.app_context():
            with transaction():
                tenant, system = workspace_store.create_workspace(slug=slug, name="Acme")
            with acting_as(system), transaction():
                user = people.create_person(email=f"{slug}@example.test", name="Sam", role="admin", actor=system)
                versions.ensure_agent("clerk", actor=system, kind="builtin", config=config)
                person = Actor(user.id, tenant.id, "admin", user.name)
            with acting_as(person), transaction():
                for place in range(number):
                    session_start.start_run("clerk", [f"Remember number {place}."], actor=person)
            return tenant.id

    def stop(self) -> None:
        for one in self.workers:
            if one.poll() is None:
                one.send_signal(signal.SIGCONT)
                one.kill()
            one.wait(PATIENCE)


def up(one: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Wait for its word that it works."""
    assert one.stdout is not None
    assert "sessions at once" in one.stdout.readline()
    return one


@contextmanager
def place(server: Server, template: str, folder: Path) -> Iterator[Place]:
    with server.database(template) as name:
        found = Place(server, name, folder)
        try:
            yield found
        finally:
            found.stop()
            with found.app.app_context():
                from app.db import db

                db.engine.dispose()


def within(seconds: float, check: Any) -> float:
    """Wait until it holds; how long that took."""
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, f"not within {seconds} seconds"
        time.sleep(0.1)
    return time.monotonic() - began


def send(one: subprocess.Popen[str], number: int) -> None:
    os.kill(one.pid, number)
