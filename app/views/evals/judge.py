"""Overrule the judge of a replay in place, list what was overruled, and check the judge with blind labels."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid, NotFound, Refused
from app.evals.trace import Event, text_of
from app.formats.ids import parse_id
from app.security.access import access
from app.services.entities import criteria as criteria_store
from app.services.evals.judging import labels, overrules
from app.views.evals import bp
from app.views.format import query
from app.views.forms import form_text
from app.views.htmx import Toast, leave, page
from app.views.lists import page_cursor, pager_links

MAX_EVENTS = 200
MAX_CHARS = 4_000
WHO = {"user.message": "User", "agent.message": "Agent", "tool.call": "Call", "tool.result": "Result"}


@bp.post("/diff/<uuid:golden_id>/<uuid:replay_id>/overrule")
@access("admin")
def overrule_judge(golden_id: UUID, replay_id: UUID) -> Any:
    """Say what a judged dimension should be, and why."""
    here = url_for(".show_diff", golden_id=golden_id, replay_id=replay_id) + "#rubric"
    passed = {"pass": True, "fail": False}.get(request.form.get("verdict", ""))
    try:
        with transaction():
            result = overrules.overrule_judgement(
                replay_id, request.form.get("dimension", ""), passed=passed, reason=form_text("reason"), actor=g.actor
            )
    except (Invalid, Refused) as refusal:
        return leave(here, Toast(next(iter(getattr(refusal, "fields", {}).values()), refusal.detail), "error"))
    return leave(here, Toast(f"Overruled. The verdict is {result['verdict']}."))


@bp.get("/judge/overruled")
@access("admin")
def list_overruled() -> Any:
    """What admins overruled, the newest first."""
    wanted = parse_id(request.args.get("criteria"))
    found = overrules.list_overrules(Page(50, page_cursor()), actor=g.actor, criteria_set_id=wanted)
    return page(
        "evals/overruled.html", "evals/_overruled.html", found=found, args={"criteria": wanted}, **pager_links(found)
    )


@bp.get("/criteria/<uuid:criteria_set_id>/check")
@access("admin")
def check_judge(criteria_set_id: UUID) -> Any:
    """The next judged dimension without its verdict, and above it the label that was just given."""
    row = criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    judges = labels.list_judges(actor=g.actor, criteria_set_id=criteria_set_id)
    names = [one.model for one in judges]
    model = request.args.get("model") or (names[0] if names else "")
    judge = next((one for one in judges if one.model == model), None)
    if model and judge is None:
        raise NotFound("These criteria have no such judge.")
    cell = labels.next_cell(criteria_set_id, model, actor=g.actor) if model else None
    given = parse_id(request.args.get("label"))
    return page(
        "evals/check_judge.html",
        "evals/check_judge.html",
        row=row,
        judge=judge,
        judges=judges,
        cell=cell,
        sides=[("Replay", _lines(cell.replay)), ("The golden", _lines(cell.reference))] if cell else [],
        label=labels.get_label(given, actor=g.actor) if given else None,
    )


def _lines(events: Sequence[Event]) -> list[tuple[str, str]]:
    """A session as lines of who and what, without anything that a judge said."""
    found = [(WHO[one.event_type], _words(one)) for one in events if one.event_type in WHO]
    return [(who, text[:MAX_CHARS]) for who, text in found[:MAX_EVENTS]]


def _words(event: Event) -> str:
    if event.event_type.endswith(".message"):
        return text_of(event)
    name = event.payload.get("name")
    shown = event.payload.get("arguments" if event.event_type == "tool.call" else "output")
    return f"{name} {json.dumps(shown, ensure_ascii=False, default=str)}"


@bp.post("/criteria/<uuid:criteria_set_id>/check")
@access("admin")
def label_cell(criteria_set_id: UUID) -> Any:
    """Keep a label, then show it beside the judge's verdict."""
    model = request.form.get("model", "")
    here = url_for(".check_judge", criteria_set_id=criteria_set_id)
    criteria_store.get_criteria_set(criteria_set_id, actor=g.actor)
    session_id, verdict = parse_id(request.form.get("session_id")), request.form.get("verdict")
    if session_id is None or verdict not in ("pass", "fail"):
        return leave(query(here, model=model), Toast("Choose pass or fail.", "error"))
    try:
        with transaction():
            label = labels.add_label(
                session_id, request.form.get("dimension", ""), passed=verdict == "pass", actor=g.actor
            )
    except (Invalid, Refused) as refusal:
        return leave(query(here, model=model), Toast(refusal.detail, "error"))
    return leave(query(here, model=model, label=label.id))
