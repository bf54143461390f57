"""What the server and its workers write to standard error: one format, no chatter, and never a secret."""

import logging
import sys
import threading
import time
from collections.abc import Callable

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.config import redact_text

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# At their usual level these tell every request with its address, in which the arguments of tools stand.
NOISY_LOGGERS = ("alembic", "apscheduler", "httpx", "httpx2", "httpcore2", "mcp", "openai", "anthropic")


class RedactingFormatter(logging.Formatter):
    """Replaces the operator's secrets wherever a library or a traceback repeats them."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


class OutageFilter(logging.Filter):
    """Replaces the traces of a database outage with one line a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._written_at = float("-inf")
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = outage_in(record)
        if error is None:
            return True
        with self._lock:
            if self._clock() - self._written_at < 1:
                self._left_out += 1
                return False
            more = f" ({self._left_out} more like this)" if self._left_out else ""
            self._written_at, self._left_out = self._clock(), 0
        record.msg, record.args = f"The database is not answering: {first_line(error)}{more}", None
        record.exc_info = record.exc_text = None
        return True


def outage_in(record: logging.LogRecord) -> BaseException | None:
    """The error of a database that is away, if the record speaks of one."""
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    given = record.args if isinstance(record.args, tuple) else ()
    kinds = (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError)
    return next((one for one in (raised, *given) if isinstance(one, kinds)), None)


def first_line(error: BaseException) -> str:
    """What the database itself said, without the statement and without a library's advice."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def write_logs() -> None:
    """Begin to write; what was set up before stays."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(RedactingFormatter(FORMAT))
        handler.addFilter(OutageFilter())
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
