"""An agent from its first form to a run that is followed and stopped, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Flask
from playwright.sync_api import Page, expect

from app.jobs.executor import Executor
from tests.agents.running import Desk
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.lists.filling import fill
from tests.loopback_model import LoopbackModel, say

expect.set_options(timeout=20_000)
AN_AGENT = re.compile(r"/admin/agents/[0-9a-f-]{36}$")
A_RUN = re.compile(r"/admin/agents/[0-9a-f-]{36}/runs/[0-9a-f-]{36}$")


def save(page: Page) -> str:
    page.locator(".u-save .btn-primary").click()
    page.wait_for_url(AN_AGENT)
    return page.url


def add(page: Page, what: str, field: str) -> None:
    """Press the button that adds a row; the row's first field then has the focus."""
    page.locator(f"button[value='add:{what}']").click()
    expect(page.locator(field)).to_be_focused()


def test_from_the_form_to_a_run(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], run_sessions: Callable[[], int]
) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go("/admin/agents")
    page.get_by_role("link", name="Create agent").click()
    check(page, "the empty form")
    page.fill("#f-name", "Deal triage")
    page.fill("#f-slug", "triage")
    page.fill("#f-instructions", "Look before you answer.")
    page.fill("#f-model", "offline")
    add(page, "skills", "#f-skills-0-name")
    page.fill("#f-skills-0-name", "Comparing")
    page.fill("#f-skills-0-text", "Compare one period.")
    add(page, "http_tools", "#f-http_tools-0-name")
    add(page, "http_tools.0.parameters", "#f-http_tools-0-parameters-0-name")
    add(page, "http_tools.0.headers", "#f-http_tools-0-headers-0-header")
    add(page, "mcp_servers", "#f-mcp_servers-0-name")
    expect(page.locator("#f-skills-0-text")).to_have_value("Compare one period.")
    check(page, "the form with rows", first="dark")
    page.locator("button[value='remove:http_tools.0']").click()
    expect(page.locator("#f-http_tools-0-name")).to_have_count(0)
    where = save(page)
    for one in page.locator("details > summary").all():
        one.click()
    check(page, "an agent")

    page.get_by_role("link", name="Edit").click()
    page.locator("label.u-kind", has_text="external").click()
    expect(page.locator("#f-instructions")).to_be_hidden()
    page.locator("label.u-kind", has_text="builtin").click()
    page.fill("#f-instructions", "Look twice before you answer.")
    page.fill("#f-note", "Twice")
    save(page)
    page.get_by_role("link", name="Compare versions").click()
    expect(page.locator(".u-changes ins").first).to_contain_text("twice")
    check(page, "two versions", first="dark")

    page.goto(where)
    page.fill("#try-message", "Search entities for Halden")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(A_RUN)
    expect(page.locator("#run-stop")).to_be_visible()
    check(page, "a run that waits")
    run_sessions()
    expect(page.locator("#run .u-badge").first).to_contain_text("completed")
    expect(page.locator("#run .u-tool b")).to_have_text("searchEntities")
    expect(page.locator("#run-status")).to_have_text("The run is completed.")
    expect(page.locator("#run-more")).to_have_count(0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert not asked, "a run that has ended is still asked for"
    check(page, "a run that ended", first="dark")

    page.fill("#try-message", "Search entities for Halden again")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(A_RUN)
    page.locator("#run-stop").click()
    expect(page.locator("#run .u-badge").first).to_contain_text("cancelled")
    expect(page.locator("#run-more")).to_have_count(0)
    page.get_by_role("link", name="Open session").click()
    expect(page.locator("h1")).to_have_text("Search entities for Halden again")


def test_without_a_script(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], run_sessions: Callable[[], int]
) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor(), java_script_enabled=False)
    page = visitor.page
    visitor.go("/admin/agents/new")
    page.fill("#f-name", "Plain")
    page.fill("#f-slug", "plain")
    page.locator("button[value='add:skills']").click()
    page.fill("#f-skills-0-name", "Tone")
    page.fill("#f-skills-0-text", "Plain words.")
    page.locator("#f-name").press("Enter")
    page.wait_for_url(AN_AGENT)
    expect(page.locator(".u-skill").first).to_contain_text("Plain words.")
    page.fill("#try-message", "Search entities for Halden")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(A_RUN)
    run_sessions()
    # The page loads itself again until the run has ended.
    expect(page.locator("#run .u-badge").first).to_contain_text("completed", timeout=20_000)


def test_a_slow_answer_grows_and_is_stopped(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    words = "The first half of a long answer. " * 6 + "Then the second half of it. " * 6
    with LoopbackModel(say(words.strip()), pace=0.02) as model:
        executor = Executor(app, slots=4)
        executor.settings = replace(executor.settings, openai_base_url=model.base_url)
        executor.start()
        try:
            _follow(app, workspace, visit, model)
        finally:
            model.release()
            executor.stop()


def _follow(app: Flask, workspace: Workspace, visit: Callable[..., Any], model: LoopbackModel) -> None:
    agent = Desk(app, workspace).agent("slow", instructions="Take your time.", model="openai:slow")
    visitor = visit(workspace.actor())
    page = visitor.page
    for ending in ("completed", "cancelled"):
        model.hold()
        visitor.go(f"/admin/agents/{agent}")
        page.fill("#try-message", f"Until it is {ending}")
        page.get_by_role("button", name="Run").click()
        page.wait_for_url(A_RUN)
        expect(page.locator("#run-status")).to_have_text("The agent is writing.")
        expect(page.locator("#run .u-turn").last).to_contain_text("writing…")
        expect(page.locator("#run .u-say").last).to_contain_text("first half")
        expect(page.locator("#run .u-say").last).not_to_contain_text("second half")
        page.locator("#run-stop").focus()
        page.wait_for_timeout(1500)
        expect(page.locator("#run-stop")).to_be_focused()
        if ending == "completed":
            check(page, "a run that writes")
            model.release()
            expect(page.locator("#run .u-say").last).to_contain_text("second half")
        else:
            page.keyboard.press("Enter")
        expect(page.locator("#run .u-badge").first).to_contain_text(ending)
        expect(page.locator("#run-more")).to_have_count(0)
