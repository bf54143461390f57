"""`upshot evals run`: a golden set replayed and judged, for a build to act on."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from flask import current_app

from app.cli.evals import CONFIGURATION, INCONCLUSIVE, PASSED, REGRESSION, coded_failures, evals
from app.cli.output import emit, fail, json_option, work_until

if TYPE_CHECKING:
    from app.actor import Actor
    from app.models import EvalRun
    from app.services.evals.reports import Report
    from app.services.evals.runs import NewRun


class Share(click.FloatRange):
    """A number from 0 to 1. What is no number at all compares with nothing, and would let everything pass."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            self.fail(f"{value} is not a number from 0 to 1.", param, ctx)
        return share


@evals.command("run")
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@click.option("--set", "set_name", required=True, help="The golden set to replay.")
@click.option("--agent", "agent_slug", help="Slug of the agent to test (default: each golden's own).")
@click.option("--version", "version", type=click.IntRange(min=1), help="Agent version (default: current).")
@click.option("--live-context", is_flag=True, help="Use live knowledge instead of frozen.")
@click.option("--trials", type=click.IntRange(1, 20), default=1, show_default=True, help="Replays per golden.")
@click.option("--fail-under", type=Share(0, 1), default=1.0, show_default=True, help="Minimum accuracy, from 0 to 1.")
@click.option("--baseline", type=click.UUID, help="Run to compare with (default: the set's last score).")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML to this file.")
@click.option("--ref", help="Your label, such as a commit.")
@json_option
@coded_failures
def run_set(
    slug: str,
    set_name: str,
    agent_slug: str | None,
    version: int | None,
    live_context: bool,
    trials: int,
    fail_under: float,
    baseline: UUID | None,
    junit: Path | None,
    ref: str | None,
    as_json: bool,
) -> None:
    """Replay a golden set and report whether the agents got worse.

    This process runs the replays, together with any free workers.
    """
    from app.services.evals.reports import write_junit
    from app.services.evals.runs import NewRun
    from app.services.workspaces import store as workspace_store

    if version is not None and agent_slug is None:
        raise click.UsageError("Use --version together with --agent.")
    if junit is not None and not junit.parent.is_dir():
        fail(f"There is no directory {junit.parent} to write {junit.name} into.", CONFIGURATION)
    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    context = "live" if live_context else "frozen"
    new = NewRun(set_name=set_name, context_mode=context, trials=trials, ref=ref, command_line=True)
    started = _start(new, agent_slug, version, baseline, system)
    run = _follow(started, system, shown=sys.stderr.isatty() and not as_json)
    report, titles = _load_report(run.id, baseline, system)
    if junit is not None:
        junit.write_text(write_junit(report, titles), "utf-8")
    emit(_as_json(run, report, fail_under), _summarise(run, report, fail_under), as_json)
    sys.exit(exit_code(run.results, fail_under, whole=run.status == "completed"))


def _as_json(run: EvalRun, report: Report, fail_under: float) -> dict[str, Any]:
    return {
        "id": str(run.id),
        "status": run.status,
        "accuracy": run.results.get("accuracy"),
        "fail_under": fail_under,
        "verdicts": run.results.get("verdicts", {}),
        "left_out": run.options.get("left_out", {}),
        "baseline": report.changes.as_json() if report.changes else None,
        "results": report.goldens,
    }


def exit_code(results: dict[str, Any], fail_under: float, *, whole: bool) -> int:
    """Regression when something failed and the accuracy is too low; inconclusive when too little could be judged, or
    the run is not `whole` because it was cancelled."""
    verdicts, accuracy = results.get("verdicts", {}), results.get("accuracy")
    broken = verdicts.get("fail", 0) + verdicts.get("flaky", 0)
    if accuracy is not None and broken and accuracy < fail_under:
        return REGRESSION
    if not whole or accuracy is None or verdicts.get("errored", 0) + verdicts.get("unknown", 0):
        return INCONCLUSIVE
    return PASSED


def _start(new: NewRun, agent_slug: str | None, version: int | None, baseline: UUID | None, system: Actor) -> UUID:
    from app.agents.models import check_model
    from app.db import acting_as, transaction
    from app.services.agents import versions
    from app.services.evals import runs as eval_runs
    from app.services.evals.baselines import check_baseline

    with acting_as(system), transaction():
        if baseline is not None:
            check_baseline(baseline, actor=system)
        if agent_slug:
            agent = versions.resolve_agent(agent_slug, actor=system)
            version_id = versions.version_id(agent, version, field="--version")
            new = replace(new, agent_id=agent.id, agent_version_id=version_id, own_only=True)
        run = eval_runs.start_run(new, actor=system)
        for model in eval_runs.models_of(run, actor=system):
            # A model that cannot be asked would leave every golden without a verdict.
            check_model(model, current_app.config["SETTINGS"])
        return run.id


def _follow(run_id: UUID, system: Actor, *, shown: bool) -> EvalRun:
    """Run what waits until the run has ended. Ctrl-C cancels it."""
    from app.services.evals import results as eval_results
    from app.services.evals import runs as eval_runs

    def ended() -> EvalRun | None:
        run = eval_runs.get_run(run_id, actor=system)
        if shown:
            click.echo(_progress(run, system), nl=False, err=True)
        return run if run.completed_at is not None else None

    try:
        return work_until(ended, lambda: eval_results.cancel_run(run_id, actor=system), system)
    finally:
        if shown:
            click.echo(err=True)


def _progress(run: EvalRun, system: Actor) -> str:
    from app.services.evals import results as eval_results

    found = eval_results.progress_of(run, eval_results.cases_of(run.id, actor=system))
    left = f", about {found.seconds_left} s left" if found.seconds_left else ""
    verdicts = _counted(found.verdicts)
    return f"\r{found.ended} of {found.total} replays{f': {verdicts}' if verdicts else ''}{left}      "


def _summarise(run: EvalRun, report: Report, fail_under: float) -> str:
    from app.services.evals.runs import left_out_notes

    accuracy, verdicts = run.results.get("accuracy"), _counted(run.results.get("verdicts", {}))
    wanted = f", at least {fail_under:.0%} wanted"
    outcome = "nothing could be judged" if accuracy is None else f"accuracy {accuracy:.0%}{wanted}"
    lines = [f"{run.set_name}: {outcome} ({verdicts}).", *left_out_notes(run.options)]
    if report.changes is not None:
        counts = ", ".join(f"{number} {change}" for change, number in report.changes.nonzero.items())
        lines.append(f"Compared with run {report.changes.run_id}: {counts}.")
    for golden_id, result in report.goldens.items():
        if result["verdict"] != "pass":
            lines.append(f"  {result['verdict']:<8} {golden_id}  {result.get('reason') or ''}")
    return "\n".join(lines)


def _counted(verdicts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.items() if count)


def _load_report(run_id: UUID, baseline: UUID | None, system: Actor) -> tuple[Report, dict[str, str]]:
    from app.db import acting_as, transaction
    from app.services.evals import golden_lists
    from app.services.evals.reports import load_report

    with acting_as(system), transaction():
        report = load_report(run_id, actor=system, baseline_id=baseline)
        return report, golden_lists.titles_of(list(report.goldens), actor=system)
