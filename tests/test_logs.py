"""What the log says while the database is away: one line a second, the reason, and nothing of the statements."""

from __future__ import annotations

import io
import logging

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from app.logs import FORMAT, OutageFilter

DOWN = OperationalError("SELECT secret", {}, psycopg.OperationalError("server closed the connection\nunexpectedly"))


@pytest.fixture
def written() -> tuple[logging.Logger, io.StringIO, list[float]]:
    now = [100.0]
    target = io.StringIO()
    handler = logging.StreamHandler(target)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(OutageFilter(lambda: now[0]))
    logger = logging.Logger("outage")
    logger.addHandler(handler)
    return logger, target, now


def test_an_outage_is_one_line_a_second(written: tuple[logging.Logger, io.StringIO, list[float]]) -> None:
    logger, target, now = written
    for _ in range(50):
        logger.warning("nothing could be asked: %s", DOWN)
        try:
            raise DOWN
        except OperationalError:
            logger.exception("a job failed")
    now[0] += 1
    logger.warning("nothing could be asked: %s", DOWN)
    first, second = target.getvalue().splitlines()
    assert first.endswith("The database is not answering: server closed the connection")
    assert second.endswith("server closed the connection (99 more like this)")
    assert "secret" not in target.getvalue()


def test_other_faults_keep_their_trace(written: tuple[logging.Logger, io.StringIO, list[float]]) -> None:
    logger, target, _ = written
    try:
        raise KeyError("x")
    except KeyError:
        logger.exception("a fault of ours")
    assert "Traceback" in target.getvalue()
