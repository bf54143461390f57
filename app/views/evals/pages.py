"""The evals page: candidates, and the golden sets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, Problem, Refused, Stale, Unprocessable
from app.formats.ids import parse_id
from app.security.access import access
from app.services.evals import candidates, promotion, run_lists
from app.services.evals.candidates import Candidate
from app.services.evals.charts.dropped import list_dropped_sets
from app.services.evals.promotion import Incomplete
from app.views.evals import bp
from app.views.evals.promote import PromoteForm, load_promote_form
from app.views.format import query
from app.views.htmx import Toast, page, swap, wants_fragment

MAX_VISIBLE = 5
# The box of a spark line.
WIDTH, HEIGHT, EDGE = 72, 18, 3
# Without JavaScript a toast is stored in a cookie, which has room for 4 KB.
MAX_IDS_IN_COOKIE = 40


def spark_points(values: Sequence[float]) -> list[tuple[float, float]]:
    """Points of a line in a box of 72 × 18, the worst at the bottom and the best at the top. One value is no course."""
    if len(values) < 2:
        return []
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    step = (WIDTH - 2 * EDGE) / (len(values) - 1)
    rise = HEIGHT - 2 * EDGE
    return [
        (round(EDGE + place * step, 1), round(HEIGHT - EDGE - (value - low) / spread * rise, 1))
        for place, value in enumerate(values)
    ]


@bp.get("")
@access("admin")
def index() -> Any:
    """Candidates and golden sets. `promote` opens the form of a candidate; `all` shows them all, by the hundred;
    `set` chooses whose charts are shown."""
    unknown = request.args.keys() - {"all", "promote", "panel", "after", "part", "set"}
    if unknown:
        raise Invalid(f"{min(unknown)[:60]}: This page knows `all` and `promote`.")
    if request.args.get("part") == "more" and wants_fragment():
        return page("evals/_more_candidates.html", "evals/_more_candidates.html", **load_candidates())
    sid, shown = parse_id(request.args.get("promote", "")), load_page()
    return page(
        "evals/index.html", "evals/_home.html", **shown, **(_open_form(sid, shown["candidates"]) if sid else {})
    )


def load_page() -> dict[str, Any]:
    """What the page shows. Seven queries."""
    sets = run_lists.list_set_rows(actor=g.actor)
    return {
        **load_candidates(),
        "sets": sets,
        "dropped": list_dropped_sets(actor=g.actor),
        "charted": _charted_set(sets),
        "spark_points": spark_points,
    }


def _charted_set(sets: Sequence[dict[str, Any]]) -> str | None:
    """The set whose charts are shown: the one asked for, or that with the newest run."""
    runs = {str(one["name"]): one["course"].last.started_at for one in sets if one["course"]}
    asked = request.args.get("set")
    return asked if asked in runs else max(runs, key=lambda name: runs[name], default=None)


def load_candidates() -> dict[str, Any]:
    """The candidates: five, or a page of all. Three queries at most."""
    everything = request.values.get("all") == "1"
    after = (request.args.get("after") or None) if everything else None
    limit = candidates.MAX_GROUPS if everything else MAX_VISIBLE
    found = candidates.list_candidates(actor=g.actor, limit=limit, cursor=after)
    return {
        "candidates": found.items,
        "total": found.count,
        "everything": everything,
        "visible": MAX_VISIBLE,
        "after": after,
        "following": found.next_cursor if everything else None,
    }


def _open_form(session_id: UUID, among: Sequence[Candidate], form: PromoteForm | None = None) -> dict[str, Any]:
    """The open form of a candidate, and how many signals it settles."""
    group = next((one for one in among if session_id in one.session_ids), None)
    signals = candidates.pending_signals(group, session_id, actor=g.actor)
    return {**load_promote_form(session_id, form), "resolves": len(signals)}


@bp.get("/candidates/<uuid:session_id>")
@access("admin")
def show_candidate(session_id: UUID) -> Any:
    """One candidate in its place: with its form, or without when it was put away."""
    try:
        one = candidates.find_candidate(session_id, actor=g.actor)
    except Stale as refusal:
        return _refused(refusal)
    if not wants_fragment():
        return index()
    if request.args.get("put") == "away":
        # A candidate that ran again is represented by another session than the requested one.
        shown = _candidate_context(one, one.representative_session_id)
    else:
        shown = _candidate_context(one, session_id) | _open_form(session_id, [one])
    return page("evals/_candidate.html", "evals/_candidate.html", **shown)


def _candidate_context(one: Candidate, session_id: UUID) -> dict[str, Any]:
    return {"one": one, "sid": session_id, "everything": request.values.get("all") == "1"}


@bp.post("/candidates/<uuid:session_id>/promote")
@access("admin")
def promote_candidate(session_id: UUID) -> Any:
    """Make the candidate's session golden, with what should have happened; its complaints are applied with it."""
    form = PromoteForm.from_request()
    button = request.form.get("do", "")
    if button:
        return _again(session_id, form.pressed(button, session_id), 200)
    form = form.without_blanks()
    try:
        with transaction():
            given = replace(form.promotion(), feedback_ids=None, of_candidate=True)
            done = promotion.promote_session(session_id, given, actor=g.actor)
            set_name = done.golden["set"]
    except (Invalid, Unprocessable, Incomplete) as refusal:
        return _again(session_id, form.with_errors(refusal), 409 if isinstance(refusal, Incomplete) else 422)
    except Problem as refusal:
        if refusal.status != 409:
            raise
        return _refused(refusal)
    word = "signal" if done.applied == 1 else "signals"
    toast = Toast(f"Golden in {set_name}. {done.applied:,} {word} applied.")
    return swap("evals/_moved.html", fallback=_back(), toasts=[toast], **_reload())


def _again(session_id: UUID, form: PromoteForm, status: int) -> Response:
    """The same form in its place, with what was typed."""
    if wants_fragment():
        one = candidates.find_candidate(session_id, actor=g.actor)
        more = {**_candidate_context(one, session_id), **_open_form(session_id, [one], form)}
        return page("evals/_candidate_wrong.html", "evals/_candidate_wrong.html", status=status, **more)
    shown = load_page()
    more = _open_form(session_id, shown["candidates"], form)
    return page("evals/index.html", "evals/index.html", status=status, **shown, **more)


def _refused(refusal: Problem) -> Response:
    """Answer 409 with the list as it is now."""
    if not wants_fragment():
        raise refusal
    toast = Toast(refusal.detail, "error")
    return swap("evals/_moved.html", fallback=_back(), status=refusal.status, toasts=[toast], **_reload())


@bp.post("/candidates/<uuid:session_id>/run-again")
@access("admin")
def run_again(session_id: UUID) -> Any:
    """Start the prompt of a failed candidate once more; its row follows the session until it has ended."""
    try:
        with transaction():
            session = candidates.run_again(session_id, actor=g.actor)
            address = url_for("sessions.detail", session_id=session.id)
    except Refused as refusal:
        return _refused(refusal)
    toast = Toast("Started another run.")
    return swap("evals/_moved.html", fallback=address, toasts=[toast], **_reload())


@bp.post("/candidates/<uuid:session_id>/dismiss")
@access("admin")
def dismiss_candidate(session_id: UUID) -> Any:
    """Nothing is to be learnt from this request; takes all its complaints off the list."""
    try:
        with transaction():
            moved = candidates.dismiss_candidate(session_id, actor=g.actor)
    except Stale as refusal:
        return _refused(refusal)
    text = f"Dismissed {len(moved):,} signal{'' if len(moved) == 1 else 's'}."
    toast = Toast(text)
    if wants_fragment() or len(moved) <= MAX_IDS_IN_COOKIE:
        fields = (("ids", ",".join(map(str, moved))), *((("all", "1"),) if request.form.get("all") == "1" else ()))
        toast = Toast(
            text, undo=url_for(".undo_dismissal"), target="#candidates", row=f"request-{session_id}", fields=fields
        )
    return swap("evals/_moved.html", fallback=_back(), toasts=[toast], **_reload())


@bp.post("/candidates/undo")
@access("admin")
def undo_dismissal() -> Any:
    """Put a dismissed request back."""
    ids = [parse_id(text) for text in request.form.get("ids", "").split(",")]
    if None in ids:
        raise Invalid("One of these IDs isn’t valid. Reload the page.")
    with transaction():
        moved = candidates.undo_group([found for found in ids if found is not None], actor=g.actor)
    toast = Toast(f"Restored {moved:,} signal{'' if moved == 1 else 's'}.")
    return swap(
        "evals/_candidates.html", fallback=_back(), toasts=[toast], **(load_candidates() if wants_fragment() else {})
    )


def _reload() -> dict[str, Any]:
    return load_page() if wants_fragment() else {}


def _back() -> str:
    return query(url_for(".index"), all="1" if request.values.get("all") == "1" else None)
