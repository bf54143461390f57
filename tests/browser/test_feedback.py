"""Working a queue of feedback with both hands on the keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flask import Flask
from playwright.sync_api import Locator, Page, expect

from tests.conftest import Workspace
from tests.lists.filling import fill

URL = "/admin/agent-review/feedback"
expect.set_options(timeout=60_000)


def open_row(page: Page, row_id: Any) -> Locator:
    page.locator(f"#feedback-{row_id} [data-open]").click()
    return panel_of(page, row_id)


def panel_of(page: Page, row_id: Any) -> Locator:
    """The panel, once it shows this row."""
    panel = page.locator(f"#panel:not([hidden]):has([data-feedback='{row_id}'])")
    expect(panel.locator("header")).to_be_visible()
    return panel


def hold(page: Page, words: str) -> None:
    """A message that has the focus stays, however slow the machine is."""
    page.locator("[data-toast]", has_text=words).get_by_role("button", name="Undo").focus()


def order(page: Page) -> list[str]:
    return [str(row.get_attribute("id")).removeprefix("feedback-") for row in page.locator("[data-row]").all()]


def test_a_decision_opens_the_next_row(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{URL}?status=pending")
    first, second, third, last = order(page)
    open_row(page, first)

    page.keyboard.press("r")
    hold(page, "Reviewed")
    panel_of(page, second)
    hold(page, "Reviewed")
    expect(page.locator(f"#feedback-{first}").get_by_text("reviewed")).to_be_visible()
    expect(page.locator("#feedback-waiting")).to_contain_text("3 pending")
    page.keyboard.press("z")
    expect(page.locator("#feedback-waiting")).to_contain_text("4 pending")
    expect(page.locator(f"#feedback-{first}").get_by_text("reviewed")).to_have_count(0)

    panel_of(page, first)
    page.keyboard.press("j")
    page.keyboard.press("d")
    expect(page.get_by_label("Why dismiss it? (optional)")).to_be_focused()
    panel_of(page, second)
    page.keyboard.press("Escape")
    expect(page.get_by_label("Why dismiss it? (optional)")).to_be_hidden()
    page.keyboard.press("d")
    page.keyboard.type("Known, fixed in v4")
    page.keyboard.press("Enter")
    panel_of(page, third)
    expect(page.locator(f"#feedback-{second}").get_by_text("dismissed")).to_be_visible()
    page.keyboard.press("k")
    panel = panel_of(page, second)
    expect(panel.locator(".u-became")).to_contain_text("Known, fixed in v4")

    open_row(page, last)
    page.keyboard.press("r")
    expect(panel_of(page, last).locator(".u-badge", has_text="reviewed")).to_be_visible()


def test_rows_are_chosen_and_decided_on_the_list(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{URL}?status=pending")
    rows = page.locator("[data-row]")
    first, second, _, _ = order(page)

    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(rows).to_have_count(3)
    page.locator(f"#feedback-{second} [data-open]").focus()

    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    expect(page.get_by_text("3 selected")).to_be_visible()
    bar, toasts = page.locator(".u-select").bounding_box(), page.locator("#toasts").bounding_box()
    assert bar
    assert toasts is None or toasts["y"] >= bar["y"] + bar["height"] or toasts["x"] + toasts["width"] <= bar["x"]
    page.keyboard.press("d")
    expect(page.get_by_label("Why dismiss them? (optional)")).to_be_focused()
    page.keyboard.type("All of the old model")
    page.keyboard.press("Enter")
    hold(page, "Dismissed 3.")
    expect(page.get_by_text("No matches")).to_be_visible()
    page.keyboard.press("z")
    expect(rows).to_have_count(3)
    assert first not in order(page)


def test_rows_are_taken_and_the_queue_is_ones_own(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    admin, owner = workspace.actor(), workspace.actor("owner")
    visitor = visit(admin)
    page = visitor.page
    visitor.go(URL)
    first, second, *_ = order(page)

    panel = open_row(page, first)
    page.keyboard.press("t")
    expect(panel.get_by_role("button", name="Unassign me")).to_be_visible()
    expect(page.locator(f"#feedback-{first}").get_by_text(f"assigned to {admin.name}")).to_be_attached()
    panel.get_by_label("Assigned to").select_option(label=owner.name)
    expect(panel.get_by_role("button", name="Assign to me")).to_be_visible()
    expect(panel.locator(".u-became")).to_contain_text(f"Assigned to {owner.name}")
    panel.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("#panel")).to_be_hidden()

    for row_id in (first, second):
        page.locator(f"#feedback-{row_id} [data-select]").check()
    page.keyboard.press("t")
    page.get_by_role("link", name="2 assigned to you").click()
    expect(page).to_have_url(re.compile("assignee=me"))
    expect(page.locator("[data-row]")).to_have_count(2)
    expect(page.locator(".u-chip", has_text="assignee")).to_be_visible()


def test_the_panel_stays_while_its_row_is_replaced(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    admin, owner = workspace.actor(), workspace.actor("owner")
    visitor = visit(admin)
    page = visitor.page
    visitor.go(URL)
    panel = open_row(page, order(page)[0])
    held: list[Any] = []
    ahead = "hx-preloaded"
    page.route(
        "**/*panel=1*",
        lambda route: held.append(route) if not held and ahead not in route.request.headers else route.continue_(),
    )

    page.keyboard.press("t")
    with page.expect_response(re.compile("/assign$")):
        panel.get_by_label("Assigned to").select_option(label=owner.name)
    expect(page.locator("#toasts")).to_contain_text(f"Assigned to {owner.name}")
    held[0].continue_()

    expect(page.locator("#panel:not([aria-busy])")).to_be_visible()
    expect(panel.locator(".u-became")).to_contain_text(f"Assigned to {owner.name}")


def test_an_answer_is_assessed_and_talked_about(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    row_id = fill(app, workspace).ids["reaction"]
    visitor = visit(workspace.actor())
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(URL)
    panel = open_row(page, row_id)

    page.keyboard.press("q")
    expect(panel.get_by_label("Accuracy")).to_be_focused()
    page.keyboard.type("40")
    panel.get_by_label("Verdict").select_option("rejected")
    panel.get_by_label("wrong context").check()
    panel.get_by_label("Accuracy").press("Enter")
    expect(panel.locator(".u-facts", has_text="40 of 100")).to_be_visible()
    expect(panel.locator(".u-tag", has_text="wrong context")).to_be_visible()
    expect(panel.get_by_label("Accuracy")).to_be_hidden()

    page.locator(".u-panel-body").focus()
    page.keyboard.press("c")
    expect(panel.get_by_role("textbox", name="Comment")).to_be_focused()
    page.keyboard.type("Ask which period")
    page.keyboard.press("Enter")
    expect(panel.locator(".u-talk li")).to_have_count(1)
    expect(panel.get_by_role("textbox", name="Comment")).to_have_value("")
    panel.get_by_role("button", name="Delete your comment").click()
    expect(panel.locator(".u-talk li")).to_have_count(0)


def test_the_desk_can_be_used_by_everybody(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    from tests.browser.test_accessible import check

    row_id = fill(app, workspace).ids["edit"]
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{URL}?status=pending&assignee=nobody")
    page.get_by_text("Filter", exact=True).click()
    check(page, "filters")
    page.keyboard.press("Escape")
    panel = open_row(page, row_id)
    panel.get_by_role("textbox", name="Comment").fill("Ask which period")
    page.keyboard.press("Enter")
    expect(panel.locator(".u-talk li")).to_have_count(1)
    page.locator(".u-panel-body").focus()
    page.keyboard.press("q")
    check(page, "assessing", "dark")
    page.locator(".u-panel-body").focus()
    page.keyboard.press("d")
    check(page, "dismissing")
