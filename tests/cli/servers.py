"""A real `upshot serve` in a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import schema_mark, shared_folder

UPSHOT = str(Path(sys.executable).parent / "upshot")
PATIENCE = 120.0


def wait_for(check: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What `check` gives once it gives something."""
    deadline = time.monotonic() + patience
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives to outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def environment(data: Path, **more: str) -> dict[str, str]:
    """Ours without anybody's settings, and a data directory of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UPSHOT_", "PG"))}
    return {**kept, "UPSHOT_DATA_DIR": str(data), **more}


def upshot(*arguments: str, data: Path, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [UPSHOT, *arguments], env=environment(data, **more), input=stdin, capture_output=True, text=True, timeout=300
    )


def make_key(data: Path) -> str:
    """Make a workspace with an owner, who gets a key that may do everything."""
    upshot("tenant", "create", "--slug", "acme", "--name", "Acme", data=data)
    upshot("user", "create", "--email", "ada@example.test", "--tenant", "acme", "--role", "owner", data=data)
    owner = ("--tenant", "acme", "--user", "ada@example.test")
    made = upshot("key", "create", *owner, "--scope", "admin", "--json", data=data)
    key: str = json.loads(made.stdout)["key"]
    return key


def copy_prepared_data(data: Path) -> str:
    """Copy a data directory with a migrated database and a workspace to `data`; give its owner's key.

    The original is made once for each state of the migrations, because making one takes several seconds.
    """
    original = shared_folder() / f"data-{schema_mark()}"
    original.parent.mkdir(parents=True, exist_ok=True)
    with (original.parent / "data.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (original / "key").exists():
            shutil.rmtree(original, ignore_errors=True)
            original.mkdir(mode=0o755)
            key = make_key(original / "data")
            (original / "key").write_text(key)
    # The files belong to the account that PostgreSQL runs as.
    subprocess.run(["cp", "--archive", f"{original}/data/.", str(data)], check=True)
    return (original / "key").read_text()


class Serving:
    def __init__(self, data: Path, *arguments: str, port: int | None = None, **more: str) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = data
        self.log = (data.parent / f"serve-{self.port}-{time.monotonic_ns()}.log").open("w+")
        env = environment(data, UPSHOT_PORT=str(self.port), **more)
        self.process = subprocess.Popen([UPSHOT, "serve", *arguments], env=env, stdout=self.log, stderr=self.log)

    def output(self) -> str:
        return Path(self.log.name).read_text()

    def get(self, path: str) -> int:
        try:
            return httpx.get(self.url + path, timeout=10).status_code
        except httpx.HTTPError:
            return 0

    def up(self) -> Serving:
        def answers() -> bool:
            assert self.process.poll() is None, self.output()
            # One process may answer before all of them are up, which is when the address is printed.
            return self.get("/readyz") == 200 and bool(self.output().strip())

        wait_for(answers)
        return self

    def postmaster(self) -> int:
        """The process id of the embedded server that works in our data directory."""
        for process in psutil.process_iter(["name"]):
            try:
                if process.info["name"] == "postgres" and Path(process.cwd()).is_relative_to(self.data.resolve()):
                    parent = process.parent()
                    return process.pid if parent is None or parent.name() != "postgres" else parent.pid
            except psutil.Error:
                continue
        return 0

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(data: Path, *arguments: str, port: int | None = None, **more: str) -> Iterator[Serving]:
    one = Serving(data, *arguments, port=port, **more)
    try:
        yield one.up()
    finally:
        one.stop()
        one.log.close()
