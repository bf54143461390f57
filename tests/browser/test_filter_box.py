"""The filter box with mouse and keys: suggestions, chips, values in the list, and the three actions of a question."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.lists.filling import Filled, fill

BASE = "/admin/agent-review"
expect.set_options(timeout=60_000)


@pytest.fixture
def filled(app: Flask, workspace: Workspace) -> Filled:
    return fill(app, workspace)


def chips(page: Page) -> Any:
    return page.locator(".u-filters .u-chip")


def box(page: Page) -> Any:
    return page.locator("#list-q")


def test_suggestions_lead_to_a_chip_and_backspace_takes_it_off(
    filled: Filled, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/sessions")
    page.keyboard.press("/")
    page.keyboard.type("ag")
    option = page.get_by_role("option", name="agent:", exact=True)
    expect(option).to_be_visible()
    expect(box(page)).to_have_attribute("aria-expanded", "true")
    check(page, "suggestions")
    page.keyboard.press("ArrowDown")
    expect(box(page)).to_have_attribute("aria-activedescendant", str(option.get_attribute("id")))
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="deal-analyst")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(chips(page)).to_have_text([re.compile("agent deal-analyst")])
    expect(page).to_have_url(re.compile(r"sessions\?agent=deal-analyst$"))
    expect(box(page)).to_be_focused()
    expect(box(page)).to_have_value("")
    expect(page.get_by_role("option")).to_have_count(0)
    page.keyboard.press("Backspace")
    expect(chips(page)).to_have_count(0)
    expect(page).to_have_url(re.compile(r"sessions$"))
    page.keyboard.press("Escape")
    expect(box(page)).not_to_be_focused()


def test_one_phrase_answers_a_question(filled: Filled, workspace: Workspace, visit: Callable[..., Any]) -> None:
    """All negative feedback on one agent in the last week that mentions a word."""
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback")
    page.keyboard.press("/")
    page.keyboard.type("rating:negative agent:deal-analyst last 7 days year")
    page.keyboard.press("Enter")
    expect(chips(page)).to_have_count(3)
    expect(box(page)).to_have_value("year")
    expect(page.locator("[data-row]")).to_have_count(1)
    expect(page.locator(f"#feedback-{filled.ids['reaction']}")).to_be_visible()
    expect(page).to_have_url(re.compile("q=year&rating=negative&agent=deal-analyst&from=7d$"))
    page.reload()
    expect(chips(page)).to_have_count(3)

    visitor.expected = ("422",)
    box(page).fill("rating:purple")
    page.keyboard.press("Enter")
    expect(page.get_by_text("use one of positive, negative, neutral")).to_be_visible()
    expect(box(page)).to_have_value("rating:purple")


def test_a_click_on_a_value_offers_its_rows_or_all_others(
    filled: Filled, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    """All negative feedback on one agent that mentions a word, by the mouse: two clicks on a cell, and the word."""
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/sessions")
    row = page.locator(f"#session-{filled.session}")
    row.get_by_role("link", name="deal-analyst").click()
    only, without = page.get_by_role("menuitem", name="Only deal-analyst"), page.get_by_role("menuitem", name="Not ")
    expect(only).to_be_focused()
    check(page, "the menu of a value")
    expect(page.locator("#panel")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(only).to_have_count(0)

    row.get_by_role("link", name="deal-analyst").click()
    page.keyboard.press("ArrowDown")
    expect(without).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"sessions\?agent=-deal-analyst$"))
    expect(row).to_have_count(0)
    expect(chips(page)).to_have_text([re.compile("agent not deal-analyst")])
    page.go_back()
    expect(row).to_be_visible()
    row.locator(".k-feedback a.is-fail").click()
    page.get_by_role("menuitem", name="Only negative").click()
    expect(page).to_have_url(re.compile(r"sessions\?rating=negative$"))
    expect(row).to_be_visible()
    row.locator(".k-type").click(position={"x": 80, "y": 4})
    expect(page.locator("#panel header")).to_be_visible()


def test_columns_are_chosen_in_their_menu(filled: Filled, workspace: Workspace, visit: Callable[..., Any]) -> None:
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback?status=pending")
    expect(page.locator("th.k-agent")).to_be_visible()
    expect(page.locator("th.k-assignee")).to_be_hidden()
    page.locator("summary", has_text="Columns").click()
    check(page, "the menu of columns", first="dark")
    page.get_by_role("checkbox", name="Agent", exact=True).uncheck()
    page.get_by_label("Hide columns that are the same in every row").uncheck()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile(r"feedback\?status=pending$"))
    expect(page.locator("th.k-agent")).to_be_hidden()
    expect(page.locator("th.k-assignee")).to_be_visible()
    # A row that is swapped alone has the same columns.
    reaction = page.locator(f"#feedback-{filled.ids['reaction']}")
    reaction.locator("[data-open]").click()
    page.locator("#panel header").wait_for()
    page.keyboard.press("r")
    expect(reaction.get_by_text("reviewed")).to_be_visible()
    expect(reaction.locator(".k-agent")).to_be_hidden()


def test_the_same_without_a_script(filled: Filled, workspace: Workspace, visit: Callable[..., Any]) -> None:
    visitor = visit(workspace.actor(), java_script_enabled=False)
    page = visitor.page
    visitor.go(f"{BASE}/sessions")
    page.locator(f"#session-{filled.failed} .k-agent a").click()
    expect(page).to_have_url(re.compile(r"sessions\?agent=sales-ops$"))
    expect(page.locator("[data-row]")).to_have_count(1)
    page.get_by_role("link", name="Remove filter agent sales-ops").click()
    box(page).fill("-agent:sales-ops last 7 days")
    page.keyboard.press("Enter")
    expect(chips(page)).to_have_text([re.compile("agent not sales-ops"), re.compile("last 7 days")])
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="Took", exact=True).uncheck()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile(r"sessions\?agent=-sales-ops&from=7d$"))
    expect(page.locator("th.k-took")).to_be_hidden()
