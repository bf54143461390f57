"""What should have changed, said in plain words when a session becomes golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.services.entities import criteria as criteria_store
from app.services.entities import store as entity_store
from app.services.sessions.events import NewEvent
from tests.agents.test_replays import Bench
from tests.conftest import Workspace, soup
from tests.evals.forms import calls, changes
from tests.evals.test_golden import complain, ran
from tests.evals.test_pages import URL, golden_mark_of, send

SignIn = Callable[..., FlaskClient]


@pytest.fixture
def bench(app: Flask, workspace: Workspace, run_sessions: Callable[[], int]) -> Bench:
    return Bench(app, workspace, run_sessions)


def complained_session(bench: Bench, *turns: str) -> Any:
    session_id = bench.desk.ask(*turns)
    bench.drain()
    complain(bench.app, bench.admin, session_id)
    return session_id


def test_what_should_have_changed_is_put_right_and_replays_are_held_to_it(bench: Bench, sign_in: SignIn) -> None:
    session_id = complained_session(bench, "Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    client = sign_in(bench.admin)

    form = soup(client.get(f"{URL}/promote/{session_id}"))
    shown = {one["name"]: one for one in form.select("[name^=change-0]")}
    assert [shown[f"change-0-{name}"]["value"] for name in ("kind", "record", "value-0")] == [
        "update",
        "Kestrel",
        "10.5",
    ]
    assert shown["change-0-field-0"].select_one("[selected]")["value"] == "valuation"
    assert "It should have changed…" in form.text
    data = {"set": "smoke", "should": "change", **changes(("update", "Kestrel", {"valuation": 11}))}
    assert send(client, f"/promote/{session_id}", **data).status_code == 303
    effects = golden_mark_of(bench.app, bench.admin, session_id)["expected"]["effects"]  # type: ignore[index]
    assert [(one["kind"], one["type"], one["fields"]) for one in effects] == [("updated", "entity", {"valuation": 11})]
    assert "update Kestrel: valuation = 11" in soup(client.get(f"{URL}/{session_id}")).select_one("main").text

    run = bench.run(set_name="smoke")
    result = run.results["bySession"][str(session_id)]
    assert (result["verdict"], result["baseline"]) == ("fail", "expected")
    diff = soup(client.get(f"{URL}/diff/{session_id}/{result['replay_session_id']}"))
    effect = diff.select_one(".u-sbs")
    assert "Expected" in effect.select_one("thead").text
    assert [cell.text for cell in effect.select("tbody ins, tbody del")] == ["11", "10.5"]


@pytest.mark.parametrize(("nothing", "verdict"), [("", "pass"), ("1", "fail")])
def test_it_must_change_just_this_or_nothing(bench: Bench, sign_in: SignIn, nothing: str, verdict: str) -> None:
    session_id = complained_session(bench, "Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    client = sign_in(bench.admin)
    recorded = changes(("update", "Kestrel", {"valuation": 10.5}))
    data = {"set": "smoke", "should": "change", "nothing": nothing, **recorded}
    assert send(client, f"/promote/{session_id}", **data).status_code == 303
    page = soup(client.get(f"{URL}/{session_id}")).select_one("main").text
    assert ("Nothing may change" in page) == bool(nothing)
    assert bench.run(set_name="smoke").results["bySession"][str(session_id)]["verdict"] == verdict


WON = {"stage": "won"}


@pytest.mark.parametrize(
    ("rows", "place", "says"),
    [
        ([], "nothing", "Add a change, tick that nothing may change"),
        ([("update", "", WON)], "change-0-record", "Pick a record."),
        ([("update", "Nobody", WON)], "change-0-record", "There is no record called “Nobody”."),
        ([("update", "Twin", WON)], "change-0-record", "Several records are called “Twin”"),
        ([("update", "Kestrel", {"stge": "won"})], "change-0-value-0", "A deal has no stge; it has stage, valuation."),
        ([("update", "Kestrel", {"stage": "won", "valuation": "high"})], "change-0-value-1", "Enter a number."),
        ([("update", "Kestrel", {"": "won"})], "change-0-value-0", "Name the field."),
        ([("create", "", {"name": "Mars"})], "change-0-of", "Pick a kind of record."),
        ([("create", "planet", {"name": "Mars"})], "change-0-of", "Pick a kind of record."),
        (
            [("tool", "listEntities", {"type": "deal"})],
            "change-0-of",
            "listEntities only reads, so it changes nothing.",
        ),
        ([("tool", "updateEntty", {})], "change-0-of", "There is no tool “updateEntty”. Did you mean updateEntity?"),
        ([("submit", "terms", "Kestrel", {"fit": "good"})], "change-0-of", "Pick the criteria."),
        ([("submit", "TERMS", "Kestrel", {"size": 2})], "change-0-value-0", "Deal terms has fit."),
        ([("submit", "TERMS", "Nobody", {"fit": "good"})], "change-0-record", "There is no record called “Nobody”."),
        ([("update", "Kestrel", WON), ("update", "Kestrel", {})], "change-1-value-0", "Pick a field"),
        (
            [("update", "Kestrel", WON), ("update", "Kestrel", {"stage": "lost"})],
            "change-1-record",
            "Change 1 gives stage of this record another value. Keep one of them.",
        ),
        ([("update", "Kestrel", WON)] * 51, "nothing", "At most 50 changes."),
    ],
)
def test_what_cannot_be_is_reported_under_its_field(
    bench: Bench, sign_in: SignIn, rows: list[Any], place: str, says: str
) -> None:
    with bench.acting():
        for _ in range(2):
            entity_store.create_entity(entity_type="deal", name="Twin", fields={}, actor=bench.admin)
        terms = criteria_store.create_criteria_set(
            slug="terms", name="Deal terms", dimensions={"fit": {"kind": "select"}}, actor=bench.admin
        ).id
    session_id = complained_session(bench, "List entities")
    sent = {name: text.replace("TERMS", str(terms)) for name, text in changes(*rows).items()}
    answer = send(sign_in(bench.admin), f"/promote/{session_id}", set="smoke", should="change", **sent)
    assert answer.status_code == 422
    form = soup(answer).select_one("form.u-inplace")
    (wrong,) = form.select("[aria-invalid=true]")
    assert wrong["name"] == place
    assert wrong.has_attr("autofocus")
    assert says in form.select_one(f"#{wrong['aria-describedby']}").text
    kept_rows = {one["name"]: one.get("value") for one in form.select("input[name^=change-]")}
    assert all(kept_rows.get(name, text) == text for name, text in sent.items()), "what was typed is kept"
    assert golden_mark_of(bench.app, bench.admin, session_id) is None


def test_a_record_by_its_id_and_one_that_the_session_creates(bench: Bench, sign_in: SignIn) -> None:
    with bench.acting():
        known = entity_store.create_entity(entity_type="deal", name="Orchard", fields={}, actor=bench.admin).id
    session_id = complained_session(bench, "List entities")
    rows = (
        ("update", str(known), {"stage": 12, "valuation": ""}),
        ("create", "deal", {"name": "New", "valuation": 3, "stage": ""}),
        ("update", "$1", {"stage": "won"}),
    )
    data = {"set": "smoke", "should": "change", **changes(*rows)}
    assert send(sign_in(bench.admin), f"/promote/{session_id}", **data).status_code == 303
    effects = golden_mark_of(bench.app, bench.admin, session_id)["expected"]["effects"]  # type: ignore[index]
    assert [(one["type"], one["target"], one["fields"]) for one in effects] == [
        ("entity", str(known), {"stage": "12", "valuation": None}),
        ("deal", None, {"name": "New", "valuation": 3}),
        ("entity", "$1", {"stage": "won"}),
    ]
    page = soup(sign_in(bench.admin).get(f"{URL}/{session_id}")).select_one("main").text
    assert "update Orchard: stage = 12, valuation = empty" in page


def test_rows_chips_and_the_check_work_without_a_script(bench: Bench, sign_in: SignIn) -> None:
    """Every button sends the form back with a row or a chip more or less; nothing is saved."""
    session_id = complained_session(bench, "Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    client = sign_in(bench.admin)

    def press(button: str, **data: Any) -> Any:
        answer = send(client, f"/promote/{session_id}", set="smoke", note="Kept", do=button, **data)
        assert answer.status_code == 200
        form = soup(answer).select_one("form.u-inplace")
        assert form.select_one("[name=note]")["value"] == "Kept"
        assert golden_mark_of(bench.app, bench.admin, session_id) is None
        return form

    def fields(form: Any, part: str) -> list[str]:
        return [one["name"] for one in form.select(f"[name^={part}-]")]

    row = {"should": "change", **changes(("update", "Kestrel", {"valuation": 11}))}
    added = press("add-value-change-0", **row)
    assert fields(added, "change-0-field") == ["change-0-field-0", "change-0-field-1"]
    assert added.select_one("[autofocus]")["name"] == "change-0-field-1"
    new = press("add-create", **row)
    assert [one["value"] for one in new.select("[name$=-kind]")] == ["update", "create"]
    assert [one["value"] for one in new.select("datalist option")][-2:] == ["$1", "Kestrel"]
    assert fields(press("remove-change-0-value-0", **row), "change-0-value") == ["change-0-value-0"]
    assert not fields(press("remove-change-0", **row), "change")
    typed = press("refresh", **{**row, "change-0-field-0": "stage"}).select_one("[name=change-0-value-0]")
    assert typed.get("inputmode") is None, "stage is a text"

    called = {"should": "call", **calls(("listEntities", {"limit": 3}))}
    assert fields(press("add-call", **called), "call")[-3:] == ["call-1-tool", "call-1-name-0", "call-1-value-0"]
    assert fields(press("add-value-call-0", **called), "call-0-value") == ["call-0-value-0", "call-0-value-1"]
    assert press("remove-call-0", **called).select_one("[name=call-0-tool]")["value"] == ""
    chip = press("add-mention", **{"should": "mention", "mention-new": "its owner"})
    assert [one["value"] for one in chip.select("[name=mention][checked]")] == ["its owner"]
    assert chip.select_one("[name=mention-new]")["value"] == ""
    for nonsense in ("add-nothing", "remove-change-9", "remove-change-0-value-9", "x"):
        assert fields(press(nonsense, **row), "change-0") == fields(press("refresh", **row), "change-0")

    def check(**data: Any) -> str:
        return str(press("check", **data).select_one(".u-recheck p").text.strip())

    recorded = {"should": "change", **changes(("update", "Kestrel", {"valuation": 10.5}))}
    assert check(**recorded) == "✓ The recorded session would pass."
    assert check(**row) == "✗ The recorded session would fail: entity Kestrel: valuation is 10.5 instead of 11."
    assert "There is no record called “Kestral”" in check(**{**row, "change-0-record": "Kestral"})


def test_a_value_within_its_tolerance_is_the_same_in_the_diff(bench: Bench, sign_in: SignIn) -> None:
    with bench.acting():
        terms = criteria_store.create_criteria_set(
            slug="terms",
            name="Deal terms",
            dimensions={"size": {"kind": "number", "relative_tolerance": 0.1}, "fit": {"kind": "select"}},
            actor=bench.admin,
        ).id

    def submitted(size: int, fit: str) -> Any:
        values = {"size": size, "fit": fit}
        return ran(
            bench.app,
            bench.admin,
            NewEvent("user.message", {"text": "Read it"}),
            NewEvent("response.submitted", {"criteria_set_id": str(terms), "values": values}),
            session_type="response",
        )

    diff = soup(sign_in(bench.admin).get(f"{URL}/diff/{submitted(100, 'good')}/{submitted(104, 'poor')}"))
    row = diff.select_one(".u-sbs tbody tr")
    assert row.select_one(".u-c-glyph").text == "✗ fit"
    assert [cell.text for cell in row.select("ins, del")] == ["good", "poor"]
    assert "submitted a response" in row.text
