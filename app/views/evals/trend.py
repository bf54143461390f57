"""The trend of a set as a page: its accuracy run by run, and what changed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flask import g, redirect, request, url_for

from app.errors import Invalid, NotFound
from app.evals.stats import smallest_regression
from app.formats.ids import parse_id
from app.security.access import access
from app.services.agents import versions as agent_versions
from app.services.evals import golden as eval_golden
from app.services.evals import revisions
from app.services.evals.charts.trend import Marker, Trend, load_trend
from app.services.knowledge import lists as knowledge_lists
from app.views.agents.pages import compare_versions
from app.views.evals import bp
from app.views.evals.figures import MARKER_WORDS, trend_figure
from app.views.format import query
from app.views.htmx import page
from app.views.knowledge.pages import scope_choices, steps_of

MAX_RUNS = 40
MAX_CHANGES = 12


@bp.get("/trend")
@access("admin")
def show_trend() -> Any:
    """The accuracy of a set over its newest runs, of all of it or one part; as a card, only the chart. Five queries at
    most."""
    if not request.args.get("set"):
        return redirect(url_for("evals.index"), 303)
    given = {name: value for name in ("set", "agent", "dimension", "trials") if (value := request.args.get(name))}
    found, unknown = _asked_trend_or_all(given)
    shown = load_page(found, given) | {"unknown": unknown}
    if request.args.get("part") == "card":
        return page("evals/trend.html", "evals/_trend_card.html", **shown)
    sets = [one.name for one in eval_golden.list_sets(actor=g.actor)]
    return page("evals/trend.html", "evals/_trend.html", sets=sets, **shown)


def _asked_trend_or_all(given: dict[str, str]) -> tuple[Trend, str]:
    """The trend that was asked for; of all, and why, where there is no such part. `given` has then what is shown."""
    try:
        return _asked_trend(given), ""
    except NotFound as unknown:
        parts = [given.pop(name, None) for name in ("agent", "dimension")]
        if not any(parts):
            raise
        return _asked_trend(given), unknown.detail


def _asked_trend(given: Mapping[str, str]) -> Trend:
    if given.get("agent") and given.get("dimension"):
        raise Invalid.of({"dimension": "Choose an agent or a dimension, not both."})
    return load_trend(
        given.get("set", ""),
        actor=g.actor,
        agent=given.get("agent") or None,
        dimension=given.get("dimension") or None,
        trials=given.get("trials") != "hide",
        limit=MAX_RUNS,
    )


def load_page(found: Trend, given: dict[str, str]) -> dict[str, Any]:
    gaps = found.gaps()
    runs = [url_for("evals.show_run", run_id=point.run_id) for point in found.points]
    changes = [_changes_link(found, given, place) for place in range(len(gaps))]
    counted = [point for point in found.points if not point.trial]
    last = counted[-1] if counted else None
    return {
        "found": found,
        "args": given,
        "own": url_for("evals.show_trend"),
        "lines": list(zip(found.points, gaps, runs, changes, strict=False))[::-1],
        "latest": gaps[-1],
        "latest_link": changes[-1],
        "kinds": {kind: sum(marker.kind == kind for marker in found.markers) for kind in MARKER_WORDS},
        "last": last,
        "least": smallest_regression(last.judged) if last else None,
        "trial_count": sum(point.trial for point in found.points),
        "words": describe_markers,
        "figure": trend_figure(found.points, gaps, runs, changes),
    }


def _changes_link(found: Trend, given: dict[str, str], place: int) -> str:
    """The page of what changed before the run at this place, or after the last."""
    before = found.points[place].run_id if place < len(found.points) else None
    return query(url_for("evals.show_changes"), given, before=before)


def describe_markers(markers: Sequence[Marker]) -> str:
    """`deal-analyst v4`, `3 knowledge changes, deal-analyst v4`."""
    numbers = Counter(marker.kind for marker in markers)
    said = []
    for kind, (one, many) in MARKER_WORDS.items():
        if kind == "agent" and numbers[kind]:
            said.append(", ".join(dict.fromkeys(marker.title for marker in markers if marker.kind == kind)))
        elif numbers[kind]:
            said.append(f"{numbers[kind]} {one if numbers[kind] == 1 else many}")
    return ", ".join(said)


@bp.get("/trend/changes")
@access("admin")
def show_changes() -> Any:
    """What changed before the run `before`, or since the last one: who, when, and the difference."""
    found = _asked_trend(request.args)
    before = request.args.get("before")
    places = {point.run_id: place for place, point in enumerate(found.points)}
    place = places.get(parse_id(before)) if before else len(found.points)  # type: ignore[arg-type]
    if place is None:
        raise NotFound("This trend has no such run.")
    kind = request.args.get("kind")
    markers = [marker for marker in reversed(found.gaps()[place]) if kind in (None, "", marker.kind)]
    return page(
        "evals/changes.html",
        "evals/_changes.html",
        set_name=found.set_name,
        run=found.points[place] if place < len(found.points) else None,
        changes=[(marker, _difference(marker)) for marker in markers[:MAX_CHANGES]],
        more=max(len(markers) - MAX_CHANGES, 0),
        back=query(url_for("evals.show_trend"), set=found.set_name),
    )


def _difference(marker: Marker) -> dict[str, Any]:
    """What a change says, and where it can be seen in full."""
    if marker.kind == "agent":
        return _agent_difference(marker)
    if marker.kind == "knowledge":
        return _knowledge_difference(marker)
    past = revisions.list_revisions(marker.id, actor=g.actor)
    one = [each for each in past if each.number == marker.number]
    described = revisions.describe_past(one, actor=g.actor)
    return {"past": described[0] if described else None, "link": url_for("evals.show_golden", session_id=marker.id)}


def _agent_difference(marker: Marker) -> dict[str, Any]:
    number, agent_id = marker.number or 1, marker.parent_id
    older = max(number - 1, 1)
    contents = agent_versions.read_contents(agent_id, {older, number}, actor=g.actor)
    known = {older, number} <= contents.keys()
    return {
        "versions": compare_versions(contents[older], contents[number]) if known else [],
        "link": query(url_for("agents.versions", agent_id=agent_id), {"from": older, "to": number}),
    }


def _knowledge_difference(marker: Marker) -> dict[str, Any]:
    history = [one for one in knowledge_lists.history_of(marker.id, actor=g.actor) if one.version == marker.number]
    steps = steps_of(history, scope_choices())
    return {"step": steps[0] if steps else None, "link": url_for("knowledge.detail", row_id=marker.id)}
