"""An admin's round: all five tabs, searching, filtering, opening rows, and deciding, with mouse and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flask import Flask
from playwright.sync_api import Page, expect

from tests.conftest import Workspace
from tests.lists.filling import fill

BASE = "/admin/agent-review"
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


def opened(page: Page) -> Any:
    """The panel, once it shows something."""
    panel = page.locator("#panel:not([hidden])")
    expect(panel.locator("header")).to_be_visible()
    return panel


def undo(page: Page) -> Any:
    """The button of the toast. A toast that has the focus stays, however slow the machine is."""
    button = page.get_by_role("button", name="Undo")
    button.focus()
    return button


def closed(page: Page) -> None:
    expect(page.locator("#panel")).to_be_hidden()


def test_signing_in_and_visiting_every_tab(
    app: Flask, make_workspace: Callable[..., Workspace], visit: Callable[..., Any]
) -> None:
    from app.db import acting_as, transaction
    from app.services.workspaces import people

    workspace = make_workspace("Walk")
    fill(app, workspace)
    owner = workspace.actor("owner")
    with app.app_context(), acting_as(owner), transaction():
        email = f"walker-{workspace.slug}@example.test"
        people.create_person(email=email, name="Wanda Walker", role="admin", actor=owner, password="a long walk home")
    visitor = visit()
    page = visitor.page

    visitor.go(f"{BASE}/feedback")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill("a long walk home")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Feedback", level=1)).to_be_visible()
    for tab in ("Conversations", "Sessions", "Knowledge", "Evals", "Feedback"):
        page.get_by_role("navigation", name="Agent Review").get_by_role("link", name=re.compile(f"^{tab}")).click()
        expect(page.get_by_role("heading", name=tab, level=1)).to_be_visible()
        expect(page).to_have_url(re.compile(f"{BASE}/{tab.lower()}$"))


def test_searching_filtering_and_opening_a_row(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/sessions")
    rows = page.locator("[data-row]")
    expect(rows).to_have_count(2)

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("q=kestrel") else None)
    page.keyboard.press("/")
    # All at once: letter by letter a slow machine asks several times, and the last answer closes the menu again.
    page.keyboard.insert_text("kestrel")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("q=kestrel"))
    page.wait_for_timeout(1000)  # Longer than the pause after which typing asks again.
    assert len(asked) == 1, "the same words are asked for once"
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("combobox", name="Status").select_option("failed")
    page.get_by_role("button", name="Apply filters").click()
    expect(page.get_by_text("No matches")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()
    expect(rows).to_have_count(2)

    page.get_by_role("link", name="Compare Kestrel and Bluefin on EV/EBITDA").click()
    panel = opened(page)
    expect(panel.get_by_role("heading", level=2)).to_have_text("Compare Kestrel and Bluefin on EV/EBITDA")
    expect(panel.get_by_text("searchDeals")).to_be_visible()
    page.go_back()
    closed(page)
    expect(rows).to_have_count(2)


def test_keys_walk_open_and_close(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    for tab in ("conversations", "sessions", "feedback", "knowledge"):
        visitor.go(f"{BASE}/{tab}")
        names = [row.get_attribute("id") for row in page.locator("[data-row]").all()]

        page.keyboard.press("j")
        page.keyboard.press("Enter")
        opened(page)
        expect(page.locator("[data-row].is-open")).to_have_attribute("id", names[0])
        if len(names) > 1:
            page.keyboard.press("j")
            expect(page.locator("[data-row].is-open")).to_have_attribute("id", names[1])
            page.keyboard.press("k")
            expect(page.locator("[data-row].is-open")).to_have_attribute("id", names[0])
        page.keyboard.press("Escape")
        closed(page)
        expect(page).to_have_url(re.compile(f"{BASE}/{tab}$"))
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()


def test_dismissing_from_the_panel_and_taking_it_back(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    filled = fill(app, workspace)
    row_id = filled.ids["reaction"]
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback?status=pending")
    waiting = page.locator("#feedback-waiting")
    expect(waiting).to_contain_text("4 pending")
    row = page.locator(f"#feedback-{row_id}")
    row.locator("[data-open]").click()
    panel = opened(page)

    panel.get_by_text("Dismiss…").click()
    panel.get_by_label("Why dismiss it? (optional)").fill("Known, fixed in v4")
    panel.get_by_role("button", name="Dismiss", exact=True).click()
    undo(page)
    expect(page.locator("[data-row].is-open")).not_to_have_attribute("id", f"feedback-{row_id}")
    back = undo(page)
    expect(row.get_by_text("dismissed")).to_be_visible()
    expect(waiting).to_contain_text("3 pending")
    expect(page.locator(".u-tabs [aria-current]")).to_contain_text("3")

    back.click()
    expect(row.get_by_text("dismissed")).to_have_count(0)
    expect(waiting).to_contain_text("4 pending")


def test_several_rows_at_once_and_back(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback?status=pending")
    rows = page.locator("[data-row]")
    expect(rows).to_have_count(4)

    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.keyboard.press("d")
    page.get_by_label("Why dismiss them? (optional)").fill("Both are about the old model")
    page.locator(".u-select").get_by_role("button", name="Dismiss", exact=True).click()
    back = undo(page)
    expect(rows).to_have_count(2)
    expect(page.locator(".u-select")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"\?status=pending$"))

    back.click()
    expect(rows).to_have_count(4)


def test_knowledge_is_added_and_edited_in_place(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor())
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(f"{BASE}/knowledge")

    page.get_by_role("link", name="Add knowledge", exact=True).click()
    form = page.get_by_role("form", name="New knowledge")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_text("Enter the rule or fact.")).to_be_visible()
    form.get_by_label("Text").fill("Never name a bidder under NDA.")
    form.get_by_label("Kind").select_option("guideline")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="Never name a bidder under NDA.")).to_be_visible()
    expect(form).to_have_count(0)

    card = page.locator(f"article#knowledge-{filled.ids['correction']}")
    card.get_by_role("link", name="Edit").click()
    form = page.get_by_role("form", name="Edit correction")
    form.get_by_label("Text").fill("Use LTM EBITDA, never the last fiscal year.")
    form.get_by_role("button", name="Save").click()
    expect(card.get_by_role("link", name="Use LTM EBITDA, never the last fiscal year.")).to_be_visible()

    card.get_by_text("Deactivate…").click()
    card.get_by_label("Why deactivate it?").fill("The model does it by itself")
    card.get_by_role("button", name="Deactivate", exact=True).click()
    back = page.locator("[data-toast]", has_text="Deactivated").get_by_role("button", name="Undo")
    back.focus()
    expect(card.get_by_text("inactive")).to_be_visible()
    back.click()
    expect(card.get_by_text("inactive")).to_have_count(0)


def test_a_turn_is_flagged_in_place(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/conversations/{filled.chat}")

    page.locator("#m-1").hover()
    page.locator("#m-1").get_by_role("link", name="Flag").click()
    page.get_by_label("What should agents learn?").fill("It must say which period it used")
    page.get_by_role("button", name="Flag", exact=True).click()
    expect(page.locator(".u-note", has_text="It must say which period it used")).to_be_visible()
