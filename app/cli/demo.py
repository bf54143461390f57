"""`upshot demo`: fill or refill the demo workspace, and record what its agents answer."""

from typing import Any

import click
from flask import current_app

from app.cli.output import emit, workspace_command


@click.group()
def demo() -> None:
    """Fill or refill the demo workspace, and record what its agents answer."""


@demo.command("seed")
@workspace_command
def seed_command(as_json: bool) -> None:
    """Fill the demo workspace, unless it is there."""
    from app.demo.seed import seed

    made = seed()
    emit(made, _sentence("is ready" if made["created"] else "is already there", made), as_json)


@demo.command("reset")
@workspace_command
def reset_command(as_json: bool) -> None:
    """Delete the demo workspace and fill it again."""
    from app.demo.seed import reset

    made = reset(current_app.extensions["upshot.opened"].owner_url)
    emit(made, _sentence("is new again" if made["removed"] else "is ready", made), as_json)


@demo.command("record")
@click.option("--replays", is_flag=True, help="Take the conversations as they are recorded; replay the goldens only.")
@workspace_command
def record_command(as_json: bool, replays: bool) -> None:
    """Hold the demo's conversations with the offline agents, replay its goldens, and write both into app/demo/data.

    For developers: after a change to the conversations, the knowledge or the offline model. It happens in a workspace
    of its own, which is deleted afterwards.
    """
    from app.demo.record import record

    made = record(current_app.extensions["upshot.opened"].owner_url, replays_only=replays)
    emit(made, f"Recorded {made['conversations']} conversations and {made['runs']} runs over goldens.", as_json)


def _sentence(what: str, made: dict[str, Any]) -> str:
    return (
        f"The demo workspace {what}: {made['people']} people, {made['sessions']} sessions,"
        f" {made['feedback']} rows of feedback, {made['knowledge']} of knowledge."
    )
