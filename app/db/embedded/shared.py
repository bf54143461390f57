"""The embedded PostgreSQL: shared by every process that asks for it, gone with the last of them.

Two lock files in its directory do the counting, and the kernel does it for us: `start.lock` lets one process at a
time make, start or stop the server; each user holds `users.lock` shared, so the process that gets it alone is the last
one. A process that is killed drops its locks; the server it leaves behind is adopted by the next one.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import make_conninfo

from app.db import roles
from app.db.embedded.places import account_for, belongs_to, socket_dir
from app.db.embedded.server import PORT, Server
from app.db.embedded.signals import held_back, leave_in_good_order
from app.db.secrets import read_or_make
from app.errors import Unusable

DATABASE = "upshot"
_USERS = {"superuser": "postgres", "owner": roles.OWNER, "app": roles.APP}
_FORMAT = 1  # Of what lies in the directory; a later version that arranges it otherwise raises it.


class Embedded:
    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self._server: Server | None = None
        self._lease: int | None = None
        self._engaged_by: int | None = None
        self._released = threading.Event()
        # Held while the watcher has a lock file open. A process forked meanwhile would inherit the lock and keep it.
        self.watcher_at_work = threading.Lock()
        self._watcher: threading.Thread | None = None

    # -- for those who use the database

    def start(self) -> Embedded:
        """Make the database if there is none, start it unless it answers, and hold it until release()."""
        self._prepare_root()
        leave_in_good_order()
        with held_back() as interrupted:
            self._engage()
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

    def conninfo(self, role: str, dbname: str = DATABASE) -> str:
        return make_conninfo(
            host=str(self._socket_dir()),
            port=PORT,
            user=_USERS[role],
            password=self._password(role),
            dbname=dbname,
        )

    def url(self, role: str, dbname: str = DATABASE) -> str:
        where = urlencode({"host": str(self._socket_dir()), "port": PORT}, quote_via=quote)
        return f"postgresql://{_USERS[role]}:{quote(self._password(role), safe='')}@/{quote(dbname, safe='')}?{where}"

    def alive(self) -> bool:
        """Proved by a query; a process, a PID file or a socket is no proof."""
        try:
            with self._connect() as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except (psycopg.OperationalError, OSError) as error:
            if "password authentication failed" in str(error):
                raise Unusable(
                    f"The password in {self._password_file('superuser')} is not the one of the database beside it:"
                    " restore both from one backup, or set UPSHOT_DATA_DIR to another place."
                ) from error
            return False

    def watch(self, on_news: Callable[[str], None]) -> None:
        """Look every second, bring a dead server back, and say so in one sentence."""
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(
                target=self._watch, args=(on_news, self._released), name="database-watch", daemon=True
            )
            self._watcher.start()

    def release(self) -> None:
        """Let go; the last one stops the server. Copes with every half state that an interrupted start leaves."""
        if self._engaged_by is None:
            return
        with held_back() as interrupted:
            self._released.set()
            if self._engaged_by == os.getpid():  # A forked child must not count for its parent.
                self._join_watcher()
                self._stop_if_last(interrupted)
            self._drop_lease()
            self._engaged_by = None
            atexit.unregister(self.release)

    # -- who uses it

    def _engage(self) -> None:
        """Before anything is started: whatever interrupts us from here on, release() runs."""
        if self._engaged_by == os.getpid() and not self._released.is_set():
            return
        if self._engaged_by not in (None, os.getpid()):  # Inherited from the process that forked us.
            self._drop_lease()
            self._server = None
        self._released = threading.Event()
        self._engaged_by = os.getpid()
        atexit.register(self.release)

    def _take_lease(self) -> None:
        if self._lease is None:
            self._lease = self._open("users.lock")
            fcntl.flock(self._lease, fcntl.LOCK_SH)

    def _stop_if_last(self, given_up: Callable[[], bool]) -> None:
        with self._guard(given_up):
            if self._lease is None:
                self._lease = self._open("users.lock")
            if _locks(self._lease, fcntl.LOCK_EX):
                self._server_here().stop()
                with suppress(OSError):
                    self._socket_dir().rmdir()

    def _drop_lease(self) -> None:
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None

    @contextmanager
    def _guard(self, given_up: Callable[[], bool]) -> Iterator[None]:
        """One process, and one thread of it, at a time."""
        handle = self._open("start.lock")
        try:
            while not _locks(handle, fcntl.LOCK_EX):
                if given_up():
                    raise Unusable("Interrupted while another process starts or stops the database.")
                time.sleep(0.02)
            yield
        finally:
            os.close(handle)

    def _open(self, name: str) -> int:
        handle = os.open(self.root / name, os.O_RDWR | os.O_CREAT, 0o600)
        self._server_here().account.own(handle)
        return handle

    # -- the server

    def _prepare_root(self) -> None:
        try:
            new = not self.root.exists()
            self.root.mkdir(parents=True, exist_ok=True)
            server = self._server_here()
            if new or self.root.stat().st_uid == os.geteuid():
                server.account.own(self.root)
                self.root.chmod(0o700)
            os.close(self._open("start.lock"))
        except OSError as error:
            raise Unusable(
                f"The data directory {self.root.parent} cannot be written ({error.strerror}):"
                " start Upshot as the user who made it, or set UPSHOT_DATA_DIR to another place."
            ) from error

    def _server_here(self) -> Server:
        if self._server is None:
            self._server = Server(self.root, account_for(self.root / "pgdata", self.root))
        return self._server

    def _ensure_running(self, given_up: Callable[[], bool]) -> None:
        server = self._server_here()
        made = server.made()
        self._check_format()
        if not made:
            server.make(_USERS["superuser"], self._password("superuser"), given_up)
        # What still runs may be coming up, or be the last processes of a killed server on their way out.
        if not (server.running() and server.answers(self.alive, given_up)):
            sockets = self._socket_dir()
            self._write("socket", str(sockets))
            server.boot(sockets)
            if not server.answers(self.alive, given_up):
                raise Unusable(f"The database did not start; the last line of {server.log}: {server.last_words()}")

    def _ensure_roles(self) -> None:
        with self._connect() as connection:
            if roles.are_ready(connection, DATABASE) and self._admits("owner") and self._admits("app"):
                return
            roles.ensure_roles(
                connection,
                owner_password=self._password("owner"),
                app_password=self._password("app"),
                dbname=DATABASE,
            )

    def _admits(self, role: str) -> bool:
        try:
            psycopg.connect(self.conninfo(role), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo("superuser", "postgres"), connect_timeout=10, autocommit=True)

    # -- watching

    def _watch(self, on_news: Callable[[str], None], released: threading.Event) -> None:
        connection: psycopg.Connection[Any] | None = None
        trouble = ""
        while not released.wait(1):
            try:
                connection = connection or self._connect()
                connection.execute("SELECT 1")
                self._server_here().trim_log()
                trouble = ""
                continue
            except (psycopg.Error, OSError):
                if connection is not None:
                    connection.close()
                connection = None
            begun = time.monotonic()
            try:
                with self.watcher_at_work, self._guard(released.is_set):
                    self._ensure_running(released.is_set)
            except Exception as error:  # The watcher outlives whatever it meets, and says it once.
                if str(error) != trouble and not released.is_set():
                    on_news(f"The database is down: {error}")
                trouble = str(error)
            else:
                on_news(f"The database had stopped and is back after {time.monotonic() - begun:.1f} s.")

    def _join_watcher(self) -> None:
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(timeout=30)
            self._watcher = None

    # -- small files

    def _socket_dir(self) -> Path:
        """As the process that started the server first chose it: another may have another temporary directory."""
        with suppress(FileNotFoundError):
            chosen = Path((self.root / "socket").read_text(encoding="utf-8").strip())
            if belongs_to(self.root, chosen) and chosen.parent.is_dir():
                return chosen
        return socket_dir(self.root, self._server_here().account)

    def _check_format(self) -> None:
        found = "0"
        with suppress(FileNotFoundError):
            found = (self.root / "format").read_text(encoding="utf-8").strip()
        if not found.isdigit() or int(found) > _FORMAT:
            raise Unusable(
                f"The data directory {self.root.parent} was made by a newer version of Upshot:"
                " update Upshot, or set UPSHOT_DATA_DIR to another place."
            )
        if int(found) < _FORMAT:
            self._write("format", str(_FORMAT))

    def _write(self, name: str, text: str) -> None:
        aside = self.root / f".{name}.new"
        aside.write_text(text + "\n", encoding="utf-8")
        self._server_here().account.own(aside)
        aside.replace(self.root / name)

    def _password_file(self, role: str) -> Path:
        return self.root / f"{role}.password"

    def _password(self, role: str) -> str:
        path = self._password_file(role)
        fresh = not path.exists()
        password = read_or_make(path, lambda: secrets.token_urlsafe(32))
        if fresh:
            self._server_here().account.own(path)
        return password


def _locks(handle: int, kind: int) -> bool:
    """Whether the lock was to be had at once."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
