"""`upshot worker`: a process that runs agents and answers no requests."""

import signal
import sys
import threading

import click

from app.cli.output import opened_app, plain_failures
from app.logs import write_logs


@click.command()
@plain_failures
def worker() -> None:
    """Run agents and scheduled work until stopped, beside a server or on another machine with the same database."""
    from app.agents.models import check_default_model
    from app.config import Settings
    from app.jobs.executor import warm_up
    from app.jobs.process import start_jobs

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
