"""Do several things at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def run_at_once(*work: Callable[[], object]) -> None:
    """Run each in a thread of its own, wait for all and raise the first error."""
    with ThreadPoolExecutor(len(work)) as pool:
        for running in [pool.submit(one) for one in work]:
            running.result(120)
