"""The diff of a replay and its golden, or of any two sessions: the verdict first, then its reasons."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from flask import flash, g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid
from app.evals.compare import align
from app.evals.compare.align import Row, Step
from app.formats.ids import parse_id
from app.security.access import access
from app.services.evals import compare as eval_compare
from app.services.evals import promotion, run_lists
from app.services.evals.promotion import Incomplete
from app.services.sessions.transcript import RecordNames
from app.text.diff import GONE, NEW, SAME, Part, exact_diff
from app.views.evals import bp
from app.views.format import result_line, value_line
from app.views.forms import form_text, parse_count
from app.views.htmx import page, vary_by_htmx, wants_fragment

MAX_STEPS = 120
MAX_CHARS = 400
ANSWERED = {
    "nearest": "answered from the nearest recorded call",
    "read": "not in the recording; read from the workspace",
    "simulated": "not in the recording; acknowledged, never executed",
    "miss": "left the recording: no recorded answer",
    "live": "called live",
    "refused": "refused by this run",
}
OPENING = {"pass": "Passes", "fail": "Fails", "errored": "Could not be judged", "unknown": "No verdict"}
GLYPHS = {"pass": ("pass", "✓"), "fail": ("fail", "✗"), "flaky": ("warn", "~"), "errored": ("none", "!")}
CHANGES = {
    align.SAME: ("same", "pass", "✓ same"),
    align.CHANGED: ("changed", "warn", "~ changed"),
    align.MOVED: ("changed", "warn", "↕ moved"),
    align.REMOVED: ("missing", "fail", "− missing"),
    align.INSERTED: ("missing", "fail", "+ added"),
}


@dataclass(frozen=True)
class Cell:
    """A step as one side shows it: its words in pieces, those that differ marked, and what came back."""

    lead: str
    pieces: list[tuple[bool, str]] = field(default_factory=list)
    tail: str = ""
    result: str = ""
    failed: bool = False
    via: str = ""


@bp.get("/diff/<uuid:golden_id>/<uuid:replay_id>")
@access("admin")
def show_diff(golden_id: UUID, replay_id: UUID) -> Any:
    """Two sessions side by side; with `from`, the steps that follow; `part=state` waits for a replay to end."""
    found = eval_compare.load_diff(golden_id, replay_id, actor=g.actor)
    if request.args.get("part") == "state" and wants_fragment():
        # Nothing new while it runs; then the whole page.
        return vary_by_htmx(Response(status=204, headers={} if found["still_running"] else {"HX-Refresh": "true"}))
    start = parse_count(request.args.get("from")) or 0
    steps = _steps(found["rows"][start : start + MAX_STEPS])
    further = start + MAX_STEPS if start + MAX_STEPS < len(found["rows"]) else None
    fragment = "evals/_steps.html" if request.args.get("part") == "steps" else "evals/diff.html"
    return page("evals/diff.html", fragment, found=found, steps=steps, further=further, **_page_context(found))


def _page_context(found: Mapping[str, Any]) -> dict[str, Any]:
    result, running = found["result"], found["still_running"]
    dimensions = result.get("dimensions") or {}
    targets = [str(one.target) for pair in found["effects"] for one in (pair.golden, pair.replay) if one]
    reasons = [str(one.get("reason")) for one in (result, *dimensions.values())]
    records = RecordNames([*reasons, *targets], actor=g.actor)
    run_id = found["replay"].eval_run_id if found["is_case"] else None
    return {
        "run": run_lists.get_run_row(run_id, actor=g.actor) if run_id else None,
        "beside": run_lists.find_neighbours(run_id, found["golden"].id, actor=g.actor) if run_id else None,
        "sentence": records.replace_ids(result["reason"] if running else verdict_sentence(result)),
        "records": records,
        "notes": notes_of(found),
        "glyph": ("none", "…") if running else GLYPHS.get(str(result["verdict"]), ("none", "?")),
        "words": None if running or not any(found["answer"]) else _answers(*found["answer"]),
        "dimensions": sorted(dimensions.items(), key=_dimension_order),
        "counts": _counts(found["rows"]),
        "sum": _sum(dimensions.values()),
    }


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
        context |= {"wrong": "This is no session id.", "typed": given}
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
    flash(f"The replay is golden now, in {made.golden['set']}; the old golden is an ordinary session again.", "success")
    return redirect(url_for("sessions.detail", session_id=made.session.id), 303)


def verdict_sentence(result: Mapping[str, Any]) -> str:
    """The verdict in one or two sentences."""
    verdict, reason = str(result["verdict"]), str(result.get("reason") or "").rstrip(".")
    opening = f"{OPENING.get(verdict, verdict.capitalize())}{f': {reason}' if reason else ''}."
    dimensions = result.get("dimensions") or {}
    others = {name: one for name, one in dimensions.items() if one.get("reason") != result.get("reason")}
    if verdict != "fail" or not others:
        return opening
    below = [name.replace("_", " ") for name, one in others.items() if not one.get("passed")]
    if below:
        return f"{opening} Also below the mark: {', '.join(below)}."
    whole = all(one.get("score", 0) >= 1 for one in others.values())
    return f"{opening} {'Everything else matches.' if whole else 'The other dimensions pass.'}"


def notes_of(found: Mapping[str, Any]) -> list[str]:
    """What one should know about how the verdict came about, in plain words."""
    result, drift = found["result"], found["result"].get("drift") or {}
    rejected, expected = (result.get("baseline") == what for what in ("rejected", "expected"))
    notes = (
        (drift, f"From turn {drift.get('turn')} on the talk drifts: {drift.get('text')}."),
        (result.get("left_recording"), "The recording has no answer to something that the replay asked for."),
        (result.get("truncated"), "One of the two is too large to be compared in full."),
        (rejected, "The golden itself has a complaint, so this is counted apart from the accuracy."),
        (expected, "Measured by what should have happened, as it was written down when the golden was made."),
        (found["golden"].golden_set is None and found["is_case"], "The golden was revoked since."),
    )
    return [note for applies, note in notes if applies]


def _dimension_order(named: tuple[str, Mapping[str, Any]]) -> tuple[bool, bool, float, str]:
    """What decides comes first, then what failed, then what weighs most."""
    name, one = named
    return not one.get("decides"), bool(one.get("passed")), -float(one.get("weight") or 0), name


def _answers(golden: str, replay: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both last answers in pieces, those that only one has marked."""
    parts = exact_diff(golden, replay)
    return _marked(parts, GONE), _marked(parts, NEW)


def _marked(parts: Sequence[Part], mine: str) -> list[tuple[bool, str]]:
    """One side of a word diff. A space between two marked words is marked with them."""
    found: list[tuple[bool, str]] = []
    for kind, text in parts:
        if kind not in (SAME, mine):
            continue
        marked = kind == mine
        if marked and len(found) > 1 and found[-2][0] and not found[-1][1].strip(" "):
            space = found.pop()[1]
            found[-1] = (True, found[-1][1] + space + text)
        elif found and found[-1][0] == marked:
            found[-1] = (marked, found[-1][1] + text)
        else:
            found.append((marked, text))
    return found


def _sum(dimensions: Collection[Mapping[str, Any]]) -> tuple[float, float, float] | None:
    """Scores by weight, the weights, and the mean that the two make, before a failure limits it."""
    weight = sum(float(one["weight"]) for one in dimensions)
    reached = sum(float(one["weight"]) * float(one["score"]) for one in dimensions)
    return (reached, weight, reached / weight) if weight else None


def _counts(rows: Sequence[Row]) -> str:
    counted = Counter(row.change for row in rows)
    words = {change: label.split()[1] for change, (_, _, label) in CHANGES.items()}
    return ", ".join(f"{counted[change]:,} {word}" for change, word in words.items() if counted[change])


def _steps(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Steps as lines; those that are the same are folded into one, which has `lines`."""
    found: list[dict[str, Any]] = []
    for same, group in groupby(rows, key=lambda row: row.change == align.SAME):
        if same:
            lines = [_step_line(row.replay) for row in group if row.replay]
            summary = value_line(", ".join(line.split(" → ")[0] for line in lines[:4]), 160)
            found.append({"lines": lines, "summary": summary})
        else:
            names = ("css", "state", "word", "golden", "replay")
            found += [dict(zip(names, (*CHANGES[row.change], *_cells(row)), strict=True)) for row in group]
    return found


def _cells(row: Row) -> tuple[Cell | None, Cell | None]:
    a, b = row.golden, row.replay
    if a is None or b is None or row.change == align.MOVED:
        return _cell(a) if a else None, _cell(b) if b else None
    if a.kind == "message":
        parts = exact_diff(str(a.content)[: 2 * MAX_CHARS], str(b.content)[: 2 * MAX_CHARS])
        return Cell(_speaker(a), _marked(parts, GONE)), Cell(_speaker(b), _marked(parts, NEW))
    changed = eval_compare.changed_arguments(a.content, b.content)
    return _cell(a, changed), _cell(b, changed)


def _cell(step: Step, changed: set[str] | None = None) -> Cell:
    if step.kind == "message":
        return Cell(_speaker(step), [(False, value_line(step.content, MAX_CHARS))])
    args = step.content if isinstance(step.content, Mapping) else {"": step.content}
    pieces: list[tuple[bool, str]] = []
    for number, (name, value) in enumerate(args.items()):
        pieces.append((False, (", " if number else "") + (f"{name}=" if name else "")))
        text = f'"{value_line(value, MAX_CHARS)}"' if isinstance(value, str) else value_line(value, MAX_CHARS)
        pieces.append((changed is not None and name in changed, text))
    result = result_line(step.output) if step.kind == "call" else ""
    return Cell(f"{step.name}(", pieces, ")", result, step.failed, ANSWERED.get(step.answered or "", ""))


def _step_line(step: Step) -> str:
    cell = _cell(step)
    said = cell.lead + "".join(text for _, text in cell.pieces) + cell.tail
    return value_line(said, MAX_CHARS // 2) + (f" → {value_line(cell.result, 80)}" if cell.result else "")


def _speaker(step: Step) -> str:
    return "user: " if step.name == "user.message" else "agent: "
