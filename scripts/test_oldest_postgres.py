"""Run the core tests on the oldest PostgreSQL that Upshot supports, in a server made for this run alone."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.tools import ROOT, SetupError, can_install_packages, install_debian_packages

BIN = Path("/usr/lib/postgresql/15/bin")
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{directory}'
max_connections = 200
fsync = off
full_page_writes = off
synchronous_commit = off
timezone = 'UTC'
"""


def prepare() -> None:
    """Install Debian's PostgreSQL 15 where that is possible; say so where it is not."""
    if available():
        return
    try:
        if can_install_packages():
            install_debian_packages("postgresql-15")
    except SetupError as problem:
        print(problem, file=sys.stderr)
    if not available():
        print("PostgreSQL 15 is not in /usr/lib/postgresql, so the core tests run on the embedded server only.")


def available() -> bool:
    return (BIN / "initdb").is_file()


def main() -> int:
    """Give pytest's own exit code; nothing to do where `prepare` said that there is no such server."""
    if not available():
        return 0
    # SIGTERM must end the server too, so it leaves through the context manager.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with server() as conninfo:
            print("Core tests on PostgreSQL 15", flush=True)
            environment = os.environ | {"UPSHOT_TEST_SERVER": conninfo}
            command = [sys.executable, "-m", "pytest", "-q", "-m", "core", *sys.argv[1:]]
            return subprocess.run(command, cwd=ROOT, env=environment).returncode
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@contextmanager
def server() -> Iterator[str]:
    """A server on a socket of its own; gives the connection string of its superuser."""
    # A socket needs a short path that the postgres account may enter, which $TMPDIR need not be.
    directory = Path(tempfile.mkdtemp(prefix="upshot-pg15-", dir="/tmp"))
    account = as_postgres(directory)
    password = secrets.token_hex(16)
    data = directory / "data"
    secret = directory / "password"
    secret.touch(mode=0o600)
    secret.write_text(password, "utf-8")
    if account:
        os.chown(secret, account["user"], account["group"])

    def run(*command: str) -> None:
        # The server keeps the standard output of pg_ctl, and a pipe would stay open with it.
        subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=directory,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **account,
        )

    try:
        login = ("--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}")
        run("initdb", f"--pgdata={data}", *login, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
        with (data / "postgresql.conf").open("a", encoding="utf-8") as config:
            config.write(SETTINGS.format(directory=directory))
        run("pg_ctl", "-D", str(data), "-w", "-t", "120", "-l", str(directory / "log"), "start")
        try:
            yield f"host={directory} port=5432 user=postgres password={password} dbname=postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    except subprocess.CalledProcessError as failure:
        log = directory / "log"
        if log.is_file():
            print(log.read_text("utf-8"), file=sys.stderr)
        raise SetupError(f"PostgreSQL 15 could not be started: {failure.cmd[0]} failed.") from failure
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def as_postgres(directory: Path) -> dict[str, Any]:
    """Arguments that start a command as the postgres account, since the server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    os.chown(directory, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


if __name__ == "__main__":
    sys.exit(main())
