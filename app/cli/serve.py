"""`upshot serve`: the server, in one process."""

from __future__ import annotations

import click

from app.cli.output import plain_failures


@click.command()
@click.option("--demo", is_flag=True, help="Fill the demo workspace first and offer it on the sign-in page.")
@plain_failures
def serve(demo: bool) -> None:
    """Run the server until it is stopped."""
    from app.serve import run

    run(demo=demo)
