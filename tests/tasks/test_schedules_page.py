"""Scheduled tasks in the pages: set up by admins, seen by members, red where they failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.models import Task
from tests.agents.running import Desk
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
FORM = {"name": "Morning report", "agent": "assistant", "message": "Say what is new.", "cron": "0 7 * * 1-5"}


@pytest.fixture
def desk(app: Flask, workspace: Workspace) -> Desk:
    desk = Desk(app, workspace)
    desk.agent()
    return desk


def post(client: FlaskClient, path: str, **form: str) -> Any:
    return client.post(path, data={"csrf_token": client.csrf, **form})  # type: ignore[attr-defined]


def task_of(desk: Desk, name: str) -> Task:
    admin = desk.workspace.actor("admin")
    with desk.app.app_context(), acting_as(admin), transaction():
        return db.session.scalars(select(Task).where(Task.tenant_id == admin.tenant_id, Task.name == name)).one()


def test_an_admin_schedules_changes_runs_and_deletes(
    desk: Desk, sign_in: SignIn, run_sessions: Callable[[], int]
) -> None:
    client = sign_in(desk.workspace.actor("admin"))
    assert "Choose an agent…" in client.get("/tasks/new").text
    assert post(client, "/tasks", **FORM).status_code == 303
    row = soup(client.get("/tasks")).find("a", string="Morning report").find_parent("tr")
    assert "on working days at 07:00" in row.text
    task = task_of(desk, "Morning report")

    assert (
        post(client, f"/tasks/{task.id}", **FORM | {"name": "Evening report", "cron": "0 18 * * *"}).status_code == 303
    )
    page = client.get(f"/tasks/{task.id}").text
    assert "Evening report" in page
    assert "Every day at 18:00" in page

    started = post(client, f"/tasks/{task.id}/run")
    assert started.status_code == 303
    assert "/sessions/" in started.location
    again = post(client, f"/tasks/{task.id}/run")
    assert again.status_code == 409
    run_sessions()
    assert "done" in client.get(f"/tasks/{task.id}").text

    post(client, f"/tasks/{task.id}/switch", enabled="0")
    assert not task_of(desk, "Evening report").enabled
    post(client, f"/tasks/{task.id}/switch", enabled="1")
    assert task_of(desk, "Evening report").next_run_at
    assert post(client, f"/tasks/{task.id}/delete").status_code == 303
    assert client.get(f"/tasks/{task.id}").status_code == 404


def test_a_wrong_form_says_what_is_wrong_and_keeps_what_was_typed(desk: Desk, sign_in: SignIn) -> None:
    client = sign_in(desk.workspace.actor("admin"))
    answer = post(client, "/tasks", **FORM | {"cron": "never", "message": ""})
    assert answer.status_code == 422
    page = soup(answer)
    assert page.select_one("#f-cron")["value"] == "never"
    assert page.select_one("#f-cron-error")
    assert page.select_one("#f-message-error")
    assert page.select_one("#f-name")["value"] == "Morning report"


def test_the_next_runs_are_shown_while_one_writes(desk: Desk, sign_in: SignIn) -> None:
    client = sign_in(desk.workspace.actor("admin"))
    found = soup(client.get("/tasks/preview?cron=0+7+*+*+1", headers={"HX-Request": "true"}))
    assert "Every Monday at 07:00" in found.text
    assert [time.text[:3] for time in found.select("time")] == ["Mon"] * 3
    assert "Enter five fields" in client.get("/tasks/preview?cron=0+7").text
    assert "That date never occurs" in client.get("/tasks/preview?cron=0+0+31+2+*").text


def test_members_see_the_list_and_none_of_the_controls(desk: Desk, sign_in: SignIn) -> None:
    post(sign_in(desk.workspace.actor("admin")), "/tasks", **FORM)
    task = task_of(desk, "Morning report")
    client = sign_in(desk.workspace.actor("member"))
    page = soup(client.get("/tasks"))
    assert "Morning report" in page.text
    assert not page.select("main form")
    assert not page.select("main a[href^='/tasks/']")
    for path in ("/tasks/new", f"/tasks/{task.id}", "/tasks/preview?cron=0+7+*+*+1"):
        assert client.get(path).status_code == 403
    for path in ("/tasks", f"/tasks/{task.id}/run", f"/tasks/{task.id}/delete"):
        assert post(client, path, **FORM).status_code == 403


def test_a_failed_schedule_is_red_there_and_in_the_header(
    desk: Desk, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    admin = desk.workspace.actor("admin")
    client = sign_in(admin)
    post(client, "/tasks", **FORM)
    with count_queries() as before:
        assert not soup(client.get("/admin/feedback")).select(".u-alarm")
    task = task_of(desk, "Morning report")

    def end(**values: Any) -> None:
        with desk.app.app_context(), acting_as(admin), transaction():
            db.session.execute(update(Task).where(Task.id == task.id).values(**values))

    end(last_outcome="failed", last_detail="The mailbox did not answer.")
    with count_queries() as after:
        alarm = soup(client.get("/admin/feedback")).select_one(".u-alarm")
    assert len(after) == len(before)
    assert alarm["href"] == "/tasks"
    assert "1 task failed" in " ".join(alarm.text.split())
    assert "The mailbox did not answer." in soup(client.get("/tasks")).select_one(".u-failed").text
    assert not soup(sign_in(desk.workspace.actor("member")).get("/tasks")).select(".u-alarm")
    end(enabled=False)
    assert not soup(client.get("/tasks")).select(".u-alarm, .u-failed")


def test_the_review_task_leads_to_its_settings(desk: Desk, sign_in: SignIn) -> None:
    client = sign_in(desk.workspace.actor("admin"))
    review = task_of(desk, "Feedback Review")
    [link] = [link for link in soup(client.get("/tasks")).select("td.u-main a") if link.text == "Feedback Review"]
    assert link["href"] == "/admin/settings/review"
    assert client.get(f"/tasks/{review.id}").location == "/admin/settings/review"
    assert post(client, f"/tasks/{review.id}/delete").status_code == 409
    assert post(client, f"/tasks/{review.id}/switch", enabled="1").status_code == 303
    assert task_of(desk, "Feedback Review").enabled is True


def test_work_is_stopped_by_its_person_and_by_admins(desk: Desk, sign_in: SignIn) -> None:
    own, of_admin = desk.ask("Count."), desk.ask("Count.", by="admin")
    member = sign_in(desk.workspace.actor("member"))
    buttons = [form["action"] for form in soup(member.get("/tasks")).select("main form")]
    assert buttons == [f"/tasks/work/{own}/stop"]
    assert post(member, f"/tasks/work/{of_admin}/stop").status_code == 403
    admin = sign_in(desk.workspace.actor("admin"))
    for session_id in (own, of_admin):
        assert post(admin, f"/tasks/work/{session_id}/stop").status_code == 303
        assert desk.look(UUID(str(session_id))).session.status == "cancelled"
