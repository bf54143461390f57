"""A run with the result of each golden and its baseline, as the API, exports and the command line give it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.evals.stats import qualify_score
from app.formats import run_reports
from app.services.evals import golden_lists, run_lists, runs
from app.services.evals.baselines import Baseline, Changes, load_baseline
from app.services.evals.results import Progress, cases_of, progress_of, results_of
from app.services.evals.run_lists import RunColumns, RunRow


@dataclass(frozen=True)
class Report:
    """`results` are the stored ones of a run that has ended, and what is known so far of one that has not, which then
    has `progress`. Each golden has what the baseline found of it under `before`."""

    run: RunRow
    results: Mapping[str, Any]
    baseline: Baseline | None
    progress: Progress | None = None

    @property
    def goldens(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self.results.get("bySession") or {}
        return found

    @property
    def changes(self) -> Changes | None:
        """How many goldens changed since the baseline."""
        verdicts = {golden_id: one["verdict"] for golden_id, one in self.goldens.items()}
        return self.baseline.changes(verdicts) if self.baseline else None

    @property
    def name(self) -> str:
        return self.run.set_name or self.run.name

    @property
    def seconds(self) -> float:
        ended = self.run.completed_at
        return (ended - self.run.started_at).total_seconds() if ended else 0.0

    def as_json(self) -> dict[str, Any]:
        """The run's columns with its results, in plain values."""
        return {
            **{column.name: getattr(self.run, column.name) for column in fields(RunColumns)},
            **{name: getattr(self.run, name) for name in ("agent", "agent_version", "trial")},
            "results": self.results,
            "baseline": self.changes.as_json() if self.changes else None,
        }


def load_report(run_id: UUID, *, actor: Actor, baseline_id: UUID | None = None) -> Report:
    """Read a run; it is compared with the set's score when it began, unless another run is named."""
    stored = runs.get_run(run_id, actor=actor)
    baseline = load_baseline(run_id, baseline_id, actor=actor)
    row, results, progress = run_lists.get_run_row(run_id, actor=actor), stored.results, None
    if stored.completed_at is None:
        cases = cases_of(run_id, actor=actor, divergences=True)
        results, progress = results_of(cases), progress_of(stored, cases)
    before = baseline.found if baseline else {}
    goldens = {
        golden_id: {**one, "before": vars(before[golden_id]) if golden_id in before else None}
        for golden_id, one in (results.get("bySession") or {}).items()
    }
    figures = {**results, **qualify_score(results), "bySession": goldens} if results else {}
    return Report(row, figures, baseline, progress)


# Exports


@dataclass(frozen=True)
class Export:
    """A file: what it is called, what it is and what it holds."""

    name: str
    media_type: str
    text: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Disposition": f'attachment; filename="{self.name}"'}


def export_run(run_id: UUID, file_format: str, *, actor: Actor, baseline_id: UUID | None = None) -> Export:
    """A run as a file, in one of `FORMATS`."""
    report = load_report(run_id, actor=actor, baseline_id=baseline_id)
    titles = golden_lists.titles_of(list(report.goldens), actor=actor)
    ending, media_type, write = FORMATS[file_format]
    stem = re.sub(r"[^a-z0-9]+", "-", report.name.lower()).strip("-")[:60] or "run"
    name = f"{stem}-{report.run.started_at:%Y-%m-%d}-{str(run_id)[-8:]}.{ending}"
    return Export(name, media_type, write(report, titles))


def write_junit(report: Report, titles: Mapping[str, str]) -> str:
    return run_reports.junit_xml(report.name, report.goldens, titles, report.seconds)


def _write_csv(report: Report, titles: Mapping[str, str]) -> str:
    rows = [_csv_row(golden_id, titles.get(golden_id), report) for golden_id in report.goldens]
    return run_reports.csv_text(rows)


def _csv_row(golden_id: str, title: str | None, report: Report) -> dict[str, Any]:
    one = report.goldens[golden_id]
    before, rubric = one["before"] or {}, one.get("rubric") or {}
    return {
        **one,
        "golden_id": golden_id,
        "golden": title or "a golden that was deleted",
        "change": report.baseline.change_of(golden_id, one["verdict"]) if report.baseline else None,
        "before": before.get("verdict"),
        "before_accuracy": before.get("overall_accuracy"),
        "trials": " ".join(str(trial["verdict"]) for trial in one.get("trials") or ()),
        "rubric": rubric.get("status"),
        "rubric_dimensions": "; ".join(f"{label}: {found}" for label, found in run_reports.judged_dimensions(rubric)),
    }


def _write_json(report: Report, titles: Mapping[str, str]) -> str:
    found = report.as_json()
    goldens = {golden_id: {"title": titles.get(golden_id), **one} for golden_id, one in report.goldens.items()}
    return run_reports.json_text(found | {"results": {**report.results, "bySession": goldens}})


FORMATS: dict[str, tuple[str, str, Callable[[Report, Mapping[str, str]], str]]] = {
    "csv": ("csv", "text/csv; charset=utf-8", _write_csv),
    "json": ("json", "application/json", _write_json),
    "junit": ("xml", "application/xml", write_junit),
}
