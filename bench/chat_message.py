"""What detecting feedback adds to storing a chat message.

The same messages are stored in one database by turns with the index of chats that wait to be checked and without it,
which is all that storing has to do with detection: the rest happens in a job. A second figure has the job running
beside it in the same process, and without it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bench.places import as_superuser, database, folder

ROUNDS = 16
MESSAGES = 120
TEXTS = (
    "What would 120 croissants cost delivered?",
    "120 croissants come to 241.00.",
    "That's wrong, it is 1.60 each.",
)
INDEX = (
    "CREATE INDEX chats_unchecked_idx ON chats (tenant_id, last_message_at) WHERE checked_count < message_count",
    "DROP INDEX chats_unchecked_idx",
)
AT_MOST = 1.05


def measure() -> dict[str, Any]:
    """The medians of all rounds in milliseconds, and the median of the ratios of rounds that follow each other."""
    from app import create_app
    from app.config import Settings
    from app.db import acting_as, db, transaction
    from app.db.boot import Opened
    from app.jobs.machine_feedback import MachineFeedback
    from app.services.chats import store as chat_store
    from app.services.chats.store import NewMessage
    from app.services.workspaces.store import create_workspace

    with folder() as place, database(place) as (app_url, owner_url, superuser_url):
        app = create_app(Settings(data_dir_text=str(place)), Opened(app_url, "x" * 40, owner_url))
        with app.app_context(), as_superuser(superuser_url) as owner:
            with transaction():
                _, actor = create_workspace(slug="bench", name="Bench")
            with acting_as(actor), transaction():
                chat = chat_store.create_chat(actor=actor, agent_slug="baker", title="Quotes")
                chat_id = chat.id

            def store(number: int) -> None:
                role = "agent" if number % 3 == 1 else "user"
                message = NewMessage(role=role, content=TEXTS[number % 3], created_at=datetime.now(UTC))
                with acting_as(actor), transaction():
                    chat_store.append_messages(chat_id, [message], actor=actor)

            index = compare(store, lambda used: owner.execute(INDEX[0 if used else 1]))
            with Beside(app, MachineFeedback(Settings()).check_messages) as job:
                beside = compare(store, job.turn, used=False)
            db.engine.dispose()
    return {"index": index, "job_beside": beside, "at_most": AT_MOST}


class Beside:
    """The job in a thread, every half second while it is turned on."""

    def __init__(self, app: Any, work: Callable[[], object]) -> None:
        self.app, self.work = app, work
        self.on, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> Beside:
        self.thread.start()
        return self

    def __exit__(self, *trouble: object) -> None:
        self.over.set()
        self.thread.join()

    def turn(self, used: bool) -> None:
        (self.on.set if used else self.on.clear)()

    def _run(self) -> None:
        with self.app.app_context():
            while not self.over.wait(0.5):
                if self.on.is_set():
                    self.work()


def compare(store: Callable[[int], None], turn: Callable[[bool], object], *, used: bool = True) -> dict[str, float]:
    """The median of a message with and without, by turns, and the median of the ratios. `used` is how it begins."""
    rounds: list[dict[bool, float]] = []
    for _ in range(ROUNDS):
        one = {}
        for wanted in (False, True):
            if wanted != used:
                turn(wanted)
            used = wanted
            one[wanted] = timed(store)
        rounds.append(one)
    return {
        "with_ms": round(statistics.median(one[True] for one in rounds), 3),
        "without_ms": round(statistics.median(one[False] for one in rounds), 3),
        "ratio": round(statistics.median(one[True] / one[False] for one in rounds[1:]), 3),
    }


def timed(store: Callable[[int], None]) -> float:
    spent = []
    for number in range(MESSAGES):
        began = time.perf_counter()
        store(number)
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)
