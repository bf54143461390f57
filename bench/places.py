"""A server of our own for a measurement, in a place that goes away."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

UPSHOT = str(Path(sys.executable).parent / "upshot")


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="upshot-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(data: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UPSHOT_", "PG"))}
    return {**kept, "UPSHOT_DATA_DIR": str(data), "UPSHOT_PORT": str(port)}


class Serving:
    """`upshot serve` in a process of its own, as `make run` starts it."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = environment(data, self.port)
        self.log = tempfile.NamedTemporaryFile("w+", prefix="upshot-bench-", suffix=".log")  # noqa: SIM115
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [UPSHOT, "serve", *arguments], env=self.env, stdout=self.log, stderr=subprocess.STDOUT
        )

    def link(self) -> str:
        while True:
            found = re.search(r"Sign in once with: (\S+)", Path(self.log.name).read_text())
            if found:
                return found[1]
            if self.process.poll() is not None:
                raise RuntimeError(Path(self.log.name).read_text())
            time.sleep(0.02)

    def ready(self) -> None:
        while True:
            try:
                if httpx.get(self.url + "/readyz", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(Path(self.log.name).read_text())
            time.sleep(0.02)

    def run(self, *arguments: str) -> str:
        done = subprocess.run([UPSHOT, *arguments], env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextmanager
def serving(data: Path, *arguments: str) -> Iterator[Serving]:
    one = Serving(data, *arguments)
    try:
        one.ready()
        yield one
    finally:
        one.stop()


@contextmanager
def database(path: Path) -> Iterator[tuple[str, str, str]]:
    """An embedded database at the newest schema: the app's, the owner's and the superuser's address."""
    from app.db.embedded.shared import Embedded
    from app.db.migrate import upgrade

    embedded = Embedded(path / "postgres").start()
    try:
        upgrade(embedded.url("owner"))
        yield embedded.url("app"), embedded.url("owner"), embedded.url("superuser")
    finally:
        embedded.release()


def median_ms(work: Callable[[], object], times: int = 31) -> float:
    """The median of several runs, in milliseconds, after a few that warm up."""
    for _ in range(5):
        work()
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


def as_superuser(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url, autocommit=True)
