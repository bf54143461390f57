"""An answer that was cut off is marked wherever it is read, and golden only after someone confirmed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app.db import acting_as, db, transaction
from app.errors import Refused
from app.models import AgentSession
from app.services.chats.store import NewMessage, append_messages, create_chat
from app.services.evals import golden as eval_golden
from app.services.evals import promotion
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.evals.test_golden import complain, ran
from tests.evals.test_pages import HTMX, SignIn, send

__all__ = ["bench"]
URL = "/admin/agent-review/evals"
API = "/api/admin/evals/golden"
CUT = "An answer in this session hit its length limit. Confirm that you want to promote it."


def cut(app: Flask, actor: Any, **mark: Any) -> UUID:
    said = NewEvent("agent.message", {"text": "Norrland Freight has", **(mark or {"truncated": True})})
    return ran(app, actor, NewEvent("user.message", {"text": "Which accounts?"}), said)


@pytest.mark.parametrize("mark", [{"truncated": True}, {"finish_reason": "length"}, {"finish_reason": "max_tokens"}])
def test_it_is_marked_and_promoted_only_when_confirmed(
    app: Flask, workspace: Workspace, sign_in: SignIn, api: Callable[..., Api], mark: dict[str, Any]
) -> None:
    person = workspace.actor()
    session_id = cut(app, person, **mark)
    admin, client = api(person, "admin"), sign_in(person)
    assert admin.get(f"/api/v1/sessions/{session_id}").json["truncated"] is True
    assert [one["truncated"] for one in admin.get("/api/v1/sessions").json["items"]] == [True]
    page = soup(client.get(f"/admin/agent-review/sessions/{session_id}"))
    assert "cut off" in page.select_one(".u-head").text
    assert "cut off" in page.select_one(".u-transcript").text

    refused = admin.post(API, {"sessionId": str(session_id)})
    assert (refused.status_code, refused.json["detail"]) == (409, CUT)
    form = soup(client.get(f"{URL}/promote/{session_id}"))
    assert not form.select_one("input[name=confirm_incomplete]").has_attr("checked")
    for headers in ({}, HTMX):
        wrong = send(client, f"/promote/{session_id}", headers, set="smoke")
        assert wrong.status_code == 409
        assert CUT in soup(wrong).select_one("form.u-inplace").text
    many = send(client, "/promote/confirmed", ids=str(session_id), set="smoke")
    assert many.status_code == 409
    assert "has an incomplete answer. Promote it separately" in send(client, "/promote", ids=str(session_id)).text

    made = admin.post(API, {"sessionId": str(session_id), "confirm_incomplete": True})
    assert made.status_code == 201


def test_the_form_confirms_it_too(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    person = workspace.actor()
    client, session_id, candidate = sign_in(person), cut(app, person), cut(app, person)
    assert send(client, f"/promote/{session_id}", set="smoke", confirm_incomplete="1").status_code == 303
    complain(app, person, candidate)
    wrong = send(client, f"/candidates/{candidate}/promote", HTMX, set="smoke", should="right")
    assert (wrong.status_code, CUT in wrong.text) == (409, True)
    more = {"set": "smoke", "should": "right", "confirm_incomplete": "1"}
    assert send(client, f"/candidates/{candidate}/promote", HTMX, **more).status_code == 200


def test_a_whole_answer_needs_no_confirmation(
    app: Flask, workspace: Workspace, sign_in: SignIn, api: Callable[..., Api]
) -> None:
    person = workspace.actor()
    session_id = ran(app, person)
    assert not soup(sign_in(person).get(f"{URL}/promote/{session_id}")).select("input[name=confirm_incomplete]")
    admin = api(person, "admin")
    assert admin.get(f"/api/v1/sessions/{session_id}").json["truncated"] is False
    assert admin.post(API, {"sessionId": str(session_id)}).status_code == 201


def test_imported_sessions_are_marked(app: Flask, workspace: Workspace) -> None:
    person = workspace.actor()
    events = [NewEvent("user.message", {"text": "Hi"}), NewEvent("agent.message", {"text": "He", "truncated": True})]
    new = NewSession(agent="far-away", external_id="one", status="completed", events=events)
    with app.app_context(), acting_as(person), transaction():
        session_store.create_sessions([new], actor=person)
        assert db.session.query(AgentSession.truncated).filter_by(external_id="one").scalar() is True


def test_a_replay_that_was_cut_takes_no_goldens_place_unconfirmed(bench: Bench, sign_in: SignIn) -> None:
    golden_id = bench.golden("List entities")
    (replay,) = bench.replays(bench.run(set_name="default"))
    with bench.acting():
        db.session.get_one(AgentSession, replay.id).truncated = True
    with pytest.raises(Refused, match="hit its length limit"), bench.acting():
        promotion.promote_replay(golden_id, replay.id, actor=bench.admin)
    client = sign_in(bench.admin)
    path = f"/diff/{golden_id}/{replay.id}"
    assert soup(client.get(f"{URL}{path}")).select(".u-instead input[name=confirm_incomplete]")
    send(client, f"{path}/promote")
    with bench.acting():
        assert eval_golden.list_sets(actor=bench.admin)[0].sessions == 1
        assert db.session.get_one(AgentSession, golden_id).golden_set == "default"
    assert "/sessions/" in send(client, f"{path}/promote", confirm_incomplete="1").location


def test_a_chat_shows_it(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        chat = create_chat(agent_slug="assistant", title="Accounts", actor=member)
        said = [
            NewMessage(role="user", content="Which accounts?"),
            NewMessage(role="agent", content="Norrland Freight has", details={"truncated": True}),
        ]
        append_messages(chat.id, said, actor=member)
        chat_id = chat.id
    page = soup(sign_in(member).get(f"/chat/{chat_id}"))
    assert any("cut off" in badge.text for badge in page.select(".u-moment .u-badge"))
