"""Settings: Review. When feedback is reviewed, what the last review did, and what the next one would do."""

from collections.abc import Mapping
from typing import Any

from flask import Response, g, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused
from app.formats.workspace_settings import WorkspaceSettings
from app.security.access import access
from app.services.review import runs as review_runs
from app.services.tasks import schedules as task_schedules
from app.services.workspaces import store as workspace_store
from app.views.forms import parse_count
from app.views.htmx import Toast, leave, render, vary_by_htmx
from app.views.settings import bp

USUAL = ("0 * * * *", "0 */6 * * *", "0 7 * * *", "0 7 * * 1-5")


@bp.get("/review")
@access("admin")
def show_review() -> Any:
    return _review_page(workspace_store.get_settings(g.actor).model_dump(), {})


def _review_page(values: Mapping[str, Any], errors: dict[str, str], status: int = 200) -> Response:
    last, dry = (review_runs.last_review(actor=g.actor, dry_run=dry) for dry in (False, True))
    return render(
        "settings/review.html",
        status=status,
        form=values,
        errors=errors,
        usual=USUAL,
        task=task_schedules.review_task(actor=g.actor),
        waiting=review_runs.waiting(actor=g.actor).total,
        last=last,
        **_dry_run(dry),
    )


def _dry_run(dry: review_runs.Review | None) -> dict[str, Any]:
    decisions = review_runs.list_decisions(dry.session_id, actor=g.actor) if dry and not dry.open else []
    return {"dry": dry, "decisions": decisions}


@bp.post("/review")
@access("admin")
def save_review() -> Any:
    days = request.form.get("review_wait_days", "").strip()
    count = parse_count(days)
    changes = {
        "review_enabled": request.form.get("review_enabled") == "1",
        "review_cron": request.form.get("review_cron", "").strip(),
        "review_wait_days": (days or None) if count is None else count,
        **({"knowledge_gate": request.form["knowledge_gate"]} if "knowledge_gate" in request.form else {}),
    }
    try:
        with transaction():
            workspace_store.change_settings(changes, actor=g.actor)
    except Invalid as wrong:
        return _review_page(WorkspaceSettings().model_dump() | changes, wrong.fields, 422)
    return leave(url_for(".show_review"), "Saved.")


@bp.post("/review/dry-run")
@access("admin")
def start_dry_run() -> Any:
    try:
        with transaction():
            review_runs.start_review(actor=g.actor, dry_run=True)
    except Refused as refusal:
        return leave(url_for(".show_review"), Toast(refusal.detail, "error"))
    return leave(url_for(".show_review") + "#dry-run")


@bp.get("/review/dry-run")
@access("admin")
def follow_dry_run() -> Any:
    dry = review_runs.last_review(actor=g.actor, dry_run=True)
    return vary_by_htmx(render("settings/_dry_run.html", **_dry_run(dry)))
