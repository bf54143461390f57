"""Shared by all commands: printing an answer, printing a failure, opening the database."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.config import Settings
from app.errors import Problem, Unusable

if TYPE_CHECKING:
    from flask import Flask

    from app.actor import Actor
    from app.db.boot import Opened
    from app.db.connect import Run

Command = TypeVar("Command", bound=Callable[..., Any])
Found = TypeVar("Found")
LOOK_SECONDS = 0.3

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def emit(payload: dict[str, Any], text: str, as_json: bool) -> None:
    """Print one JSON object, or a sentence."""
    click.echo(json.dumps(payload, ensure_ascii=False, default=str) if as_json else text)


def fail(sentence: str, code: int = 1) -> None:
    click.echo(f"upshot: {sentence}", err=True)
    sys.exit(code)


def plain_failures(command: Command) -> Command:
    """Print a failure as one sentence on stderr and exit with 1, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (Unusable, Problem) as trouble:
            fail(str(trouble))

    return run  # type: ignore[return-value]


@contextmanager
def opened_database(settings: Settings) -> Iterator[Opened]:
    """The database while the command runs; an embedded server that we started stops again."""
    from app.db.boot import open_database

    opened = open_database(settings)
    try:
        yield opened
    finally:
        if opened.embedded:
            opened.embedded.release()


@contextmanager
def opened_transaction() -> Iterator[Run]:
    """One transaction without SQLAlchemy and Flask, for short commands: loading those takes most of their time."""
    from app.db.connect import connect, run_on

    with opened_database(Settings.from_env()) as opened, connect(opened.app_url, "the database") as connection:
        yield run_on(connection)


@contextmanager
def opened_app(*, routes: bool = True) -> Iterator[Flask]:
    """An application context on the database. Without `routes` the web app is not loaded."""
    from app import create_app

    settings = Settings.from_env()
    with opened_database(settings) as opened:
        app = create_app(settings, opened, routes=routes)
        with app.app_context():
            yield app


def work_until(ended: Callable[[], Found | None], stop: Callable[[], object], system: Actor) -> Found:
    """Run the sessions that wait, until `ended` gives a result. Ctrl-C calls `stop`; both get a transaction."""
    from flask import current_app

    from app.db import acting_as, transaction
    from app.jobs.executor import Executor

    executor = Executor(current_app._get_current_object())  # type: ignore[attr-defined]
    executor.start()
    try:
        while True:
            with acting_as(system), transaction():
                found = ended()
            if found is not None:
                return found
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        with acting_as(system), transaction():
            stop()
        raise
    finally:
        executor.stop()


def workspace_command(command: Command, *, routes: bool = True) -> Command:
    """A command that works in an application context. Its `--json` flag arrives as `as_json`."""

    @json_option
    @plain_failures
    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        with opened_app(routes=routes):
            return command(*args, **kwargs)

    return run  # type: ignore[return-value]


people_command = functools.partial(workspace_command, routes=False)
