"""A long session in a real browser: the rest comes while one scrolls, times are the viewer's own, sessions are deleted
with the keyboard."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Flask
from playwright.sync_api import expect

from app.db import acting_as, transaction
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Workspace

BASE = "/admin/agent-review/sessions"
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
expect.set_options(timeout=60_000)


def store(app: Flask, workspace: Workspace, title: str, events: int = 0) -> UUID:
    admin = workspace.actor()
    kinds = ("user.message", "agent.message")
    made = [NewEvent(kinds[n % 2], {"text": f"line {n} end"}, NOON + timedelta(seconds=n)) for n in range(events)]
    with app.app_context(), acting_as(admin), transaction():
        new = NewSession(agent="long-runner", title=title, events=made, status="completed")
        return session_store.create_session(new, actor=admin)[0].id


def test_the_rest_of_a_session_comes_while_scrolling(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    session_id = store(app, workspace, "A long day", 350)
    visitor = visit(workspace.actor(), timezone_id="Asia/Tokyo", locale="en-GB")
    page = visitor.page
    visitor.go(f"{BASE}/{session_id}")
    first = page.locator(".u-turn").first.locator("time")
    expect(first).to_have_text("21:00:00")
    expect(first).to_have_attribute("title", re.compile("15 Jan 2026"))

    last = page.get_by_text("line 349 end")
    deadline = time.monotonic() + 90
    while not last.count() and time.monotonic() < deadline:
        page.locator(".u-turn").last.scroll_into_view_if_needed()
        page.wait_for_timeout(100)
    expect(last).to_have_count(1)
    expect(page.locator(".u-turn")).to_have_count(350)
    expect(page.locator(".u-next")).to_have_count(0)
    expect(page.locator(".u-turn").last.locator("xpath=preceding::time[1]")).to_have_text(re.compile("^21:05:"))


def test_without_a_script_there_is_a_link(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    session_id = store(app, workspace, "A long day", 150)
    visitor = visit(workspace.actor(), java_script_enabled=False)
    page = visitor.page
    visitor.go(f"{BASE}/{session_id}")
    page.get_by_role("link", name="Show more").click()
    expect(page.get_by_text("line 149 end")).to_be_visible()
    page.get_by_role("link", name="Show from the start").click()
    expect(page.get_by_text("line 0 end")).to_be_visible()


def test_sessions_are_deleted_with_a_button_and_no_letter(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    for name in ("one", "two", "three"):
        store(app, workspace, name)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(BASE)
    rows = page.locator("[data-row]")
    expect(rows).to_have_count(3)

    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.keyboard.press("d")
    page.keyboard.press("Delete")
    page.keyboard.press("Backspace")
    ask = page.get_by_role("dialog", name="Delete 2 sessions?")
    page.wait_for_timeout(300)
    expect(ask).to_have_count(0)
    page.get_by_role("button", name="Delete…").click()
    expect(ask).to_be_visible()
    ask.get_by_role("button", name="Cancel").click()
    expect(ask).to_be_hidden()
    expect(rows).to_have_count(3)

    page.get_by_role("button", name="Delete…").click()
    ask.get_by_role("button", name="Delete 2 sessions").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_text("Deleted 2 sessions.")).to_be_visible()


def test_a_turn_of_a_later_part_is_flagged_in_place(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    session_id = store(app, workspace, "A long day", 130)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/{session_id}")
    page.locator(".u-turn").last.scroll_into_view_if_needed()
    turn = page.locator(".u-turn", has_text="line 129 end")
    turn.scroll_into_view_if_needed()
    turn.hover()
    turn.get_by_role("link", name="Flag").click()
    page.get_by_label("What should agents learn?").fill("Say it shorter")
    page.get_by_role("button", name="Flag", exact=True).click()
    note = page.locator(".u-moment", has_text="line 129 end").locator(".u-note")
    expect(note).to_contain_text("Say it shorter")
    expect(page.locator("form.u-inplace")).to_have_count(0)
    expect(page.locator(".u-turn")).to_have_count(130)
