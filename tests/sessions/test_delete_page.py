"""Deleting several sessions at once: asked first, all or none, never a golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import AgentSession, AuditEntry, Feedback
from app.services.sessions import lists as session_lists
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from tests.conftest import Workspace, golden_mark, soup
from tests.lists.filling import several

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/sessions"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def ask(client: FlaskClient, **fields: Any) -> Any:
    return client.post(f"{URL}/delete", data={"csrf_token": client.csrf, **fields})  # type: ignore[attr-defined]


def test_deleting_several_sessions_asks_first(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, _ = several(app, workspace)
    admin = workspace.actor()
    client = sign_in(admin)
    ids = [str(made["quick"]), str(made["failed"])]
    page = soup(ask(client, which="ticked", ids=ids, next=f"{URL}?tag=test"))
    assert "Delete 2 sessions?" in page.text
    assert "You can’t undo this" in page.text
    form = page.select_one("#ask form")
    sent = {field["name"]: field["value"] for field in form.select("input")}
    assert len(soup(client.get(URL)).select("[data-row]")) == 4

    answer = client.post(form["action"], data=sent)
    assert answer.location == f"{URL}?tag=test"
    assert "Deleted 2 sessions." in soup(client.get(answer.location)).select_one("#toasts").text
    assert len(soup(client.get(URL)).select("[data-row]")) == 2
    with app.app_context(), acting_as(admin):
        lines = db.session.execute(
            select(AuditEntry.subject_id, AuditEntry.details).where(AuditEntry.action == "session.deleted")
        ).all()
        assert {line[0] for line in lines} == {made["quick"], made["failed"]}
        assert {line[1]["title"] for line in lines} == {"quick", "failed"}
        report = db.session.scalars(select(Feedback).where(Feedback.kind == "session_failure")).one()
        assert report.session_id is None
    assert client.post(form["action"], data=sent).status_code == 404


def test_all_that_match_are_deleted_with_htmx(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    several(app, workspace)
    client = sign_in(workspace.actor())
    sent = {"csrf_token": client.csrf, "which": "all", "next": f"{URL}?error=no"}  # type: ignore[attr-defined]
    part = soup(client.post(f"{URL}/delete", data=sent, headers=HTMX))
    assert part.select_one("dialog[open] h2").text == "Delete 3 sessions?"
    sent = {field["name"]: field["value"] for field in part.select_one("form[action]").select("input")}
    answer = soup(client.post(f"{URL}/delete/confirmed", data=sent, headers=HTMX))
    assert "No matches" in answer.select_one("#list").text
    assert "Deleted 3 sessions" in answer.text


def test_goldens_are_never_deleted(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, _ = several(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        session_store.append_events(made["quick"], [NewEvent("user.message", {"text": "Hello"})], actor=admin)
        db.session.execute(update(AgentSession).where(AgentSession.id == made["quick"]).values(meta=golden_mark()))
    client = sign_in(admin)
    for headers in ({}, HTMX):
        data = {"csrf_token": client.csrf, "which": "all", "next": URL}  # type: ignore[attr-defined]
        answer = client.post(f"{URL}/delete", data=data, headers=headers)
        assert answer.status_code == 409
        assert "1 of these 4 sessions is golden" in answer.get_data(as_text=True)
    with app.app_context(), acting_as(admin), pytest.raises(Refused, match="golden"):
        session_lists.delete_sessions(list(made.values()), actor=admin)
    assert len(soup(client.get(URL)).select("[data-row]")) == 4


def test_what_deleting_refuses(app: Flask, make_workspace: Callable[..., Workspace], sign_in: SignIn) -> None:
    workspace, foreign = make_workspace(), make_workspace("Other")
    made, _ = several(app, foreign)
    client = sign_in(workspace.actor())
    assert ask(client, which="ticked", ids="garbage").status_code == 400
    assert ask(client, which="ticked").status_code == 409
    assert ask(sign_in(workspace.actor("member")), which="all").status_code == 403
    with app.app_context(), acting_as(workspace.actor()):
        with pytest.raises(NotFound):
            session_lists.delete_sessions(list(made.values()), actor=workspace.actor())
        with pytest.raises(Invalid):
            session_lists.delete_sessions([], actor=workspace.actor())
        with pytest.raises(Invalid):
            session_lists.delete_sessions([uuid4() for _ in range(1001)], actor=workspace.actor())
    with app.app_context(), acting_as(workspace.actor("member")), pytest.raises(Forbidden):
        session_lists.delete_sessions([uuid4()], actor=workspace.actor("member"))
