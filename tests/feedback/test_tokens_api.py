"""Feedback tokens: people on other sites give feedback as themselves, from the team's own sites, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.models import ApiKey, AuditEntry, Feedback, Membership, User
from app.security import feedback_tokens
from app.security.feedback_tokens import Visitor
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.workspaces import store as workspace_store
from tests.conftest import Api, Workspace

PATH = "/api/v1/feedback"
MINT = "/api/v1/feedback/token"
GOOD = {"message_id": "m-1", "signal": "helpful"}


@pytest.fixture
def team(workspace: Workspace, api: Callable[..., Api]) -> Api:
    """The team's own server."""
    return api(workspace.actor("member"), "feedback-token", "feedback")


@pytest.fixture
def site() -> str:
    """An origin that no other test uses."""
    return f"https://{uuid4().hex}.example"


@pytest.fixture
def allow(app: Flask) -> Callable[..., None]:
    def change(workspace: Workspace, *origins: str) -> None:
        admin = workspace.actor("admin")
        with app.app_context(), acting_as(admin), transaction():
            workspace_store.change_settings({"feedback_origins": list(origins)}, actor=admin)

    return change


def mint(team: Api, subject: str = "user-7", **more: Any) -> Api:
    response = team.post(MINT, {"subject": subject, **more})
    assert response.status_code == 201, response.get_data(as_text=True)
    return Api(team.client, response.get_json()["token"])


def test_a_visitor_gives_reads_and_takes_back_their_own(
    app: Flask, workspace: Workspace, team: Api, allow: Callable[..., None], site: str
) -> None:
    allow(workspace, site)
    origin = {"Origin": site}
    first, second = mint(team, "user-1", name="Ada"), mint(team, "user-2")
    answer = first.post(PATH, GOOD, headers=origin)
    assert answer.status_code == 201, answer.get_data(as_text=True)
    assert answer.headers["Access-Control-Allow-Origin"] == site
    assert "Origin" in answer.headers["Vary"]
    assert "Access-Control-Allow-Credentials" not in answer.headers
    second.post(PATH, GOOD | {"signal": "not_helpful"}, headers=origin)
    for visitor, signal in ((first, "helpful"), (second, "not_helpful")):
        items = visitor.get(PATH, headers=origin).get_json()["items"]
        assert [item["signal"] for item in items] == [signal]
    assert second.delete(f"{PATH}?message_id=m-1&signal=not_helpful", headers=origin).status_code == 204
    assert team.get(PATH).get_json()["items"] == []
    with app.app_context(), acting_as(workspace.actor("admin")):
        [(row, name)] = db.session.execute(select(Feedback, User.name).join(User, User.id == Feedback.created_by)).all()
        assert (row.signal, row.kind, name) == ("helpful", "signal", "Ada")
        created = select(AuditEntry.actor_user_id).where(AuditEntry.subject_id == row.id)
        assert db.session.scalars(created).all() == [row.created_by]


def test_one_subject_is_one_person_in_each_workspace(
    app: Flask, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    here, there = make_workspace(), make_workspace()
    ours, theirs = (api(one.actor("member"), "feedback-token") for one in (here, there))
    first = ours.post(MINT, {"subject": "user-7"}).get_json()["user_id"]
    assert ours.post(MINT, {"subject": " user-7 ", "name": "Ada  Lovelace"}).get_json()["user_id"] == first
    assert theirs.post(MINT, {"subject": "user-7"}).get_json()["user_id"] != first
    with app.app_context(), acting_as(here.actor("admin")):
        person = db.session.get_one(User, first)
        assert (person.name, person.email, person.external_id) == ("Ada Lovelace", None, "user-7")
        member = select(func.count()).select_from(Membership).where(Membership.user_id == person.id)
        assert db.session.scalar(member) == 0


def test_a_token_opens_nothing_else(app: Flask, team: Api) -> None:
    visitor = mint(team)
    for method, path in (
        ("GET", "/api/feedback"),
        ("POST", "/api/feedback"),
        ("POST", MINT),
        ("GET", "/api/admin/settings"),
        ("POST", f"/conversations/t/p/{uuid4()}/turns/t/feedback"),
        ("POST", "/conversations/t/p/feedback/conversations-in-period"),
    ):
        assert visitor.request(method, path, {} if method == "POST" else None).status_code == 403, path
    tried = 0
    for rule in app.url_map.iter_rules():
        if rule.arguments or rule.rule == PATH:
            continue
        for method in sorted((rule.methods or set()) & {"GET", "POST", "PATCH", "DELETE"}):
            found = getattr(app.view_functions[rule.endpoint], "access", None)
            if found is not None and found.level != "public":
                tried += 1
                assert visitor.request(method, rule.rule).status_code in {303, 401, 403}, (method, rule.rule)
    assert tried > 10


def test_forged_changed_and_old_tokens_are_refused(app: Flask, team: Api, workspace: Workspace) -> None:
    good = mint(team).key
    body, _, signature = good.rpartition(".")
    secret = app.config["SECRET_KEY"]
    token = feedback_tokens.read_token(secret, good)
    assert token is not None
    person, key = token.user_id, token.key_id
    member = workspace.actor("member").id
    later = int(time.time()) + 60
    of_member = feedback_tokens.make_token(secret, Visitor(workspace.id, member, key, later))
    wrong = [
        "fbt_",
        "fbt_.",
        "fbt_é.ü",
        body,
        f"{body}.{'0' * 64}",
        f"{of_member.rpartition('.')[0]}.{signature}",
        feedback_tokens.make_token("another secret", Visitor(workspace.id, person, key, later)),
        feedback_tokens.make_token(secret, Visitor(workspace.id, person, key, int(time.time()) - 1)),
        of_member,
        feedback_tokens.make_token(secret, Visitor(uuid4(), person, key, later)),
        feedback_tokens.make_token(secret, Visitor(workspace.id, person, uuid4(), later)),
        feedback_tokens.make_token(secret, Visitor("x", person, key, later)),  # type: ignore[arg-type]
    ]
    for token in wrong:
        response = Api(team.client, token).post(PATH, GOOD)
        assert response.status_code == 401, token
        assert response.mimetype == "application/problem+json"
    assert Api(team.client, good).post(PATH, GOOD).status_code == 201


def test_revoking_the_key_ends_its_tokens(app: Flask, team: Api, workspace: Workspace) -> None:
    visitor = mint(team)
    assert visitor.get(PATH).status_code == 200
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        db.session.execute(update(ApiKey).where(ApiKey.tenant_id == workspace.id).values(revoked_at=func.now()))
    assert visitor.get(PATH).status_code == 401


def test_only_the_workspaces_own_sites_may_send(
    make_workspace: Callable[..., Workspace], api: Callable[..., Api], allow: Callable[..., None], site: str
) -> None:
    home, elsewhere = make_workspace(), make_workspace()
    foreign = site.replace("https://", "https://other-")
    allow(home, site)
    allow(elsewhere, foreign)
    team = api(home.actor("member"), "feedback-token")
    visitor = mint(team)
    for origin in (foreign, "https://evil.example", "null", site.replace("https", "http"), f"{site}:8443", "http://["):
        refused = visitor.post(PATH, GOOD, headers={"Origin": origin})
        assert refused.status_code == 403, origin
        assert "Access-Control-Allow-Origin" not in refused.headers
    assert visitor.get(PATH).get_json()["items"] == []
    assert visitor.post(PATH, GOOD, headers={"Origin": site}).status_code == 201


def test_a_browsers_question_is_answered_for_known_sites_alone(
    workspace: Workspace, team: Api, allow: Callable[..., None], site: str
) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}

    def ask(origin: str) -> Any:
        return team.client.options(PATH, headers={"Origin": origin, **asked})

    assert "Access-Control-Allow-Origin" not in ask(site).headers
    allow(workspace, site)
    answer = ask(site)
    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (204, site)
    assert {"POST", "GET", "DELETE"} <= set(answer.headers["Access-Control-Allow-Methods"].split(", "))
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()
    assert "Access-Control-Allow-Credentials" not in answer.headers
    for origin in ("https://evil.example", "null", f"{site}.evil.example", "http://[", "%"):
        assert not [name for name, _ in ask(origin).headers if name.startswith("Access-Control")], origin
    for path in ("/api/feedback", MINT, "/api/admin/settings"):
        elsewhere = team.client.options(path, headers={"Origin": site, **asked})
        assert "Access-Control-Allow-Origin" not in elsewhere.headers, path


def test_a_page_can_read_that_its_token_ran_out(
    app: Flask, workspace: Workspace, team: Api, allow: Callable[..., None], site: str
) -> None:
    allow(workspace, site)
    old = Visitor(workspace.id, uuid4(), uuid4(), int(time.time()) - 1)
    visitor = Api(team.client, feedback_tokens.make_token(app.config["SECRET_KEY"], old))
    answer = visitor.post(PATH, GOOD, headers={"Origin": site})
    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (401, site)


def test_tokens_are_minted_by_keys_within_limits(
    workspace: Workspace, team: Api, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    before = time.time()
    response = team.post(MINT, {"subject": "s" * 256, "ttl": 3600})
    assert response.status_code == 201
    assert team.post(MINT, {"subject": "s", "ttl": 1, "name": "n" * 120}).status_code == 201
    for body in (
        {},
        {"subject": ""},
        {"subject": " "},
        {"subject": "s" * 257},
        {"subject": "a\nb"},
        {"subject": 7},
        {"subject": "s", "ttl": 0},
        {"subject": "s", "ttl": 3601},
        {"subject": "s", "ttl": "60"},
        {"subject": "s", "name": "n" * 121},
        {"subject": "s", "role": "admin"},
    ):
        assert team.post(MINT, body).status_code == 400, body
    browser = sign_in(workspace.actor("admin"))
    refused = browser.post(MINT, json={"subject": "s"}, headers={"X-CSRFToken": browser.csrf})
    assert refused.status_code == 403
    assert api(workspace.actor("owner"), "ingest").post(MINT, {"subject": "s"}).status_code == 403
    read = feedback_tokens.read_token(team.client.application.config["SECRET_KEY"], response.get_json()["token"])
    assert read is not None
    assert before + 3599 <= read.expires_at <= time.time() + 3600


def test_minting_needs_its_own_scope(workspace: Workspace, api: Callable[..., Api]) -> None:
    """Who only sends feedback must not be able to speak for the users of a product."""
    refused = api(workspace.actor("admin"), "feedback", "ingest", "context", "knowledge").post(MINT, {"subject": "s"})
    assert refused.status_code == 403
    assert "feedback-token" in refused.get_json()["detail"]
    only = api(workspace.actor("member"), "feedback-token")
    assert mint(only).get(PATH).status_code == 200
    assert only.get(PATH).status_code == 403


def test_a_token_ends_when_its_key_may_no_longer_mint(app: Flask, team: Api, workspace: Workspace) -> None:
    visitor = mint(team)
    with app.app_context(), acting_as(workspace.actor("admin")), transaction():
        db.session.execute(update(ApiKey).where(ApiKey.tenant_id == workspace.id).values(scopes=["feedback"]))
    assert visitor.get(PATH).status_code == 401


def test_a_visitor_learns_nothing_about_the_message_they_speak_of(app: Flask, workspace: Workspace, team: Api) -> None:
    member, trace = workspace.actor("member"), uuid4().hex
    with app.app_context(), acting_as(member), transaction():
        chat = chat_store.create_chat(actor=member, agent_slug="fees", title="Fees")
        said = NewMessage(role="agent", content="The fee is 2 %.", external_id="m-7", trace_id=trace)
        [message] = chat_store.append_messages(chat.id, [said], actor=member)
        hidden = {str(chat.id), str(message.id), trace}
    visitor = mint(team)

    def send(**sent: Any) -> Any:
        answer = visitor.post(PATH, sent)
        assert answer.status_code in {200, 201}, answer.get_data(as_text=True)
        return answer.get_json()

    for guess in ("No idea at all.", "The fee is 3 %.", "The fee is 2 %."):
        edit = send(message_id="m-7", signal="edit", reason=guess)
        assert edit["edit_distance"] is None
    assert (edit["message_id"], edit["chat_id"], edit["trace_id"]) == ("m-7", None, None)
    assert not [text for text in hidden if text in json.dumps([edit, visitor.get(PATH).get_json()])]
    for name, value in (("chat_id", str(chat.id)), ("trace_id", trace)):
        assert visitor.get(f"{PATH}?{name}={value}").get_json()["items"] == [], name
    with app.app_context(), acting_as(workspace.actor("admin")):
        row = db.session.scalars(select(Feedback).where(Feedback.tenant_id == workspace.id)).one()
        assert (row.chat_id, row.trace_id) == (str(chat.id), trace)
        assert row.details["output_review"]["edit_distance"] == 0

    by_trace = send(trace_id=trace, signal="helpful")
    assert (by_trace["message_id"], by_trace["trace_id"], by_trace["chat_id"]) == (trace, trace, None)
    assert send(trace_id=trace, chat_id="c-1", signal="not_helpful")["chat_id"] == "c-1"
    again = send(trace_id=trace, signal="not_helpful", reason="Wrong.")
    assert (again["chat_id"], again["reason"]) == ("c-1", "Wrong.")
    [found] = visitor.get(f"{PATH}?trace_id={trace}").get_json()["items"]
    assert (found["signal"], found["message_id"], found["chat_id"]) == ("not_helpful", trace, "c-1")
    assert visitor.delete(f"{PATH}?message_id={trace}&signal=not_helpful").status_code == 204
    assert visitor.get(f"{PATH}?trace_id={trace}").get_json()["items"] == []


def test_feedback_is_linked_to_what_the_teams_own_server_stored(
    app: Flask, workspace: Workspace, team: Api, api: Callable[..., Api]
) -> None:
    """The conversations of the key's person, and those of nobody else."""
    visitor = mint(team)
    linked = {}
    for who in ("member", "other"):
        said = {"role": "agent", "content": "The fee is 2 %.", "external_id": f"answer-{who}"}
        chat = api(workspace.actor(who), "ingest").post("/api/v1/chats", {"agent": "helper", "messages": [said]})
        for signal in ("helpful", "not_helpful", "edit"):
            sent = visitor.post(PATH, {"message_id": f"answer-{who}", "signal": signal, "reason": "Rather 3 %."})
            assert sent.status_code == 201, sent.text
        linked[who] = chat.json["id"]
    with app.app_context(), acting_as(workspace.actor("admin")):
        rows = db.session.execute(
            select(Feedback.message_id, Feedback.signal, Feedback.chat_id, Feedback.agent_id.is_not(None))
        )
        found = {(message, signal): (chat, agent) for message, signal, chat, agent in rows}
    # The thumb that came last is the one that stands.
    assert found == {
        **{("answer-member", signal): (linked["member"], True) for signal in ("not_helpful", "edit")},
        **{("answer-other", signal): (None, False) for signal in ("not_helpful", "edit")},
    }
