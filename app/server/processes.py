"""The processes of `upshot serve`: the first one starts the others, replaces those that die, and ends with all of them.

The first process answers no requests. Its only thread besides the main one watches the embedded database, so it can
fork at any time. What it loaded before is shared with the others.
"""

from __future__ import annotations

import logging
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from types import FrameType

from app.errors import Unusable

log = logging.getLogger("upshot")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_SECONDS = 0.5
# A process that dies at once is not started again more often than this.
RESTART_SECONDS = 1.0
# A little more than a process takes to answer what it accepted and to give back the sessions that it runs.
STOP_SECONDS = 30.0
Work = Callable[[int, Callable[[], None]], None]


class Processes:
    """`count` processes that each do `work(index, when_up)`. None is replaced while `fork_lock` is held."""

    def __init__(self, count: int, work: Work, fork_lock: threading.Lock | None = None) -> None:
        self.work = work
        self.fork_lock = fork_lock or threading.Lock()
        self.count = count
        self.first_pid = os.getpid()
        self.stopping = False
        self.children: dict[int, BaseProcess] = {}
        self.started_at: dict[int, float] = {}

    def run(self, when_up: Callable[[], None]) -> None:
        """Start all, call `when_up` when every one of them answers, and keep them running until a signal arrives."""
        usual = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        try:
            starting = [self._start(index) for index in range(self.count)]
            for index, up in enumerate(starting):
                self._wait_until_up(index, up)
            if not self.stopping:
                when_up()
            while not self.stopping:
                connection.wait([child.sentinel for child in self.children.values()], LOOK_SECONDS)
                self._replace_dead()
        finally:
            self._end_all()
            for number, handler in usual.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        if os.getpid() != self.first_pid:
            sys.exit(0)  # One of the others, before it set up its own handler.

    def _start(self, index: int) -> connection.Connection:
        reader, writer = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target=self.work, args=(index, lambda: writer.send(True)), name=f"upshot-{index}"
        )
        sys.stdout.flush()
        child.start()
        writer.close()
        self.children[index] = child
        self.started_at[index] = time.monotonic()
        return reader

    def _wait_until_up(self, index: int, up: connection.Connection) -> None:
        child = self.children[index]
        while not self.stopping and not up.poll():
            if not child.is_alive():
                raise Unusable(f"A process of the server ended at its start ({child.exitcode}); the log says why.")
            connection.wait([up, child.sentinel], LOOK_SECONDS)

    def _replace_dead(self) -> None:
        for index, child in list(self.children.items()):
            recent = time.monotonic() - self.started_at[index] < RESTART_SECONDS
            if self.stopping or child.is_alive() or recent or not self.fork_lock.acquire(blocking=False):
                continue
            try:
                log.warning("process %s of the server ended (%s) and is started again", index, child.exitcode)
                self._start(index)
            finally:
                self.fork_lock.release()

    def _end_all(self) -> None:
        """Let all finish what they accepted, and kill what is left after that."""
        for child in self.children.values():
            child.terminate()
        until = time.monotonic() + STOP_SECONDS
        for child in self.children.values():
            child.join(max(0.0, until - time.monotonic()))
            if child.is_alive():
                child.kill()
                child.join()


def end_with_first() -> None:
    """End this process at once when the first one is gone, however that ended. Call it on the event loop's thread."""
    import asyncio

    first = multiprocessing.parent_process()
    if first is not None:
        asyncio.get_running_loop().add_reader(first.sentinel, os._exit, 1)


class JobsReport:
    """What the process that runs agents says about itself, so that the others can answer `/readyz` for it."""

    LAYOUT = struct.Struct("=d248s")
    SILENT_SECONDS = 10.0

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.LAYOUT.size)

    def write(self, trouble: str | None) -> None:
        self.LAYOUT.pack_into(self._memory, 0, time.monotonic(), (trouble or "").encode())

    def trouble(self) -> str | None:
        written_at, text = self.LAYOUT.unpack_from(self._memory)
        if time.monotonic() - written_at > self.SILENT_SECONDS:
            return "The process that runs agents does not answer."
        return text.rstrip(b"\0").decode(errors="ignore") or None
