"""`upshot import`: recorded work from a file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.output import emit, workspace_command
from app.errors import Invalid

if TYPE_CHECKING:
    from app.services.ingest.imports import Result

MAX_ERRORS = 20


@click.group("import")
def import_() -> None:
    """Take in recorded work."""


@import_.command("messages")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--tenant", "slug", required=True, help="Slug of the workspace.")
@workspace_command
def import_messages(file: Path, slug: str, as_json: bool) -> None:
    """Take in sessions from FILE: NDJSON, one session a line, chat-completion messages. `-` reads standard input.

    Bad lines are listed with their numbers and the rest goes in. The same file again adds nothing.
    """
    from app.db import acting_as, transaction
    from app.services.ingest import imports as ingest_imports
    from app.services.workspaces import store as workspace_store

    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    piped = str(file) == "-"
    try:
        stream = sys.stdin.buffer if piped else file.open("rb")
    except OSError as trouble:
        raise Invalid(f"{file} cannot be read: {(trouble.strerror or 'unknown reason').lower()}.") from None
    progress = _progress if sys.stderr.isatty() and not as_json else None
    with stream, acting_as(system):
        result = ingest_imports.import_messages(
            stream, within=transaction, actor=system, filename=None if piped else file.name, progress=progress
        )
    if progress:
        click.echo(err=True)
    if not as_json:
        _list_errors(result)
    payload = {name: value for name, value in asdict(result).items() if name != "lines"}
    emit(payload, _sentence(result), as_json)
    if result.failed and not result.created and not result.existing:
        sys.exit(1)


def _progress(result: Result) -> None:
    """One line that is written over again."""
    counts = f"{result.created:,} new, {result.existing:,} known, {result.failed:,} bad"
    click.echo(f"\r{result.lines:,} lines: {counts}", nl=False, err=True)


def _list_errors(result: Result) -> None:
    for error in result.errors[:MAX_ERRORS]:
        click.echo(f"line {error.line}: {error.message}", err=True)
    if result.failed > MAX_ERRORS:
        click.echo(f"… and {result.failed - MAX_ERRORS:,} more; --json lists them.", err=True)


def _sentence(result: Result) -> str:
    sessions = "session" if result.created == 1 else "sessions"
    words = f"{result.created:,} new {sessions}, {result.existing:,} known before"
    bad = f", {result.failed:,} bad {'line' if result.failed == 1 else 'lines'}" if result.failed else ""
    return f"{words}{bad}."
