"""From a thumb in a conversation to the queue and back, and what happens when the server does not answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from flask import Flask
from playwright.sync_api import Page, expect

from app.actor import Actor
from app.db import acting_as, transaction
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.entities import criteria as criteria_store
from app.services.entities import responses as entity_responses
from app.services.entities.responses import NewResponse
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.lists.filling import fill

BASE = "/admin/agent-review"
expect.set_options(timeout=60_000)


def talk(app: Flask, actor: Any) -> UUID:
    """A conversation with one answer in it."""
    with app.app_context(), acting_as(actor), transaction():
        chat = chat_store.create_chat(actor=actor, agent_slug="deal-analyst", title="What does Kestrel trade at?")
        said = [
            NewMessage(role="user", content="What does Kestrel trade at?"),
            NewMessage(role="agent", content="At 11.2 times the EBITDA of last year."),
        ]
        chat_store.append_messages(chat.id, said, actor=actor)
        return chat.id


def hold(page: Page) -> None:
    """A message that has the focus stays, however slow the machine is."""
    page.get_by_role("button", name="Undo").focus()


def thumb(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def test_a_thumb_down_is_dismissed_with_the_keyboard_and_taken_back(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    chat_id = talk(app, workspace.actor("member"))
    member = visit(workspace.actor("member"))
    page = member.page
    member.go("/chat")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    panel = page.locator("#panel:not([hidden])")
    expect(panel.get_by_role("heading", level=2)).to_have_text("What does Kestrel trade at?")
    member.go(f"/chat/{chat_id}")

    thumb(page, "Not helpful").click()
    expect(thumb(page, "Not helpful")).to_have_attribute("aria-pressed", "true")
    form = page.get_by_role("form", name="What was wrong")
    form.get_by_label("Outdated or off topic").check()
    form.get_by_label("Comment").fill("Last year again, not the last twelve months")
    form.get_by_role("button", name="Send").click()
    expect(form).to_have_count(0)
    own = page.get_by_role("list", name="Your feedback")
    expect(own).to_contain_text("Last year again, not the last twelve months")
    expect(own).to_contain_text("pending")

    admin = visit(workspace.actor())
    desk = admin.page
    admin.go(f"{BASE}/feedback?status=pending")
    rows = desk.locator("[data-row]")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("Last year again, not the last twelve months")
    desk.keyboard.press("j")
    desk.keyboard.press("Enter")
    opened = desk.locator("#panel:not([hidden])")
    expect(opened.locator("header")).to_be_visible()
    expect(opened.locator(".u-panel-body")).to_be_focused()
    desk.keyboard.press("d")
    expect(desk.get_by_label("Why dismiss it? (optional)")).to_be_focused()
    desk.keyboard.type("The figure is right")
    desk.keyboard.press("Enter")
    hold(desk)
    expect(desk.locator("#feedback-waiting")).not_to_contain_text("1 pending")
    page.reload()
    expect(own).to_contain_text("No change: The figure is right")

    desk.keyboard.press("Enter")
    expect(desk.locator("#feedback-waiting")).to_contain_text("1 pending")
    expect(rows.first).to_contain_text("Last year again, not the last twelve months")
    page.reload()
    expect(own).to_contain_text("pending")


def test_an_edit_shows_its_words_and_can_be_undone(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    chat_id = talk(app, workspace.actor("member"))
    visitor = visit(workspace.actor("member"))
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(f"/chat/{chat_id}")

    page.get_by_role("link", name="Edit answer", exact=True).click()
    box = page.get_by_label("The answer you wanted")
    expect(box).to_be_focused()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("You didn’t change the answer.")).to_be_visible()
    expect(box).to_be_focused()
    box.fill("At 9.6 times the EBITDA of the last twelve months.")
    page.get_by_role("button", name="Save").click()
    hold(page)
    own = page.get_by_role("list", name="Your feedback")
    expect(own.locator("ins").first).to_have_text("9.6")
    expect(own.get_by_text(re.compile(r"^\d+% changed$"))).to_be_visible()

    page.keyboard.press("Enter")
    expect(own).to_have_count(0)
    expect(page.get_by_role("link", name="Edit answer", exact=True)).to_be_visible()


def test_thumbs_answer_at_once_and_go_back_when_nothing_was_stored(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    chat_id = talk(app, workspace.actor("member"))
    visitor = visit(workspace.actor("member"))
    visitor.expected = ("ERR_FAILED", "Failed to fetch", "503")
    page = visitor.page
    visitor.go(f"/chat/{chat_id}")
    up, down = thumb(page, "Helpful"), thumb(page, "Not helpful")
    up.click()
    expect(page.get_by_role("list", name="Your feedback")).to_contain_text("Helpful")

    held: list[Any] = []
    page.route("**/thumb", lambda route: held.append(route))
    down.click()
    expect(down).to_have_attribute("aria-pressed", "true")
    expect(up).to_have_attribute("aria-pressed", "false")
    held.pop().abort()
    expect(up).to_have_attribute("aria-pressed", "true")
    expect(down).to_have_attribute("aria-pressed", "false")
    expect(page.locator("[data-toast]", has_text="Can’t reach the server.")).to_be_visible()

    page.unroute("**/thumb")
    page.route("**/thumb", lambda route: route.fulfill(status=503, headers={"HX-Reswap": "none"}, body=""))
    up.click()
    expect(up).to_have_attribute("aria-pressed", "true")
    page.unroute("**/thumb")
    down.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("form", name="What was wrong")).to_be_visible()
    expect(down).to_be_focused()
    expect(page.locator("#spoken")).to_have_text("Marked as not helpful. You can add reasons.")


def test_thumbs_reasons_and_edits_without_a_script(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    chat_id = talk(app, workspace.actor("member"))
    visitor = visit(workspace.actor("member"), java_script_enabled=False)
    page = visitor.page
    visitor.go(f"/chat/{chat_id}")

    thumb(page, "Not helpful").click()
    form = page.get_by_role("form", name="What was wrong")
    form.get_by_label("Unsafe").check()
    form.get_by_role("button", name="Send").click()
    own = page.get_by_role("list", name="Your feedback")
    expect(own).to_contain_text("Unsafe")
    page.get_by_role("link", name="Edit answer", exact=True).click()
    page.get_by_label("The answer you wanted").fill("Nobody knows.")
    page.get_by_role("button", name="Save").click()
    expect(own).to_contain_text("Your edit")
    thumb(page, "Helpful").click()
    expect(thumb(page, "Helpful")).to_have_attribute("aria-pressed", "true")
    expect(own).not_to_contain_text("Unsafe")


def _create_criteria(admin: Actor) -> None:
    for slug, dimensions in (
        ("account-facts", {"city": {"kind": "text"}}),
        (
            "deal-terms",
            {
                "valuation": {"kind": "numeric"},
                "currency": {"kind": "select", "options": ["EUR", "GBP"]},
                "buyers": {"kind": "relation-rank"},
            },
        ),
    ):
        name = slug.replace("-", " ").capitalize()
        criteria_store.create_criteria_set(slug=slug, name=name, dimensions=dimensions, actor=admin)


def test_a_member_adds_a_response(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        _create_criteria(admin)
    visitor = visit(workspace.actor("member"))
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(f"/entities/{filled.ids['deal']}")
    page.get_by_role("link", name="Add response").click()
    page.get_by_label("Criteria set").select_option("Account facts")
    expect(page.get_by_label("City", exact=True)).to_be_visible()
    page.get_by_label("Criteria set").select_option("Deal terms")
    page.get_by_label("Valuation", exact=True).fill("about 12")
    form = page.get_by_role("form", name="Add response")
    form.get_by_role("button", name="Add response").click()
    expect(form).to_contain_text("Enter a number.")
    page.get_by_label("Valuation", exact=True).fill("12.5")
    page.get_by_label("Source of Valuation").fill("Teaser, p. 3")
    form.get_by_role("button", name="Add response").click()
    expect(page.locator("#responses")).to_contain_text("Teaser, p. 3")
    expect(page.locator("#respond")).to_have_count(0)


def test_a_member_s_pages_under_axe(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    admin, deal = workspace.actor(), filled.ids["deal"]
    with app.app_context(), acting_as(admin), transaction():
        values = {"valuation": {"value": 14.5, "source": "p. 3", "confidence": 0.8}, "sector": "energy"}
        responses = [
            entity_responses.submit_response(NewResponse(entity_id=deal, values=values), actor=admin).id
            for _ in range(2)
        ]
        _create_criteria(admin)
    visitor = visit(workspace.actor("member"))
    for path in (
        "/chat",
        f"/chat/{filled.chat}?why=1",
        f"/chat/{filled.chat}?edit=1",
        "/feedback/mine",
        "/entities?entity_type=deal",
        f"/entities/{deal}?reject={responses[0]}",
        f"/entities/{deal}?respond=new",
    ):
        visitor.go(path)
        check(visitor.page, f"a member at {path}")
