"""PostgreSQL killed in the middle of writing, more than once: what was acknowledged is there afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from app.db.embedded.shared import Embedded

pytestmark = pytest.mark.process

WRITERS = 3


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class Writer(threading.Thread):
    """Writes numbers one by one and remembers those that the database acknowledged."""

    def __init__(self, conninfo: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.conninfo, self.number, self.stop = conninfo, number, stop
        self.acknowledged: list[int] = []

    def run(self) -> None:
        value = self.number
        while not self.stop.is_set():
            try:
                with psycopg.connect(self.conninfo, autocommit=True, connect_timeout=10) as connection:
                    while not self.stop.is_set():
                        value += WRITERS
                        connection.execute("INSERT INTO kept VALUES (%s)", (value,))
                        self.acknowledged.append(value)
            except psycopg.OperationalError:
                time.sleep(0.05)


def test_no_acknowledged_row_is_lost_when_postgres_is_killed_under_load(tmp_path: Path, full: bool) -> None:
    embedded = Embedded(tmp_path / "postgres").start()
    with psycopg.connect(embedded.url("owner"), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (number bigint PRIMARY KEY)")
        connection.execute("GRANT INSERT ON kept TO upshot_app")
    news: list[str] = []
    embedded.watch(news.append)
    stop = threading.Event()
    writers = [Writer(embedded.url("app"), number, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()

    def all_write_on() -> None:
        before = [len(writer.acknowledged) for writer in writers]
        wait_for(lambda: all(len(w.acknowledged) > b + 20 for w, b in zip(writers, before, strict=True)))

    for kill in range(20 if full else 2):
        all_write_on()
        os.kill(int((embedded.root / "pgdata" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
        wait_for(lambda kill=kill: len(news) > kill)  # type: ignore[misc]
    all_write_on()
    stop.set()
    for writer in writers:
        writer.join()
    with psycopg.connect(embedded.url("owner")) as connection:
        kept = {row[0] for row in connection.execute("SELECT number FROM kept")}
    embedded.release()
    assert not {number for writer in writers for number in writer.acknowledged} - kept
    assert all(sentence.startswith("The database had stopped and is back") for sentence in news)
