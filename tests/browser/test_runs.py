"""A set is replayed and followed to the diff of what fails; keys walk through the cases; a phone shows the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.test_replays import Bench, bench
from tests.browser.test_accessible import check
from tests.conftest import Workspace

__all__ = ["bench"]
RUNS = "/admin/agent-review/evals/runs"
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'


def shoot(page: Page, name: str) -> None:
    """Keep a picture where UPSHOT_SHOTS says so, for people who want to look."""
    folder = os.environ.get("UPSHOT_SHOTS")
    for theme, width in (("light", 1440), ("dark", 390), ("dark", 1440), ("light", 390)) if folder else ():
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.wait_for_timeout(150)
        page.screenshot(path=f"{folder}/{name}-{theme}-{width}.png", full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})


def test_from_a_run_to_its_progress_to_the_diff(bench: Bench, workspace: Workspace, visit: Callable[..., Any]) -> None:
    bench.golden(WON, set_name="deals")
    bench.golden(
        "Search entities Kestrel", "Update entity Kestrel valuation to 10.5", "List entities", set_name="deals"
    )
    bench.golden("Sing a song", set_name="deals")
    bench.worse()
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page
    visitor.go(f"{RUNS}/new?set=deals")
    check(page, "the form")
    shoot(page, "start")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("3 of 3 replays left")).to_be_visible()
    shoot(page, "running")
    page.evaluate("window.stays = true")
    bench.drain()
    expect(page.locator("#run .u-badge", has_text="completed")).to_be_visible()
    expect(page.locator("#run-more")).to_have_count(0)
    assert page.evaluate("window.stays"), "the page was loaded anew"
    check(page, "a run", "dark")
    shoot(page, "run")
    page.keyboard.press("j")
    expect(page.locator("[data-row] [data-go]").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".u-verdict h2")).to_contain_text("Fails")
    check(page, "a diff")
    shoot(page, "diff")
    fold = page.locator("#steps details").first
    expect(fold.locator("li").first).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("li").first).to_be_visible()
    first = page.url
    page.keyboard.press("j")
    expect(page.get_by_text("2 of 3")).to_be_visible()
    shoot(page, "diff2")
    page.keyboard.press("k")
    expect(page.get_by_text("1 of 3")).to_be_visible()
    assert page.url == first
    page.get_by_role("button", name="Replay again").click()
    expect(page.get_by_text("1 of 1 replay left")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("The goldens judged by then are below")).to_be_visible()
    visitor.go(RUNS)
    check(page, "the runs")
    shoot(page, "runs")


def test_without_a_script_the_diff_unfolds(bench: Bench, workspace: Workspace, visit: Callable[..., Any]) -> None:
    golden = bench.golden(WON)
    bench.worse()
    run = bench.run(set_name="default")
    visitor = visit(workspace.actor("admin"), java_script_enabled=False)
    visitor.go(f"/admin/agent-review/evals/diff/{golden}/{bench.replays(run)[0].id}")
    fold = visitor.page.locator("#steps details").first
    fold.locator("summary").click()
    expect(fold.locator("li").first).to_be_visible()
    visitor.page.get_by_text("Promote the replay instead").click()
    visitor.page.get_by_role("button", name="Promote the replay", exact=True).click()
    expect(visitor.page.get_by_text("Promoted the replay to default.")).to_be_visible()
