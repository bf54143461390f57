"""`upshot serve` with several processes: one that dies is replaced, and all end with the first."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from app.api.ops.metrics import MAX_RECORDS, RequestCounts
from app.server.processes import JobsReport
from tests.cli.servers import Serving, copy_prepared_data, serving, wait_for
from tests.faults.test_server_killed import WRITERS, Writer, read_all

processes = pytest.mark.process


def answering(one: Serving) -> list[psutil.Process]:
    """The processes that answer requests, without the first."""
    return [child for child in psutil.Process(one.process.pid).children() if child.name() != "postgres"]


@processes
def test_a_killed_process_comes_back_and_no_acknowledged_row_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = copy_prepared_data(data)
    with serving(data, "--processes", "2") as one:
        stop = threading.Event()
        writers = [Writer(one.url, key, stop) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        counted = 0.0
        for _ in range(2):
            for victim in answering(one):
                before = [len(writer.acknowledged) for writer in writers]
                victim.kill()
                wait_for(lambda victim=victim: victim not in answering(one) and len(answering(one)) == 2)
                wait_for(
                    lambda before=before: all(len(w.acknowledged) > b for w, b in zip(writers, before, strict=True))
                )
                now = requests_total(one)
                assert now > counted
                counted = now
        stop.set()
        for writer in writers:
            writer.join()
        kept = read_all(one.url, key)
        assert len(kept) == len(set(kept))
        assert {mark for writer in writers for mark in writer.acknowledged} <= set(kept)
        wait_for(lambda: one.get("/readyz") == 200)
        assert "is started again" in one.output()


def requests_total(one: Serving) -> float:
    """How many requests the whole server says that it answered."""
    text = wait_for(lambda: metrics_text(one))
    return sum(float(count) for count in re.findall(r"^upshot_requests_total\{.*\} (\d+)$", text, re.M))


def metrics_text(one: Serving) -> str:
    try:
        return httpx.get(f"{one.url}/metrics", timeout=10).text
    except httpx.HTTPError:
        return ""


@processes
def test_nothing_is_left_running_when_the_first_process_is_killed(tmp_path: Path, app_url: str) -> None:
    one = Serving(tmp_path / "data", "--processes", "3", UPSHOT_DATABASE_URL=app_url).up()
    others = answering(one)
    assert len(others) == 3
    one.process.kill()
    one.process.wait()
    assert not psutil.wait_procs(others, timeout=20)[1]
    with serving(tmp_path / "data", port=one.port, UPSHOT_DATABASE_URL=app_url) as second:
        assert second.get("/healthz") == 200


@processes
def test_a_stopped_server_answers_what_it_accepted(tmp_path: Path, app_url: str) -> None:
    one = Serving(tmp_path / "data", "--processes", "2", UPSHOT_DATABASE_URL=app_url).up()
    others = answering(one)
    os.kill(one.process.pid, signal.SIGTERM)
    assert one.process.wait(60) == 0
    assert not psutil.wait_procs(others, timeout=1)[1]
    assert "Traceback" not in one.output()


def test_counts_are_those_of_all_processes_and_survive_a_restart() -> None:
    counts = RequestCounts(2)
    counts.note("GET", "/healthz", 200, 0.001)
    counts.note_connections(1, 2)
    counts.use_region(1)
    counts.note("GET", "/healthz", 200, 20)
    counts.note_connections(3, 4)
    counts.use_region(1)
    counts.note("GET", "/healthz", 200, 0.3)
    lines = list(counts.lines())
    assert 'upshot_requests_total{method="GET",route="/healthz",status="200"} 3' in lines
    assert 'upshot_request_seconds_bucket{le="0.005"} 1' in lines
    assert 'upshot_request_seconds_bucket{le="10.0"} 2' in lines
    assert "upshot_request_seconds_count 3" in lines
    assert "upshot_request_seconds_sum 20.301000" in lines
    assert [line for line in counts.lines() if line.startswith("upshot_database_connections")] == [
        'upshot_database_connections{state="used"} 4',
        'upshot_database_connections{state="idle"} 6',
    ]


def test_more_routes_than_there_is_room_for_share_one_count() -> None:
    counts = RequestCounts()
    for number in range(MAX_RECORDS + 10):
        counts.note("GET", f"/{number}", 200, 0)
    lines = list(counts.lines())
    assert 'upshot_requests_total{method="other",route="other",status="other"} 11' in lines


def test_the_report_of_jobs_is_read_by_the_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    report = JobsReport()
    report.write(None)
    assert report.trouble() is None
    report.write("The leases of sessions are not kept.")
    assert report.trouble() == "The leases of sessions are not kept."
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert report.trouble() == "The process that runs agents does not answer."
