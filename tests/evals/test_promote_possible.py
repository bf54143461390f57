"""What no replay could ever do is refused when a session becomes golden, with what to change under the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db
from app.models import Entity
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.evals import golden as eval_golden
from app.services.sessions.events import NewEvent
from tests.agents.test_replays import Bench
from tests.conftest import Api, Workspace, soup
from tests.evals.forms import calls, changes
from tests.evals.test_golden import complain, promote, ran
from tests.evals.test_pages import HTMX, URL, SignIn, golden_mark_of, send
from tests.evals.test_promote_changes import bench
from tests.evals.test_promote_facts import said_of

__all__ = ["bench"]


KESTREL = changes(("update", "Kestrel", {"stage": "won"}))


@pytest.mark.parametrize(
    ("data", "place", "says"),
    [
        ({"no-call": "updateEntty"}, "no-call-new", "no tool “updateEntty”. Did you mean updateEntity?"),
        ({"no-call-new": "updateEntty"}, "no-call-new", "no tool “updateEntty”. Did you mean updateEntity?"),
        (calls(("search_entitys",)), "call-0-tool", "Did you mean searchEntities?"),
        (calls(("weather",)), "call-0-tool", "There is no tool “weather”."),
        (calls(("updateEntity", {"stage": "won"})), "call-0-tool", "updateEntity, stage: Not used here"),
        (calls(("listEntities", {"limit": "many"})), "call-0-tool", "limit: Enter a whole number."),
        (calls(("listEntities", {"limit": 1, "": 2})), "call-0-value-1", "Name the field."),
        (calls(("listEntities", {"entityType": "deel"})), "call-0-tool", "Did you mean deal?"),
        (
            calls(("createEntity", {"entityType": "deal", "fields.valuation": "high"})),
            "call-0-tool",
            "createEntity, valuation: Enter a number.",
        ),
        (
            {"should": ["change", "call"], **KESTREL, **calls(("createEntity",))},
            "call-0-tool",
            "changes something that is not among what should change",
        ),
        (
            {"should": ["change", "call"], **changes(("create", "deal", {"name": "N"})), "no-call": "createEntity"},
            "no-call-new",
            "is changed by createEntity, which it must not call",
        ),
    ],
)
def test_what_no_replay_can_do_is_refused_under_its_field(
    bench: Bench, sign_in: SignIn, data: dict[str, Any], place: str, says: str
) -> None:
    session_id = bench.desk.ask("List entities")
    bench.drain()
    answer = send(sign_in(bench.admin), f"/promote/{session_id}", **{"set": "smoke", "should": "call", **data})
    assert answer.status_code == 422
    wrong = soup(answer).select_one(f"[name={place}]")
    assert wrong["aria-invalid"] == "true"
    assert says in soup(answer).select_one(f"#{wrong['aria-describedby']}").text
    focused = soup(answer).select("form.u-inplace [autofocus]")
    assert len(focused) == 1
    assert focused[0].get("aria-invalid") == "true", "the first that is wrong, not the set"
    assert golden_mark_of(bench.app, bench.admin, session_id) is None


def test_the_first_field_that_is_wrong_has_the_focus(bench: Bench, sign_in: SignIn) -> None:
    session_id = bench.desk.ask("List entities")
    bench.drain()
    data = {"set": "smoke", "should": "call", **calls(("listEntties",), ("listEntities",)), "no-call": "saveMemry"}
    form = soup(send(sign_in(bench.admin), f"/promote/{session_id}", **data)).select_one("form.u-inplace")
    assert [one["name"] for one in form.select("[aria-invalid=true]")] == ["call-0-tool", "no-call-new"]
    assert [one["name"] for one in form.select("[autofocus]")] == ["call-0-tool"]


def test_the_api_says_what_to_change_at_each_place(bench: Bench, api: Callable[..., Api]) -> None:
    session_id = bench.desk.ask("List entities")
    bench.drain()
    with bench.acting():
        kestrel = str(db.session.scalars(select(Entity.id).where(Entity.name == "Kestrel")).one())

    def update(target: str, **fields: Any) -> dict[str, Any]:
        return {"kind": "updated", "type": "entity", "target": target, "fields": fields}

    client = api(bench.admin)
    wrong: list[tuple[dict[str, Any], dict[str, str]]] = [
        (
            {"calls": [{"name": "listEntties"}, {"name": "listEntities"}], "no_calls": ["saveMemry"]},
            {"expected.calls.0": "Did you mean listEntities?", "expected.no_calls": "Did you mean saveMemory?"},
        ),
        ({"effects": [update(kestrel, valuation="high")]}, {"expected.effects.0": "valuation: Enter a number."}),
        (
            {"effects": [update(kestrel, stge="won")]},
            {"expected.effects.0": "stge: A deal has no stge; it has stage, valuation."},
        ),
        ({"effects": [update("d-1", stage="won")]}, {"expected.effects.0": "There is no record with the id d-1."}),
        (
            {"effects": [{"kind": "created", "type": "planet", "fields": {}}]},
            {"expected.effects.0": "There is no kind of record “planet”. There is deal."},
        ),
        (
            {"effects": [update(kestrel, stage="won"), update(kestrel, stage="lost")]},
            {"expected.effects.1": "It gives stage another value than effects.0 does"},
        ),
    ]
    for expected, says in wrong:
        body = {"sessionId": str(session_id), "expected": expected}
        answer = client.post("/api/admin/evals/golden", json=body)
        assert answer.status_code == 400, answer.text
        told = str(answer.json["errors"])
        assert all(name in told and sentence in told for name, sentence in says.items()), told
    right = {
        "calls": [{"name": "listEntities", "arguments": {"limit": 5}}],
        "no_calls": ["saveMemory"],
        "effects": [update(kestrel, valuation="12.5"), update(kestrel, stage=4)],
    }
    done = client.post("/api/admin/evals/golden", json={"sessionId": str(session_id), "expected": right})
    assert done.status_code == 201, done.text


def test_unlisted_tools_are_taken_as_they_are_given(app: Flask, workspace: Workspace) -> None:
    admin = workspace.actor()
    asked = NewEvent("user.message", {"text": "Book it"})
    called = NewEvent("tool.call", {"id": "1", "name": "book_flight", "arguments": {"seats": "two"}})
    done = NewEvent("tool.result", {"call_id": "1", "name": "book_flight", "output": "ok"})
    for name in ("cancel_flight", "send_mail"):
        session_id = ran(app, admin, asked, called, done)
        assert promote(app, admin, session_id, expected={"no_calls": [name]})["expected"]
    session_id = ran(app, admin, asked, called, done)
    with pytest.raises(Exception, match="Did you mean book_flight"):
        promote(app, admin, session_id, expected={"no_calls": ["book_fligth"]})

    # Where the tools are listed there are no others; what the session did itself can be done again.
    listed = [{"name": "book_flight", "inputSchema": {"properties": {"seats": {"type": "integer"}}}}]
    session_id = ran(app, admin, asked, called, done, metadata={"tools": listed})
    for expected, says in (
        ({"no_calls": ["send_mail"]}, "It has book_flight."),
        ({"calls": [{"name": "book_flight", "arguments": {"seats": "three"}}]}, "seats: Enter a whole number."),
    ):
        with pytest.raises(Exception, match=says):
            promote(app, admin, session_id, expected=expected)
    again = {"calls": [{"name": "book_flight", "arguments": {"seats": "two"}}]}
    assert promote(app, admin, session_id, expected=again)["expected"] == again


def test_the_set_that_was_last_used_for_the_agent_is_offered(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    client = sign_in(admin)
    session_id = ran(app, admin)

    def offered() -> list[str]:
        one = soup(client.get(f"{URL}/promote/{session_id}")).select_one("[name=set]")["value"]
        return [one, soup(send(client, "/promote", HTMX, ids=str(session_id))).select_one("[name=set]")["value"]]

    assert offered() == ["default", "default"]
    for name in ("many", "many", "alpha", "last"):
        promote(app, admin, ran(app, admin), set_name=name)
    assert offered() == ["last", "last"]
    with app.app_context(), acting_as(admin):
        assert eval_golden.usual_set([session_id], actor=admin) == "default", "no other agent's set"


def test_several_at_once_know_complaints_by_message_turn_and_trace(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    admin = workspace.actor()
    asked = NewEvent("user.message", {"text": "Marlow EBITDA?"}), NewEvent("agent.message", {"text": "Done."})
    fine, by_trace, by_message, by_session = (ran(app, admin, *asked, trace_id=letter * 32) for letter in "abcd")
    with app.app_context(), acting_as(admin):
        chat = chat_store.create_chat(agent_slug="deal-analyst", title="Marlow", external_id="talk-1", actor=admin)
        messages = [NewMessage(role="agent", content="Done.", session_id=by_message, external_id="m-1")]
        chat_store.append_messages(chat.id, messages, actor=admin)
        db.session.commit()
    said_of(app, admin, by_trace, trace_id="b" * 32)
    said_of(app, admin, by_message, message_id="m-1", chat_id="talk-1")
    complain(app, admin, by_session)
    client = sign_in(admin)

    every = ",".join(str(one) for one in (fine, by_trace, by_message, by_session))
    page = soup(send(client, "/promote", HTMX, ids=every))
    assert page.select_one("[name=ids]")["value"] == str(fine)
    assert page.text.count("got negative feedback. Promote it separately") == 3
    for one in (by_trace, by_message, by_session):
        assert send(client, "/promote/confirmed", HTMX, ids=f"{fine},{one}", set="smoke").status_code == 409
    assert send(client, "/promote/confirmed", HTMX, ids=str(fine), set="smoke").status_code == 200
