"""The matrix and the trend as they are drawn: read, clicked and walked by keys; and a set from a worse version to the
trend that shows how it was put right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect
from sqlalchemy import select

from app.db import db
from app.models import Feedback
from app.services.agents import versions
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.browser.test_accessible import check
from tests.browser.test_runs import shoot
from tests.conftest import Workspace

__all__ = ["bench"]
EVALS = "/admin/agent-review/evals"
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'
# Six goldens that `Bench.worse` fails, because it never updates, and one that it does not.
CHANGES = [
    WON,
    *(f"Update entity Kestrel: set stage to {stage}" for stage in ("won", "lost", "held", "paused", "dead")),
]
BUNDLE = re.compile("plotly-cartesian")


def cells(page: Page) -> list[str]:
    """What is drawn in the heat map, row by row."""
    page.locator("[data-chart][data-drawn]").first.wait_for()
    return [text for text in page.locator(".heatmap-label").all_text_contents() if text.strip()]


def test_the_matrix_is_drawn_read_clicked_and_walked(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    won, song = bench.golden(WON), bench.golden("Sing a song")
    bench.run(set_name="default", triggered_by="scheduled")
    bench.worse()
    worse = bench.run(set_name="default")
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    visitor.go(f"{EVALS}/sets/default")
    assert not any(BUNDLE.search(url) for url in asked), "only pages that draw load the bundle"
    held: list[Any] = []
    page.route(BUNDLE, lambda route: held.append(route))
    with page.expect_request(BUNDLE):
        visitor.go(f"{EVALS}/matrix?set=default")
    expect(page.locator(".u-matrix tbody tr")).to_have_count(2)
    assert page.evaluate("performance.getEntriesByName('first-contentful-paint').length"), "painted without the bundle"
    with page.expect_response(BUNDLE) as bundle:
        held[0].continue_()
    page.unroute(BUNDLE)
    assert bundle.value.headers["content-encoding"] == "gzip"
    assert "max-age=31536000" in bundle.value.headers["cache-control"]
    assert [text.split()[0] for text in cells(page)] == ["✓", "✗", "✓", "✓"]
    check(page, "the matrix")
    shoot(page, "matrix")
    fills = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.wait_for_timeout(300)
        fills.append(page.locator(".heatmaplayer image").first.get_attribute("href"))
    assert fills[0] != fills[1], "it is drawn anew in the other theme"

    replay = next(str(one.id) for one in bench.replays(worse) if one.eval_source == str(won))
    box = page.locator(".heatmap-label", has_text="✗").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(f"**{EVALS}/diff/{won}/{replay}")
    page.go_back()
    chart = page.locator("[data-chart][data-drawn]")
    chart.focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(chart.get_by_role("status")).to_contain_text("v2: ✗ 0.")
    page.keyboard.press("ArrowDown")
    expect(chart.get_by_role("status")).to_contain_text("Sing a song, v2: ✓ 1.00")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{EVALS}/diff/{song}/*")
    page.go_back()
    page.locator("[data-chart][data-drawn] .xtick", has_text="v2").click()
    page.wait_for_url("**sort=*")
    expect(page.locator(".u-matrix thead th").nth(2)).to_have_attribute("aria-sort", "ascending")

    visitor.go("/tasks")
    page.get_by_role("region", name="Dropped sets").get_by_role("link", name="default").click()
    expect(page.get_by_role("note")).to_contain_text("Dropped from 100% (2 of 2) to 50% (1 of 2)")
    check(page, "a set that dropped")
    shoot(page, "dropped-set")
    visitor.go("/tasks")
    check(page, "tasks with a set that dropped", "dark")
    shoot(page, "dropped-tasks")

    phone = visit(workspace.actor("admin"), width=390, height=844)
    phone.go(f"{EVALS}/matrix?set=default")
    assert len(cells(phone.page)) == 4
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_worse_version_is_found_put_right_and_seen_in_the_trend(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    for asked in (*CHANGES, "Sing a song"):
        bench.golden(asked, set_name="deals")
    bench.run(set_name="deals")
    worse = bench.worse()
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG, actor=bench.admin)
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page

    # A trial of the worse version.
    visitor.go(f"{EVALS}/runs/new?set=deals&version={worse}")
    page.get_by_role("button", name="Replay", exact=True).click()
    bench.drain()
    expect(page.get_by_role("link", name="6 worse")).to_be_visible()
    expect(page.get_by_text("Trial run.")).to_be_visible()
    shoot(page, "journey-worse")
    page.get_by_role("link", name="6 worse").click()
    expect(page.locator("[data-row]")).to_have_count(6)
    page.locator("[data-go]").first.click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Fails")

    # The instructions are put right on the agent's page.
    visitor.go(f"/admin/agents/{bench.agent_id}/edit")
    page.get_by_label("Instructions", exact=True).fill("You help with deals. Update what you are asked to update.")
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_text("v4").first).to_be_visible()

    visitor.go(f"{EVALS}/sets/deals")
    page.get_by_role("button", name="Replay all").click()
    bench.drain()
    expect(page.locator("#changes-title")).to_have_text("0 worse, 0 better, 7 same, 0 new")

    page.goto(visitor.base + f"{EVALS}/trend?set=deals")
    page.locator("[data-chart][data-drawn]").wait_for()
    expect(page.locator(".scatterlayer .point")).to_have_count(5)
    expect(page.locator(".u-trend tbody tr")).to_have_count(3)
    newest, trial = page.locator(".u-trend tbody tr").nth(0), page.locator(".u-trend tbody tr").nth(1)
    expect(newest).to_contain_text("7 of 7")
    expect(newest).to_contain_text("assistant v4")
    expect(trial).to_contain_text("1 of 7")
    expect(trial).to_contain_text("trial run")
    check(page, "the trend")
    shoot(page, "trend")
    # Drawn anew on the wide screen.
    expect(page.locator("[data-chart] .main-svg").first).to_have_attribute("width", re.compile(r"1\d{3}"))
    # The runs are drawn before the ends of the lines that mark changes.
    boxes = [page.locator(".scatterlayer .point").nth(at).bounding_box() for at in range(5)]
    middles = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes if box]
    runs, (_, marker) = sorted(middles[:3]), middles[3:]
    expect(page.locator(".scatterlayer .textpoint").nth(1)).to_have_text("v4")
    assert runs[1][0] < marker[0] < runs[2][0], "the marker is between the two runs"
    page.mouse.move(*marker)
    expect(page.locator(".hoverlayer")).to_contain_text("assistant v4")
    page.mouse.click(*marker)
    expect(page.locator("#changes")).to_contain_text("Update what you are asked to update.")
    expect(page.locator("#changes")).to_contain_text(bench.admin.name)
    check(page, "what changed", "dark")
    shoot(page, "changes")

    visitor.go(EVALS)
    expect(page.locator("#matrix-card [data-drawn]")).to_be_visible()
    expect(page.locator("#trend-card [data-drawn]")).to_be_visible()
    check(page, "the Evals tab with its charts")
    shoot(page, "evals")
    with bench.acting():
        assert db.session.scalars(select(Feedback)).all() == [], "nothing of the trial is in the queue"


def test_without_a_script_there_are_tables(bench: Bench, workspace: Workspace, visit: Callable[..., Any]) -> None:
    bench.golden(WON)
    bench.run(set_name="default")
    bench.worse()
    bench.run(set_name="default")
    visitor = visit(workspace.actor("admin"), java_script_enabled=False)
    page: Page = visitor.page
    visitor.go(EVALS)
    page.get_by_role("link", name="Open matrix").click()
    expect(page.locator("[data-chart]")).to_be_hidden()
    page.locator(".u-matrix thead a").nth(2).click()
    expect(page.locator(".u-matrix thead th").nth(2)).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("link", name="Only rows that differ").click()
    page.locator(".u-matrix tbody td a").last.click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Fails")
    visitor.go(EVALS)
    page.get_by_role("link", name="Open trend").click()
    page.locator(".u-trend").get_by_role("link", name="assistant v2").click()
    expect(page.locator("#changes")).to_contain_text("Never use updateEntity.")
