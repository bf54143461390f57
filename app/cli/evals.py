"""`upshot evals`: verdicts from the command line, with exit codes that a build can act on."""

import functools
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from app.cli.output import Command, emit, fail, json_option, opened_app
from app.errors import Problem, Unusable
from app.evals.verdict import ERRORED, FAIL, FLAKY, PASS, UNKNOWN

if TYPE_CHECKING:
    from app.evals.compare.sessions import Comparison

PASSED, REGRESSION, CONFIGURATION, UNREACHABLE, INCONCLUSIVE = 0, 1, 3, 4, 5
# What shells say of a command that Ctrl-C ended.
STOPPED = 130
EXIT = {PASS: PASSED, FAIL: REGRESSION, FLAKY: REGRESSION, ERRORED: INCONCLUSIVE, UNKNOWN: INCONCLUSIVE}
MAX_DIFFERENCES = 10


@click.group()
def evals() -> None:
    """Compare sessions, replay golden sets and grade knowledge.

    Exit codes: 0 pass, 1 regression, 2 usage, 3 configuration, 4 unreachable, 5 inconclusive, 130 stopped by
    Ctrl-C.
    """


def coded_failures(command: Command) -> Command:
    """Print a failure as one sentence on stderr; the exit code tells a wrong set-up from an unreachable database."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        from sqlalchemy.exc import InterfaceError, OperationalError

        try:
            with opened_app():
                return command(*args, **kwargs)
        except KeyboardInterrupt:
            fail("Stopped before a verdict.", STOPPED)
        except (OperationalError, InterfaceError):
            fail("The database isn't answering.", UNREACHABLE)
        except Unusable as trouble:
            fail(str(trouble), UNREACHABLE if str(trouble).startswith("Cannot reach") else CONFIGURATION)
        except Problem as trouble:
            fail(str(trouble), CONFIGURATION)

    return run  # type: ignore[return-value]


@evals.command("compare")
@click.argument("golden", type=click.UUID)
@click.argument("replay", type=click.UUID)
@click.option("--tenant", "slug", default="demo", show_default=True, help="The workspace's slug.")
@json_option
@coded_failures
def compare_sessions(golden: UUID, replay: UUID, slug: str, as_json: bool) -> None:
    """Compare the session REPLAY with the session GOLDEN."""
    from app.db import acting_as, transaction
    from app.services.evals import compare as eval_compare
    from app.services.workspaces import store as workspace_store

    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    with acting_as(system), transaction():
        found = eval_compare.compare_sessions(golden, replay, actor=system)
    emit(found.as_json(), _describe(found), as_json)
    sys.exit(EXIT[found.verdict])


_WORDS: dict[str, str] = {PASS: "Passes", FAIL: "Fails", ERRORED: "Errored", UNKNOWN: "Not judged", FLAKY: "Flaky"}


def _describe(found: "Comparison") -> str:
    """The verdict in a sentence, then the dimensions, then the first differences."""
    accuracy = "" if found.overall_accuracy is None else f" (accuracy {found.overall_accuracy:.2f})"
    lines = [f"{_WORDS[found.verdict]}: {found.reason}.{accuracy}"]
    for each in found.dimensions:
        mark = "ok  " if each.passed else "FAIL"
        lines.append(f"  {mark} {each.name:<18} {each.score:.2f}  {'decides  ' if each.decides else ''}{each.reason}")
    lines += [f"  - {each['text']}" for each in found.divergences[:MAX_DIFFERENCES]]
    left = len(found.divergences) - MAX_DIFFERENCES
    return "\n".join([*lines, f"  … and {left} more; --json lists them."] if left > 0 else lines)
