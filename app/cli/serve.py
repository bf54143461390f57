"""`upshot serve | worker | mcp`: what runs until it is stopped."""

import signal
import sys
import threading
from pathlib import Path

import click

from app.cli.output import json_option, opened_app, plain_failures
from app.config import variable
from app.errors import Unusable

KEY_VARIABLE = "UPSHOT_API_KEY"


@click.command()
@click.option("--demo", is_flag=True, help="Create the demo workspace first and offer it on the sign-in page.")
@click.option(
    "--processes", type=click.IntRange(1, 64), help="Number of server processes (overrides UPSHOT_PROCESSES)."
)
@json_option
@plain_failures
def serve(demo: bool, processes: int | None, as_json: bool) -> None:
    """Run the server until it is stopped."""
    from app.server.run import run

    run(demo=demo, processes=processes, as_json=as_json)


@click.command()
@plain_failures
def worker() -> None:
    """Run agents and scheduled work until stopped, next to a server or on another machine with the same database."""
    from app.agents.models import check_default_model
    from app.config import Settings
    from app.jobs.executor import warm_up
    from app.jobs.process import start_jobs
    from app.logs import write_logs

    write_logs()
    check_default_model(Settings.from_env())
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with opened_app() as app:
        warm_up()
        jobs = start_jobs(app)
        click.echo(f"Upshot runs up to {jobs.executor.slots} sessions at once as {jobs.executor.owner}.")
        sys.stdout.flush()
        stopped.wait()
        jobs.stop()


@click.command()
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"A file with an API key on its first line. Otherwise the key comes from {KEY_VARIABLE}.",
)
@plain_failures
def mcp(key_file: Path | None) -> None:
    """Serve MCP on standard input and output, with an API key's permissions.

    The key comes from UPSHOT_API_KEY or a file, never from the command line, where other users could see it.
    """
    key = _key(key_file)
    with opened_app() as app:
        from app.tools.mcp_server import serve_stdio

        serve_stdio(key, app.config["VERSION"])


def _key(key_file: Path | None) -> str:
    if key_file is None:
        key = variable(KEY_VARIABLE)
    else:
        try:
            key = key_file.read_text(encoding="utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError):
            raise Unusable(f"{key_file} can't be read. Use a file with an API key on its first line.") from None
    if not key:
        raise Unusable(f"No API key. Set {KEY_VARIABLE} or use --key-file. Create a key with `upshot key create`.")
    return key
