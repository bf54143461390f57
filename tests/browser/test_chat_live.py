"""Talking to an agent in a real browser: the answer grows on the page, can be stopped, asked for again and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from app.jobs.executor import Executor
from tests.agents.running import Desk
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.loopback_model import LoopbackModel, say

BASE = "/admin/agent-review"
LONG = "The first half of a long answer. " * 6 + "Then the **second half** of it, with `code`. " * 6
expect.set_options(timeout=20_000)


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel(say(LONG.strip()), pace=0.02) as one:
        yield one


@pytest.fixture
def at_work(app: Flask, model: LoopbackModel) -> Iterator[None]:
    """An executor as `serve` has it, with the slow model as its server."""
    one = Executor(app, slots=4)
    one.settings = replace(one.settings, openai_base_url=model.base_url)
    one.start()
    yield
    one.stop()


@pytest.fixture
def desk(app: Flask, workspace: Workspace) -> Desk:
    desk = Desk(app, workspace)
    desk.agent("helper", instructions="Help.", tool_groups=["entities-read"], model="offline")
    desk.agent("slow", instructions="Take your time.", model="openai:slow")
    return desk


def begin(page: Page, agent: str, message: str) -> None:
    page.get_by_role("radio", name=agent).check()
    box(page).fill(message)
    page.keyboard.press("Enter")
    page.wait_for_url("**/chat/*-*")


def box(page: Page) -> Any:
    return page.locator("#say")


def test_from_a_question_to_the_feedback_desk(
    workspace: Workspace, desk: Desk, at_work: None, visit: Callable[..., Any]
) -> None:
    member = visit(workspace.actor("member"))
    page = member.page
    member.go("/chat")
    begin(page, "Helper", "Which records are there?")
    answer = page.locator("#m-1")
    expect(answer).to_contain_text("offline model: follows rules, no language model")
    expect(page.locator("#spoken")).to_contain_text("Helper: ")
    expect(box(page)).to_be_focused()
    expect(page.locator("#send-it")).to_be_visible()
    page.keyboard.type("One line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Enter")
    expect(page.locator("#m-2")).to_contain_text("One line\nand another")
    expect(box(page)).to_have_value("")
    expect(page.locator("#m-3")).to_be_visible()
    expect(box(page)).to_be_focused()

    page.locator("#not_helpful-m-3").click()
    form = page.get_by_role("form", name="What was wrong")
    form.get_by_label("Comment").fill("It did not look anything up")
    form.get_by_role("button", name="Send").click()
    expect(page.get_by_role("list", name="Your feedback")).to_contain_text("It did not look anything up")
    admin = visit(workspace.actor())
    admin.go(f"{BASE}/feedback?status=pending")
    rows = admin.page.locator("[data-row]")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("helper")
    rows.first.click()
    panel = admin.page.locator("#panel:not([hidden])")
    expect(panel).to_contain_text("One line")
    panel.get_by_role("link", name="helper v1", exact=True).click()
    expect(admin.page.get_by_role("heading", level=1)).to_contain_text("One line and another")


def test_an_answer_grows_and_a_reload_continues_it(
    workspace: Workspace, desk: Desk, model: LoopbackModel, at_work: None, visit: Callable[..., Any]
) -> None:
    member = visit(workspace.actor("member"))
    page = member.page
    model.hold()
    member.go("/chat")
    begin(page, "Slow", "Tell me everything")
    writing = page.locator("#writing")
    expect(writing).to_contain_text("The first half of a long answer. The first half")
    expect(writing).not_to_contain_text("second half")
    expect(page.locator("#spoken")).to_be_empty()
    page.keyboard.type("Written meanwhile")
    page.keyboard.press("Enter")
    expect(box(page)).to_have_value("Written meanwhile")
    expect(page.locator("#say-hint")).to_contain_text("Wait for the answer")
    check(page, "a conversation while an answer is written")

    other = visit(workspace.actor("member"))
    other.go(page.url.removeprefix(other.base))
    expect(other.page.locator("#writing")).to_contain_text("The first half")
    page.reload()
    expect(writing).to_contain_text("The first half of a long answer.")
    box(page).fill("Kept while it is written")
    model.release()
    for one in (page, other.page):
        expect(one.locator("#m-1 .u-say strong").last).to_have_text("second half")
        expect(one.locator("#writing")).to_have_count(0)
        expect(one.locator("#m-1")).to_have_count(1)
    expect(box(page)).to_have_value("Kept while it is written")
    expect(page.locator("#spoken")).to_contain_text("second half")
    assert len(model.asked) == 1


def test_stopped_in_the_middle_and_asked_again(
    workspace: Workspace, desk: Desk, model: LoopbackModel, at_work: None, visit: Callable[..., Any]
) -> None:
    member = visit(workspace.actor("member"))
    page = member.page
    model.hold()
    member.go("/chat")
    begin(page, "Slow", "Tell me everything")
    expect(page.locator("#writing")).to_contain_text("The first half")
    page.get_by_role("button", name="Stop").click()
    kept = page.locator("#m-1")
    expect(kept.locator(".u-who")).to_contain_text("stopped")
    expect(kept).to_contain_text("The first half")
    expect(page.locator("#writing")).to_have_count(0)
    expect(box(page)).to_be_focused()

    model.release()
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("#m-2")).to_contain_text("Answer 2 of 2")
    expect(page.locator("#m-2 .u-say strong").last).to_have_text("second half")
    expect(page.locator("#m-1")).to_have_count(0)
    page.get_by_role("link", name="Previous answer").click()
    expect(page.locator("#m-1")).to_contain_text("Answer 1 of 2")
    page.get_by_role("link", name="Next answer").click()
    expect(page.locator("#m-2")).to_contain_text("Answer 2 of 2")


def test_without_a_script(workspace: Workspace, desk: Desk, at_work: None, visit: Callable[..., Any]) -> None:
    member = visit(workspace.actor("member"), java_script_enabled=False)
    page = member.page
    member.go("/chat")
    page.get_by_role("radio", name="Helper").check()
    box(page).fill("Which records are there?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#m-1")).to_be_visible()
    box(page).fill("And now?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#m-3")).to_be_visible()
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("#m-4")).to_contain_text("Answer 2 of 2")
    page.get_by_role("link", name="Previous answer").click()
    expect(page.locator("#m-3")).to_contain_text("Answer 1 of 2")


def test_a_server_that_is_away_is_reported_quietly(
    workspace: Workspace, desk: Desk, model: LoopbackModel, at_work: None, visit: Callable[..., Any]
) -> None:
    member = visit(workspace.actor("member"))
    member.expected = ("Failed to fetch", "ERR_FAILED")
    page = member.page
    model.hold()
    member.go("/chat")
    begin(page, "Slow", "Tell me everything")
    expect(page.locator("#writing")).to_contain_text("The first half")
    page.route("**/run?*", lambda route: route.abort())
    expect(page.get_by_text("Can’t reach the server. Retrying…")).to_be_visible()
    expect(page.locator("#toasts [data-toast]")).to_have_count(0)
    page.unroute("**/run?*")
    model.release()
    expect(page.locator("#m-1 .u-say strong").last).to_have_text("second half")


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_talking_under_axe(
    workspace: Workspace, desk: Desk, at_work: None, visit: Callable[..., Any], theme: str, width: int
) -> None:
    desk.agent("broken", model="openai:no-such")
    member = visit(workspace.actor("member"), theme=theme, width=width)
    page = member.page
    member.go("/chat")
    check(page, "a new conversation")
    begin(page, "Helper", "Which records are there?")
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("#m-2")).to_be_visible()
    check(page, "a conversation with two answers")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
