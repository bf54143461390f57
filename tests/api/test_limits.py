"""The bucket of each key."""

from __future__ import annotations

from uuid import uuid4

import pytest

from app.api.kit.limits import Buckets
from app.errors import Throttled


def test_a_key_that_takes_too_much_waits_and_others_do_not() -> None:
    now = [0.0]
    buckets = Buckets(per_minute=60, clock=lambda: now[0])
    busy, calm = uuid4(), uuid4()
    for _ in range(60):
        buckets.take(busy)
    with pytest.raises(Throttled) as caught:
        buckets.take(busy)
    assert (caught.value.status, caught.value.retry_after) == (429, 1)
    buckets.take(calm)

    now[0] += 2
    buckets.take(busy)
    buckets.take(busy)
    with pytest.raises(Throttled):
        buckets.take(busy)

    now[0] += 3600
    for _ in range(60):
        buckets.take(busy)
    with pytest.raises(Throttled):
        buckets.take(busy)
