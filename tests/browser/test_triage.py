"""A queue at the speed of the fingers: on a slow line no key is lost, decisions show at once, and what
fails is put back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from playwright.sync_api import Page, Route, expect
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AuditEntry, Feedback
from app.services.feedback import intake
from app.services.feedback.intake import NewFeedback
from tests.conftest import Workspace

URL = "/admin/agent-review/feedback?status=pending"
LATENCY = 0.1
expect.set_options(timeout=20_000)


def complain(app: Flask, workspace: Workspace, number: int) -> list[str]:
    """Complaints, the newest first, as the list has them."""
    member = workspace.actor("member")
    made = []
    with app.app_context():
        for place in range(number):
            with acting_as(member), transaction():
                new = NewFeedback(
                    kind="signal", signal="not_helpful", trace_id=f"trace-{place}", comment=f"Complaint {place}"
                )
                made.append(str(intake.record_feedback(new, actor=member).row.id))
    return made[::-1]


def states(app: Flask, workspace: Workspace, ids: list[str]) -> list[str]:
    with app.app_context(), acting_as(workspace.actor()), transaction():
        found = {
            str(row.id): str(row.status)
            for row in db.session.execute(
                select(Feedback.id, Feedback.status).where(Feedback.id.in_([UUID(one) for one in ids]))
            )
        }
    return [found[one] for one in ids]


def slow_down(page: Page, seconds: float = LATENCY) -> None:
    """Every answer comes later by so much. Requests do not wait for each other."""
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": seconds * 1000, "downloadThroughput": -1, "uploadThroughput": -1},
    )


def test_ten_rows_ten_decisions_and_no_lost_key(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    ids = complain(app, workspace, 11)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(URL)
    slow_down(page)

    page.keyboard.press("j")
    page.keyboard.press("Enter")
    wanted = ["reviewed", "dismissed", "applied", "reviewed", "reviewed", "dismissed", "reviewed", "applied"]
    wanted += ["reviewed", "reviewed"]
    for decision in wanted:
        page.keyboard.press(decision[0])
        if decision != "reviewed":
            page.keyboard.type("Known")
            page.keyboard.press("Enter")
    expect(page.locator("#feedback-waiting")).to_contain_text("1 pending")
    expect(page.locator(f"#panel:not([hidden]) [data-feedback='{ids[10]}']")).to_be_visible()
    expect(page.locator("[data-row].is-decided")).to_have_count(0)
    expect(page.locator("#count-feedback")).to_contain_text("1")
    expect(page.locator(".u-filters [role=status]")).to_have_text("1 row")
    assert states(app, workspace, ids) == [*wanted, "pending"]
    expect(page.locator("[data-toast]")).to_have_count(1)


def test_what_is_fetched_ahead_is_audited_as_read_ahead(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    first, second, third = complain(app, workspace, 3)
    visitor = visit(workspace.actor())
    page = visitor.page

    def read() -> list[tuple[str, bool]]:
        with app.app_context(), acting_as(workspace.actor()), transaction():
            asked = select(AuditEntry).where(AuditEntry.action == "feedback.read").order_by(AuditEntry.created_at)
            return [(str(one.subject_id), "ahead" in one.details) for one in db.session.scalars(asked)]

    visitor.go(URL)
    with page.expect_response(lambda answer: f"{second}?panel=1" in answer.url) as ahead:
        page.locator(f"#feedback-{first} [data-open]").click()
    assert ahead.value.request.headers["hx-preloaded"] == "true"
    assert read() == [(first, False), (second, True)]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if f"{second}?panel=1" in request.url else None)
    with page.expect_response(lambda answer: f"{third}?panel=1" in answer.url):
        page.keyboard.press("j")
    expect(page.locator(f"#panel [data-feedback='{second}']")).to_be_visible()
    assert not asked, "what was fetched ahead is not asked for again"
    assert read() == [(first, False), (second, True), (third, True)]


@pytest.mark.parametrize("status", [409, 500])
def test_a_decision_that_fails_is_put_back(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], status: int
) -> None:
    first, second, third = complain(app, workspace, 3)
    visitor = visit(workspace.actor())
    visitor.expected = (str(status),)
    page = visitor.page
    visitor.go(URL)
    page.locator(f"#feedback-{first} [data-open]").click()
    expect(page.locator(f"#panel [data-feedback='{first}']")).to_be_visible()
    held: list[Route] = []
    page.route("**/review", lambda route: held.append(route))

    page.keyboard.press("r")
    # All of it shows before the server has said anything.
    expect(page.locator(f"#panel [data-feedback='{second}']")).to_be_visible()
    row = page.locator(f"#feedback-{first}")
    expect(row).to_have_class(re.compile("is-decided"))
    expect(row.get_by_text("reviewed")).to_be_visible()
    expect(page.locator("#feedback-waiting")).to_contain_text("2 pending")
    expect(page.locator("#count-feedback")).to_contain_text("2")
    expect(page.locator(".u-filters [role=status]")).to_have_text("2 rows")

    if status == 409:
        with app.app_context(), acting_as(workspace.actor("owner")), transaction():
            from app.services.feedback import review

            review.review([UUID(first)], "dismissed", actor=workspace.actor("owner"))
        held[0].continue_()
        expect(row.get_by_text("dismissed")).to_be_visible()
        expect(page.locator("[data-toast]")).to_contain_text("dismissed")
        expect(page.locator("#feedback-waiting")).to_contain_text("2 pending")
    else:
        held[0].fulfill(status=500, content_type="text/html", headers={"HX-Reswap": "none"}, body="")
        expect(row.get_by_text("reviewed")).to_have_count(0)
        expect(page.locator("[data-toast]")).to_contain_text("Not saved")
        expect(page.locator("#feedback-waiting")).to_contain_text("3 pending")
        expect(page.locator(".u-filters [role=status]")).to_have_text("3 rows")
    expect(row).not_to_have_class(re.compile("is-decided"))
    expect(page.locator(f"#panel [data-feedback='{second}']")).to_be_visible()
    page.unroute("**/review")
    page.keyboard.press("r")
    expect(page.locator(f"#panel [data-feedback='{third}']")).to_be_visible()
    expect(page.locator(f"#feedback-{second}").get_by_text("reviewed")).to_be_visible()


def test_undo_leads_back_to_the_row(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    first, second, third = complain(app, workspace, 3)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(URL)
    slow_down(page)
    page.locator(f"#feedback-{first} [data-open]").click()
    expect(page.locator(f"#panel [data-feedback='{first}']")).to_be_visible()

    # Pressed before the server has said that there is something to undo.
    page.keyboard.press("r")
    page.keyboard.press("z")
    expect(page.locator("[data-toast]")).to_contain_text("Reopened")
    expect(page.locator(f"#panel [data-feedback='{first}']")).to_be_visible()
    expect(page.locator("[data-row].is-open")).to_have_attribute("id", f"feedback-{first}")
    expect(page.locator("#feedback-waiting")).to_contain_text("3 pending")
    expect(page.locator(".u-filters [role=status]")).to_have_text("3 rows")
    assert states(app, workspace, [first]) == ["pending"]

    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    page.locator(f"#feedback-{second} [data-open]").focus()
    # On the list, at once: two rows and the first of them back.
    for key in "rrz":
        page.keyboard.press(key)
    expect(page.locator("[data-toast]")).to_contain_text("Reopened 1.")
    expect(page.locator(f"#feedback-{third} [data-open]")).to_be_focused()
    assert states(app, workspace, [first, second, third]) == ["pending", "reviewed", "pending"]


def test_a_panel_that_takes_its_time_shows_a_sketch(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    (row,) = complain(app, workspace, 1)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(URL)
    held: list[Route] = []
    page.route("**/*panel=1", lambda route: route.continue_() if held else held.append(route))
    page.locator(f"#feedback-{row} [data-open]").click()
    expect(page.locator("#panel .u-sketch")).to_be_visible()
    expect(page.locator(".u-progress")).to_be_visible()
    page.keyboard.press("r")
    held[0].continue_()
    expect(page.locator("#panel .u-sketch")).to_have_count(0)
    expect(page.locator(f"#feedback-{row}").get_by_text("reviewed")).to_be_visible()
    expect(page.locator(".u-progress")).to_be_hidden()
