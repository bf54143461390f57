"""Whether the database answers and can write. One thread asks every second; everyone else reads what it saw last. So a
probe never waits for a database that hangs, and thousands of probes cost the database no more than one."""

import mmap
import threading
import time
from typing import Any

import psycopg
from flask import Flask
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from app.db.connect import is_current

EVERY_SECONDS = 1.0
# Without an answer for so long the database counts as down; a probe may wait that long for the very first answer.
SILENT_SECONDS = 2.0
# A watch without readers stops asking, and starts again with the next reader.
UNREAD_SECONDS = 30.0
SILENT = "The database does not answer."
NO_SPACE = "No space left on the database's disk."
# A sort that does not fit into memory goes to disk for a moment. Only asked after a write failed for lack of space.
TRY_TO_WRITE = (
    "SELECT count(*) FROM (SELECT md5(i::text) || repeat('x', 200) AS x FROM generate_series(1, 20000) AS i"
    " ORDER BY x OFFSET 0) AS sorted"
)


class DatabaseWatch:
    """Asks the database at `url` on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._first = threading.Event()
        self._asked_at = 0.0
        self._read_at = 0.0
        self._found: str | None = None
        self._waiting = False
        # One byte that all processes of the server share: each must say what one of them ran into.
        self._no_space = mmap.mmap(-1, 1)
        self._kept = False

    def keep(self) -> None:
        """Ask for as long as the process lives, so that `answers` knows at any time."""
        self._kept = True
        self._keep_asking()

    def answers(self) -> bool:
        """Whether the database answered when it was asked last. Never waits."""
        return self._last_found() is None

    def trouble(self) -> str | None:
        """What is wrong in one sentence, or None. Takes at most SILENT_SECONDS, and only the first time."""
        self._read_at = time.monotonic()
        self._keep_asking()
        if not self._first.wait(SILENT_SECONDS):
            return SILENT
        return self._last_found()

    def _last_found(self) -> str | None:
        if self._waiting and time.monotonic() - self._asked_at > SILENT_SECONDS:
            return SILENT
        return NO_SPACE if self._no_space[0] else self._found

    def note_error(self, error: Exception) -> None:
        """Learn from a request that failed: a full disk shows only when something is written."""
        if is_out_of_space(error):
            self._no_space[0] = 1

    def _keep_asking(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._first.clear()
                self._thread = threading.Thread(target=self._ask_until_unread, name="database-probe", daemon=True)
                self._thread.start()

    def _ask_until_unread(self) -> None:
        while self._is_read():
            self._asked_at, self._waiting = time.monotonic(), True
            try:
                with psycopg.connect(
                    self.url, connect_timeout=2, autocommit=True, application_name="upshot probe"
                ) as connection:
                    while self._is_read():
                        self._asked_at, self._waiting = time.monotonic(), True
                        self._note(self._ask(connection))
            except psycopg.Error as error:
                self._note(NO_SPACE if is_out_of_space(error) else SILENT)

    def _is_read(self) -> bool:
        return self._kept or time.monotonic() - self._read_at < UNREAD_SECONDS

    def _note(self, found: str | None) -> None:
        self._found, self._waiting = found, False
        self._first.set()
        time.sleep(EVERY_SECONDS)

    def _ask(self, connection: psycopg.Connection[Any]) -> str | None:
        if self._no_space[0]:
            with connection.transaction():
                connection.execute("SET LOCAL work_mem = '64kB'")
                connection.execute(TRY_TO_WRITE)
            self._no_space[0] = 0
        return None if is_current(connection) else "The database is not at this version's schema."


def database_watch(app: Flask) -> DatabaseWatch:
    found: DatabaseWatch = app.extensions["upshot.watch"]
    return found


def is_out_of_space(error: BaseException | None) -> bool:
    if isinstance(error, DBAPIError):
        error = error.orig
    return isinstance(error, errors.DiskFull)
