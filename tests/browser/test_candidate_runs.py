"""Pages that follow work: a candidate that runs again, the candidates that follow, a diff that waits for its replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import expect

from app.services.evals import candidates
from tests.agents.running import Desk
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.evals.test_golden import complain
from tests.evals.test_pages import URL, asked_session

__all__ = ["bench"]
expect.set_options(timeout=60_000)


def test_a_failed_candidate_runs_again_in_place(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], run_sessions: Callable[[], int]
) -> None:
    admin, desk = workspace.actor(), Desk(app, workspace)
    run_sessions()
    desk.agent(**CONFIG | {"model": "no-such-model"})
    failed = desk.ask("List entities")
    run_sessions()
    desk.agent(**CONFIG)
    visitor = visit(admin)
    page = visitor.page
    visitor.go(URL)
    row = page.locator(f"#candidate-{failed}")
    expect(row.get_by_text("Promote…")).to_have_count(0)
    row.get_by_role("button", name="Run again").click()
    expect(page.locator("[data-toast]", has_text="Started another run.")).to_be_visible()
    expect(row.get_by_role("link", name="Running…")).to_be_visible()
    check(page, "a candidate that runs again")
    run_sessions()
    promote = page.locator("#candidates").get_by_text("Promote…")
    expect(promote).to_be_visible()
    expect(row).to_have_count(0)
    promote.click()
    page.get_by_role("button", name="Promote", exact=True).click()
    expect(page.locator("[data-toast]", has_text="1 signal applied.")).to_be_visible()


def test_the_candidates_that_follow_join_the_list(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MAX_GROUPS", 3)
    admin = workspace.actor()
    for number in range(7):
        complain(app, admin, asked_session(app, admin, f"Question {number}"))
    visitor = visit(admin)
    page = visitor.page
    visitor.go(f"{URL}?all=1")
    rows = page.locator("#candidates [data-row]")
    for count in (3, 6):
        expect(rows).to_have_count(count)
        page.get_by_role("link", name="Show more").click()
    expect(rows).to_have_count(7)
    expect(page.get_by_role("link", name="Show more")).to_have_count(0)


def test_a_diff_waits_for_its_replay(bench: Bench, visit: Callable[..., Any]) -> None:
    golden_id = bench.golden("List entities")
    (replay,) = bench.replays(bench.run(drain=False, set_name="default"))
    visitor = visit(bench.admin)
    visitor.go(f"{URL}/diff/{golden_id}/{replay.id}")
    page = visitor.page
    expect(page.get_by_role("heading", name="This replay is still running.")).to_be_visible()
    expect(page.locator(".is-fail")).to_have_count(0)
    check(page, "a diff whose replay runs")
    bench.drain()
    expect(page.get_by_role("heading", name="Effects")).to_be_visible()
    expect(page.locator(".u-verdict h2")).to_contain_text("Passes")
