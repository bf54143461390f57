"""What should have changed, said in plain words when a session becomes golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.services.entities import store as entity_store
from app.services.sessions.events import NewEvent
from tests.agents.test_replays import Bench
from tests.conftest import Workspace, soup
from tests.evals.test_golden import complain, ran
from tests.evals.test_pages import URL, kept, send

SignIn = Callable[..., FlaskClient]


@pytest.fixture
def bench(app: Flask, workspace: Workspace, run_sessions: Callable[[], int]) -> Bench:
    return Bench(app, workspace, run_sessions)


def asked(bench: Bench, *turns: str) -> Any:
    session_id = bench.desk.ask(*turns)
    bench.drain()
    complain(bench.app, bench.admin, session_id)
    return session_id


def test_what_should_have_changed_is_put_right_and_replays_are_held_to_it(bench: Bench, sign_in: SignIn) -> None:
    session_id = asked(bench, "Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    client = sign_in(bench.admin)

    form = soup(client.get(f"{URL}/promote/{session_id}"))
    assert form.select_one("[name=changes]").text.strip() == "update Kestrel: valuation = 10.5"
    assert "It should have changed…" in form.text
    data = {"set": "smoke", "should": "change", "changes": "update Kestrel: valuation = 11"}
    assert send(client, f"/promote/{session_id}", **data).status_code == 303
    effects = kept(bench.app, bench.admin, session_id)["expected"]["effects"]  # type: ignore[index]
    assert [(one["kind"], one["type"], one["fields"]) for one in effects] == [("updated", "entity", {"valuation": 11})]
    assert "update Kestrel: valuation = 11" in soup(client.get(f"{URL}/{session_id}")).select_one("main").text

    run = bench.run(set_name="smoke")
    result = run.results["bySession"][str(session_id)]
    assert (result["verdict"], result["baseline"]) == ("fail", "expected")
    diff = soup(client.get(f"{URL}/diff/{session_id}/{result['replay_session_id']}"))
    effect = diff.select_one(".u-sbs")
    assert "What should have happened" in effect.select_one("thead").text
    assert [cell.text for cell in effect.select("tbody ins, tbody del")] == ["11", "10.5"]


@pytest.mark.parametrize(
    ("changes", "nothing", "verdict"),
    [("update Kestrel: valuation = 10.5", "", "pass"), ("update Kestrel: valuation = 10.5", "1", "fail")],
)
def test_it_must_change_just_this_or_nothing(
    bench: Bench, sign_in: SignIn, changes: str, nothing: str, verdict: str
) -> None:
    session_id = asked(bench, "Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    client = sign_in(bench.admin)
    data = {"set": "smoke", "should": "change", "changes": changes, "nothing": nothing}
    assert send(client, f"/promote/{session_id}", **data).status_code == 303
    page = soup(client.get(f"{URL}/{session_id}")).select_one("main").text
    assert ("Nothing may change" in page) == bool(nothing)
    assert bench.run(set_name="smoke").results["bySession"][str(session_id)]["verdict"] == verdict


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("", "Write what should have changed"),
        ("update Nobody: stage = won", "There is no record called “Nobody”."),
        ("update Twin: stage = won", "Several records are called “Twin”"),
        ("update Kestrel: stge = won", "stge: A deal has"),
        ("update Kestrel: valuation = high", "valuation: Give a number."),
        ("create planet: name = Mars", "There is no kind of record “planet”; there is deal."),
        ("listEntities: type = deal", "listEntities only reads, so it changes nothing."),
        ("updateEntty 12", "is neither update, create, submit nor a tool of this session."),
        ("submit Terms for Kestrel: fit = good", "No criteria set is called “Terms”."),
        ("submit Deal terms for Kestrel: size = 2", "size: Deal terms has fit."),
        ("submit Deal terms for Nobody: fit = good", "There is no record called “Nobody”."),
        ("update Kestrel: stage = won\nupdate Kestrel", "Line 2: Say what is changed."),
        ("\n".join(["update Kestrel: stage = won"] * 51), "At most 50 changes."),
    ],
)
def test_what_cannot_be_is_said_under_the_field(bench: Bench, sign_in: SignIn, changes: str, says: str) -> None:
    with bench.acting():
        for _ in range(2):
            entity_store.create_entity(entity_type="deal", name="Twin", fields={}, actor=bench.admin)
        entity_store.create_criteria_set(
            slug="terms", name="Deal terms", dimensions={"fit": {"kind": "select"}}, actor=bench.admin
        )
    session_id = asked(bench, "List entities")
    answer = send(sign_in(bench.admin), f"/promote/{session_id}", set="smoke", should="change", changes=changes)
    assert answer.status_code == 422
    place = soup(answer).select_one("[name=changes]")
    assert place.text.strip() == changes.strip()
    assert says in soup(answer).select_one(f"#{place['aria-describedby'].split()[0]}").text
    assert kept(bench.app, bench.admin, session_id) is None


def test_a_record_by_its_id_and_one_that_the_session_creates(bench: Bench, sign_in: SignIn) -> None:
    with bench.acting():
        known = entity_store.create_entity(entity_type="deal", name="Orchard", fields={}, actor=bench.admin).id
    session_id = asked(bench, "List entities")
    lines = f"update {known}: stage = 12\ncreate Deal: name = New, valuation = 3\nupdate $1: stage = won"
    data = {"set": "smoke", "should": "change", "changes": lines}
    assert send(sign_in(bench.admin), f"/promote/{session_id}", **data).status_code == 303
    effects = kept(bench.app, bench.admin, session_id)["expected"]["effects"]  # type: ignore[index]
    assert [(one["type"], one["target"], one["fields"]) for one in effects] == [
        ("entity", str(known), {"stage": "12"}),
        ("deal", None, {"name": "New", "valuation": 3}),
        ("entity", "$1", {"stage": "won"}),
    ]
    page = soup(sign_in(bench.admin).get(f"{URL}/{session_id}")).select_one("main").text
    assert 'update Orchard: stage = "12"' in page


def test_a_value_within_its_tolerance_is_the_same_in_the_diff(bench: Bench, sign_in: SignIn) -> None:
    with bench.acting():
        terms = entity_store.create_criteria_set(
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
