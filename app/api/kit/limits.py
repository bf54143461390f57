"""How many requests a key may make: a bucket that fills steadily and holds one minute's worth."""

import math
import threading
import time
from collections.abc import Callable
from uuid import UUID

from flask import Flask, current_app

from app.errors import Throttled

PER_MINUTE = 60_000  # A thousand a second: one key alone cannot keep everyone else waiting, and no honest one notices.


class Buckets:
    """One bucket for each key, in memory. Only keys that signed in get one, so their number is that of the keys."""

    def __init__(self, per_minute: int = PER_MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = float(per_minute)
        self.rate = per_minute / 60
        self.clock = clock
        self._lock = threading.Lock()
        self._left: dict[UUID, tuple[float, float]] = {}

    def take(self, key: UUID) -> None:
        """Take one request out, or say how long to wait for the next."""
        now = self.clock()
        with self._lock:
            left, since = self._left.get(key, (self.size, now))
            left = min(self.size, left + (now - since) * self.rate)
            taken = left >= 1
            self._left[key] = (left - 1 if taken else left, now)
        if not taken:
            wait = max(1, math.ceil((1 - left) / self.rate))
            raise Throttled(f"This key made more than {int(self.size)} requests in a minute. Wait {wait} s.", wait)


def register(app: Flask) -> None:
    app.extensions["upshot.buckets"] = Buckets()


def take_request(key: UUID) -> None:
    buckets: Buckets = current_app.extensions["upshot.buckets"]
    buckets.take(key)
