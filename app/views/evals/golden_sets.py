"""Golden sets and the goldens in them: their pages, and what about them may change."""

from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid, NotFound, Refused
from app.evals.compare.dimensions import PASS_AT
from app.evals.stats import smallest_regression
from app.formats.ids import parse_id
from app.security.access import access
from app.services.entities import criteria as criteria_store
from app.services.evals import expected_changes, golden_lists, revisions, run_lists
from app.services.evals import golden as eval_golden
from app.services.evals import runs as eval_runs
from app.services.evals.baselines import changes_of
from app.services.evals.charts.dropped import find_drop
from app.views import lists as listing
from app.views.evals import bp
from app.views.evals.pages import spark_points
from app.views.forms import selected_ids
from app.views.htmx import Toast, leave, page, wants_fragment

LABELS = {
    "entities_created": "Records created",
    "entities_updated": "Records updated",
    "tool_calls": "Tools called",
    "tool_args": "Tool arguments",
    "final_message": "Answer",
    "output": "A tool's output",
}
MAX_RUNS = 8
MAX_PAST = 20
NONE_SELECTED = "Select at least one golden first."


@bp.get("/sets/<name>")
@access("admin")
def show_set(name: str) -> Any:
    """The goldens of one set with their last verdicts."""
    return _set_page(name)


def _set_page(name: str, status: int = 200, errors: dict[str, str] | None = None, opens: str = "") -> Any:
    """What the page shows. Eight queries at most."""
    sets = eval_golden.list_sets(actor=g.actor)
    here = next((one for one in sets if one.name == name), None)
    if here is None:
        raise NotFound(f"No golden set {name[:60]}.")
    wanted = Page(listing.PAGE_ROWS, request.args.get("after") or request.args.get("before"))
    runs = run_lists.list_newest_runs(name, run_lists.MAX_SPARK_RUNS, actor=g.actor)
    # A trial of another version or other knowledge says nothing about the agents as they are.
    telling = [run for run in runs if run.status == "completed" and not run.trial]
    course = run_lists.SetTrend.of_runs(telling[: run_lists.MAX_SPARK_RUNS])
    last = telling[0] if telling else None
    run_id = last.id if last else None
    found = golden_lists.list_goldens(wanted, actor=g.actor, set_name=name, run_id=run_id, count=here.sessions)
    return page(
        "evals/set.html",
        "evals/_set_list.html",
        status=status,
        errors=errors or {},
        opens=opens,
        set=here,
        set_names=[one.name for one in sets],
        found=found,
        rows=found.items,
        marks=golden_lists.health_of(name, [row.id for row in found.items], actor=g.actor),
        runs=runs[:MAX_RUNS],
        changes=changes_of([run.id for run in runs[:MAX_RUNS]], actor=g.actor),
        last=last,
        under_way=next((run.id for run in runs if run.completed_at is None), None),
        score=last.score if last else None,
        least=smallest_regression(last.score.judged) if last else None,
        points=spark_points(course.accuracies) if course else [],
        change=course.change if course else None,
        dropped=find_drop(telling),
        policy=here.policy,
        dimensions=[(name, label, PASS_AT[name]) for name, label in LABELS.items()],
        **listing.pager_links(found),
    )


@bp.post("/sets/<name>/rename")
@access("admin")
def rename_set(name: str) -> Any:
    """Call the set something else; its goldens, runs and policy go along."""
    try:
        new_name = eval_golden.clean_set_name(request.form.get("name", ""))
        with transaction():
            eval_golden.rename_set(name, new_name, actor=g.actor)
    except (Invalid, Refused) as refusal:
        status = 422 if isinstance(refusal, Invalid) else 409
        return _set_page(name, status, {"name": refusal.detail.removeprefix("set: ")}, "name")
    return leave(url_for(".show_set", name=new_name), Toast(f"Renamed to {new_name}."))


@bp.post("/sets/<name>/policy")
@access("admin")
def save_policy(name: str) -> Any:
    """Which dimensions decide here and from which score on they pass."""
    try:
        policy = _policy(eval_golden.policy_of(name, actor=g.actor))
        with transaction():
            changed = eval_golden.save_policy(name, policy, actor=g.actor)
    except Invalid as refusal:
        return _set_page(name, 422, refusal.fields or {"policy": refusal.detail}, "policy")
    text = "Saved the rules. They apply from the next replay." if changed else "Nothing changed."
    return leave(url_for(".show_set", name=name), text)


def _policy(before: dict[str, Any]) -> dict[str, Any]:
    """The form as a policy. What the form does not show is kept."""
    form = request.form
    thresholds, decides = (
        {name: value for name, value in (before.get(part) or {}).items() if name not in LABELS}
        for part in ("thresholds", "decides")
    )
    for dimension in LABELS:
        text = form.get(f"threshold.{dimension}", "").strip().replace(",", ".")
        if text:
            thresholds[dimension] = _share(text)
        if form.get(f"decides.{dimension}") in ("yes", "no"):
            decides[dimension] = form[f"decides.{dimension}"] == "yes"
    wrong = {f"threshold.{name}": "Enter a number from 0 to 1." for name in LABELS if thresholds.get(name, 0) is None}
    if wrong:
        raise Invalid("Enter thresholds from 0 to 1.", wrong)
    found: dict[str, Any] = {"thresholds": thresholds, "decides": decides}
    found |= {when: form[when] for when in ("on_miss", "on_drift") if form.get(when, "fail") != "fail"}
    return {name: value for name, value in found.items() if value}


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


@bp.post("/sets/<name>/move")
@access("admin")
def move_goldens(name: str) -> Any:
    """Put the ticked goldens into another set."""
    ids = selected_ids(NONE_SELECTED)
    try:
        with transaction():
            target = eval_golden.clean_set_name(request.form.get("set", ""))
            moved = eval_golden.move_goldens(ids, target, actor=g.actor)
    except Invalid as refusal:
        return leave(url_for(".show_set", name=name), Toast(refusal.detail.removeprefix("set: "), "error"))
    left = any(one.name == name for one in eval_golden.list_sets(actor=g.actor))
    text = f"Moved {moved:,} golden{'' if moved == 1 else 's'} to {target}."
    fields = (("ids", ",".join(map(str, ids))), ("set", name))
    undo = url_for(".move_goldens", name=target)
    toast = Toast(text, undo=undo, fields=fields) if moved and len(ids) <= 40 else Toast(text)
    return leave(url_for(".show_set", name=name if left else target), toast)


@bp.post("/sets/<name>/replay")
@access("admin")
def replay_many(name: str) -> Any:
    """Replay the ticked goldens, each with its agent as it is now. What cannot be replayed is refused with 409."""
    with transaction():
        run_id = eval_runs.start_run(eval_runs.NewRun(golden_ids=selected_ids(NONE_SELECTED)), actor=g.actor).id
    return leave(url_for("evals.show_run", run_id=run_id))


@bp.get("/<uuid:session_id>")
@access("admin")
def show_golden(session_id: UUID) -> Any:
    """A golden as a page, and beside its set."""
    return _golden_page(session_id)


def _golden_page(session_id: UUID, status: int = 200, **more: Any) -> Any:
    row = golden_lists.get_golden(session_id, actor=g.actor)
    past = revisions.list_revisions(session_id, actor=g.actor)
    kept = {"set": row.set_name, "note": row.note or "", "criteria": str(row.criteria_set_id or "")}
    return page(
        "evals/golden.html",
        "evals/_panel.html",
        status=status,
        row=row,
        changes=expected_changes.describe_effects((row.expected or {}).get("effects") or (), actor=g.actor),
        past=revisions.describe_past(past[:MAX_PAST], actor=g.actor),
        past_left=max(len(past) - MAX_PAST, 0),
        frozen=golden_lists.count_frozen(session_id, actor=g.actor),
        replays=golden_lists.list_replays(session_id, actor=g.actor),
        marks=golden_lists.health_of(row.set_name, [session_id], actor=g.actor)[session_id],
        set_names=[one.name for one in eval_golden.list_sets(actor=g.actor)],
        criteria_sets=criteria_store.list_criteria_sets(actor=g.actor),
        **{"errors": {}, "given": kept, **more},
    )


@bp.post("/<uuid:session_id>/edit")
@access("admin")
def edit_golden(session_id: UUID) -> Any:
    """Change a golden's set, note or criteria; nothing else about it ever changes."""
    given = {name: request.form.get(name, "").strip() for name in ("set", "note", "criteria")}
    try:
        criteria = parse_id(given["criteria"]) if given["criteria"] else None
        if given["criteria"] and criteria is None:
            raise Invalid.at("criteriaSetId", "Choose one from the list.")
        with transaction():
            changes = {"set": given["set"], "note": given["note"], "criteriaSetId": criteria}
            after = eval_golden.edit_golden(session_id, changes, actor=g.actor)
    except Invalid as refusal:
        errors = {"criteria" if name == "criteriaSetId" else name: text for name, text in refusal.fields.items()}
        return _golden_page(session_id, 422, errors=errors, given=given)
    back = url_for(".show_set", name=after["set"]) + f"#golden-{session_id}"
    return leave(back, Toast("Saved."))


@bp.get("/<uuid:session_id>/revoke")
@access("admin")
def ask_revoke(session_id: UUID) -> Any:
    """Says what revoking means before it is done."""
    row = golden_lists.get_golden(session_id, actor=g.actor)
    return page("evals/revoke.html", "evals/_revoke.html", row=row, in_place=wants_fragment())


@bp.post("/<uuid:session_id>/revoke")
@access("admin")
def revoke_golden(session_id: UUID) -> Any:
    """Take the mark away. The session stays as it is; doing it twice is fine."""
    with transaction():
        was = eval_golden.revoke_golden(session_id, actor=g.actor)
    text = "Revoked the golden." if was else "This golden was already revoked."
    return leave(url_for("sessions.detail", session_id=session_id), Toast(text))
