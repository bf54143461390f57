"""From a complaint to the rule that answers it: promoted in place, failed, read, taught, passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from app.db import db
from app.models import AgentSession
from app.services.entities import store as entity_store
from tests.agents.test_replays import Bench, bench
from tests.browser.test_accessible import check
from tests.browser.test_runs import shoot
from tests.conftest import Workspace
from tests.evals.test_golden import complain

__all__ = ["bench"]
EVALS = "/admin/agent-review/evals"
ASKED = "Search entities for the whole pipeline"
RULE = "Use listEntities instead of searchEntities."


def test_from_a_complaint_to_a_rule_that_answers_it(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    asked = bench.desk.ask(ASKED)
    bench.drain()
    complain(bench.app, workspace.actor("member"), asked)
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page

    visitor.go(EVALS)
    promote(page, ASKED)
    page.get_by_role("button", name="Replay all of pipeline").click()
    watch(bench, page)
    shoot(page, "journey-run")
    page.get_by_role("link", name=ASKED).click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Fails")
    expect(page.get_by_text("listEntities was not called")).to_be_visible()
    expect(page.locator("#steps")).to_contain_text("searchEntities")
    check(page, "the diff of what failed")
    shoot(page, "journey-fails")
    diff = page.url

    teach(visitor, page)
    page.goto(diff)
    page.get_by_role("link", name="Replay with…").click()
    page.get_by_label("Knowledge", exact=True).select_option("live")
    page.get_by_role("button", name="Replay", exact=True).click()
    watch(bench, page)
    page.get_by_role("link", name=ASKED).click()
    expect(page.locator(".u-verdict h2")).to_contain_text("Passes")
    expect(page.locator("#steps")).to_contain_text("listEntities")
    expect(page.get_by_text("+ only the replay")).to_be_visible()
    expect(page.get_by_role("link", name=RULE)).to_be_visible()
    shoot(page, "journey-passes")

    passed, failed = sorted(judged(bench), reverse=True)
    assert (passed, failed) == ("pass", "fail")
    (row,) = bench.complaints()
    assert (row.status, row.context["context_mode"]) == ("pending", "frozen"), "what was frozen fails as before"


@pytest.mark.parametrize("scripts", [True, False])
def test_what_should_have_changed_is_put_right_in_place(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any], scripts: bool
) -> None:
    asked = bench.desk.ask("Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
    bench.drain()
    complain(bench.app, workspace.actor("member"), asked)
    visitor = visit(workspace.actor("admin"), java_script_enabled=scripts, theme="light" if scripts else "dark")
    page: Page = visitor.page

    visitor.go(EVALS)
    page.locator("#candidates [data-row]").get_by_role("link", name="Promote…").click()
    form = page.locator("form.u-inplace")
    record, value = form.get_by_label("Record 1", exact=True), form.get_by_label("Value of valuation")
    expect(record).to_be_hidden()
    form.get_by_label("It should have changed…").check()
    expect(record).to_have_value("Kestrel")
    expect(value).to_have_value("10.5")
    value.fill("eleven")
    visitor.expected = ("422",)
    form.get_by_role("button", name="Promote", exact=True).last.click()
    expect(form.get_by_text("Enter a number.")).to_be_visible()
    expect(value).to_have_value("eleven")
    expect(value).to_be_focused()
    expect(form.locator(f"[id='{value.get_attribute('aria-describedby')}']")).to_contain_text("Enter a number.")
    if scripts:
        check(page, "the form with what should have changed")
    value.fill("11")
    form.get_by_role("button", name="Promote", exact=True).last.click()
    expect(page.locator("#candidates [data-row]")).to_have_count(0)
    visitor.go(f"{EVALS}/{asked}")
    expect(page.get_by_text("update Kestrel: valuation = 11")).to_be_visible()


def test_expectations_are_edited_until_the_recording_passes(
    bench: Bench, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    with bench.acting():
        entity_store.create_entity(entity_type="deal", name="Orchard", fields={}, actor=bench.admin)
    golden = bench.golden("Search entities Kestrel", "Update entity Kestrel valuation to 10.5", set_name="pipeline")
    visitor = visit(workspace.actor("admin"))
    page: Page = visitor.page
    visitor.go(f"{EVALS}/{golden}")
    page.get_by_role("link", name="Edit expectations").click()
    verdict = page.locator(f"#check-{golden}")
    expect(verdict).to_have_text("✓ The recorded session would pass.")

    page.get_by_label("It must change…").check()
    page.get_by_role("button", name="Add a change: Update").click()
    record = page.get_by_label("Record 2", exact=True)
    expect(record).to_be_focused()
    record.press_sequentially("orch")
    expect(page.locator(f"datalist[id='{record.get_attribute('list')}'] option")).to_have_count(1)
    record.fill("Orchard")
    record.press("Tab")
    # The record is known now, and with it its fields.
    field = page.get_by_label("Field 1", exact=True).last
    expect(field).to_have_js_property("tagName", "SELECT")
    field.select_option("valuation")
    expect(page.get_by_label("Value of valuation")).to_have_count(2)
    page.get_by_label("Value of valuation").last.fill("3")
    expect(verdict).to_have_text("✗ The recorded session would fail: entity Orchard was not updated.")
    check(page, "the form that edits expectations", "dark")
    shoot(page, "expectations-fail")

    page.get_by_role("button", name="Remove change 2").click()
    expect(page.get_by_label("Record 2", exact=True)).to_have_count(0)
    page.get_by_label("It must mention…").check()
    page.get_by_label("Kestrel", exact=True).check()
    page.get_by_label("Must mention: add one").fill("10.5")
    page.get_by_label("Must mention: add one").press("Enter")
    expect(page.get_by_label("10.5", exact=True)).to_be_checked()
    expect(verdict).to_have_text("✓ The recorded session would pass.")
    page.get_by_label("Why? (optional)").fill("Only Kestrel")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.locator("[data-toast]", has_text="Saved revision 1.")).to_be_visible()
    expect(page.locator(".u-past")).to_contain_text("update Kestrel: valuation = 10.5")
    expect(page.locator(".u-past")).to_contain_text("“Only Kestrel”")
    check(page, "a golden with its past")

    phone = visit(workspace.actor("admin"), width=390, height=844)
    phone.go(f"{EVALS}/{golden}/expectations")
    expect(phone.page.get_by_label("Record 1", exact=True)).to_have_value("Kestrel")
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    check(phone.page, "the form on a phone")
    shoot(phone.page, "expectations-phone")


def promote(page: Page, asked: str) -> None:
    """The candidate's form opens where the candidate stands; its complaint goes with it."""
    row = page.locator("#candidates [data-row]", has_text=asked)
    expect(row).to_be_visible()
    row.get_by_role("link", name="Promote…").click()
    form = page.locator("form.u-inplace")
    form.get_by_label("Set", exact=True).fill("pipeline")
    form.get_by_label("Note").fill("Everything, not what matches the words")
    form.get_by_label("It must mention…").check()
    for fact in ("Halden", "Kestrel"):
        known = form.get_by_label(fact, exact=True)
        if known.count():
            known.check()
        else:
            form.get_by_label("Must mention: add one").fill(fact)
            form.get_by_label("Must mention: add one").press("Enter")
            expect(known).to_be_checked()
    form.get_by_label("It must call…").check()
    form.get_by_label("Tool 1", exact=True).fill("listEntities")
    shoot(page, "journey-promote")
    form.get_by_role("button", name="Promote", exact=True).last.click()
    expect(page.locator("[data-toast]", has_text="Golden in pipeline. 1 signal applied.")).to_be_visible()
    expect(page.locator("#candidates [data-row]")).to_have_count(0)


def watch(bench: Bench, page: Page) -> None:
    """The run's page follows it to its end."""
    expect(page.get_by_text("1 of 1 replay left")).to_be_visible()
    bench.drain()
    expect(page.locator("#run .u-badge", has_text="completed")).to_be_visible()


def teach(visitor: Any, page: Page) -> None:
    """A routing row, written in Knowledge."""
    visitor.go("/admin/agent-review/knowledge")
    page.get_by_role("link", name="Add knowledge", exact=True).first.click()
    page.locator("#knowledge-new").get_by_label("Kind", exact=True).select_option("routing")
    page.get_by_label("Text", exact=True).fill(RULE)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("article[data-row]", has_text=RULE)).to_be_visible()


def judged(bench: Bench) -> list[str]:
    with bench.acting():
        found = db.session.scalars(select(AgentSession).where(AgentSession.eval_run_id.is_not(None)))
        return [str(one.meta["eval_result"]["verdict"]) for one in found]
