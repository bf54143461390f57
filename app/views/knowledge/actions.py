"""More to do with knowledge: pin and re-scope, roll back, merge, replace, several at once, checks, and the prompt."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import db, transaction
from app.db.paging import Page
from app.errors import Invalid, NotFound, Refused
from app.formats.ids import parse_id
from app.learning.hygiene.checks import CHECKS
from app.security.access import access
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import hygiene
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import prompt as knowledge_prompt
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.hygiene import Unanswered
from app.services.knowledge.lists import KnowledgeFilters
from app.services.knowledge.proofs import BreaksGoldens
from app.services.lists import menus
from app.text.hidden_characters import strip_hidden
from app.views.forms import parse_count, selected_ids
from app.views.htmx import Toast, page, swap
from app.views.knowledge import bp
from app.views.knowledge.form import read_choice
from app.views.knowledge.pages import (
    REVERSIBLE,
    UNCHECKED_STATES,
    as_if_active,
    check_return,
    decision_toast,
    detail_context,
    edit_toast,
    list_context,
    move_row,
    show_card,
    shows_refusal,
)
from app.views.layout.shell import own_path

MAX_FINDINGS = 200
MAX_SELECTED = 100
MAX_OFFERED = 8
DONE_WORDS = {"active": "Activated", "inactive": "Deactivated", "proposed": "Proposed"}
# Without a script a toast waits in a cookie, which holds 4 KB.
MAX_IN_COOKIE = 40


@bp.post("/<uuid:row_id>/set")
@access("admin")
@shows_refusal
def set_one(row_id: UUID) -> Any:
    """Change one thing of a row at a click: its pin, whom it is for, or the characters in it that nobody sees."""
    with transaction():
        before = knowledge_lists.get_row(row_id, actor=g.actor).row
        version = parse_count(request.form.get("version")) or before.version
        now = knowledge_rows.edit_row(row_id, _read_changes(before), version, actor=g.actor).version
    return show_card(row_id, edit_toast(row_id, version, now, "Saved."), shown=detail_context(row_id, checked=True))


def _read_changes(row: knowledge_lists.KnowledgeRow) -> dict[str, Any]:
    form = request.form
    if "pinned" in form:
        return {"pinned": form["pinned"] == "1"}
    if "clean" in form:
        return {"content": strip_hidden(row.content), "context": strip_hidden(row.context) if row.context else None}
    wanted = {name: read_choice(form[name]) for name in ("agent_id", "entity_type_id") if name in form}
    if not wanted:
        raise Invalid("Nothing to change.")
    return wanted


@bp.post("/<uuid:row_id>/roll-back")
@access("admin")
@shows_refusal
def roll_back(row_id: UUID) -> Any:
    """Make a row what it was in an earlier version."""
    to, version = (parse_count(request.form.get(name)) or 0 for name in ("to", "version"))
    try:
        with transaction():
            now = knowledge_rows.roll_back(row_id, to, version, actor=g.actor, reason=_read_reason()).version
    except NotFound as missing:
        raise Refused(missing.detail) from None
    toast = edit_toast(row_id, version, now, f"Restored version {to}.")
    return show_card(row_id, toast, shown=detail_context(row_id, checked=True))


def _read_reason() -> str | None:
    return request.form.get("reason", "").strip() or None


@bp.get("/<uuid:row_id>/choose")
@access("admin")
def choose(row_id: UUID) -> Response:
    """Which row it should be merged into, or replaced by: the nearest in meaning, or what a search finds."""
    fragment = "knowledge/_offered.html" if request.args.get("only") == "rows" else "knowledge/_choose.html"
    place = "panel-" if request.args.get("place") == "panel" else ""
    return page("knowledge/choose.html", fragment, place=place, **_offer_rows(row_id))


def _offer_rows(row_id: UUID) -> dict[str, Any]:
    """The rows to choose from. One that a check found comes first; none is chosen, because whose text stays is for the
    person to say."""
    found = knowledge_lists.get_row(row_id, actor=g.actor)
    query = request.values.get("q", "").strip()[:200]
    if query:
        filters = KnowledgeFilters(state="active", q=query)
        rows = knowledge_lists.list_rows(filters, Page(MAX_OFFERED + 1), actor=g.actor).items
    else:
        rows = knowledge_lists.get_rows(hygiene.nearest_rows(row_id, actor=g.actor, most=MAX_OFFERED), actor=g.actor)
    found_by_check = parse_id(request.args.get("into", ""))
    first = knowledge_lists.get_rows([found_by_check] if found_by_check else [], actor=g.actor)
    active = [row for row in [*first, *rows] if row.state == "active" and row.id != row_id]
    return {"row": found.row, "offered": list({row.id: row for row in active}.values())[:MAX_OFFERED], "q": query}


def _choose_again(row_id: UUID, error: str) -> Response:
    """The same choice where it was open, and what is missing."""
    context = {**_offer_rows(row_id), "error": error, "place": ""}
    return page("knowledge/choose.html", "knowledge/_choose_again.html", status=422, **context)


@bp.post("/<uuid:row_id>/merge")
@access("admin")
@shows_refusal
def merge(row_id: UUID) -> Any:
    """Merge a proposal into another row."""
    into = read_choice(request.form.get("into", ""))
    if into is None:
        return _choose_again(row_id, "Choose a row to merge into.")
    version = parse_count(request.form.get("version"))
    with transaction():
        knowledge_rows.merge_row(row_id, into, actor=g.actor, version=version)
    return show_card(row_id, decision_toast(row_id, "proposed", "superseded"))


@bp.post("/<uuid:row_id>/replace")
@access("admin")
@shows_refusal
def replace(row_id: UUID) -> Any:
    """Let another row take the place of one that is in use."""
    heir = read_choice(request.form.get("superseded_by", ""))
    if heir is None:
        return _choose_again(row_id, "Choose a replacement row.")
    with transaction():
        knowledge_rows.set_state(row_id, "superseded", actor=g.actor, reason=_read_reason(), superseded_by=heir)
    return show_card(row_id, Toast("Replaced."))


@bp.post("/decide")
@access("admin")
def decide_many() -> Any:
    """Bring several rows into use or take them out, as many as can be, and give the list back."""
    try:
        with transaction():
            toast = _decide_rows(request.form.get("state", ""), _read_reason())
    except Unanswered:
        toast = Toast("Not activated. Some rows are vague or repeat another rule. Activate those one by one.", "error")
    except Invalid as refusal:
        toast = Toast(refusal.detail, "error")
    back = own_path()
    back = back if urlsplit(back).path == url_for(".index") else url_for(".index")
    given = dict(parse_qsl(urlsplit(back).query))
    return swap("knowledge/_list.html", fallback=back, toasts=[toast], views=None, **list_context(given))


def _decide_rows(wanted: str, reason: str | None) -> Toast:
    select_first = f"Select 1 to {MAX_SELECTED} rows first."
    ids = selected_ids(select_first, MAX_SELECTED)
    if wanted not in DONE_WORDS:
        raise Invalid(select_first)
    if wanted == "inactive" and not reason:
        raise Invalid("Enter a reason.")
    moved: dict[UUID, str] = {}
    broken: list[str] = []
    asked = 0
    for row in knowledge_lists.get_rows(ids, actor=g.actor):
        try:
            with db.session.begin_nested():
                if move_row(row, wanted, reason).version != row.version:
                    moved[row.id] = row.state
        except BreaksGoldens as refusal:
            broken += refusal.titles.values()
        except Unanswered:
            asked += 1
        except (Invalid, Refused):
            continue
    check_return([row_id for row_id, state in moved.items() if wanted == "active" and state in UNCHECKED_STATES])
    text = f"{DONE_WORDS[wanted]} {len(moved)}{'' if len(moved) == len(ids) else f' of {len(ids)}'}."
    if broken:
        text += f" Left out rows that break “{broken[0]}”{f' and {len(broken) - 1} more' if len(broken) > 1 else ''}."
    if asked:
        text += f" The checks have findings in {asked}. Decide on {'it' if asked == 1 else 'these'} one by one."
    # Rows that were not all the same before have no one way back.
    before = set(moved.values())
    if len(before) != 1 or (back := before.pop(), wanted) not in REVERSIBLE or len(moved) > MAX_IN_COOKIE:
        return Toast(text, "success" if moved else "info")
    fields = {"state": back, "ids": ",".join(map(str, moved)), "reason": "Undone.", "confirm": "1", "next": own_path()}
    first = f"knowledge-{next(iter(moved))}"
    return Toast(text, undo=url_for(".decide_many"), target="#list", row=first, fields=tuple(fields.items()))


@bp.get("/checks")
@access("admin")
def checks() -> Response:
    """What the checks find in all that agents get or may get; or in the few rows that a list asks about."""
    ids = [row_id for row_id in map(parse_id, request.args.get("ids", "").split(",")) if row_id][:MAX_SELECTED]
    if ids:
        found = hygiene.check_rows(ids, actor=g.actor)
        return page("knowledge/checks_of.html", "knowledge/_checks_of.html", rows=_rows_by_id(ids), findings=found)
    report = hygiene.check_all(actor=g.actor)
    wanted = request.args.get("check", "")
    all_found = [(kept, finding) for kept, findings in report.found for finding in findings]
    shown = [(kept, finding) for kept, finding in all_found if wanted in ("", finding.check)]
    counts = {name: sum(finding.check == name for _, finding in all_found) for name in CHECKS}
    rows = _rows_by_id([kept.id for kept, _ in shown[:MAX_FINDINGS]])
    return page(
        "knowledge/checks.html", "knowledge/_checks.html", report=report, counts=counts, wanted=wanted,
        shown=shown[:MAX_FINDINGS], left_out=max(len(shown) - MAX_FINDINGS, 0), rows=rows,
    )  # fmt: skip


def _rows_by_id(ids: list[UUID]) -> dict[UUID, knowledge_lists.KnowledgeRow]:
    return {row.id: row for row in knowledge_lists.get_rows(ids, actor=g.actor)}


@bp.get("/preview")
@access("admin")
def preview() -> Response:
    """The exact prompt for an agent and a kind of record; with `row`, the place of that row."""
    row_id = parse_id(request.args.get("row", ""))
    row = next(iter(knowledge_lists.get_rows([row_id], actor=g.actor)), None) if row_id else None
    # What the address asks for, else whom the row is for.
    agent, kind = (
        request.args.get(name, (row and getattr(row, name)) or "").strip()[:120] for name in ("agent", "entity_type")
    )
    agent_id = versions.resolve_agent(agent, actor=g.actor).id if agent else None
    type_id = entity_store.find_type(kind, actor=g.actor).id if kind else None
    offered = as_if_active(row) if row and row.state != "active" else None
    shown = knowledge_prompt.preview_prompt(actor=g.actor, agent_id=agent_id, entity_type_id=type_id, row=offered)
    return page(
        "knowledge/preview.html", "knowledge/_preview.html", shown=shown, prompt=shown.prompt,
        row=row, agent=agent, entity_type=kind, scopes=menus.load_menus(("agents", "types"), actor=g.actor).values,
    )  # fmt: skip
