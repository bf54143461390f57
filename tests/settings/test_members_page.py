"""Settings, Members."""

from __future__ import annotations

from uuid import uuid4

from app.db import acting_as
from app.services.workspaces import people
from tests.conftest import soup

URL = "/admin/settings/members"


def test_an_invitation_is_shown_once(workspace, sign_in):
    client, email = sign_in(workspace.actor("admin")), f"new-{uuid4().hex[:10]}@example.test"

    answer = client.post(URL, data={"csrf_token": client.csrf, "email": email, "role": "member"})

    assert answer.status_code == 201
    link = soup(answer).select_one("#link").text
    assert link.startswith("http://localhost/invite/")
    again = client.get(URL).text
    assert email in again
    assert link.rsplit("/", 1)[1] not in again
    withdraw = soup(client.get(URL)).select_one("form[action$='/withdraw']")["action"]
    assert client.post(withdraw, data={"csrf_token": client.csrf}).status_code == 303
    assert client.get(link.removeprefix("http://localhost")).status_code == 404
    assert client.post(withdraw, data={"csrf_token": client.csrf}).status_code == 404


def test_invalid_input_is_reported_under_its_field(workspace, sign_in):
    client = sign_in(workspace.actor("admin"))

    answer = client.post(URL, data={"csrf_token": client.csrf, "email": "sam@", "role": "member"})

    assert answer.status_code == 422
    field = soup(answer).select_one("input[name=email]")
    assert (field["value"], field["aria-invalid"]) == ("sam@", "true")
    assert field.has_attr("autofocus")


def test_an_admin_cannot_make_or_touch_an_owner(workspace, sign_in):
    client, owner, member = (
        sign_in(workspace.actor("admin")),
        workspace.actor("owner"),
        workspace.actor("member"),
    )
    page = soup(client.get(URL))
    assert page.select_one(f"#member-{owner.id} form") is None
    assert "Owner" not in page.select_one(f"#member-{member.id} select").text
    for path, fields in (
        (f"{URL}/{member.id}/role", {"role": "owner"}),
        (f"{URL}/{owner.id}/role", {"role": "member"}),
        (f"{URL}/{owner.id}/remove", {}),
        (URL, {"email": "x@example.test", "role": "owner"}),
    ):
        assert client.post(path, data={"csrf_token": client.csrf, **fields}).status_code == 403


def test_demotion_ends_the_cookie_at_once(workspace, sign_in):
    owner, admin = sign_in(workspace.actor("owner")), sign_in(workspace.actor("admin"))
    assert admin.get(URL).status_code == 200

    owner.post(f"{URL}/{workspace.actor('admin').id}/role", data={"csrf_token": owner.csrf, "role": "member"})

    assert admin.get(URL).status_code == 303
    assert "is now member" in soup(owner.get(URL)).select_one("#toasts").text


def test_removal_ends_the_cookie_at_once(app, workspace, sign_in):
    owner, member = sign_in(workspace.actor("owner")), sign_in(workspace.actor("member"))

    answer = owner.post(f"{URL}/{workspace.actor('member').id}/remove", data={"csrf_token": owner.csrf})

    assert answer.status_code == 303
    assert member.get("/account").status_code == 303
    with app.app_context(), acting_as(workspace.actor("owner")):
        listed = people.list_members(actor=workspace.actor("owner"))
    assert workspace.actor("member").id not in {one.id for one in listed}


def test_the_last_owner_is_refused_with_a_reason(workspace, sign_in):
    client, owner = sign_in(workspace.actor("owner")), workspace.actor("owner")
    for path, fields in ((f"{URL}/{owner.id}/role", {"role": "admin"}), (f"{URL}/{owner.id}/remove", {})):
        client.post(path, data={"csrf_token": client.csrf, **fields})
        assert "last owner" in soup(client.get(URL)).select_one("#toasts").text


def test_members_and_strangers_stay_out(app, workspace, make_workspace, sign_in):
    member, admin, foreign = (
        sign_in(workspace.actor("member")),
        sign_in(workspace.actor("admin")),
        make_workspace().actor("member").id,
    )
    assert member.get(URL).status_code == 403
    assert member.post(URL, data={"csrf_token": member.csrf, "email": "a@b.c"}).status_code == 403
    assert app.test_client().get(URL).status_code == 303
    for user_id in (foreign, uuid4()):
        for path, fields in ((f"{URL}/{user_id}/role", {"role": "admin"}), (f"{URL}/{user_id}/remove", {})):
            assert admin.post(path, data={"csrf_token": admin.csrf, **fields}).status_code == 404
    assert admin.post(URL, data={"email": "a@b.c", "role": "member"}).status_code == 403
