"""The volume strip under a pointer, and a view that is saved and found again."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Flask
from playwright.sync_api import expect

from tests.conftest import Workspace
from tests.lists.filling import fill

FEEDBACK = "/admin/agent-review/feedback"
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


def test_a_drag_sets_the_days_and_the_view_is_kept(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{FEEDBACK}?status=pending")
    days = page.locator("#strip [data-day]")
    wanted = [days.nth(index).get_attribute("data-day") for index in (80, 89)]
    box = page.locator("#strip svg").bounding_box()
    assert box is not None
    step, middle = box["width"] / 90, box["y"] + box["height"] / 2

    page.mouse.move(box["x"] + step * 80.5, middle)
    expect(page.locator("[data-strip-text]")).to_contain_text("negative")
    page.mouse.down()
    page.mouse.move(box["x"] + step * 89.5, middle)
    page.mouse.up()
    expect(page).to_have_url(re.compile(rf"status=pending&from={wanted[0]}&to={wanted[1]}$"))
    expect(page.locator(".u-chip")).to_have_count(3)
    expect(page.locator("[data-row]").first).to_be_visible()

    page.locator("#views summary", has_text="Save view").click()
    page.get_by_label("View name").fill("Lately")
    page.locator("#views").get_by_role("button", name="Save").click()
    expect(page.locator("#views summary")).to_have_text("Lately")
    expect(page.locator(".u-chip")).to_have_count(3)
    page.locator(".u-chip a").first.click()
    expect(page.locator(".u-chip")).to_have_count(2)
    expect(page.locator("#views summary").first).to_have_text("Views")
    page.locator("#views summary").first.click()
    page.locator("#views").get_by_role("link", name="Lately").click()
    expect(page.locator(".u-chip")).to_have_count(3)


def test_a_click_means_one_day_on_a_phone_too(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor(), theme="dark", width=390, height=844)
    page = visitor.page
    visitor.go(FEEDBACK)
    box = page.locator("#strip svg").bounding_box()
    assert box is not None

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    today = {str((datetime.now(UTC) - timedelta(days=back)).date()) for back in (0, 1)}
    expect(page).to_have_url(re.compile(r"from=([0-9-]+)&to=\1$"))
    assert any(f"from={day}&" in page.url for day in today)
