"""The scorecard of what knowledge loops produce, and those before it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import current_app, g, url_for

from app.artifacts.model import KnowledgeSurface
from app.artifacts.rubric import DIMENSIONS
from app.db import transaction
from app.db.paging import Page
from app.errors import Unusable
from app.formats.ids import parse_id
from app.security.access import access
from app.services.evals import artifacts
from app.views.evals import bp
from app.views.htmx import Toast, leave, page
from app.views.lists import page_cursor, pager_links

# What the address of a record is built from.
RECORD_ARGUMENTS = {"knowledge.detail": "row_id", "entities.detail": "entity_id"}


@bp.get("/artifacts")
@access("admin")
def show_scorecard() -> Any:
    """The newest scorecard and the history."""
    return _show(None)


@bp.get("/artifacts/<uuid:scorecard_id>")
@access("admin")
def show_past_scorecard(scorecard_id: UUID) -> Any:
    return _show(scorecard_id)


def _show(scorecard_id: UUID | None) -> Any:
    found = artifacts.list_scorecards(Page(20, page_cursor()), actor=g.actor)
    return page(
        "evals/artifacts.html",
        "evals/_scorecards.html",
        shown=artifacts.get_scorecard(scorecard_id, actor=g.actor),
        past=scorecard_id is not None,
        found=found,
        dimensions=DIMENSIONS,
        link_of=_link_of,
        args={},
        **pager_links(found),
    )


def _link_of(gap: dict[str, Any]) -> str | None:
    """The page of a record of the workspace. The fixtures of its suite have no ids, and no page."""
    endpoint = KnowledgeSurface.parse(gap["surface"]).name
    if endpoint not in RECORD_ARGUMENTS or not parse_id(gap["id"]):
        return None
    values: dict[str, Any] = {RECORD_ARGUMENTS[endpoint]: gap["id"]}
    return url_for(endpoint, **values)


@bp.post("/artifacts")
@access("admin")
def run_scorecard() -> Any:
    """Grade everything now and keep the scorecard."""
    with transaction():
        own = artifacts.load_own_suite(actor=g.actor)
    try:
        suites = artifacts.load_all_suites(current_app.config["SETTINGS"].suite_modules)
    except Unusable as trouble:
        return leave(url_for(".show_scorecard"), Toast(str(trouble), "error"))
    resolvers = artifacts.make_resolvers(current_app.url_map.iter_rules(), suites.values())
    results = artifacts.run_suites({**suites, own.name: own}, resolvers)
    with transaction():
        passed = artifacts.store_scorecard(results, actor=g.actor).passed
    failed = sum(not one.passed for one in results)
    text = "All suites pass." if passed else f"{failed} of {len(results)} suites failed."
    return leave(url_for(".show_scorecard"), Toast(text, "success" if passed else "error"))
