"""`upshot evals knowledge`: the scorecard of what knowledge loops produce, for a build to act on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import eval_run
from app.cli.evals import CONFIGURATION, PASSED, REGRESSION, coded_failures, evals
from app.cli.output import emit, fail, json_option
from app.config import Settings
from app.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.artifacts.suites import SuiteResult

# Importing the one adds `upshot evals run` to the other.
__all__ = ["eval_run", "evals"]


@evals.command("knowledge")
@click.option("--suite", "names", multiple=True, help="Run only this suite. Repeat it for several.")
@click.option("--tenant", "slug", help="Also grade this workspace's knowledge and records, and store the scorecard.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write summary.json and summary.md here.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML to this file.")
@json_option
def grade_knowledge(
    names: tuple[str, ...], slug: str | None, out: Path | None, junit: Path | None, as_json: bool
) -> None:
    """Grade what knowledge loops produce.

    Exit code 1 when a suite fails. Needs no database unless you name a workspace. With --suite nothing is stored.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    if junit is not None and not junit.parent.is_dir():
        fail(f"There is no directory {junit.parent} to write {junit.name} into.", CONFIGURATION)
    try:
        results = coded_failures(_grade_workspace)(slug, names) if slug else _grade_suites(names)
    except Unusable as trouble:
        fail(str(trouble), CONFIGURATION)
    _report(results, out, junit, as_json)


def _report(results: list[SuiteResult], out: Path | None, junit: Path | None, as_json: bool) -> None:
    from app.artifacts.scorecard import build_scorecard, write_junit, write_markdown
    from app.formats.run_reports import json_text

    scorecard = build_scorecard(results)
    if out is not None:
        (out / "summary.json").write_text(json_text(scorecard), "utf-8")
        (out / "summary.md").write_text(write_markdown(scorecard), "utf-8")
    if junit is not None:
        junit.write_text(write_junit(results), "utf-8")
    emit(scorecard, _summarise(scorecard), as_json)
    sys.exit(PASSED if scorecard["passed"] else REGRESSION)


def _grade_suites(names: tuple[str, ...]) -> list[SuiteResult]:
    """Without a database: the routes come from an app that is never opened."""
    from flask import Flask

    from app import add_routes

    app = Flask("app")
    app.config.update(SETTINGS=Settings.from_env())
    add_routes(app)
    return _run(names, app.url_map.iter_rules())


def _grade_workspace(slug: str, names: tuple[str, ...]) -> list[SuiteResult]:
    from flask import current_app

    from app.db import acting_as, transaction
    from app.services.evals import artifacts
    from app.services.workspaces import store as workspace_store

    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    with acting_as(system), transaction():
        own = artifacts.load_own_suite(actor=system) if not names or artifacts.WORKSPACE in names else None
    results = _run(names, current_app.url_map.iter_rules(), own)
    if not names:
        with acting_as(system), transaction():
            artifacts.store_scorecard(results, actor=system)
    return results


def _run(names: tuple[str, ...], routes: Iterable[Any], own: Any = None) -> list[SuiteResult]:
    from app.services.evals import artifacts

    suites = artifacts.load_all_suites(Settings.from_env().suite_modules)
    resolvers = artifacts.make_resolvers(routes, suites.values())
    if own is not None:
        suites[own.name] = own
    for name in names:
        if name == artifacts.WORKSPACE and own is None:
            raise click.UsageError("Use --suite workspace together with --tenant.")
        if name not in suites:
            raise click.UsageError(f"There is no suite {name}. Use one of {', '.join(suites)}.")
    return artifacts.run_suites(suites, resolvers, names)


def _summarise(scorecard: Mapping[str, Any]) -> str:
    lines = []
    for suite in scorecard["suites"]:
        word = "ok  " if suite["passed"] else "FAIL"
        lines.append(f"{word} {suite['name']:<16} {suite['fixtures']} fixtures")
        lines += [f"  - {problem}" for problem in suite["problems"]]
        more = suite["problem_count"] - len(suite["problems"])
        lines += [f"  … and {more} more."] if more else []
    return "\n".join(lines)
