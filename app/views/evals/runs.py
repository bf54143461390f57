"""The pages of eval runs: start, list, follow, cancel, retry and delete them."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from flask import current_app, flash, g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid, NotFound, Refused
from app.evals.change import CHANGES
from app.evals.stats import smallest_regression
from app.formats.ids import parse_id
from app.security.access import access
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals import golden_lists, reports, run_lists
from app.services.evals import results as eval_results
from app.services.evals import runs as eval_runs
from app.services.evals import usage as eval_usage
from app.services.evals.baselines import changes_of, list_choices, load_baseline
from app.services.evals.judging import again
from app.services.evals.judging.work import judge_model
from app.services.evals.runs import NewRun, left_out_notes
from app.services.evals.usage import Estimate
from app.services.lists.filters import parse_choice
from app.services.sessions.transcript import RecordNames
from app.views.evals import bp
from app.views.format import query
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, page, toast_only, vary_by_htmx, wants_fragment
from app.views.lists import PAGE_ROWS, pager_links

MAX_RUNS = 20
MAX_LINES = 200
# The two ways to narrow the goldens of a run, in the order in which they are offered.
FILTERS = {"change": CHANGES, "verdict": ("fail", "flaky", "errored", "unknown", "pass")}


class StartForm:
    """What shall be replayed, and with what, as the form has it."""

    def __init__(self, given: Any) -> None:
        lists = {
            name: list(dict.fromkeys(value.strip() for value in given.getlist(name) if value.strip()))
            for name in ("set", "version", "plus", "minus")
        }
        texts = {name: given.get(name, "").strip() for name in ("golden", "agent", "context", "trials", "tools")}
        self.sets, self.versions, self.plus, self.minus = lists.values()
        self.golden, self.agent = parse_id(texts["golden"]), texts["agent"]
        if texts["golden"] and self.golden is None:
            raise Invalid.of({"golden": "Enter a session ID."})
        self.context = texts["context"] or "frozen"
        self.trials = texts["trials"] or "1"
        self.tools = texts["tools"] or "recorded"

    @property
    def version_ids(self) -> list[UUID]:
        return [found for text in self.versions if (found := parse_id(text)) is not None]

    def runs(self) -> list[NewRun]:
        """Sets × versions, each a run of its own. Invalid names the field that is wrong."""
        wrong: dict[str, str] = {}
        if not self.sets and self.golden is None:
            wrong["set"] = "Choose a set or a golden."
        rows = {name: [parse_id(one) for one in getattr(self, name)] for name in ("plus", "minus")}
        for name, ids in rows.items():
            if None in ids:
                wrong[name] = "One of these isn’t a knowledge row."
        what: list[dict[str, Any]] = [{"set_name": name} for name in self.sets]
        what += [{"golden_ids": [self.golden]}] if self.golden else []
        tested = self._tested()
        if len(what) * len(tested) > MAX_RUNS:
            wrong["version"] = f"That makes {len(what) * len(tested)} runs. Start at most {MAX_RUNS} at once."
        if wrong:
            raise Invalid(" ".join(wrong.values()), wrong)
        return [
            NewRun(
                **one,
                **version,
                context_mode=self.context,
                trials=parse_count(self.trials) or 0,
                tools={} if self.tools == "recorded" else {"*": self.tools},
                plus_rows=[one for one in rows["plus"] if one],
                minus_rows=[one for one in rows["minus"] if one],
            )
            for one in what
            for version in tested
        ]

    def _tested(self) -> list[dict[str, Any]]:
        """Agents and versions as ids; a version may be given by its number beside an agent."""
        agent = versions.find_agent(self.agent, actor=g.actor) if self.agent else None
        if self.agent and agent is None:
            raise Invalid("agent: There is no such agent.", {"agent": "There is no such agent in this workspace."})
        named = {"agent_id": agent.id} if agent else {}
        if not self.versions:
            return [named]
        found = []
        for text in self.versions:
            number = parse_count(text)
            version = versions.version_id(agent, number) if agent and number else parse_id(text)
            if version is None:
                raise Invalid("version: There is no such version.", {"version": "There is no such version of it."})
            found.append({**named, "agent_version_id": version})
        return found


@bp.get("/runs")
@access("admin")
def list_runs() -> Any:
    """The runs of the workspace, newest first; a set can be chosen."""
    set_name = request.args.get("set") or None
    cursor = request.args.get("after") or request.args.get("before")
    found = run_lists.list_runs(Page(PAGE_ROWS, cursor), actor=g.actor, set_name=set_name)
    args = {"set": set_name} if set_name else {}
    return page(
        "evals/runs.html", "evals/_runs.html", found=found, rows=found.items, args=args,
        changes=changes_of([row.id for row in found.items], actor=g.actor),
        sets=eval_golden.list_sets(actor=g.actor), **pager_links(found),
    )  # fmt: skip


@bp.get("/runs/new")
@access("admin")
def new_run() -> Any:
    """What to replay, and with what."""
    return _form(StartForm(request.args))


@bp.get("/runs/estimate")
@access("admin")
def estimate_runs() -> Any:
    """What the runs would take that the form asks for, while it is filled in."""
    if not wants_fragment():
        return redirect(url_for(".new_run"), 303)
    return page("evals/_estimate.html", "evals/_estimate.html", estimate=_estimate(StartForm(request.args)))


def _estimate(form: StartForm) -> Estimate:
    """An estimate of what was typed so far."""
    return eval_usage.estimate_request(
        actor=g.actor,
        set_names=form.sets,
        golden_id=form.golden,
        version_ids=form.version_ids,
        trials=parse_count(form.trials) or 1,
    )


@bp.post("/runs")
@access("admin")
def start_run() -> Any:
    """Start the requested runs; one leads to its page, several to the list. From the place of a golden, its run is
    followed there."""
    form = StartForm(request.form)
    in_place = wants_fragment() and request.form.get("place") == "golden" and form.golden is not None
    try:
        with transaction():
            made = [eval_runs.start_run(one, actor=g.actor).id for one in form.runs()]
    except Invalid as wrong:
        return _form(form, wrong.fields, 422)
    except Refused as refusal:
        if in_place:
            return toast_only(Toast(refusal.detail, "error"), status=refusal.status)
        # Mostly the goldens' own agent does not run here. The form offers others.
        return _form(form, {"version": refusal.detail}, 409)
    if in_place and form.golden:
        return _golden_replay(form.golden, made[0])
    target = url_for(".show_run", run_id=made[0]) if len(made) == 1 else url_for(".list_runs")
    if len(made) > 1:
        flash(f"Started {len(made)} runs.", "success")
    if not wants_fragment():
        return redirect(target, 303)
    return vary_by_htmx(Response(status=204, headers={"HX-Redirect": target}))


def _form(form: StartForm, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    about: dict[str, Any] = {"set_names": form.sets, "golden_id": form.golden}
    row = golden_lists.get_golden(form.golden, actor=g.actor) if form.golden else None
    sets = eval_golden.list_sets(actor=g.actor)
    stuck = [one.name for one in sets if one.name in form.sets and one.why_not]
    if row and not row.replayable:
        stuck.append("this golden")
    return page(
        "evals/start.html",
        "evals/_start.html",
        status=status,
        form=form,
        errors=errors or {},
        estimate=_estimate(form),
        title=row.title if row else None,
        stuck=", ".join(stuck),
        sets=sets,
        versions=run_lists.list_versions(actor=g.actor, **about),
        plus=run_lists.list_addable_rows(actor=g.actor),
        minus=run_lists.list_removable_rows(actor=g.actor, **about),
    )


@bp.get("/runs/<uuid:run_id>")
@access("admin")
def show_run(run_id: UUID) -> Any:
    """A run: what was tested, how far it is, and the result of each golden."""
    return page("evals/run.html", "evals/_run.html", **load_run(run_id))


def load_run(run_id: UUID) -> dict[str, Any]:
    """What the page shows, a part of the goldens at a time. Seven queries, and one for names of knowledge rows."""
    run, row = run_lists.get_run_with_row(run_id, actor=g.actor)
    cases = eval_results.cases_of(run_id, actor=g.actor)
    wanted = asked_baseline()
    baseline = load_baseline(run_id, wanted, actor=g.actor)
    every = run_lists.golden_results(cases, actor=g.actor, baseline=baseline)
    args = {name: value for name, values in FILTERS.items() if (value := request.args.get(name)) in values}
    lines = [line for line in every if all(line[name] == value for name, value in args.items())]
    start = min(parse_count(request.args.get("from")) or 0, len(lines))
    shown = lines[start : start + MAX_LINES]
    tried = [*run.options.get("plus", ()), *run.options.get("minus", ())]
    kept = {"baseline": wanted}
    own = url_for(".show_run", run_id=run_id)
    return {
        "run": row,
        "least": smallest_regression(row.judged or 0),
        "options": run.options,
        "progress": eval_results.progress_of(run, cases),
        "used": eval_usage.usage_of_run(run_id, actor=g.actor),
        "judge": eval_results.judge_progress_of(cases),
        "judge_model": judge_model(current_app.config["SETTINGS"].model, actor=g.actor),
        "baseline": baseline,
        "changes": baseline.changes({line["golden_id"]: line["verdict"] for line in every}) if baseline else None,
        "choices": list_choices(run_id, run.set_name, actor=g.actor),
        "counts": Counter(line["verdict"] for line in every),
        "filters": FILTERS,
        "rejected": sum(line["baseline"] == "rejected" for line in every),
        "every": every,
        "lines": shown,
        "records": RecordNames((line["reason"] for line in shown), actor=g.actor),
        "total": len(lines),
        "left_out": left_out_notes(run.options),
        "further": start + MAX_LINES if start + MAX_LINES < len(lines) else None,
        "args": args,
        "kept": kept,
        "own": own,
        "here": query(own, {**kept, **args, "from": start or None}),
        "knowledge": golden_lists.row_contents(tried, actor=g.actor),
    }


def asked_baseline() -> UUID | None:
    """The run that the address asks to compare with. What is no id is an unknown run."""
    text = request.args.get("baseline")
    if not text:
        return None
    found = parse_id(text)
    if found is None:
        raise NotFound("There is no such eval run in this workspace.")
    return found


@bp.get("/runs/<uuid:run_id>/export")
@access("admin")
def export_run(run_id: UUID) -> Response:
    """A run as a file: CSV, JSON or JUnit."""
    file_format = parse_choice("format", request.args.get("format", ""), tuple(reports.FORMATS))
    export = reports.export_run(run_id, file_format, actor=g.actor, baseline_id=asked_baseline())
    return Response(export.text, content_type=export.media_type, headers=export.headers)


@bp.get("/runs/<uuid:run_id>/progress")
@access("admin")
def run_progress(run_id: UUID) -> Any:
    """How far a run is, as a bar that follows itself until the run has ended; for one golden, in its place."""
    golden = parse_id(request.args.get("golden", ""))
    if golden and wants_fragment():
        return _golden_replay(golden, run_id)
    run, how_far = run_lists.read_progress(run_id, actor=g.actor)
    if not wants_fragment():
        return redirect(url_for(".show_run", run_id=run_id), 303)
    return page("evals/_progress.html", "evals/_progress.html", run=run, progress=how_far)


def _golden_replay(golden_id: UUID, run_id: UUID) -> Response:
    """How far the run is, or what it came to for the golden."""
    run, how_far = run_lists.read_progress(run_id, actor=g.actor)
    ended: dict[str, Any] = {"line": None}
    if not run.open:
        lines = run_lists.golden_results(eval_results.cases_of(run_id, actor=g.actor), actor=g.actor)
        line = next((one for one in lines if one["golden_id"] == str(golden_id)), None)
        ended = {"line": line, "records": RecordNames((one["reason"] for one in lines), actor=g.actor)}
    template = "evals/_golden_replay.html"
    return page(template, template, session_id=golden_id, run=run, progress=how_far, **ended)


@bp.post("/runs/<uuid:run_id>/cancel")
@access("admin")
def cancel_run(run_id: UUID) -> Any:
    """Stop a run. Asking twice is fine."""
    with transaction():
        run = eval_results.cancel_run(run_id, actor=g.actor)
    flash("Cancelled." if run.status == "cancelled" else "Stopping after the current step.", "success")
    return redirect(url_for(".show_run", run_id=run_id), 303)


@bp.post("/runs/<uuid:run_id>/retry")
@access("admin")
def retry_run(run_id: UUID) -> Any:
    """Replay again what errored."""
    with transaction():
        cases = eval_results.retry_errored(run_id, actor=g.actor)
    flash(f"Retrying {cases} replay{'s' if cases != 1 else ''}.", "success")
    return redirect(url_for(".show_run", run_id=run_id), 303)


@bp.post("/runs/<uuid:run_id>/judge")
@access("admin")
def judge_run(run_id: UUID) -> Any:
    """Ask the judge again where it gave no usable answer or was not asked."""
    with transaction():
        number = again.judge_again(run_id, current_app.config["SETTINGS"].model, actor=g.actor)
    flash(f"Judging {number} replay{'s' if number != 1 else ''} again.", "success")
    return redirect(url_for(".show_run", run_id=run_id), 303)


@bp.get("/runs/<uuid:run_id>/delete")
@access("admin")
def ask_delete_run(run_id: UUID) -> Any:
    """Says what goes with a run before it is deleted."""
    run, progress = run_lists.read_progress(run_id, actor=g.actor)
    return page(
        "evals/delete_run.html", "evals/_delete_run.html", run=run, replays=progress.total, in_place=wants_fragment()
    )


@bp.post("/runs/<uuid:run_id>/delete")
@access("admin")
def delete_run(run_id: UUID) -> Any:
    """Remove a run that has ended, with its replays."""
    with transaction():
        gone = eval_results.delete_run(run_id, actor=g.actor)
    return leave(url_for(".list_runs"), Toast(f"Deleted the run and {gone:,} replay{'s' if gone != 1 else ''}."))
