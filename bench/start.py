"""From the start to the first signed-in page, with a new database and again; and what it all weighs when idle."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import psutil

from bench.places import Serving, folder


def first_page(data: Path) -> tuple[float, Serving]:
    one = Serving(data, "--demo")
    link = one.link()
    with httpx.Client(base_url=one.url, follow_redirects=True, timeout=60) as browser:
        token = re.search(r'name="csrf_token" value="([^"]+)"', browser.get(link).text)
        assert token is not None
        page = browser.post(link, data={"csrf_token": token[1]})
        assert page.status_code == 200
        assert "Feedback" in page.text
    return time.monotonic() - one.began, one


def memory_mb(one: Serving, data: Path) -> float:
    """Proportional set size of the server, its children, and PostgreSQL with all its processes."""
    own = psutil.Process(one.process.pid)
    processes = {own.pid: own, **{child.pid: child for child in own.children(recursive=True)}}
    for process in psutil.process_iter(["name"]):
        try:
            if process.info["name"] == "postgres" and Path(process.cwd()).is_relative_to(data.resolve()):
                processes[process.pid] = process
        except psutil.Error:
            continue
    return sum(process.memory_full_info().pss for process in processes.values()) / 1e6


def measure() -> dict[str, float]:
    with folder() as place:
        data = place / "data"
        first, one = first_page(data)
        time.sleep(5)
        idle = memory_mb(one, data)
        one.stop()
        again, one = first_page(data)
        one.stop()
    return {
        "first_page_seconds": round(first, 1),
        "first_page_at_most": 20,
        "restart_seconds": round(again, 1),
        "restart_at_most": 6,
        "idle_memory_mb": round(idle),
        "idle_memory_at_most": 250,
    }
