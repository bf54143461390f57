"""A proposal is proved from the keyboard, blocked because it breaks a golden, and overridden with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.test_replays import bench
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.evals.test_proofs import NO_UPDATE, UPDATE, Knowledge, knowledge

__all__ = ["bench", "knowledge"]
URL = "/admin/agent-review/knowledge"


def test_a_proposal_that_breaks_a_golden_is_activated_only_with_a_reason(
    knowledge: Knowledge, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    knowledge.bench.golden(UPDATE)
    row = knowledge.propose(NO_UPDATE, context="stage")
    visitor = visit(workspace.actor("admin"))
    visitor.expected = ("409",)
    page: Page = visitor.page
    visitor.go(f"{URL}?state=proposed")
    card = page.locator(f"article#knowledge-{row}")
    expect(card.locator("[data-checks]")).to_contain_text("unscoped")
    page.keyboard.press("j")
    page.keyboard.press("p")
    expect(card.get_by_role("button", name="Prove row", exact=True)).to_be_focused()
    check(page, "the question")
    page.keyboard.press("Enter")
    expect(card.locator(".u-proving")).to_contain_text("0 of 2 replays done")
    knowledge.bench.drain()
    expect(card).to_contain_text("Fixes 0, breaks 1 of 1")

    card.locator("[data-open]").focus()
    page.keyboard.press("a")
    blocked = card.locator("form.u-blocked")
    expect(blocked).to_contain_text(UPDATE)
    expect(blocked.get_by_label("Why activate it anyway?")).to_be_focused()
    check(page, "what is blocked", "dark")
    page.keyboard.type("Stages are kept in the CRM.")
    blocked.get_by_role("button", name="Activate anyway").click()
    expect(card.locator(".u-badge").first).to_have_text(re.compile("active"))

    visitor.go(f"{URL}/{row}")
    proof = page.locator(f"#proof-{row}")
    expect(proof).to_contain_text("Stages are kept in the CRM.")
    check(page, "the proof")
    proof.get_by_role("link", name="Compare").click()
    expect(page.locator("h1")).to_be_visible()
    visitor.go("/admin/agent-review/evals/runs/new?set=default")
    page.get_by_label("Trials per golden").fill("3")
    page.keyboard.press("Tab")
    expect(page.locator("#estimate")).to_contain_text("1 golden × 3 trials")
    visitor.go("/admin/settings/audit")
    expect(page.locator("main")).to_contain_text("Stages are kept in the CRM.")
