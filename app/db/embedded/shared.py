"""The embedded PostgreSQL: shared by every process that asks for it, gone with the last of them.

Two lock files in its directory do the counting, and the kernel does it for us: `start.lock` lets one process at a
time make, start or stop the server; each user holds `users.lock` shared, so the process that gets it alone is the last
one. A process that is killed drops its locks; the server it leaves behind is adopted by the next one.
"""

from __future__ import annotations

import atexit
import fcntl
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from app.db import roles
from app.db.embedded.places import account_for, socket_dir
from app.db.embedded.server import PORT, Check, Server, wait_until
from app.errors import Unusable
from app.tokens import read_or_make

DATABASE = "upshot"
_USERS = {"superuser": "postgres", "owner": roles.OWNER, "app": roles.APP}
_FORMAT = 1  # Of what lies in the directory; a later version that arranges it otherwise raises it.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Embedded:
    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self._lease: int | None = None
        self._pid = 0
        self._released = threading.Event()
        # Held while the watcher has a lock file open. A process forked meanwhile would inherit the lock and keep it.
        self.watcher_at_work = threading.Lock()
        self._watcher: threading.Thread | None = None

    @cached_property
    def _server(self) -> Server:
        return Server(self.root, account_for(self.root / "pgdata", self.root))

    @cached_property
    def _sockets(self) -> Path:
        return socket_dir(self.root, self._server.account)

    def start(self) -> Embedded:
        """Make the database if there is none, start it unless it answers, and hold it until release()."""
        self._prepare_root()
        _exit_on_signals()
        with _delayed_signals() as interrupted:
            # Whatever interrupts us from here on, release() runs.
            self._pid = os.getpid()
            self._released.clear()
            atexit.register(self.release)
            try:
                with self._guard(interrupted):
                    self._take_lease()
                    self._ensure_running(interrupted)
                    self._ensure_roles()
            except BaseException:
                self.release()
                raise
            if interrupted():
                self.release()
        return self

    def url(self, role: str, dbname: str = DATABASE) -> str:
        where = urlencode({"host": str(self._sockets), "port": PORT}, quote_via=quote)
        return f"postgresql://{_USERS[role]}:{quote(self._password(role), safe='')}@/{quote(dbname, safe='')}?{where}"

    def alive(self) -> bool:
        """Proved by a query; a process, a PID file or a socket is no proof."""
        try:
            with self._connect() as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except (psycopg.OperationalError, OSError) as error:
            if "password authentication failed" in str(error):
                raise Unusable(
                    f"The password in {self.root / 'superuser.password'} is not the one of the database beside it:"
                    " restore both from one backup, or set UPSHOT_DATA_DIR to another place."
                ) from error
            return False

    def watch(self, on_news: Callable[[str], None]) -> None:
        """Look every second, bring a dead server back, and say so in one sentence."""
        self._watcher = threading.Thread(target=self._watch, args=(on_news,), name="database-watch", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        """Let go; the last one stops the server. Copes with every half state that an interrupted start leaves."""
        if self._pid != os.getpid():  # Released before, or a forked child, which must not count for its parent.
            return
        with _delayed_signals() as interrupted:
            self._released.set()
            if self._watcher is not None:
                self._watcher.join(timeout=30)
                self._watcher = None
            with self._guard(interrupted):
                if _locks(self._take_lease(), fcntl.LOCK_EX):
                    self._server.stop()
                    with suppress(OSError):
                        self._sockets.rmdir()
            os.close(self._take_lease())
            self._lease, self._pid = None, 0
            atexit.unregister(self.release)

    def _take_lease(self) -> int:
        if self._lease is None:
            self._lease = self._open("users.lock")
            fcntl.flock(self._lease, fcntl.LOCK_SH)
        return self._lease

    @contextmanager
    def _guard(self, given_up: Check) -> Iterator[None]:
        """One process, and one thread of it, at a time."""
        handle = self._open("start.lock")
        try:
            wait_until(lambda: _locks(handle, fcntl.LOCK_EX), math.inf, "", given_up)
            yield
        finally:
            os.close(handle)

    def _open(self, name: str) -> int:
        handle = os.open(self.root / name, os.O_RDWR | os.O_CREAT, 0o600)
        self._server.account.own(handle)
        return handle

    def _prepare_root(self) -> None:
        try:
            new = not self.root.exists()
            self.root.mkdir(parents=True, exist_ok=True)
            if new or self.root.stat().st_uid == os.geteuid():
                self._server.account.own(self.root)
                self.root.chmod(0o700)
            os.close(self._open("start.lock"))
        except OSError as error:
            raise Unusable(
                f"The data directory {self.root.parent} cannot be written ({error.strerror}):"
                " start Upshot as the user who made it, or set UPSHOT_DATA_DIR to another place."
            ) from error

    def _ensure_running(self, given_up: Check) -> None:
        server = self._server
        made = server.made()
        self._check_format()
        if not made:
            server.make(_USERS["superuser"], self._password("superuser"), given_up)
        # What still runs may be coming up, or be the last processes of a killed server on their way out.
        if not (server.running() and server.answers(self.alive, given_up)):
            server.boot(self._sockets)
            if not server.answers(self.alive, given_up):
                raise Unusable(f"The database did not start; the last line of {server.log}: {server.last_words()}")

    def _ensure_roles(self) -> None:
        with self._connect() as connection:
            if not roles.are_ready(connection, DATABASE):
                owner, app = self._password("owner"), self._password("app")
                roles.ensure_roles(connection, owner_password=owner, app_password=app, dbname=DATABASE)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url("superuser", "postgres"), connect_timeout=10, autocommit=True)

    def _watch(self, on_news: Callable[[str], None]) -> None:
        connection: psycopg.Connection[Any] | None = None
        trouble = ""
        while not self._released.wait(1):
            try:
                connection = connection or self._connect()
                connection.execute("SELECT 1")
                self._server.trim_log()
                trouble = ""
                continue
            except (psycopg.Error, OSError):
                if connection is not None:
                    connection.close()
                connection = None
            begun = time.monotonic()
            try:
                with self.watcher_at_work, self._guard(self._released.is_set):
                    self._ensure_running(self._released.is_set)
            except Exception as error:  # The watcher outlives whatever it meets, and says it once.
                if str(error) != trouble and not self._released.is_set():
                    on_news(f"The database is down: {error}")
                trouble = str(error)
            else:
                on_news(f"The database had stopped and is back after {time.monotonic() - begun:.1f} s.")

    def _check_format(self) -> None:
        file = self.root / "format"
        if not file.exists():
            file.write_text(f"{_FORMAT}\n", encoding="utf-8")
            self._server.account.own(file)
        elif file.read_text(encoding="utf-8").strip() != str(_FORMAT):
            raise Unusable(
                f"The data directory {self.root.parent} was made by a newer version of Upshot:"
                " update Upshot, or set UPSHOT_DATA_DIR to another place."
            )

    def _password(self, role: str) -> str:
        path = self.root / f"{role}.password"
        fresh = not path.exists()
        password = read_or_make(path, lambda: secrets.token_urlsafe(32))
        if fresh:
            self._server.account.own(path)
        return password


def _locks(handle: int, kind: int) -> bool:
    """Whether the lock was to be had at once."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _exit_on_signals() -> None:
    """atexit does not run when a signal kills the process; when it leaves through SystemExit it does."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in _STOPS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, leave)


@contextmanager
def _delayed_signals() -> Iterator[Check]:
    """No signal interrupts the block between two steps. It can ask whether one waits; that one comes at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    waiting: list[int] = []
    usual = {number: signal.getsignal(number) for number in _STOPS}
    usual = {number: handler for number, handler in usual.items() if callable(handler)}
    for number in usual:
        signal.signal(number, lambda number, _frame: waiting.append(number))
    try:
        yield lambda: bool(waiting)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])
