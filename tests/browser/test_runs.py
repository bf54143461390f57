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
    expect(page.get_by_text("The goldens judged so far are below")).to_be_visible()
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
    visitor.page.get_by_text("Promote this replay instead").click()
    visitor.page.get_by_role("button", name="Promote replay", exact=True).click()
    expect(visitor.page.get_by_text("Promoted the replay to default.")).to_be_visible()


def test_what_got_worse_is_found_and_decided_together(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    """Set page, run page, filter, three columns, and the one line that all of it is in Feedback."""
    for asked in (WON, "Update entity Kestrel: set stage to won", "Sing a song"):
        bench.golden(asked, set_name="deals")
    bench.run(set_name="deals")
    bench.worse()
    run = bench.run(set_name="deals")
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page
    visitor.go("/admin/agent-review/evals/sets/deals")
    check(page, "a set")
    page.get_by_role("region", name="Latest runs").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="2 worse, 0 better, 1 same, 0 new")).to_be_visible()
    check(page, "a run with a baseline")
    shoot(page, "worse")
    page.get_by_role("link", name="2 worse").click()
    expect(page.locator("[data-row]")).to_have_count(2)
    page.get_by_role("navigation", name="Change").get_by_role("link", name="same").click()
    expect(page.locator("[data-row]")).to_have_count(1)
    page.go_back()
    page.locator("[data-go]").first.click()
    expect(page.locator("#steps thead th")).to_have_count(4)
    check(page, "three columns", "dark")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    first, second = (page.locator("#steps tbody tr:not(.u-fold) td").nth(at).bounding_box() for at in (1, 2))
    assert first
    assert second
    assert second["y"] > first["y"], "on a phone the columns stand below each other"
    shoot(page, "three")

    visitor.go("/admin/agent-review/feedback")
    group = page.locator(".u-group")
    expect(group.locator("summary")).to_have_text("deals v2: 2 goldens fail 2 rows")
    expect(group.locator(".u-member").first).to_be_hidden()
    check(page, "a folded group")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(group.locator(".u-member").first).to_be_visible()
    check(page, "an open group", "dark")
    page.keyboard.press("x")
    expect(page.locator(".u-select")).to_contain_text("2 selected")
    group.locator("[data-select]").nth(1).uncheck()
    expect(page.locator(".u-select")).to_contain_text("1 selected")
    group.locator("[data-select-group]").check()
    page.keyboard.press("d")
    page.get_by_label("Why dismiss them? (optional)").fill("The new rule forbids it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Dismissed 2.")).to_be_visible()
    assert {row.review_notes for row in bench.complaints()} == {"The new rule forbids it"}
    page.keyboard.press("z")
    expect(page.locator(".u-group")).to_have_count(1)
    assert {(row.status, row.eval_run_id) for row in bench.complaints()} == {("pending", run.id)}
