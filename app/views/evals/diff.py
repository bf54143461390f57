"""The diff of a replay and its golden, or of any two sessions: the verdict first, then its reasons."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from flask import flash, g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound
from app.evals.compare import align
from app.formats.ids import parse_id
from app.security.access import access
from app.services.evals import compare as eval_compare
from app.services.evals import promotion, run_lists
from app.services.evals.baselines import load_baseline
from app.services.evals.judging import overrules
from app.services.evals.judging import queue as judging_queue
from app.services.evals.promotion import Incomplete
from app.services.sessions.transcript import RecordNames
from app.views.evals import bp
from app.views.evals.runs import asked_baseline
from app.views.evals.steps import answer_marks, count_steps, effect_rows, mark_answers, step_rows
from app.views.format import query
from app.views.forms import form_text, parse_count
from app.views.htmx import page, vary_by_htmx, wants_fragment

MAX_STEPS = 120
OPENING = {"pass": "Passes", "fail": "Fails", "errored": "Could not be judged", "unknown": "No verdict"}
GLYPHS = {"pass": ("pass", "✓"), "fail": ("fail", "✗"), "flaky": ("warn", "~"), "errored": ("none", "!")}


@bp.get("/diff/<uuid:golden_id>/<uuid:replay_id>")
@access("admin")
def show_diff(golden_id: UUID, replay_id: UUID) -> Any:
    """Two sessions side by side, with `before` an earlier replay between them; with `from`, the steps that follow;
    `part=state` waits for a replay to end."""
    found = eval_compare.load_diff(golden_id, replay_id, _asked_before(), actor=g.actor)
    if request.args.get("part") == "state" and wants_fragment():
        # Nothing new while it runs; then the whole page.
        return vary_by_htmx(Response(status=204, headers={} if found["still_running"] else {"HX-Refresh": "true"}))
    before = found["before"]
    rows = align.join_rows(before["rows"], found["rows"]) if before else found["rows"]
    start = parse_count(request.args.get("from")) or 0
    further = start + MAX_STEPS if start + MAX_STEPS < len(rows) else None
    shown: dict[str, Any] = {
        "found": found,
        "steps": step_rows(rows[start : start + MAX_STEPS]),
        "steps_total": len(rows),
        "further": further,
        "kept": {name: request.args.get(name) for name in ("before", "baseline")},
    }
    fragment = "evals/_steps.html" if request.args.get("part") == "steps" else "evals/diff.html"
    return page("evals/diff.html", fragment, **shown, **_page_context(found))


def _asked_before() -> UUID | None:
    """The earlier replay that the address names."""
    text = request.args.get("before")
    if not text:
        return None
    found = parse_id(text)
    if found is None:
        raise NotFound("There is no such replay of this golden.")
    return found


def _page_context(found: Mapping[str, Any]) -> dict[str, Any]:
    result, running, before = found["result"], found["still_running"], found["before"]
    dimensions = result.get("dimensions") or {}
    pairs = [*found["effects"], *(before["effects"] if before else ())]
    targets = [str(one.target) for pair in pairs for one in (pair.golden, pair.replay) if one]
    results = [result, *dimensions.values(), *([before["result"]] if before else ())]
    records = RecordNames([*(str(one.get("reason")) for one in results), *targets], actor=g.actor)
    run_id = found["replay"].eval_run_id if found["is_case"] else None
    return {
        "run": run_lists.get_run_row(run_id, actor=g.actor) if run_id else None,
        "beside": _neighbours(run_id, found["golden"].id) if run_id else None,
        "sentence": records.replace_ids(result["reason"] if running else verdict_sentence(result)),
        "records": records,
        "notes": notes_of(found),
        "glyph": ("none", "…") if running else GLYPHS.get(str(result["verdict"]), ("none", "?")),
        "effects": effect_rows(found["effects"], before["effects"] if before else None),
        "words": None if running else _marked_answers(found["answer"], before["answer"] if before else None),
        "answer_marks": answer_marks(found["answer"], before["answer"] if before else None),
        "dimensions": sorted(dimensions.items(), key=_dimension_order),
        "counts": [count_steps(one["rows"]) for one in (before, found) if one],
        "sum": _sum(dimensions.values()),
        "lowered": was_lowered(result),
        **_rubric(found["replay"].id, result.get("rubric")),
    }


def _rubric(replay_id: UUID, rubric: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the judge said, whether it still has to, and who overruled it. One query, or none without a rubric."""
    if rubric is None:
        return {"rubric": None}
    if not rubric["dimensions"]:
        return {"rubric": rubric, "judging": judging_queue.is_waiting(replay_id, actor=g.actor)}
    overruled = any("overruled" in one for one in rubric["dimensions"].values())
    return {"rubric": rubric, "by": overrules.overruled_by(replay_id, actor=g.actor) if overruled else {}}


def _neighbours(run_id: UUID, golden_id: UUID) -> dict[str, Any] | None:
    """The case's place among those of its run, and the addresses of the next and the previous."""
    baseline = load_baseline(run_id, asked_baseline(), actor=g.actor)
    found = run_lists.find_neighbours(run_id, golden_id, actor=g.actor, baseline=baseline)
    return found and {
        **found,
        **{name: diff_address(found[name]) if found[name] else None for name in ("previous", "following")},
    }


def diff_address(line: Mapping[str, Any]) -> str:
    """Where a golden of a run is beside its replay, and beside the one that its baseline had."""
    address = url_for(".show_diff", golden_id=line["golden_id"], replay_id=line["replay_session_id"])
    before = line["before"].replay_session_id if line["before"] else None
    return query(address, before=before, baseline=request.args.get("baseline"))


def _marked_answers(now: tuple[str, str], before: tuple[str, str] | None) -> list[list[tuple[bool, str]]] | None:
    """The golden's answer and those of the replays in pieces, with the words marked that only one of them has."""
    if not any(now):
        return None
    golden, replay = mark_answers(*now)
    return [golden, *([mark_answers(*before)[1]] if before else []), replay]


@bp.get("/diff/with/<uuid:session_id>")
@access("admin")
def choose_diff(session_id: UUID) -> Any:
    """Compare with…: an id that is typed, or a session of the same title or agent."""
    others = eval_compare.list_comparable(session_id, actor=g.actor)
    context = {"session_id": session_id, "others": others, "wrong": "", "typed": ""}
    given = request.args.get("other", "").strip()
    if given:
        other = parse_id(given)
        if other is not None:
            pair = (other, session_id) if request.args.get("as") == "replay" else (session_id, other)
            return redirect(url_for(".show_diff", golden_id=pair[0], replay_id=pair[1]), 303)
        context |= {"wrong": "Enter a session ID.", "typed": given}
    return page("evals/compare.html", "evals/_compare.html", status=422 if context["wrong"] else 200, **context)


@bp.post("/diff/<uuid:golden_id>/<uuid:replay_id>/promote")
@access("admin")
def promote_replay(golden_id: UUID, replay_id: UUID) -> Response:
    """The replay is what is right: it takes the golden's place."""
    here = url_for(".show_diff", golden_id=golden_id, replay_id=replay_id)
    try:
        with transaction():
            made = promotion.promote_replay(
                golden_id, replay_id, actor=g.actor, note=form_text("note") or None,
                confirm_incomplete=request.form.get("confirm_incomplete") == "1",
            )  # fmt: skip
    except (Invalid, Incomplete) as wrong:
        flash(str(wrong), "error")
        return redirect(here, 303)
    flash(f"Promoted the replay to {made.golden['set']}.", "success")
    return redirect(url_for("sessions.detail", session_id=made.session.id), 303)


def verdict_sentence(result: Mapping[str, Any]) -> str:
    """The verdict in one or two sentences."""
    verdict, reason = str(result["verdict"]), str(result.get("reason") or "").rstrip(".")
    opening = f"{OPENING.get(verdict, verdict.capitalize())}{f': {reason}' if reason else ''}."
    dimensions = result.get("dimensions") or {}
    others = {name: one for name, one in dimensions.items() if one.get("reason") != result.get("reason")}
    if verdict != "fail" or not others or was_lowered(result):
        return opening
    below = [name.replace("_", " ") for name, one in others.items() if not one.get("passed")]
    if below:
        return f"{opening} Also below the mark: {', '.join(below)}."
    whole = all(one.get("score", 0) >= 1 for one in others.values())
    return f"{opening} {'Everything else matches.' if whole else 'The other dimensions pass.'}"


def was_lowered(result: Mapping[str, Any]) -> bool:
    """Whether the judge lowered the verdict of the comparison."""
    return "compared" in result and result["compared"]["verdict"] != result["verdict"]


def notes_of(found: Mapping[str, Any]) -> list[str]:
    """What one should know about how the verdict came about, in plain words."""
    result, drift = found["result"], found["result"].get("drift") or {}
    rejected, expected = (result.get("baseline") == what for what in ("rejected", "expected"))
    notes = (
        (drift, f"The conversation drifts from turn {drift.get('turn')}: {drift.get('text')}."),
        (result.get("left_recording"), "The replay made a call that isn’t in the recording."),
        (result.get("truncated"), "One of the sessions is too large to compare in full."),
        (was_lowered(result), "Passed the comparison. The judge lowered the verdict."),
        (rejected, "This golden has a rejected baseline and is not counted in the accuracy."),
        (expected, "Graded against its expectations."),
        (found["golden"].golden_set is None and found["is_case"], "This golden has been revoked."),
    )
    return [note for applies, note in notes if applies]


def _dimension_order(named: tuple[str, Mapping[str, Any]]) -> tuple[bool, bool, float, str]:
    """What decides comes first, then what failed, then what weighs most."""
    name, one = named
    return not one.get("decides"), bool(one.get("passed")), -float(one.get("weight") or 0), name


def _sum(dimensions: Collection[Mapping[str, Any]]) -> tuple[float, float, float] | None:
    """Scores by weight, the weights, and the mean that the two make, before a failure limits it."""
    weight = sum(float(one["weight"]) for one in dimensions)
    reached = sum(float(one["weight"]) * float(one["score"]) for one in dimensions)
    return (reached, weight, reached / weight) if weight else None
