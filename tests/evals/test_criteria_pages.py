"""The editor of criteria sets: rows for dimensions, versions with history, and the goldens that they judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.services.entities import criteria as criteria_store
from app.services.evals import golden_lists
from app.views.evals.criteria_form import CriteriaForm
from tests.agents.test_replays import Bench, bench
from tests.conftest import soup

__all__ = ["bench"]
URL = "/admin/agent-review/evals/criteria"
RATING = {
    "d-0-kind": "rating", "d-0-name": "Tone", "d-0-weight": "2", "d-0-importance": "critical",
    "d-0-anchor-1": "Rude.", "d-0-anchor-5": "Kind.", "d-0-passes_from": "4",
}  # fmt: skip
NUMBER = {
    "d-1-kind": "numeric", "d-1-name": "EBITDA", "d-1-weight": "1,5", "d-1-importance": "normal",
    "d-1-relative_tolerance": "0.01",
}  # fmt: skip


@pytest.fixture
def admin(bench: Bench, sign_in: Callable[..., FlaskClient]) -> FlaskClient:
    return sign_in(bench.admin)


def send(client: Any, url: str, **data: str) -> Any:
    return client.post(url, data={"csrf_token": client.csrf, **data})


def test_a_set_is_created_changed_and_keeps_its_history(bench: Bench, admin: Any) -> None:
    made = send(admin, URL, name="Service", **RATING, **NUMBER)
    assert made.status_code == 303
    with bench.acting():
        [row] = criteria_store.list_criteria_sets(actor=bench.admin)
        assert list(row.dimensions) == ["Tone", "EBITDA"] or row.dimensions["Tone"]["position"] == 0
        assert row.dimensions["Tone"]["anchors"] == {"1": "Rude.", "5": "Kind."}
        assert (row.dimensions["EBITDA"]["weight"], row.dimensions["EBITDA"]["relative_tolerance"]) == (1.5, 0.01)
    page = soup(admin.get(made.headers["Location"]))
    values = {field["name"]: field.get("value") for field in page.select("#criteria-form input[name]")}
    assert (values["d-0-name"], values["d-1-weight"], values["version"]) == ("Tone", "1.5", "1")
    path = made.headers["Location"]
    assert send(admin, path, name="Service", version="1", **RATING).status_code == 303
    assert send(admin, path, name="Mine", version="1", **RATING).status_code == 409, "someone saved meanwhile"
    page = soup(admin.get(path))
    assert [one.text for one in page.select("#history a")] == ["Version 2", "Version 1"]
    past = soup(admin.get(f"{path}/past?version=1"))
    assert "EBITDA" in past.select_one("table").text
    assert admin.get(f"{path}/past?version=9").status_code == 404
    assert "Service" in soup(admin.get(URL)).select_one("table").text


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"d-0-anchor-5": ""}, "d-0-anchor-1", "Describe at least 1 and 5."),
        ({"d-0-weight": "heavy"}, "d-0-weight", "number"),
        ({"d-0-name": ""}, "d-0-name", "Enter a name."),
        ({"d-1-name": "Tone"}, "d-1-name", "Use each name once."),
        ({"d-1-relative_tolerance": "-1"}, "d-1-relative_tolerance", "from 0"),
        ({"name": ""}, "name", "name"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_kept(
    bench: Bench, admin: Any, changed: dict[str, str], field: str, said: str
) -> None:
    answer = send(admin, URL, **({"name": "Service"} | RATING | NUMBER | changed))
    assert answer.status_code == 422
    page = soup(answer)
    assert said in page.select_one(f"#f-{field}-error").text
    name = next(iter(changed))
    kept = page.select_one(f"[name='{name}']")
    assert kept.get("value", "") == changed[name]
    with bench.acting():
        assert criteria_store.list_criteria_sets(actor=bench.admin) == []


def test_rows_are_added_moved_and_removed_without_a_script(admin: Any) -> None:
    def names(answer: Any) -> list[str]:
        assert answer.status_code == 200
        return [field.get("value", "") for field in soup(answer).select("fieldset input[name$='-name']")]

    both = {"name": "Service", **RATING, **NUMBER}
    assert names(send(admin, URL, **both, do="add-text")) == ["Tone", "EBITDA", ""]
    assert names(send(admin, URL, **both, do="down-0")) == ["EBITDA", "Tone"]
    assert names(send(admin, URL, **both, do="up-1")) == ["EBITDA", "Tone"]
    assert names(send(admin, URL, **both, do="remove-0")) == ["EBITDA"]
    assert names(send(admin, URL, **both, do="remove-7")) == ["Tone", "EBITDA"]
    assert send(admin, URL, name="Service", do="").status_code == 422, "a set has dimensions"


def test_every_kind_comes_back_as_it_was_stored() -> None:
    stored = {
        "fit": {"kind": "select", "weight": 1.0, "options": ["yes", "no", 3, True, "4"], "position": 0},
        "words": {"kind": "text", "weight": 1.0, "match": "keyword", "keywords": ["LTM", "EBITDA"], "threshold": 0.5},
        "order": {"kind": "relation-rank", "weight": 0.5, "description": "Best first."},
        "size": {"kind": "numeric", "weight": 1.0, "absolute_tolerance": 0.25},
        "tone": {"kind": "rating", "weight": 1.0, "anchors": {"1": "a", "3": "b", "5": "c"}, "importance": "minor"},
    }
    sent = CriteriaForm.from_stored("All", stored).dimensions()
    from app.formats.criteria import parse_dimensions

    assert parse_dimensions(sent) == {
        name: rule | {"position": place} for place, (name, rule) in enumerate(stored.items())
    }


def test_criteria_are_attached_to_all_goldens_of_a_set(bench: Bench, admin: Any) -> None:
    goldens = [bench.golden(f'Find the deal "{name}"') for name in ("Halden", "Kestrel")]
    path = send(admin, URL, name="Service", **RATING).headers["Location"]
    assert "0 of 2" in soup(admin.get(path)).select_one("#goldens").text
    assert send(admin, f"{path}/attach", set="default").status_code == 303
    assert "2 of 2" in soup(admin.get(path)).select_one("#goldens").text
    with bench.acting():
        found = {str(golden_lists.get_golden(one, actor=bench.admin).criteria_set_id) for one in goldens}
    assert found == {path.rpartition("/")[2]}


def test_members_do_not_see_criteria(bench: Bench, sign_in: Callable[..., FlaskClient]) -> None:
    assert sign_in(bench.workspace.actor("member")).get(URL).status_code == 403
