"""Patterns: from a row to its group, decided by key and taken back; and the pages of webhooks and the digest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from app.db import acting_as, transaction
from app.services.webhooks import store as webhook_store
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.review.test_pattern_pages import group, link_rule, say

pytestmark = pytest.mark.usefixtures("app_context")
BASE = "/admin/agent-review"


def test_a_group_is_found_from_a_row_and_decided_by_key(workspace: Workspace, visit: Callable[..., Any]) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    rows = [say(admin, "Last year's EBITDA again", 9), say(member, "You used the wrong year", 8), say(member, "Again")]
    pattern = group(admin, *rows, label="Uses last year's EBITDA")
    link_rule(admin, pattern, proposed=True)
    group(admin, say(member, "It told a secret", signal="unsafe", kind="signal", trace_id="a" * 32), label="A secret")

    visitor = visit(admin)
    page: Page = visitor.page
    visitor.go(f"{BASE}/feedback")
    page.get_by_text("“Again”").click()
    expect(page.locator("#panel").get_by_text("Show pattern")).to_be_visible()
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile(f"{BASE}/patterns/{pattern}"))
    expect(page.locator("#pattern-detail")).to_contain_text("3 rows, 3 open")
    check(page, "a pattern")

    visitor.go(f"{BASE}/patterns")
    check(page, "patterns", "dark")
    page.get_by_role("link", name="Uses last year's EBITDA").click()
    panel = page.locator("#panel")
    expect(panel.locator("#pattern-detail")).to_contain_text("2 people in 0 sessions")
    page.keyboard.press("d")
    panel.get_by_label("Why dismiss them? (optional)").fill("The basis was right.")
    page.keyboard.press("Enter")
    expect(panel.locator("#pattern-detail")).to_contain_text("3 rows, 0 open")
    expect(panel.locator("#pattern-actions")).to_contain_text("Nothing open.")
    page.get_by_role("button", name="Undo").click()
    expect(panel.locator("#pattern-detail")).to_contain_text("3 rows, 3 open")


def test_webhooks_and_the_digest_can_be_used_by_everybody(workspace: Workspace, visit: Callable[..., Any]) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin), transaction():
        hook = webhook_store.add_webhook(
            "https://hooks.example.com/x", ["eval.regressed"], "slack", allow="", actor=admin
        )
        webhook_store.queue_test(hook.id, actor=admin)
    say(admin, "Wrong year")
    visitor = visit(admin)
    page: Page = visitor.page
    visitor.go("/admin/settings/webhooks")
    expect(page.locator("tr[id^=delivery-]")).to_contain_text("Test event")
    check(page, "webhooks")
    page.get_by_role("button", name="Delete the webhook to https://hooks.example.com/…").click()
    page.get_by_role("button", name="Delete webhook", exact=True).click()
    expect(page.get_by_text("No webhooks yet")).to_be_visible()
    visitor.go(f"{BASE}/feedback")
    page.get_by_role("link", name="Weekly digest").click()
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.locator(".u-facts")).to_contain_text("1 feedback (1 negative)")
    check(page, "digest", "dark")
