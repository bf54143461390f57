"""`upshot serve`: the server."""

import click

from app.cli.output import json_option, plain_failures


@click.command()
@click.option("--demo", is_flag=True, help="Fill the demo workspace first and offer it on the sign-in page.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="How many processes answer requests, instead of UPSHOT_PROCESSES.",
)
@json_option
@plain_failures
def serve(demo: bool, processes: int | None, as_json: bool) -> None:
    """Run the server until it is stopped."""
    from app.server.run import run

    run(demo=demo, processes=processes, as_json=as_json)
