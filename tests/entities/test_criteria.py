"""Criteria sets: what a dimension may say, and that every change writes a version that stays."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused, Stale
from app.evals.compare.response import Submitted, response_dimensions
from app.formats.criteria import Numeric, Rating, Select, Text, parse_dimensions, read_dimensions
from app.formats.response_values import value_error
from app.models import AuditEntry
from app.services.entities import criteria as criteria_store
from tests.conftest import Api, Workspace

RATING = {"kind": "rating", "anchors": {"1": "Invents figures", "5": "Every figure has a source"}}


def test_dimensions_are_stored_in_their_order_under_their_own_names() -> None:
    given = {
        "valuation": {"kind": "number", "tolerance": 2, "importance": 3},
        "fit": {"kind": "select", "options": ["strong", 1, True]},
        "clarity": RATING | {"importance": "critical", "passes_from": 4},
        "risk": {"kind": "text", "match": "keyword", "keywords": ["churn"], "threshold": 0.5, "label": "Main risk"},
    }
    stored = parse_dimensions(given)
    assert stored["valuation"] == {"kind": "numeric", "weight": 3.0, "absolute_tolerance": 2.0, "position": 0}
    assert parse_dimensions(stored) == stored
    found = read_dimensions(dict(sorted(stored.items())))
    assert list(found) == list(given)
    clarity = found["clarity"]
    assert isinstance(clarity, Rating)
    assert (clarity.importance, clarity.passes_from, clarity.weight) == ("critical", 4, 1.0)


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({}, ".kind"),
        ({"kind": "colour"}, ".kind"),
        ({"kind": ["text"]}, ".kind"),
        ("text", ""),
        ({"kind": "text", "weight": -1}, ".weight"),
        ({"kind": "text", "weight": True}, ".weight"),
        ({"kind": "text", "weight": float("nan")}, ".weight"),
        ({"kind": "text", "importance": "huge"}, ".importance"),
        ({"kind": "text", "options": ["a"]}, ".options"),
        ({"kind": "text", "threshold": 2}, ".threshold"),
        ({"kind": "numeric", "absolute_tolerance": float("inf")}, ".absolute_tolerance"),
        ({"kind": "select", "options": ["a", "a"]}, ".options"),
        ({"kind": "select", "options": [" "]}, ".options.0"),
        ({"kind": "rating"}, ".anchors"),
        ({"kind": "rating", "anchors": {"1": "bad"}}, ".anchors"),
        ({"kind": "rating", "anchors": {"1": "bad", "5": "good", "6": "x"}}, ".anchors.6"),
        (RATING | {"passes_from": 0}, ".passes_from"),
    ],
)
def test_a_dimension_that_does_not_fit_is_refused_at_its_place(rule: Any, place: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_dimensions({"fit": rule})
    assert list(refused.value.fields) == [f"dimensions.fit{place}"]


def test_dimensions_are_bounded() -> None:
    text = {"kind": "text", "description": "x" * 2000}
    many = {str(n): text for n in range(201)}
    for given in ({}, {" a": text}, {"a" * 257: text}, many, dict(list(many.items())[:200])):
        with pytest.raises(Invalid, match="dimensions"):
            parse_dimensions(given)


def test_what_was_stored_before_is_read_as_it_was_meant() -> None:
    found = read_dimensions(
        {
            "a": {"kind": "rank"},
            "b": {"kind": "numeric", "weight": -1, "relative_tolerance": 0.01},
            "c": {},
            "d": "text",
            "e": {"kind": "text", "match": "fuzzy", "note": "x"},
            "f": {"kind": "numeric", "importance": 2},
        }
    )
    assert [one.kind for one in found.values()] == ["relation-rank", "numeric", "select", "select", "text", "numeric"]
    assert found["b"] == Numeric(kind="numeric", relative_tolerance=0.01)
    assert (found["c"], found["e"]) == (Select(kind="select"), Text(kind="text"))
    assert found["f"].weight == 2.0


def test_a_rating_is_submitted_as_a_whole_number_and_left_to_a_judge_where_it_was_not() -> None:
    rules = parse_dimensions({"clarity": RATING, "valuation": {"kind": "numeric"}})
    assert value_error(4, rules["clarity"]) is None
    assert all(value_error(wrong, rules["clarity"]) for wrong in (0, 6, 3.5, True, "4"))
    silent, rated, worse = (Submitted(values, {}, {}) for values in ({}, {"clarity": 4}, {"clarity": 3}))
    assert [one.name for one in response_dimensions(silent, silent, rules, None)] == ["valuation"]
    judged = {one.name: one.score for one in response_dimensions(rated, worse, rules, None)}
    assert judged == {"clarity": 0.0, "valuation": 1.0}


@pytest.mark.usefixtures("app_context")
def test_each_change_writes_a_version_that_stays(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        with transaction():
            made = criteria_store.create_criteria_set(
                slug="terms", name="Terms", dimensions={"fit": {"kind": "text"}}, actor=admin
            )
            first = dict(made.dimensions)
        with transaction():
            criteria_store.change_criteria_set(made.id, version=1, dimensions={"clarity": RATING}, actor=admin)
        with transaction():
            same = criteria_store.change_criteria_set(made.id, version=2, dimensions=made.dimensions, actor=admin)
            assert same.version == 2
        with pytest.raises(Stale), transaction():
            criteria_store.change_criteria_set(made.id, version=1, name="Other", actor=admin)
        with pytest.raises(Forbidden), transaction():
            criteria_store.change_criteria_set(made.id, version=2, name="Other", actor=member)
        with pytest.raises(NotFound), transaction():
            criteria_store.change_criteria_set(uuid4(), version=1, name="Other", actor=admin)
        with pytest.raises(Refused), transaction():
            criteria_store.create_criteria_set(slug="terms", name="T", dimensions={"a": {"kind": "text"}}, actor=admin)
        assert [(one.version, one.author) for one in criteria_store.list_versions(made.id, actor=admin)] == [
            (2, admin.name),
            (1, admin.name),
        ]
        assert criteria_store.get_version(made.id, 1, actor=admin).dimensions == first
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == made.id))
        assert sorted(actions) == ["criteria_set.changed", "criteria_set.created"]


def test_criteria_sets_over_the_api_stay_in_their_workspace(
    workspace: Workspace, api: Callable[..., Api], make_workspace: Callable[[], Workspace]
) -> None:
    admin, stranger = api(workspace.actor("admin"), "admin"), api(make_workspace().actor("admin"), "admin")
    dimensions = {"clarity": RATING | {"position": 1}, "tone": {"kind": "text", "position": 0}}
    sent = {"slug": "answers", "name": "Answers", "dimensions": dimensions}
    made = admin.post("/api/admin/criteria-sets", sent).json
    path = f"/api/admin/criteria-sets/{made['id']}"
    assert (made["version"], list(made["dimensions"])) == (1, ["tone", "clarity"])
    changed = admin.patch(path, {"version": 1, "dimensions": {"clarity": RATING | {"weight": 2}}})
    assert (changed.status_code, changed.json["version"]) == (200, 2)
    assert admin.patch(path, {"version": 1, "name": "Late"}).status_code == 409
    wrong = admin.patch(path, {"version": 2, "dimensions": {"clarity": {"kind": "rating"}}})
    assert (wrong.status_code, [one["field"] for one in wrong.json["errors"]]) == (
        400,
        ["dimensions.clarity.anchors"],
    )
    assert admin.get(path).json["dimensions"]["clarity"]["weight"] == 2
    for refused in (stranger.get(path), stranger.patch(path, {"version": 2, "name": "Mine"})):
        assert refused.status_code == 404
    assert stranger.get("/api/admin/criteria-sets").json["items"] == []
