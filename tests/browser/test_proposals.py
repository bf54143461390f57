"""Deciding about what agents proposed, with the keys alone: rules, changes of rules, and drafts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Flask
from playwright.sync_api import expect

from app.db import acting_as, transaction
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.review import drafts
from tests.browser.test_accessible import check
from tests.conftest import Workspace

URL = "/admin/agent-review/knowledge"
RULE = "Use LTM EBITDA when comparing deals."


def prepare(app: Flask, workspace: Workspace) -> dict[str, Any]:
    """A rule in use, and what an agent thinks of it."""
    admin, system = workspace.actor(), workspace.actor("system")
    with app.app_context():
        signals = []
        for role, words in (("member", "Used last year's EBITDA again"), ("other", "Wrong basis")):
            with acting_as(workspace.actor(role)), transaction():
                new = NewFeedback(source_type="session", rating="negative", comment=words)
                signals.append(record_feedback(new, actor=workspace.actor(role)).id)
        with acting_as(admin), transaction():
            old = knowledge_rows.add_row(NewRow(type="lesson", content="Round every figure to millions."), actor=admin)
            analyst = versions.ensure_agent(
                "deal-analyst", actor=admin, kind="builtin", config={"instructions": "Help.", "tool_groups": []}
            )
            author = versions.ensure_agent("reviewer", actor=admin, kind="builtin").id
            found = {"old": old.id, "analyst": analyst.id}
        agent = replace(system, agent_id=author)
        with acting_as(system), transaction():
            drafted = drafts.draft_agent(found["analyst"], {"instructions": "Ask."}, actor=agent, reason="It guesses.")
            retire = proposals.propose_retirement(found["old"], "Thousands matter now.", actor=agent)
            vague = proposals.propose_row(NewRow(type="lesson", content="Be careful."), actor=agent)
            clean = proposals.propose_row(NewRow(type="correction", content=RULE, feedback_ids=signals), actor=agent)
            found |= {"draft": drafted.id, "retire": retire.id, "vague": vague.id, "clean": clean.id}
    return found


def test_proposals_are_decided_by_key(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    ids = prepare(app, workspace)
    visitor = visit(workspace.actor())
    # The question about a failing check is an answer with a status of its own.
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(f"{URL}?state=proposed")
    clean, vague, retire = (page.locator(f"article#knowledge-{ids[name]}") for name in ("clean", "vague", "retire"))
    expect(clean.locator(".u-evidence li")).to_have_count(2)
    expect(vague.locator("[data-checks]")).to_contain_text("vague")
    expect(retire.locator(".u-sides")).to_contain_text("Thousands matter now.")
    check(page, "proposals")

    page.keyboard.press("j")
    expect(clean.locator("[data-open]")).to_be_focused()
    page.keyboard.press("a")
    expect(clean.locator(".u-badge").first).to_contain_text("active")
    expect(page.locator("#toasts")).to_contain_text("Approved. The next prompt includes it.")

    expect(vague.locator("[data-open]")).to_be_focused()
    page.keyboard.press("a")
    expect(vague.locator(".u-asked")).to_contain_text("Check this before you activate it.")
    expect(vague.locator(".u-badge").first).to_contain_text("proposed")
    page.keyboard.press("Escape")
    vague.locator("[data-open]").focus()
    page.keyboard.press("d")
    page.keyboard.type("Says nothing.")
    page.keyboard.press("Enter")
    expect(vague.locator(".u-badge").first).to_contain_text("inactive")

    retire.locator("[data-key=a]").focus()
    page.keyboard.press("a")
    expect(page.locator("#toasts")).to_contain_text("Retired. It’s out of all prompts.")
    expect(page.locator(".u-tabs")).not_to_contain_text("proposed")
    visitor.go(f"{URL}/preview")
    expect(page.locator("#prompt-text")).to_contain_text(RULE)
    expect(page.locator("#prompt-text")).not_to_contain_text("Round every figure")

    visitor.go(URL)
    page.get_by_role("link", name="Drafts 1").click()
    card = page.locator(f"article#draft-{ids['draft']}")
    expect(card).to_contain_text("It guesses.")
    check(page, "drafts", "dark")
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(card.locator(".u-badge")).to_contain_text("approved")
    visitor.go(f"/admin/agents/{ids['analyst']}")
    expect(page.locator("main")).to_contain_text("Approved draft: It guesses.")

    # A change of an entity type is approved and taken back.
    with app.app_context(), acting_as(workspace.actor()), transaction():
        kind = entity_store.create_type(slug="vendor", name="Vendor", fields={}, actor=workspace.actor())
        made = drafts.draft_type(
            kind.id, {"city": {"type": "string"}}, actor=workspace.actor(), reason="People ask for it."
        )
        draft_id = made.id
    visitor.go("/admin/agent-review/drafts")
    card = page.locator(f"article#draft-{draft_id}")
    card.locator("[data-key=a]").click()
    expect(card.get_by_role("button", name="Undo approval")).to_be_visible()
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(card.locator(".u-badge")).to_contain_text("draft")
    expect(page.locator("#toasts")).to_contain_text("Reopened the draft.")
