"""The server killed in the middle of taking feedback: what it acknowledged is there when it is back, once each."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.cli.servers import Serving, copy_prepared_data, free_port, wait_for

pytestmark = pytest.mark.process
WRITERS = 4


class Writer(threading.Thread):
    """Sends feedback, each with a key of its own and again until it is acknowledged."""

    def __init__(self, url: str, key: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.url, self.stop = url, stop
        self.headers = {"Authorization": f"Bearer {key}"}
        self.acknowledged: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            mark = uuid4().hex
            while not self.send(mark):
                time.sleep(0.1)

    def send(self, mark: str) -> bool:
        body = {"source_type": "observation", "rating": "negative", "comment": mark}
        try:
            answer = httpx.post(
                f"{self.url}/api/feedback", json=body, headers={**self.headers, "Idempotency-Key": mark}, timeout=60
            )
        except httpx.HTTPError:
            return False
        if answer.status_code == 201:
            self.acknowledged.append(mark)
        return answer.status_code == 201


def read_all(url: str, key: str) -> list[str]:
    comments: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": "100", **({"cursor": cursor} if cursor else {})}
        page = httpx.get(
            f"{url}/api/feedback", params=query, headers={"Authorization": f"Bearer {key}"}, timeout=60
        ).json()
        comments += [item["comment"] for item in page["items"]]
        cursor = page["next_cursor"]
    return comments


def test_no_acknowledged_row_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path, full: bool) -> None:
    data, port = tmp_path / "data", free_port()
    key = copy_prepared_data(data)
    one = Serving(data, port=port).up()
    stop = threading.Event()
    writers = [Writer(one.url, key, stop) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    for _ in range(50 if full else 1):
        before = [len(writer.acknowledged) for writer in writers]
        wait_for(lambda before=before: all(len(w.acknowledged) > b + 3 for w, b in zip(writers, before, strict=True)))  # type: ignore[misc]
        one.process.kill()
        one.process.wait()
        one = Serving(data, port=port).up()
    stop.set()
    for writer in writers:
        writer.join()
    kept = read_all(one.url, key)
    one.stop()
    assert len(kept) == len(set(kept))
    assert {mark for writer in writers for mark in writer.acknowledged} <= set(kept)
