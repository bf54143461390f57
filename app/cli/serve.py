"""`upshot serve`: the server, in one process."""

from __future__ import annotations

import click

from app.cli.output import json_option, plain_failures


@click.command()
@click.option("--demo", is_flag=True, help="Fill the demo workspace first and offer it on the sign-in page.")
@json_option
@plain_failures
def serve(demo: bool, as_json: bool) -> None:
    """Run the server until it is stopped."""
    from app.server.run import run

    run(demo=demo, as_json=as_json)
