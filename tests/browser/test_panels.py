"""Room on the page: what a list is about beside an open panel, what a toast covers, and where names stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from tests.agents.running import Desk
from tests.conftest import Workspace
from tests.evals.test_golden import complain
from tests.evals.test_pages import asked_session
from tests.lists.filling import fill

BASE = "/admin/agent-review"
LEAST = 220
LISTS = (f"{BASE}/feedback", f"{BASE}/sessions", f"{BASE}/conversations", f"{BASE}/evals", "/entities")
expect.set_options(timeout=20_000)


def box(page: Page, selector: str) -> Any:
    found = page.locator(selector).first.bounding_box()
    assert found is not None, selector
    return found


@pytest.mark.parametrize("width", [1280, 1440])
def test_a_list_beside_its_panel_says_what_each_row_is(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], width: int
) -> None:
    fill(app, workspace)
    complain(
        app, workspace.actor("member"), asked_session(app, workspace.actor(), "Who has had no touch for thirty days?")
    )
    visitor = visit(workspace.actor(), width=width)
    page = visitor.page
    for path in LISTS:
        visitor.go(path)
        row = page.locator("[data-row][data-href]")
        row.first.locator("[data-open]").click()
        expect(page.locator("#panel:not([hidden]) header")).to_be_visible()
        assert box(page, "[data-row] td.u-main")["width"] >= LEAST, path
        table = box(page, ".u-table:has([data-row])")
        assert table["x"] + table["width"] <= box(page, "#panel")["x"], path


def test_on_a_phone_the_arrow_to_the_left_is_on_the_left(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor(), width=390, height=844)
    page = visitor.page
    visitor.go(f"{BASE}/feedback")
    page.locator("[data-row] [data-open]").first.click()
    expect(page.locator("#panel:not([hidden]) header")).to_be_visible()
    assert box(page, "[data-walk='-1']")["x"] < box(page, "[data-walk='1']")["x"]


@pytest.mark.parametrize("known", [True, False])
def test_on_a_phone_the_api_page_does_not_scroll_sideways(
    workspace: Workspace, visit: Callable[..., Any], known: bool
) -> None:
    visitor = visit(workspace.actor() if known else None, width=390, height=844)
    visitor.go("/api/docs")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [1280, 390])
def test_a_message_covers_neither_what_one_writes_nor_how_to_send_it(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], width: int
) -> None:
    Desk(app, workspace).agent("helper", instructions="Help.")
    visitor = visit(workspace.actor("member"), width=width)
    page = visitor.page
    visitor.go("/chat")
    page.evaluate("upshot.say('Copied.', 'success')")
    toast, writing = box(page, "#toasts"), box(page, ".u-composer")
    apart = toast["y"] + toast["height"] <= writing["y"] or toast["x"] >= writing["x"] + writing["width"]
    assert apart, (toast, writing)


def test_a_box_that_was_made_larger_is_replaced_without_a_complaint(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    """htmx writes attributes of what was there onto what comes; the CSP refuses a style and the visitor complains."""
    row = fill(app, workspace).ids["proposed"]
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/knowledge?state=proposed")
    page.locator(f"#knowledge-{row} [data-open]").focus()
    for _ in range(2):
        page.evaluate("for (const box of document.querySelectorAll('textarea')) box.style.height = '120px'")
        page.keyboard.press("a")
        expect(page.locator("#count-knowledge")).to_be_empty()
        page.evaluate("for (const box of document.querySelectorAll('textarea')) box.style.height = '120px'")
        page.get_by_role("button", name="Undo").last.click()
        expect(page.locator("#count-knowledge")).to_contain_text("1 proposed")
        expect(page.locator(f"article#knowledge-{row} textarea")).to_have_count(1)
        page.locator(f"#knowledge-{row} [data-open]").focus()


def test_names_in_the_timeline_stand_beside_the_bars(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor(), width=1280)
    page = visitor.page
    visitor.go(f"{BASE}/sessions/{filled.session}")
    names, bars = box(page, ".u-wave-names"), box(page, ".u-wave svg")
    assert names["width"] > 0
    assert names["x"] + names["width"] <= bars["x"]
