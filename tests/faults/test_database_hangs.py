"""A database that hangs or has no disk left: probes answer at once, requests get 503 in time, the log stays short."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.servers import Serving, copy_prepared_data, serving, wait_for

pytestmark = pytest.mark.process
CLIENTS = 40
FEEDBACK = {"source_type": "observation", "rating": "negative", "comment": "x" * 2000}


@contextmanager
def stopped(postmaster: int) -> Iterator[None]:
    """Every process of the database stands still, as on a disk that does not answer."""
    processes = [psutil.Process(postmaster), *psutil.Process(postmaster).children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGCONT)


class Asking(threading.Thread):
    """Asks for one page after the other; how long each answer took and what it was."""

    def __init__(self, one: Serving, path: str, key: str, until: float) -> None:
        super().__init__(daemon=True)
        self.one, self.path, self.until = one, path, until
        self.headers = {"Authorization": f"Bearer {key}"}
        self.answers: list[tuple[int, float]] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.one.url, headers=self.headers, timeout=60) as client:
            while time.monotonic() < self.until:
                began = time.monotonic()
                status = client.get(self.path).status_code
                self.answers.append((status, time.monotonic() - began))
                time.sleep(0.05)


def test_a_hung_database_holds_neither_probes_nor_clients(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = copy_prepared_data(data)
    with serving(data) as one:
        assert httpx.get(f"{one.url}/api/feedback", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        lines = one.output().count("\n")
        until = time.monotonic() + 14
        with stopped(one.postmaster()):
            clients = [Asking(one, "/api/feedback", key, until) for _ in range(CLIENTS)]
            probes = [Asking(one, path, key, until) for path in ("/healthz", "/readyz")]
            for thread in (*clients, *probes):
                thread.start()
            for thread in (*clients, *probes):
                thread.join(60)
        health, ready = (probe.answers for probe in probes)
        assert {status for status, _ in health} == {200}
        assert max(took for _, took in health) < 2
        assert max(took for _, took in ready) < 2.5
        assert ready[-1][0] == 503
        answers = [answer for client in clients for answer in client.answers]
        assert len(answers) >= CLIENTS
        assert {status for status, _ in answers} == {503}
        assert max(took for _, took in answers) < 12
        wait_for(lambda: one.get("/readyz") == 200, 30)
        wait_for(
            lambda: (
                httpx.get(f"{one.url}/api/feedback", headers={"Authorization": f"Bearer {key}"}, timeout=30).status_code
                == 200
            ),
            30,
        )
        assert one.output().count("\n") - lines < 60
        assert "The database is not answering" in one.output()
        assert "Traceback" not in one.output()
        assert "http" not in one.output().partition("Sign in once")[2].partition("\n")[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A place with 200 MB, which only root can make."""
    place = tmp_path / "data"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs", str(place)], capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_named_and_nothing_false_is_acknowledged(small_disk: Path) -> None:
    data = small_disk
    key = copy_prepared_data(data)
    with serving(data) as one:
        headers = {"Authorization": f"Bearer {key}"}
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(b"\0" * 65536)
                except OSError:
                    break
        acknowledged, refused = 0, None
        for _ in range(2000):
            answer = httpx.post(f"{one.url}/api/feedback", json=FEEDBACK, headers=headers, timeout=60)
            if answer.status_code != 201:
                refused = answer
                break
            acknowledged += 1
        assert refused is not None
        assert refused.status_code == 503
        wait_for(lambda: one.get("/readyz") == 503, 10)
        why = httpx.get(f"{one.url}/readyz", timeout=10).json()["detail"]
        assert "space" in why or "does not answer" in why
        assert "o space left" in one.output()
        assert one.get("/healthz") == 200
        ballast.unlink()
        wait_for(lambda: one.get("/readyz") == 200, 60)
        stored, cursor = 0, ""
        while cursor is not None:
            page = httpx.get(
                f"{one.url}/api/feedback",
                params={"limit": "100"} | ({"cursor": cursor} if cursor else {}),
                headers=headers,
                timeout=60,
            ).json()
            stored, cursor = stored + len(page["items"]), page["next_cursor"]
        assert stored == acknowledged
