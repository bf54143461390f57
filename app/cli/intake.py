"""`upshot import | feedback | demo`: what fills a workspace: recorded work, feedback of a member, the demo."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from flask import current_app

from app.cli.output import emit, workspace_command
from app.errors import Invalid, NotFound
from app.models.feedback import RATINGS, SOURCES

if TYPE_CHECKING:
    from app.services.ingest.imports import Result

MAX_ERRORS = 20


@click.group("import")
def import_() -> None:
    """Import recorded sessions."""


@import_.command("messages")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@workspace_command
def import_messages(file: Path, slug: str, as_json: bool) -> None:
    """Import sessions from FILE.

    The file is NDJSON with one session per line, as chat-completion messages. Use `-` for standard input. Bad lines
    are reported by number, and the rest is imported. Importing the same file again adds nothing.
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


@click.group()
def feedback() -> None:
    """Give feedback."""


@feedback.command("add")
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@click.option("--user", "email", required=True, help="Email of the person who gives the feedback.")
@click.option("--rating", required=True, type=click.Choice(RATINGS))
@click.option("--comment", help="Comment, up to 4,096 characters.")
@click.option("--session", "session_id", type=click.UUID, help="ID of the session.")
@click.option(
    "--source", type=click.Choice(SOURCES), help=("What the feedback is about (default: the session, if given).")
)
@click.option("--tool", help="Slug of the tool, with `--source tool`.")
@workspace_command
def add_feedback(
    slug: str,
    email: str,
    rating: str,
    comment: str | None,
    session_id: UUID | None,
    source: str | None,
    tool: str | None,
    as_json: bool,
) -> None:
    """Give feedback on behalf of a member. An admin's observation is a flag and needs a comment."""
    from app.db import acting_as, transaction
    from app.services.feedback.intake import NewFeedback, record_feedback
    from app.services.workspaces import identity
    from app.services.workspaces import store as workspace_store

    tenant_id = workspace_store.find_workspace(slug)
    user_id = identity.find_user(email)
    actor = identity.enter_workspace(user_id, tenant_id) if user_id else None
    if actor is None:
        raise NotFound(f"{email} is not in the workspace {slug}; add them with `upshot user create`.")
    about = source or ("tool" if tool else "session" if session_id else "observation")
    kind = {"observation": "flag" if actor.is_admin else "comment", "tool": "tool_observation"}.get(about, "comment")
    with acting_as(actor), transaction():
        context = {"tool_slug": tool} if tool else {}
        new = NewFeedback(
            source_type=about, kind=kind, rating=rating, comment=comment, session_id=session_id, context=context
        )
        row = record_feedback(new, actor=actor).row
        shown = ("id", "source_type", "kind", "rating", "status", "session_id")
        payload = {name: getattr(row, name) for name in shown} | {"tenant": slug, "user": email}
    emit(payload, f"Stored as {row.id}; it is pending.", as_json)


@click.group()
def demo() -> None:
    """Create or recreate the demo workspace, or record its agents' answers."""


@demo.command("seed")
@workspace_command
def seed_command(as_json: bool) -> None:
    """Create the demo workspace if there is none."""
    from app.demo.seed import seed

    made = seed()
    emit(made, _describe_demo("is ready" if made["created"] else "is already there", made), as_json)


@demo.command("reset")
@workspace_command
def reset_command(as_json: bool) -> None:
    """Delete the demo workspace and create it again."""
    from app.demo.seed import reset

    made = reset(current_app.extensions["upshot.opened"].owner_url)
    emit(made, _describe_demo("is new again" if made["removed"] else "is ready", made), as_json)


@demo.command("record")
@click.option("--replays", is_flag=True, help="Keep the recorded conversations and only replay the goldens.")
@workspace_command
def record_command(as_json: bool, replays: bool) -> None:
    """Record the demo's conversations and replays with the offline model and write them to app/demo/data.

    For developers, after changing conversations, knowledge or the offline model. Uses a temporary workspace.
    """
    from app.demo.record import record

    made = record(current_app.extensions["upshot.opened"].owner_url, replays_only=replays)
    emit(made, f"Recorded {made['conversations']} conversations and {made['runs']} runs over goldens.", as_json)


def _describe_demo(what: str, made: dict[str, Any]) -> str:
    return (
        f"The demo workspace {what}: {made['people']} people, {made['sessions']} sessions,"
        f" {made['feedback']} rows of feedback, {made['knowledge']} of knowledge."
    )
