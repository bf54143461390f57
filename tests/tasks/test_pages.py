"""What is scheduled, what runs and how it ended; nothing of other people's chats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.formats.cron import describe_cron
from app.services.sessions import start as session_start
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from app.services.tasks import schedules as task_schedules
from tests.agents.running import Desk
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]


def test_schedules_read_as_words_where_they_are_plain() -> None:
    said = {
        "* * * * *": "every minute",
        "0 * * * *": "every hour",
        "15 * * * *": "every hour at 15 past",
        "*/10 * * * *": "every 10 minutes",
        "0 */6 * * *": "every 6 hours",
        "30 7 * * *": "every day at 07:30",
        "0 9 * * 1-5": "on working days at 09:00",
        "0 9 * * 7": "every Sunday at 09:00",
        "0 6 1 * *": "on day 1 of every month at 06:00",
    }
    for cron, words in said.items():
        assert describe_cron(cron) == words
    for cron in (
        "0 6 1 1 *",
        "1,2 * * * *",
        "0 25 * * *",
        "0 6 1 * 1",
        "0 */5 * * *",
        "5 */2 * * *",
        "@daily",
        "",
        "0 9 * * 9",
        "٣ * * * *",
    ):
        assert describe_cron(cron) == "", cron


def test_scheduled_work_and_its_state(workspace: Workspace, app: Flask, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("member"))
    page = soup(client.get("/tasks"))
    assert "No work yet" in page.select_one(".u-blank").text
    assert page.select_one(".u-blank a")["href"] == "/chat"

    owner = workspace.actor("owner")
    [review] = page.select("table tbody tr")
    assert "Feedback Review" in review.text
    assert not review.select("a"), "members do not see what a review read"
    Desk(app, workspace).agent("ours", instructions="Read.")
    with app.app_context(), acting_as(owner), transaction():
        plan = task_schedules.Plan(
            name="Pipeline report", agent="ours", message="Which deals moved?", cron="30 7 * * *"
        )
        task_schedules.create_task(plan, actor=owner)
    row = soup(client.get("/tasks")).select("table tbody tr")[-1].text
    assert "Pipeline report" in row
    assert "every day at 07:30" in row
    assert "on" in row


def test_what_runs_and_what_ended(
    workspace: Workspace, app: Flask, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    other, member = workspace.actor("other"), workspace.actor("member")
    with app.app_context(), acting_as(other), transaction():
        for title, kind, status in (
            ("Read the teaser", "agent", "running"),
            ("Extract it again", "agent", "pending"),
            ("Sort the inbox", "agent", "failed"),
            ("A private question", "chat", "completed"),
            ("A private wait", "chat", "pending"),
        ):
            error = "The mailbox did not answer" if status == "failed" else None
            new = NewSession(agent="extractor", title=title, session_type=kind, status=status, error=error)
            session_store.create_session(new, actor=other)

    Desk(app, workspace).agent("ours", instructions="Read.")
    with app.app_context(), acting_as(other), transaction():
        ours, _ = session_store.create_session(NewSession(agent="ours", title="Summarise it"), actor=other)
        waits = ours.id

    client = sign_in(member)
    page = client.get("/tasks").text
    for words in ("Read the teaser", "Summarise it", "Sort the inbox", "The mailbox did not answer"):
        assert words in page
    # The extractor runs elsewhere: whether it will ever take this up is not for us to say.
    assert "Extract it again" not in page
    assert soup(client.get("/tasks")).select_one("[aria-labelledby=open] .u-count").text == "2"
    assert "private" not in page
    assert "A private question" in sign_in(other).get("/tasks").text
    for actor in (member, workspace.actor("admin")):
        browser = sign_in(actor)
        with count_queries() as seen:
            browser.get("/tasks")
        assert len(seen) <= 8
    # What waits here would be run by whichever test runs agents next.
    with app.app_context(), acting_as(other), transaction():
        session_start.stop_run(waits, actor=other)


def test_sessions_lead_to_tasks_and_members_find_all_three(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("member"))
    moved = client.get("/sessions")
    assert (moved.status_code, moved.location) == (303, "/tasks")
    bar = soup(client.get("/tasks")).select_one(".u-nav")
    assert [link["href"] for link in bar.select("a")] == ["/", "/chat", "/entities", "/tasks"]
    assert bar.select_one("a[aria-current]")["href"] == "/tasks"
