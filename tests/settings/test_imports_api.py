"""`/api/v1/import/messages` and `/api/v1/imports`: streamed in, listed, undone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from tests.conftest import Api, Workspace, soup

PATH = "/api/v1/import/messages"


@pytest.fixture
def ingest(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "ingest")


def run(name: str, text: str = "Hello") -> str:
    return json.dumps({"external_id": name, "agent": "desk", "messages": [{"role": "user", "content": text}]})


def send(key: Api, body: str | bytes, query: str = "", mimetype: str = "application/x-ndjson", **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {key.key}", **headers}
    return key.client.post(PATH + query, data=body, content_type=mimetype, headers=sent)


def test_a_file_comes_in_and_goes_out_again(workspace: Workspace, ingest: Api, api: Callable[..., Api]) -> None:
    admin = api(workspace.actor("admin"), "admin")
    file = "\n".join([run("1"), "nonsense", run("2")])
    answer = send(ingest, file, "?filename=desk.ndjson")
    assert answer.status_code == 200
    assert {name: answer.json[name] for name in ("created", "existing", "failed")} == {
        "created": 2, "existing": 0, "failed": 1,
    }  # fmt: skip
    assert [error["line"] for error in answer.json["errors"]] == [2]
    assert send(ingest, file).json["existing"] == 2
    listed = ingest.get("/api/v1/imports").json["items"]
    assert [(item["filename"], item["created"]) for item in listed] == [(None, 0), ("desk.ndjson", 2)]
    url = f"/api/v1/imports/{answer.json['import_id']}"
    assert ingest.delete(url).status_code == 403
    assert [admin.delete(url).status_code for _ in range(2)] == [204, 204]
    assert ingest.get("/api/v1/sessions").json["items"] == []
    assert ingest.get(url).json["undone_at"] is not None
    assert admin.delete(f"/api/v1/imports/{uuid4()}").status_code == 404
    assert send(ingest, file).json["created"] == 2


def test_more_than_a_mebibyte_in_all_is_fine(ingest: Api) -> None:
    file = "\n".join(run(str(number), "x" * 200_000) for number in range(8))
    answer = send(ingest, file)
    assert (answer.status_code, answer.json["created"]) == (200, 8)


def test_what_is_no_file_is_refused(ingest: Api, api: Callable[..., Api], workspace: Workspace) -> None:
    assert send(ingest, "").json["created"] == 0
    assert send(ingest, run("1"), mimetype="text/html").status_code == 415
    assert send(ingest, run("1"), **{"Content-Encoding": "gzip"}).status_code == 415
    assert send(ingest, run("1"), "?filename=" + "x" * 256).status_code == 400
    assert send(ingest, run("1"), "?tenant=other").status_code == 400
    assert send(api(workspace.actor("admin"), "feedback"), run("1")).status_code == 403
    hostile = b"\n".join(
        [
            b"[" * 5000,
            b'{"a":' * 5000,
            b'{"agent": "a", "cost": 1e999}',
            b'"\\u0000"',
            b"\xff\xfe",
            b"null",
            b"1" * 5000,
        ]
    )
    answer = send(ingest, hostile)
    assert (answer.status_code, answer.json["created"], answer.json["failed"]) == (200, 0, 7)
    assert ingest.get(f"/api/v1/imports/{answer.json['import_id']}").json["failed"] == 7
    assert ingest.get("/api/v1/imports").json["items"] == []
    huge = ingest.client.post(
        PATH,
        data=run("1"),
        content_type="application/x-ndjson",
        headers={"Authorization": f"Bearer {ingest.key}"},
        environ_overrides={"CONTENT_LENGTH": str(1024**3 + 1)},
    )
    assert huge.json is not None
    assert (huge.status_code, huge.json["detail"]) == (413, "The body is too large. Send at most 1 GiB.")


def test_the_page_lists_imports_and_undoes_one(
    app: Flask, workspace: Workspace, ingest: Api, sign_in: Callable[..., Any]
) -> None:
    admin = sign_in(workspace.actor("admin"))
    assert "No imports yet" in admin.get("/admin/settings/imports").text
    made = send(ingest, run("1"), "?filename=%3Cb%3Edesk.ndjson").json["import_id"]
    page = soup(admin.get("/admin/settings/imports"))
    assert "<b>desk.ndjson" in page.select_one(f"#import-{made}").get_text()  # type: ignore[union-attr]
    form = page.select_one(f"#undo-{made} form")
    assert form is not None
    undone = admin.post(str(form["action"]), data={"csrf_token": admin.csrf})
    assert undone.status_code == 303
    after = admin.get("/admin/settings/imports").text
    assert "deleted 1 session" in after
    assert f"undo-{made}" not in after
    assert ingest.get("/api/v1/sessions").json["items"] == []


def test_the_box_shows_what_would_be_stored(workspace: Workspace, sign_in: Callable[..., Any]) -> None:
    admin = sign_in(workspace.actor("admin"))
    url = "/admin/settings/masking"
    told = {"csrf_token": admin.csrf, "text": "Pay 4242 4242 4242 4242, write <i>sam@example.com</i>"}

    def masked(**headers: str) -> str:
        answer = admin.post(f"{url}/try", data=told, headers=headers)
        assert answer.status_code == 200
        found = soup(answer).select_one("#masked")
        assert found is not None
        return found.get_text()

    assert masked() == "Pay [masked:card], write <i>sam@example.com</i>"
    assert admin.post(url, data={"csrf_token": admin.csrf, "mask_emails": "1"}).status_code == 303
    assert masked(**{"HX-Request": "true"}) == "Pay [masked:card], write <i>[masked:email]</i>"
    page = soup(admin.get(url))
    checks = {box["name"]: box.has_attr("checked") for box in page.select("input[type=checkbox]")}
    assert checks == {"mask_emails": True, "mask_phones": False}
    long = admin.post(f"{url}/try", data={"csrf_token": admin.csrf, "text": "x" * 65_537})
    assert long.status_code == 422
    general = {"name": "Acme", "timezone": "UTC", "context_top_n": "8", "csrf_token": admin.csrf}
    assert admin.post("/admin/settings", data=general).status_code == 303
    assert masked().endswith("[masked:email]</i>")
