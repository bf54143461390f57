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
