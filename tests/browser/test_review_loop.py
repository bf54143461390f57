"""The loop as people walk through it: complaints, a review, a proof, an approval, and what it led to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.test_replays import bench
from tests.browser.test_accessible import check
from tests.browser.test_evals_journey import watch
from tests.browser.test_runs import shoot
from tests.evals.test_proofs import Knowledge, knowledge
from tests.review.test_loop import COMPLAINTS, complain, promote, tools_of

__all__ = ["bench", "knowledge"]
TAB = "/admin/agent-review"


def test_complaints_become_a_rule_and_people_read_what_they_led_to(
    knowledge: Knowledge, visit: Callable[..., Any]
) -> None:
    bench = knowledge.bench
    complained = [complain(bench, one) for one in COMPLAINTS]
    promote(knowledge, complained[0])
    visitor = visit(bench.admin)
    page: Page = visitor.page

    visitor.go(f"{TAB}/evals")
    page.get_by_role("button", name="Replay all of pipeline").click()
    watch(bench, page)
    page.get_by_role("link", name=COMPLAINTS["member"][0]).click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Fails")
    failed = page.url

    visitor.go(f"{TAB}/feedback")
    page.get_by_role("button", name="Review now").click()
    expect(page.locator("#reviewing")).to_contain_text("Starting the review")
    bench.drain()
    page.locator("#reviewing").get_by_role("link", name="1 proposed").click()
    card = page.locator("article[data-row]")
    expect(card).to_have_count(1)
    expect(card.locator(".u-evidence li").first).to_contain_text("listEntities")
    for person in COMPLAINTS:
        expect(card.locator(".u-evidence")).to_contain_text(bench.workspace.actor(person).name)
    check(page, "a proposal with its evidence")
    shoot(page, "loop-proposed")

    page.keyboard.press("j")
    page.keyboard.press("p")
    expect(card.get_by_role("button", name="Prove row", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(card.locator(".u-proving")).to_contain_text("replays done")
    bench.drain()
    expect(card).to_contain_text("Fixes 1, breaks 0 of 1")
    expect(card.locator("[data-checks]")).to_contain_text("checks passed")
    shoot(page, "loop-proved")
    card.locator("[data-open]").focus()
    page.keyboard.press("a")
    expect(card.locator(".u-badge").first).to_have_text(re.compile("active"))
    [rule] = knowledge.api.get("/api/admin/shared-context").json["items"]
    visitor.go(f"{TAB}/knowledge/preview?agent=assistant")
    expect(page.locator("#prompt-text")).to_contain_text(rule["content"])

    again = bench.desk.ask(COMPLAINTS["member"][0])
    bench.drain()
    assert tools_of(bench, again) == ["listEntities"]
    page.goto(failed)
    page.get_by_role("link", name="Replay with…").click()
    page.get_by_label("Knowledge", exact=True).select_option("live")
    page.get_by_role("button", name="Replay", exact=True).click()
    watch(bench, page)
    page.get_by_role("link", name=COMPLAINTS["member"][0]).click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Passes")

    for person in COMPLAINTS:
        reader = visit(bench.workspace.actor(person))
        reader.go("/feedback/mine")
        expect(reader.page.locator("main")).to_contain_text("Led to a change")
        expect(reader.page.locator("main")).to_contain_text(rule["content"])
    shoot(reader.page, "loop-led-to")
