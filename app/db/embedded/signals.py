"""Signals while the embedded server is started or stopped."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_in_good_order() -> None:
    """atexit does not run when a signal kills the process; when it leaves through SystemExit it does."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _STOPS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """No signal interrupts the block between two steps. It can ask whether one waits; that one comes at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    waiting: list[int] = []
    usual = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in usual.items():
        if callable(handler):
            signal.signal(number, lambda number, _frame: waiting.append(number))
    try:
        yield lambda: bool(waiting)
    finally:
        for number, handler in usual.items():
            if callable(handler):
                signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
