"""From something bad to its proof without the mouse: found, promoted with what should have happened, replayed, read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.test_replays import Bench, bench
from tests.browser.test_accessible import check
from tests.browser.test_runs import shoot
from tests.browser.test_triage import slow_down
from tests.conftest import Workspace
from tests.evals.test_golden import complain

__all__ = ["bench"]
ADMIN = "/admin/agent-review"
ASKED = "Search entities for the whole pipeline"
expect.set_options(timeout=20_000)


class Hands:
    """Someone at the keys. A key is an action; so is a text with the Enter that sends it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.actions = 0

    def press(self, key: str) -> None:
        self.actions += 1
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.actions += 1
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")


def complained(bench: Bench, workspace: Workspace) -> Any:
    asked = bench.desk.ask(ASKED)
    bench.drain()
    complain(bench.app, workspace.actor("member"), asked)
    return asked


def test_a_bad_session_is_promoted_replayed_and_read_in_eight_actions(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    asked = complained(bench, workspace)
    visitor = visit(workspace.actor("admin"))
    page = visitor.page
    visitor.go(f"{ADMIN}/sessions")
    slow_down(page)
    hands = Hands(page)

    hands.press("/")
    with page.expect_response(lambda answer: "q=whole" in answer.url):
        hands.type("whole pipeline")
    expect(page).to_have_url(re.compile("q=whole"))
    expect(page.locator("[data-list] [data-row]")).to_have_count(1)
    page.keyboard.press("Escape")
    hands.press("j")
    hands.press("g")
    hands.press(" ")
    hands.type("Halden")
    hands.press("Enter")
    hands.press("p")
    place = page.locator(f"#panel #promote-{asked}")
    expect(place).to_contain_text("Replaying")
    bench.drain()
    expect(place).to_contain_text("Halden")
    expect(place.get_by_role("link", name="Show differences")).to_be_visible()
    assert hands.actions <= 8
    check(page, "a replay read in the panel of its session")
    shoot(page, "golden-flow-session")


def test_from_feedback_to_its_golden_to_the_proof_in_one_panel(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    asked = complained(bench, workspace)
    visitor = visit(workspace.actor("admin"))
    page = visitor.page
    visitor.go(f"{ADMIN}/feedback?status=pending")
    row = page.locator("[data-list] [data-row]").first
    panel = page.locator("#panel")

    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(panel.get_by_role("link", name="Open session").first).to_be_visible()
    page.keyboard.press("g")
    form = panel.locator("form.u-inplace")
    expect(form.get_by_text("What should have happened?")).to_be_visible()
    shoot(page, "golden-flow-form")
    check(page, "the form that promotes, beside feedback", "dark")
    form.get_by_label("It must mention…").check()
    expect(form.get_by_label("Must mention: add one")).to_be_focused()
    page.keyboard.type("Halden")
    page.keyboard.press("Enter")
    expect(form.get_by_label("Halden", exact=True)).to_be_checked()
    page.keyboard.press("Enter")
    place = panel.locator(f"#promote-{asked}")
    expect(place).to_contain_text("Golden in")
    # The row, its panel and the figures say that the feedback was applied with it.
    expect(row.get_by_text("applied")).to_be_visible()
    expect(panel.locator(".u-became")).to_contain_text("Applied")
    expect(panel.get_by_text("Dismiss…")).to_have_count(0)
    expect(page.locator("#feedback-waiting")).to_contain_text("No pending feedback")

    page.keyboard.press("p")
    expect(place).to_contain_text("Replaying")
    bench.drain()
    link = place.get_by_role("link", name="Show differences")
    expect(link).to_be_visible()
    shoot(page, "golden-flow-proof")
    check(page, "a replay read beside feedback")
    link.click()
    expect(page.locator(".u-verdict h2")).to_be_visible()


def test_without_a_script_the_same_links_lead_on(bench: Bench, workspace: Workspace, visit: Callable[..., Any]) -> None:
    complained(bench, workspace)
    visitor = visit(workspace.actor("admin"), java_script_enabled=False)
    page = visitor.page
    visitor.go(f"{ADMIN}/feedback?status=pending")
    page.locator("[data-list] [data-row] [data-open]").first.click()
    page.get_by_role("link", name="Promote…").click()
    page.get_by_label("It must mention…").check()
    page.get_by_label("Must mention: add one").fill("Halden")
    page.get_by_role("button", name="Promote", exact=True).last.click()
    expect(page.locator("h1")).to_contain_text(ASKED)
    visitor.go(f"{ADMIN}/feedback")
    page.locator("[data-list] [data-row] [data-open]").first.click()
    page.get_by_role("button", name="Replay").click()
    expect(page).to_have_url(re.compile("/evals/runs/"))
