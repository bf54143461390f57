"""One PostgreSQL server on one data directory: make it, boot it, prove that it lives, stop it.

Every process of the server inherits an open, locked file. The kernel keeps that lock exactly as long as one of them
lives, so the lock, and never a PID file, says whether there is a server. Callers hold the start lock of `Embedded`.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from app.db.embedded.places import MAJOR, Account, binaries, prepare_socket_dir, visible
from app.errors import Unusable
from app.tokens import sync_directory

PORT = 5432  # Only part of the socket's name: the server does not listen on the network.
LOG_LIMIT = 5_000_000
INTERRUPTED = "Interrupted before the database was ready."
_PATIENCE = 900.0  # Crash recovery of a big database on a slow disk takes minutes.

# On the command line, where nothing in the data directory can overrule them.
_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Small at rest: few processes, few slots.
    "shared_buffers": "32MB",
    "huge_pages": "off",
    "max_connections": "200",
    "max_worker_processes": "2",
    "max_parallel_workers": "2",
    "max_logical_replication_workers": "0",
    "max_wal_senders": "0",
    "max_replication_slots": "0",
    "autovacuum_worker_slots": "2",
    "autovacuum_max_workers": "2",
    "io_method": "sync",
    "jit": "off",
    "max_wal_size": "512MB",
    # The log names what went wrong and holds no row, no statement and no value.
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
}


Check = Callable[[], bool]


def wait_until(done: Check, seconds: float, trouble: str, given_up: Check = lambda: False) -> None:
    """Ask again and again. After so many seconds, or when it was given up, raise a sentence."""
    deadline = time.monotonic() + seconds
    while not done():
        if given_up():
            raise Unusable(INTERRUPTED)
        if time.monotonic() > deadline:
            raise Unusable(trouble)
        time.sleep(0.02)


class Server:
    def __init__(self, root: Path, account: Account) -> None:
        self.root = root
        self.account = account
        self.data = root / "pgdata"
        self.log = root / "server.log"
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        """Whether any process of this server, or of its making, lives anywhere on this machine."""
        if self._child is not None:
            self._child.poll()  # Takes away the remains of a dead one.
        try:
            with self._lock():
                return False
        except BlockingIOError:
            return True

    @contextmanager
    def _lock(self) -> Iterator[int]:
        """The lock that every process of the server inherits."""
        handle = os.open(self.root / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self.account.own(handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield handle
        finally:
            os.close(handle)  # Without unlocking: a child that inherited it still holds the lock.

    def made(self) -> bool:
        """Whether there is a data directory that these binaries can serve."""
        version = self.data / "PG_VERSION"
        if not version.exists():
            if self.data.exists() and any(self.data.iterdir()):
                raise Unusable(f"{self.data} holds no database: move it away, or set UPSHOT_DATA_DIR to another place.")
            return False
        major = version.read_text(encoding="utf-8").strip()
        if major != str(MAJOR):
            newer = major.isdigit() and int(major) > MAJOR
            advice = "update Upshot" if newer else "restore a dump of it with this version"
            raise Unusable(
                f"{self.data} was made by PostgreSQL {major} and this Upshot brings {MAJOR}:"
                f" {advice}, or set UPSHOT_DATA_DIR to another place."
            )
        return True

    def make(self, superuser: str, password: str, given_up: Check) -> None:
        """Beside its final place, then renamed: an interrupted attempt leaves nothing that looks like a database."""
        self._wait_until_gone()
        for leftover in self.root.glob("pgdata.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        stage = Path(tempfile.mkdtemp(prefix="pgdata.new-", dir=self.root))
        try:
            (stage / "password").write_text(password + "\n", encoding="utf-8")
            (stage / "data").mkdir(mode=0o700)
            for path in (stage, stage / "password", stage / "data"):
                self.account.own(path)
            self._initdb(stage, superuser, given_up)
            (stage / "data").rename(self.data)
            sync_directory(self.root)
        finally:
            self._wait_until_gone()
            shutil.rmtree(stage, ignore_errors=True)

    def _initdb(self, stage: Path, superuser: str, given_up: Check) -> None:
        options = f"-U {superuser} -A scram-sha-256 --encoding=UTF8 --data-checksums --no-instructions --locale=C.UTF-8"
        options += " --locale-provider=builtin --builtin-locale=C.UTF-8"
        with visible(stage, self.account) as (path, handles), tempfile.TemporaryFile() as output:
            places = ("-D", f"{path}/data", f"--pwfile={path}/password")
            child = self._spawn("initdb", *options.split(), *places, cwd=stage, handles=handles, output=output)
            try:
                wait_until(
                    lambda: child.poll() is not None, _PATIENCE, f"initdb does not end in {self.root}.", given_up
                )
            except Unusable:
                child.kill()
                child.wait()
                raise
            if child.returncode:
                output.seek(0)
                raise Unusable(f"The database could not be made in {self.root}: {_last_line(output.read())}")

    def boot(self, sockets: Path) -> None:
        """Start it. Only called when nothing runs, so a PID file or socket that is still there is a stale one."""
        prepare_socket_dir(sockets, self.account)
        socket = sockets / f".s.PGSQL.{PORT}"
        for stale in (self.data / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            stale.unlink(missing_ok=True)
        self.trim_log()
        quoted = str(sockets).replace('"', '""')
        settings = _SETTINGS | {"unix_socket_directories": f'"{quoted}"'}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with visible(self.data, self.account) as (path, handles), self.log.open("ab") as log:
            self.account.own(self.log)
            self.log.chmod(0o600)
            self._child = self._spawn("postgres", "-D", path, *options, cwd=self.data, handles=handles, output=log)

    def answers(self, alive: Check, given_up: Check) -> bool:
        """Wait while it is at work; recovery after a crash may take minutes. False when no process of it is left."""
        trouble = f"The database runs but does not answer; see {self.log}."
        wait_until(lambda: alive() or not self.running(), _PATIENCE, trouble, given_up)
        return self.running()

    def trim_log(self) -> None:
        """The server appends, so the file may be cut under its hands."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_LIMIT:
                os.truncate(self.log, 0)

    def last_words(self) -> str:
        return _last_line(self.log.read_bytes()[-4000:])

    def _spawn(
        self, program: str, *options: str, cwd: Path, handles: tuple[int, ...], output: Any
    ) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with self._lock() as lock:
            return subprocess.Popen(
                [str(binaries(self.account, self.root) / program), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment | {"LC_ALL": "C"},
                pass_fds=(lock, *handles),
                start_new_session=True,  # Ctrl-C in the terminal is for us; the server is stopped by us.
                **self.account.popen,
            )

    def stop(self) -> None:
        """A fast shutdown, whatever state it is in; after half a minute an immediate one, which is still safe."""
        begun = time.monotonic()
        asked: set[tuple[int, int]] = set()
        while self.running():
            patience = time.monotonic() - begun
            if patience > 90:
                raise Unusable(f"The database in {self.data} does not stop; see {self.log}.")
            wish = signal.SIGINT if patience < 30 else signal.SIGQUIT
            postmaster = self._postmaster()
            if postmaster is not None and (postmaster.pid, wish) not in asked:
                asked.add((postmaster.pid, wish))
                with suppress(ProcessLookupError, psutil.NoSuchProcess):
                    postmaster.send_signal(wish)
            time.sleep(0.02)
        self._child = None

    def _postmaster(self) -> subprocess.Popen[bytes] | psutil.Process | None:
        """Our own child, or the process that is proved to be ours by its name and its working directory."""
        if self._child is not None and self._child.poll() is None:
            return self._child
        ours = {}
        for process in psutil.process_iter(["name", "ppid"]):
            if process.info["name"] == "postgres" and self._works_here(process):
                ours[process.pid] = process
        return next((process for process in ours.values() if process.info["ppid"] not in ours), None)

    def _works_here(self, process: psutil.Process) -> bool:
        try:
            return process.cwd() == os.path.realpath(self.data)
        except psutil.AccessDenied:
            return self.account.switch and self._works_here_as_seen_by_account(process.pid)
        except psutil.Error:
            return False

    def _works_here_as_seen_by_account(self, pid: int) -> bool:
        """Root without the right to trace, as in most containers, may not look; the account itself may."""
        command = ["readlink", f"/proc/{pid}/cwd"]
        seen = subprocess.run(command, check=False, capture_output=True, cwd="/", **self.account.popen)
        return os.fsdecode(seen.stdout).rstrip("\n") == os.path.realpath(self.data)

    def _wait_until_gone(self) -> None:
        trouble = f"Something still works on {self.root}: wait for it to end, then try again."
        wait_until(lambda: not self.running(), 60, trouble)


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing."
