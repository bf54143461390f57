"""One's own account."""

from __future__ import annotations

from uuid import uuid4

import pytest

from app.actor import Actor
from app.db import acting_as, transaction
from app.services.workspaces import people, throttle
from tests.conftest import soup

PASSWORD = "correct horse battery"


@pytest.fixture
def person(app, workspace):
    owner, email = workspace.actor("owner"), f"sam-{uuid4().hex[:10]}@example.test"
    with app.app_context(), acting_as(owner), transaction():
        user = people.create_person(email=email, name="Sam", role="member", actor=owner, password=PASSWORD)
        return Actor(user.id, workspace.id, "member", "Sam")


def test_a_new_password_ends_every_other_login(app, person, sign_in):
    here, there = sign_in(person), sign_in(person)
    fields = {"csrf_token": here.csrf, "old": PASSWORD, "new": PASSWORD + "2", "again": PASSWORD + "2"}

    answer = here.post("/account/password", data=fields)

    assert (answer.status_code, answer.location) == (303, "/account")
    assert "Changed your" in soup(here.get("/account")).select_one("#toasts").text
    assert there.get("/account").status_code == 303


def test_an_invalid_password_is_reported_under_its_field(app, person, sign_in):
    client = sign_in(person)
    cases = [
        ("old", {"old": "wrong", "new": PASSWORD + "2", "again": PASSWORD + "2"}),
        ("new", {"old": PASSWORD, "new": "short", "again": "short"}),
        ("again", {"old": PASSWORD, "new": PASSWORD + "2", "again": "other"}),
    ]
    for field, fields in cases:
        answer = client.post(
            "/account/password",
            data={"csrf_token": client.csrf, **fields},
            environ_base={"REMOTE_ADDR": f"test-{uuid4()}"},
        )
        control = soup(answer).select_one(f"input[name={field}]")
        assert answer.status_code == 422
        assert control["aria-invalid"] == "true"
        assert control.has_attr("autofocus")


def test_the_old_password_cannot_be_guessed_from_an_open_browser(app, person, sign_in):
    client, here = sign_in(person), f"test-{uuid4()}"
    with app.app_context(), acting_as(person):
        with transaction():
            email = people.get_person(person.id, actor=person).email
        with transaction():
            for _ in range(throttle.PER_PERSON - 1):
                throttle.count_attempt(email, here)
    fields = {"csrf_token": client.csrf, "old": "wrong", "new": PASSWORD + "2", "again": PASSWORD + "2"}
    answer = client.post("/account/password", data=fields, environ_base={"REMOTE_ADDR": here})

    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0


def test_other_logins_are_listed_and_ended(person, workspace, sign_in):
    here, there, third = sign_in(person), sign_in(person), sign_in(person)
    stranger = sign_in(workspace.actor("other"))
    forms = [form["action"] for form in soup(here.get("/account")).select("form[action$='/end']")]
    assert len(forms) == 2

    assert stranger.post(forms[0], data={"csrf_token": stranger.csrf}).status_code == 404
    assert here.post(forms[0], data={"csrf_token": here.csrf}).status_code == 303
    assert sorted([there.get("/account").status_code, third.get("/account").status_code]) == [200, 303]
    here.post("/account/logins/end-others", data={"csrf_token": here.csrf})

    assert [client.get("/account").status_code for client in (here, there, third)] == [200, 303, 303]


def test_a_name_is_changed_or_refused_in_place(workspace, sign_in):
    client = sign_in(workspace.actor("member"))
    wrong = client.post("/account/name", data={"csrf_token": client.csrf, "name": "x" * 121})
    assert wrong.status_code == 422
    assert soup(wrong).select_one("input[name=name]")["value"] == "x" * 121

    client.post("/account/name", data={"csrf_token": client.csrf, "name": "<b>Sam</b>"})

    page = client.get("/account")
    assert "&lt;b&gt;Sam&lt;/b&gt;" in page.text
    assert "<b>Sam</b>" not in page.text
