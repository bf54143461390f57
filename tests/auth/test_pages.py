"""The way in and out: passwords, links, invitations, the demo; cookies that die when they should."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from sqlalchemy import func, update

from app.db import acting_as, db, transaction
from app.models.people import OneTimeLink
from app.security import cookies
from app.services.workspaces import logins, people, throttle
from app.views.htmx import local_path
from tests.conftest import soup

PASSWORD = "correct horse battery"


@pytest.fixture
def person(app, workspace):
    """The e-mail and the actor of an admin with a password."""
    owner, email = workspace.actor("owner"), f"sam-{uuid4().hex[:10]}@example.test"
    with app.app_context(), acting_as(owner), transaction():
        user = people.create_person(email=email, name="Sam", role="admin", actor=owner, password=PASSWORD)
        return email, owner.__class__(user.id, owner.tenant_id, "admin", "Sam")


@pytest.fixture
def visitor(app):
    """A visitor who fills in forms: loads the page for its token, then sends it."""
    client = app.test_client()

    def send(page: str, action: str | None = None, address: str | None = None, **fields: str):
        token = soup(client.get(page)).select_one("input[name=csrf_token]")
        return client.post(
            action or page,
            data={"csrf_token": token["value"] if token else "", **fields},
            environ_base={"REMOTE_ADDR": address or f"test-{uuid4()}"},
        )

    client.send = send
    return client


def test_signing_in_leads_to_the_page_that_was_asked_for(visitor, person, workspace):
    asked = visitor.get("/admin/settings?x=1")
    assert asked.status_code == 303
    sign_in = asked.location

    answer = visitor.send(sign_in, "/sign-in", email=person[0], password=PASSWORD, next="/admin/settings?x=1")

    assert (answer.status_code, answer.location) == (303, "/admin/settings?x=1")
    cookie = next(line for line in answer.headers.getlist("Set-Cookie") if line.startswith("upshot="))
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    page = visitor.get("/admin/settings")
    assert page.status_code == 200
    assert visitor.get("/sign-in?next=/account").location == "/account"


def test_over_tls_the_cookie_is_the_hosts_own(app, person):
    app.config["SECURE"] = True
    try:
        client = app.test_client()
        page = client.get("/sign-in", base_url="https://localhost")
        token = soup(page).select_one("input[name=csrf_token]")["value"]
        answer = client.post(
            "/sign-in",
            base_url="https://localhost",
            data={"csrf_token": token, "email": person[0], "password": PASSWORD},
            environ_base={"REMOTE_ADDR": f"test-{uuid4()}"},
        )
        cookie = next(line for line in answer.headers.getlist("Set-Cookie") if line.startswith("__Host-upshot="))
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
    finally:
        app.config["SECURE"] = False


def test_wrong_and_unknown_read_alike_and_keep_the_address(visitor, person):
    texts = set()
    for email in (person[0], "nobody@example.test"):
        answer = visitor.send("/sign-in", email=email, password="wrong")
        page = soup(answer)
        assert answer.status_code == 422
        assert page.select_one("input[name=email]")["value"] == email
        assert page.select_one("input[name=password]").has_attr("autofocus")
        assert not page.select_one("input[name=password]").get("value")
        texts.add(page.select_one(".invalid-feedback").text)
    assert len(texts) == 1


def test_an_empty_form_says_what_is_missing(visitor):
    answer = visitor.send("/sign-in", email=" ", password="")

    assert answer.status_code == 422
    assert len(soup(answer).select(".invalid-feedback")) == 2


def test_the_tenth_wrong_password_is_429_and_another_address_still_gets_in(app, visitor, person):
    here = f"test-{uuid4()}"
    with app.app_context(), transaction():
        for _ in range(throttle.PER_PERSON - 2):
            throttle.count_attempt(person[0], here)
    ninth = visitor.send("/sign-in", address=here, email=person[0], password="wrong")
    tenth = visitor.send("/sign-in", address=here, email=person[0], password="wrong")
    right = visitor.send("/sign-in", address=here, email=person[0], password=PASSWORD)

    assert [ninth.status_code, tenth.status_code, right.status_code] == [422, 429, 429]
    assert 0 < int(tenth.headers["Retry-After"]) <= 900
    assert "Wait" in soup(tenth).select_one(".invalid-feedback").text
    assert visitor.send("/sign-in", email=person[0], password=PASSWORD).status_code == 303


def test_a_form_without_its_token_changes_nothing(visitor, person):
    visitor.get("/sign-in")
    for data in ({}, {"csrf_token": "x"}):
        answer = visitor.post("/sign-in", data={"email": person[0], "password": PASSWORD, **data})
        assert answer.status_code == 403
    assert visitor.get("/account").status_code == 303


def test_signing_in_again_makes_a_new_login_and_ends_the_old_one(app, visitor, person, sign_in):
    client = sign_in(person[1])
    old = client.get_cookie("upshot").value
    with app.app_context(), transaction():
        token = logins.make_link(person[0])

    answer = client.post(f"/sign-in/link/{token}", data={"csrf_token": client.csrf})

    assert answer.status_code == 303
    assert client.get_cookie("upshot").value != old
    visitor.set_cookie("upshot", old)
    assert visitor.get("/account").status_code == 303


def test_after_signing_out_the_old_cookie_is_dead(app, person, sign_in):
    client = sign_in(person[1])
    old = client.get_cookie("upshot").value

    answer = client.post("/sign-out", data={"csrf_token": client.csrf})

    assert (answer.status_code, answer.location) == (303, "/sign-in")
    assert client.get_cookie("upshot") is None
    client.set_cookie("upshot", old)
    assert client.get("/account").status_code == 303


def test_a_sign_in_link_is_opened_often_and_used_once(app, visitor, person):
    with app.app_context(), transaction():
        token = logins.make_link(person[0])
    path = f"/sign-in/link/{token}"
    for _ in range(2):
        page = visitor.get(path)
        assert [button.text for button in soup(page).select("main button")] == ["Sign in"]
        assert visitor.get_cookie("upshot") is None
    visit = soup(visitor.get("/sign-in")).select_one("input[name=csrf_token]")["value"]

    assert visitor.post(path, data={"csrf_token": visit}).location == "/"
    assert visitor.get("/account").status_code == 200
    assert visitor.get(path).status_code == 404
    mine = soup(visitor.get("/account")).select_one("input[name=csrf_token]")["value"]
    assert visitor.post(path, data={"csrf_token": mine}).status_code == 404


def test_a_link_that_is_too_old_says_so(app, visitor, person):
    with app.app_context():
        with transaction():
            token = logins.make_link(person[0])
        with acting_as(person[1]), transaction():
            db.session.execute(update(OneTimeLink).values(expires_at=func.now()))
    page = visitor.get(f"/sign-in/link/{token}")

    assert page.status_code == 404
    assert "has expired" in soup(page).main.text


def test_the_demo_is_entered_with_one_button_and_only_where_it_is_offered(app, visitor, workspace, monkeypatch):
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin):
        email = people.get_person(admin.id, actor=admin).email
    # The process's database may hold the demo of another test, so that this one has a demo of its own.
    monkeypatch.setattr(logins, "DEMO_SLUG", workspace.slug)
    monkeypatch.setattr(logins, "DEMO_ADMIN", email)
    assert "Enter the demo" in soup(visitor.get("/sign-in")).main.text
    app.config["DEMO"] = False
    try:
        assert "Enter the demo" not in soup(visitor.get("/sign-in")).main.text
        assert visitor.send("/sign-in", "/demo/enter").status_code == 404
    finally:
        app.config["DEMO"] = True

    assert visitor.send("/sign-in", "/demo/enter", next="/account").location == "/account"
    assert email in visitor.get("/account").text


def test_an_invitation_is_accepted_with_a_name_and_a_password(app, visitor, person, workspace):
    email = f"new-{uuid4().hex[:10]}@example.test"
    with app.app_context(), acting_as(person[1]), transaction():
        token = people.invite_person(email=email, role="member", actor=person[1])
    path = f"/invite/{token}"
    page = soup(visitor.get(path))
    assert "Join Acme" in page.h1.text
    assert email in page.main.text
    wrong = visitor.send(path, name="Sam Okafor", password="short")
    assert wrong.status_code == 422
    assert soup(wrong).select_one("input[name=name]")["value"] == "Sam Okafor"
    assert soup(wrong).select_one("input[name=password]").has_attr("autofocus")

    assert visitor.send(path, name="Sam Okafor", password=PASSWORD).status_code == 303

    assert "Sam Okafor" in visitor.get("/account").text
    assert visitor.get(path).status_code == 404


def test_an_invitation_of_a_known_account_needs_its_password_or_its_login(
    app, visitor, person, make_workspace, sign_in
):
    other = make_workspace("Other")
    with app.app_context(), acting_as(other.actor("admin")), transaction():
        token = people.invite_person(email=person[0], role="member", actor=other.actor("admin"))
    path = f"/invite/{token}"
    here, wrong = f"test-{uuid4()}", {"name": "Sam", "password": "not the password"}
    assert visitor.send(path, address=here, **wrong).status_code == 422
    with app.app_context(), transaction():
        for _ in range(throttle.PER_PERSON - 2):
            throttle.count_attempt(person[0], here)
    assert visitor.send(path, address=here, **wrong).status_code == 429

    client = sign_in(person[1])
    assert soup(client.get(path)).select_one("input[name=password]") is None
    joined = client.post(path, data={"csrf_token": client.csrf})

    assert joined.status_code == 303
    assert "Other" in client.get("/").text


def test_only_paths_of_ours_are_gone_to(visitor, person):
    for wanted in (
        "//evil.test",
        "/\\evil.test",
        "https://evil.test",
        "evil",
        "/\t/evil.test",
        "javascript:x",
        "",
        None,
    ):
        assert local_path(wanted) == "/"
    assert local_path("/admin/settings?x=1#y") == "/admin/settings?x=1#y"
    answer = visitor.send("/sign-in", email=person[0], password=PASSWORD, next="//evil.test/x")
    assert answer.location == "/"


def test_switching_to_another_workspace_and_not_to_a_strangers(app, person, make_workspace, sign_in):
    other, foreign = make_workspace("Other place"), make_workspace("Foreign")
    with app.app_context(), acting_as(other.actor("owner")), transaction():
        people.create_person(email=person[0], name="x", role="member", actor=other.actor("owner"))
    client = sign_in(person[1])
    old = client.get_cookie("upshot").value
    offered = soup(client.get("/account")).select("input[name=workspace]")
    assert str(other.id) in {field["value"] for field in offered}
    for wrong in (str(foreign.id), str(uuid4()), "x"):
        assert client.post("/workspace", data={"csrf_token": client.csrf, "workspace": wrong}).status_code == 404
    assert client.get("/account").status_code == 200

    client.post("/workspace", data={"csrf_token": client.csrf, "workspace": str(other.id)})

    assert soup(client.get("/")).h1.text == "Other place"
    assert client.get("/admin/settings").status_code == 403
    assert client.get_cookie("upshot").value != old
    client.set_cookie("upshot", old)
    assert client.get("/account").status_code == 303


def test_the_start_page_knows_where_to_go(app, workspace, sign_in):
    assert re.match(r"/sign-in$", app.test_client().get("/").location)
    assert sign_in(workspace.actor("admin")).get("/").location == "/admin/agent-review/feedback"
    member = sign_in(workspace.actor("member")).get("/")
    assert member.status_code == 200
    assert "/account" in {link["href"] for link in soup(member).main.select("a")}


def test_an_invitation_tells_nobody_whether_its_address_has_an_account(app, person, make_workspace, sign_in):
    """An admin who invites an address and opens the link reads the same page either way."""
    admin = make_workspace("Other").actor("admin")
    client, pages = sign_in(admin), []
    for email in (person[0], f"new-{uuid4().hex[:10]}@example.test"):
        with app.app_context(), acting_as(admin), transaction():
            path = f"/invite/{people.invite_person(email=email, role='member', actor=admin)}"
        opened = client.get(path)
        sent = {"csrf_token": client.csrf, "name": "", "password": "short"}
        refused = client.post(path, data=sent, environ_base={"REMOTE_ADDR": f"test-{uuid4()}"})
        assert (opened.status_code, refused.status_code) == (200, 422)
        texts = [page.text.replace(email, "EMAIL").replace(path, "PATH") for page in (opened, refused)]
        pages.append([re.sub(r"next=[^\"]+", "", text) for text in texts])
    assert pages[0] == pages[1]


@pytest.mark.exhaustive
def test_many_addresses_that_guess_one_password_are_slowed_and_its_owner_is_not(app, visitor, person):
    email, _ = person
    assert visitor.send("/sign-in", email=email, password=PASSWORD).status_code == 303
    visitor.delete_cookie("upshot")
    guesser = app.test_client()
    token = soup(guesser.get("/sign-in")).select_one("input[name=csrf_token]")["value"]

    def guess(wanted: str, address: str, password: str) -> int:
        data = {"csrf_token": token, "email": wanted, "password": password}
        return guesser.post("/sign-in", data=data, environ_base={"REMOTE_ADDR": address}).status_code

    nobody, addresses = f"{uuid4().hex}@example.test", [f"test-{uuid4()}" for _ in range(40)]
    answers = {wanted: [guess(wanted, addresses[n % 40], "wrong") for n in range(120)] for wanted in (email, nobody)}
    assert answers[email] == answers[nobody], "who has no account is answered alike"
    assert answers[email].count(422) == 40, "each address has one attempt"
    assert answers[email].count(429) == 80

    assert visitor.send("/sign-in", email=email, password=PASSWORD).status_code == 303
    assert guess(email, f"test-{uuid4()}", PASSWORD) == 303, "also from a new address in a new browser"


def test_guesses_from_ever_new_addresses_leave_known_browsers_and_links(app, visitor, person):
    email, _ = person
    assert visitor.send("/sign-in", email=email, password=PASSWORD).status_code == 303
    visitor.delete_cookie("upshot")
    with app.app_context():
        for _ in range(throttle.MOST_PER_ACCOUNT):
            with acting_as(None), transaction():
                throttle.count_attempt(email, f"test-{uuid4()}")
    stranger = app.test_client()
    token = soup(stranger.get("/sign-in")).select_one("input[name=csrf_token]")["value"]
    data = {"csrf_token": token, "email": email, "password": PASSWORD}
    fresh = stranger.post("/sign-in", data=data, environ_base={"REMOTE_ADDR": f"test-{uuid4()}"})
    assert fresh.status_code == 429
    assert 0 < int(fresh.headers["Retry-After"]) <= 900
    with app.app_context(), transaction():
        link = logins.make_link(email)
    assert stranger.post(f"/sign-in/link/{link}", data={"csrf_token": token}).status_code == 303

    for _ in range(throttle.PER_PERSON):
        wrong = visitor.send("/sign-in", email=email, password="wrong").status_code
    assert wrong == 429, "a known browser has few guesses too"


def test_the_mark_of_a_browser_is_for_its_person_and_cannot_be_made_up(app, person):
    secret, mine, theirs = app.config["SECRET_KEY"], uuid4(), uuid4()
    cookie = cookies.add_mark(secret, cookies.add_mark(secret, "", mine), theirs)
    assert cookies.find_mark(secret, cookie, mine)
    assert cookies.find_mark(secret, cookie, theirs)
    assert cookies.find_mark(secret, cookie, uuid4()) is None
    for wrong in ("", "|", "x", "1.2.3", "9999999999.abc." + "0" * 64, cookie.replace(".", "-"), "é|ü.ö.ß"):
        assert cookies.find_mark(secret, wrong, mine) is None
    assert cookies.find_mark("another secret", cookie, mine) is None
    for _ in range(20):
        cookie = cookies.add_mark(secret, cookie, uuid4())
    assert len(cookie) < 600
    again = cookies.add_mark(secret, cookies.add_mark(secret, "", mine), mine)
    assert "|" not in again
