"""Review now on the Feedback tab: progress, what came of it, and what the settings say afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.review.conftest import WRONG, Desk


@pytest.fixture
def desk(app_context: None, workspace: Workspace, run_sessions: Callable[[], int]) -> Desk:
    return Desk(workspace, run_sessions)


def test_review_now_leads_to_a_proposal(desk: Desk, visit: Callable[..., Any]) -> None:
    same = [desk.complain("member", WRONG), desk.complain("other", WRONG)]
    visitor = visit(desk.admin)
    page: Page = visitor.page
    visitor.go("/admin/settings/review")
    expect(page.get_by_text("2 rows")).to_be_visible()
    page.get_by_role("button", name="Start dry run").click()
    desk.run_sessions()
    expect(page.locator("#dry-run table")).to_contain_text("propose")
    check(page, "dry run")
    assert desk.statuses(*same) == ["pending", "pending"]

    visitor.go("/admin/agent-review/feedback")
    page.get_by_role("button", name="Review now").click()
    expect(page.locator("#reviewing")).to_contain_text("Starting the review")
    desk.run_sessions()
    expect(page.locator("#reviewing")).to_contain_text("1 proposed")
    check(page, "a review that ended", "dark")
    assert desk.statuses(*same) == ["reviewed", "reviewed"]
    page.locator("#reviewing").get_by_role("link", name="1 proposed").click()
    expect(page).to_have_url(re.compile("state=proposed"))

    visitor.go("/admin/settings/review")
    page.get_by_label("Review feedback on a schedule").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("off", exact=True)).to_have_count(0)
    expect(page.get_by_text("1 proposed")).to_be_visible()
