"""Settings, API keys."""

from __future__ import annotations

from uuid import uuid4

from app.services.workspaces import keys
from tests.conftest import soup

URL = "/admin/settings/keys"


def make(client, **fields):
    data = {"csrf_token": client.csrf, "name": "CI", "scopes": ["admin"], **fields}
    return client.post(URL, data=data)


def test_a_key_is_shown_once_works_and_is_revoked_at_once(app, workspace, sign_in):
    client = sign_in(workspace.actor("admin"))

    answer = make(client, name="<i>deal</i>", expires="2099-12-31")

    assert answer.status_code == 201
    key = soup(answer).select_one("#key").text
    page = client.get(URL)
    assert key not in page.text
    assert key[:10] in page.text
    assert "<i>deal</i>" not in page.text
    assert "31 Dec 2099" in page.text
    headers = {"Authorization": f"Bearer {key}"}
    with keys.writing:
        assert app.test_client().get("/api/admin/settings", headers=headers).status_code == 200
        assert "just now" in soup(client.get(URL)).select_one("table").text

    revoke = soup(page).select_one("form[action$='/revoke']")["action"]
    assert client.post(revoke, data={"csrf_token": client.csrf}).status_code == 303

    assert app.test_client().get("/api/admin/settings", headers=headers).status_code == 401
    assert client.post(revoke, data={"csrf_token": client.csrf}).status_code == 404
    assert soup(client.get(URL)).select_one("table") is None


def test_invalid_input_is_reported_and_kept(workspace, sign_in):
    client = sign_in(workspace.actor("admin"))
    for field, wrong in (
        ("name", {"name": " ", "scopes": ["ingest"]}),
        ("scopes", {"scopes": []}),
        ("scopes", {"scopes": ["root"]}),
        ("expires", {"expires": "2001-01-01"}),
        ("expires", {"expires": "soon"}),
    ):
        answer = make(client, **wrong)
        page = soup(answer)
        assert answer.status_code == 422
        assert page.select_one(f"[name={field}]")["aria-invalid"] == "true"
        assert page.select_one("input[value=ingest]").has_attr("checked") == ("ingest" in wrong.get("scopes", []))
    assert soup(client.get(URL)).select_one("table") is None


def test_keys_do_not_open_pages(app, workspace, sign_in):
    key = soup(make(sign_in(workspace.actor("admin")))).select_one("#key").text

    assert app.test_client().get(URL, headers={"Authorization": f"Bearer {key}"}).status_code == 303


def test_members_and_strangers_stay_out(app, workspace, make_workspace, sign_in):
    member, admin = sign_in(workspace.actor("member")), sign_in(workspace.actor("admin"))
    other = sign_in(make_workspace().actor("admin"))
    make(other)
    foreign = soup(other.get(URL)).select_one("form[action$='/revoke']")["action"]
    assert member.get(URL).status_code == 403
    assert make(member).status_code == 403
    assert app.test_client().get(URL).status_code == 303
    for path in (foreign, f"{URL}/{uuid4()}/revoke"):
        assert admin.post(path, data={"csrf_token": admin.csrf}).status_code == 404
    assert soup(other.get(URL)).select_one("table")
