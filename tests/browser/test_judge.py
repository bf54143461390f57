"""Criteria are written in the form, a replay is judged, its judgement is overruled, and the judge is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.agents.test_judge import FIND, answer, court
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.loopback_model import LoopbackModel

__all__ = ["court"]
EVALS = "/admin/agent-review/evals"


def test_criteria_are_written_judged_overruled_and_checked(
    court: Any, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page
    visitor.go(f"{EVALS}/criteria/new")
    visitor.expected = ("422",)
    form = page.locator("#criteria-form")
    form.get_by_label("Name", exact=True).first.fill("Manners")
    form.get_by_role("group", name="Dimension 1").get_by_label("Name").fill("tone")
    form.get_by_label("1 means", exact=True).fill("Rude.")
    page.get_by_role("button", name="Add a dimension: Text").click()
    second = form.get_by_role("group", name="Dimension 2")
    expect(second.get_by_label("Name")).to_be_focused()
    page.keyboard.type("named sources")
    form.get_by_role("button", name="Create criteria").click()
    expect(form).to_contain_text("Describe at least 1 and 5.")
    check(page, "the form of criteria")
    form.get_by_label("5 means", exact=True).fill("Kind.")
    form.get_by_role("button", name="Create criteria").click()
    expect(page.locator("h1")).to_have_text("Manners")

    golden_id = court.bench.golden(FIND)
    page.reload()
    page.get_by_role("button", name="Attach to all of default").click()
    expect(page.locator("#goldens")).to_contain_text("1 of 1")
    check(page, "criteria", "dark")
    with LoopbackModel(answer(tone=999)) as model:
        court.configure(model)
        run = court.run()
    visitor.go(f"{EVALS}/runs/{run.id}")
    expect(page.locator("#judge")).to_contain_text("0 judged, 1 errored")
    with LoopbackModel(answer(tone=1)) as model:
        court.configure(model)
        page.get_by_role("button", name="Judge again").click()
        expect(page.locator("main")).to_contain_text("1 left")
        court.bench.drain()
        expect(page.locator("#judge")).to_contain_text("Judge: 1 judged")
    [replay] = court.bench.replays(run)
    visitor.go(f"{EVALS}/diff/{golden_id}/{replay.id}")
    expect(page.locator(".u-verdict")).to_contain_text("The judge lowered the verdict.")
    row = page.locator("#rubric tr", has_text="tone")
    row.get_by_text("Overrule", exact=True).click()
    row.get_by_label("Why is it a pass?").fill("It is polite.")
    check(page, "overruling")
    row.get_by_role("button", name="Mark as pass").click()
    expect(page.locator(".u-verdict")).to_contain_text("Passes")
    expect(page.locator("#rubric")).to_contain_text("overruled: pass. It is polite.")

    visitor.go(f"{EVALS}/criteria")
    page.get_by_role("link", name="openai:judge").click()
    expect(page.locator("main")).to_contain_text("named sources")
    expect(page.locator("main")).not_to_contain_text("It says so.")
    check(page, "the check of a judge")
    page.keyboard.press("1")
    expect(page.locator(".u-note")).to_contain_text("It says so.")
    expect(page.locator("main")).to_contain_text("1 of 20 labels")
    visitor.go(f"{EVALS}/judge/overruled")
    expect(page.locator("tbody")).to_contain_text("It is polite.")
    check(page, "what was overruled")
