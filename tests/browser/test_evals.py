"""Candidates with both hands on the keys: promoted in place with what should have happened, dismissed and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from playwright.sync_api import expect

from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.evals.test_golden import complain, promote
from tests.evals.test_pages import URL, asked_session, golden_mark_of

expect.set_options(timeout=60_000)


def test_a_candidate_becomes_golden_in_place(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    admin = workspace.actor()
    ids = [asked_session(app, admin, text) for text in ("Who has no touch?", "Log my call")]
    for session_id in ids:
        complain(app, workspace.actor("member"), session_id)
    visitor = visit(admin)
    page = visitor.page
    visitor.expected = ("422",)
    visitor.go(URL)

    page.keyboard.press("j")
    expect(page.locator(f"#request-{ids[1]} [data-open]")).to_be_focused()
    page.keyboard.press("g")
    form = page.locator(f"#candidate-{ids[1]} form.u-inplace")
    expect(form.get_by_label("It must mention…")).to_be_focused()
    form.get_by_label("It must mention…").check()
    expect(form.get_by_label("17", exact=True)).not_to_be_checked()
    form.get_by_label("Norrland Freight", exact=True).check()
    check(page, "the open form of a candidate")
    form.get_by_label("Set", exact=True).fill("Sales Ops")
    form.get_by_label("Note").fill("Count mail as a touch")
    form.get_by_role("button", name="Promote").click()
    expect(form.get_by_text("Use up to 60 lowercase letters")).to_be_visible()
    expect(form.get_by_label("Set", exact=True)).to_be_focused()
    expect(form.get_by_label("Note")).to_have_value("Count mail as a touch")

    form.get_by_label("Set", exact=True).fill("sales-ops")
    form.get_by_label("Must mention: add one").fill("18 accounts")
    form.get_by_label("Must mention: add one").press("Enter")
    expect(form.get_by_label("18 accounts", exact=True)).to_be_checked()
    expect(form.get_by_label("Must mention: add one")).to_be_focused()
    form.get_by_label("It must call…").check()
    form.get_by_label("Must not call: add one").fill("sendMail")
    form.get_by_role("button", name="Promote").click()
    expect(form.get_by_text("It changed something: searchAccounts. Say whether that was right")).to_be_visible()
    expect(form.get_by_label("It must mention…")).to_be_focused()
    form.get_by_label("What it changed was right").check()
    form.get_by_role("button", name="Promote").click()
    expect(page.locator("[data-toast]", has_text="Golden in sales-ops. 1 signal applied.")).to_be_visible()
    expect(page.locator("#candidates [data-row]")).to_have_count(1)
    expect(page.locator("#sets")).to_contain_text("sales-ops")
    golden = golden_mark_of(app, admin, ids[1])
    assert golden is not None
    assert golden["expected"] == {"mentions": ["Norrland Freight", "18 accounts"], "no_calls": ["sendMail"]}

    page.locator("#candidates [data-row] [data-open]").focus()
    page.keyboard.press("g")
    expect(page.locator("form.u-inplace")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("form.u-inplace")).to_have_count(0)


def test_keys_dismiss_and_undo(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    admin = workspace.actor()
    ids = [asked_session(app, admin, f"Question {number}") for number in range(3)]
    for session_id in ids:
        complain(app, workspace.actor("member"), session_id)
    visitor = visit(admin)
    page = visitor.page
    visitor.go(URL)

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.locator("[data-toast]", has_text="Dismissed 1 signal").get_by_role("button", name="Undo").focus()
    expect(page.locator("#candidates [data-row]")).to_have_count(2)
    page.keyboard.press("z")
    expect(page.locator("#candidates [data-row]")).to_have_count(3)
    page.locator("#candidates [data-row] [data-open]").nth(1).focus()
    page.keyboard.press("d")
    expect(page.locator("#candidates [data-row]")).to_have_count(2)
    expect(page.locator("#candidates [data-row] [data-open]").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_contain_text("Question 0")
    page.keyboard.press("g")
    expect(page.locator("#panel form.u-inplace")).to_be_visible()
    check(page, "a session's panel with the form that promotes it")


def test_goldens_and_their_set_for_everybody(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    admin = workspace.actor()
    ids = [asked_session(app, admin, text) for text in ("One", "One", "Three")]
    for session_id in ids:
        promote(app, admin, session_id, set_name="smoke", note="kept")
    visitor = visit(admin)
    page = visitor.page
    visitor.go(f"{URL}/sets/smoke")
    page.locator("summary", has_text="Change rules").click()
    check(page, "a set", "dark")
    page.locator("[data-row] [data-open]").first.click()
    expect(page.locator("#panel")).to_contain_text("No replays yet")
    check(page, "a golden beside its set")
    page.get_by_role("link", name="Revoke golden…").click()
    expect(page.locator("#ask")).to_contain_text("Revoke this golden?")
    page.locator("#ask").get_by_role("button", name="Cancel").click()
    expect(page.locator("#ask")).to_be_hidden()
    visitor.go(f"{URL}/{ids[0]}")
    check(page, "a golden", "dark")
