"""Search anything from the keyboard: opening, typing, moving, following, closing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flask import Flask
from playwright.sync_api import expect

from tests.conftest import Workspace
from tests.lists.filling import fill

BASE = "/admin/agent-review"
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


def test_searching_without_a_mouse(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback")
    dialog, field = page.locator("#palette"), page.get_by_role("combobox", name="Search anything")

    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    expect(dialog.get_by_role("option", name="Conversations")).to_have_attribute("aria-selected", "true")
    page.keyboard.type("bluefin")
    first = dialog.get_by_role("option", name="Compare Kestrel and Bluefin on EV/EBITDA")
    expect(first).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", first.get_attribute("id") or "")
    page.keyboard.press("ArrowDown")
    expect(first).to_have_attribute("aria-selected", "false")
    page.keyboard.press("ArrowUp")
    expect(first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/sessions/{filled.session}"))


def test_letters_in_the_dialog_are_letters_and_esc_goes_back(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback")
    dialog = page.locator("#palette")

    page.locator(".u-top [data-palette]").click()
    expect(dialog).to_be_visible()
    page.keyboard.type("jkx?")
    expect(page.get_by_role("combobox", name="Search anything")).to_have_value("jkx?")
    expect(dialog.locator(".u-palette-none")).to_be_visible()
    expect(page.locator("#keys")).to_be_hidden()
    expect(page.locator("#panel")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).to_have_url(re.compile(f"{BASE}/feedback$"))


def test_on_a_phone_and_in_the_dark(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor("member"), theme="dark", width=390, height=844)
    page = visitor.page
    visitor.go("/account")

    page.locator(".u-top [data-palette]").click()
    page.keyboard.type("kestrel")
    option = page.locator("#palette").get_by_role("option", name="Compare Kestrel and Bluefin on EV/EBITDA")
    expect(option).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    option.click()
    expect(page).to_have_url(re.compile(f"/sessions/{filled.session}"))
