"""Working through proposals with both hands on the keys, from the evidence to the prompt and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flask import Flask
from playwright.sync_api import Page, expect

from app.db import acting_as, transaction
from app.services.knowledge import rows as knowledge_rows
from tests.browser.test_accessible import check
from tests.conftest import Workspace
from tests.lists.filling import fill

URL = "/admin/agent-review/knowledge"
expect.set_options(timeout=60_000)


def propose(app: Flask, workspace: Workspace, content: str) -> Any:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        return knowledge_rows.add_row(knowledge_rows.NewRow(type="lesson", content=content), actor=member).id


def at(page: Page, row_id: Any) -> None:
    expect(page.locator(f"#knowledge-{row_id} [data-open]")).to_be_focused()


def test_from_the_evidence_to_the_prompt_and_back(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    row = fill(app, workspace).ids["proposed"]
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{URL}?state=proposed")
    card = page.locator(f"article#knowledge-{row}")
    expect(card.locator(".u-evidence")).to_contain_text("Used last year's EBITDA again")
    expect(card.locator("[data-checks]")).to_contain_text("checks passed")

    page.keyboard.press("j")
    at(page, row)
    page.keyboard.press("e")
    expect(page.get_by_label("Text", exact=True)).to_be_focused()
    page.get_by_label("Text", exact=True).fill("Say for which period a multiple is.")
    page.get_by_role("button", name="Save and approve").click()
    expect(card.locator(".u-badge")).to_have_text(re.compile("active"))
    expect(page.locator(".u-tabs")).not_to_contain_text("proposed")

    card.get_by_role("link", name="Show in prompt").click()
    expect(page.locator("#prompt-text mark")).to_contain_text("Say for which period a multiple is.")
    visitor.go(f"{URL}?state=active&type=lesson")
    page.locator(f"#knowledge-{row} [data-open]").focus()
    page.keyboard.press("Enter")
    panel = page.locator("#panel:not([hidden])")
    expect(panel.locator("header")).to_be_visible()
    page.keyboard.press("d")
    expect(panel.get_by_label("Why deactivate it?")).to_be_focused()
    page.keyboard.type("The committee wants another wording")
    page.keyboard.press("Enter")
    expect(panel.locator(".u-badge").first).to_have_text(re.compile("inactive"))
    expect(panel.locator(".u-became")).to_contain_text("The committee wants another wording")

    visitor.go(f"{URL}/preview?row={row}&agent=&entity_type=")
    expect(page.locator(".u-proof")).to_contain_text("If active")
    visitor.go(f"{URL}/preview")
    expect(page.locator("#preview")).not_to_contain_text("Say for which period")

    visitor.go(f"{URL}/{row}")
    page.get_by_role("button", name="Restore version 3").click()
    expect(page.locator(".u-became .is-now")).to_contain_text("Restored version 3.")
    expect(card.locator(".u-badge")).to_have_text(re.compile(r"✓\s+active"))
    visitor.go(f"{URL}/preview")
    expect(page.locator("#prompt-text")).to_contain_text("Say for which period a multiple is.")


def test_a_key_decides_about_the_row_one_is_at(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    ids = fill(app, workspace).ids
    second, third = (propose(app, workspace, f"Name the source of figure {number}.") for number in (2, 3))
    visitor = visit(workspace.actor())
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(f"{URL}?state=proposed")
    rows = page.locator("article[data-row]")
    expect(rows).to_have_count(3)

    page.keyboard.press("a")
    expect(rows.locator(".u-badge", has_text="proposed")).to_have_count(3)

    page.keyboard.press("j")
    at(page, third)
    page.keyboard.press("a")
    expect(page.locator(f"#knowledge-{third} .u-badge")).to_have_text(re.compile("active"))
    at(page, second)
    page.keyboard.press("d")
    expect(page.locator(f"#why-{second}")).to_be_focused()
    page.keyboard.type("Nobody asked for it")
    page.keyboard.press("Enter")
    expect(page.locator(f"#knowledge-{second} .u-badge")).to_have_text(re.compile("inactive"))
    at(page, ids["proposed"])
    page.keyboard.press("m")
    first = page.locator(f"#offered-{ids['proposed']} input").first
    expect(first).to_be_focused()
    page.keyboard.press("Escape")
    expect(first).to_have_count(0)
    page.locator(f"#knowledge-{ids['proposed']} [data-open]").focus()
    page.keyboard.press("m")
    expect(first).to_be_focused()
    expect(first).not_to_be_checked()
    page.keyboard.press("Enter")
    expect(page.locator(f"#choose-{ids['proposed']} [role=alert]")).to_have_text(
        re.compile("Choose a row to merge into")
    )
    expect(page.locator(f"#knowledge-{ids['proposed']} .u-badge")).to_have_text(re.compile("proposed"))
    page.locator(f"#offered-{ids['proposed']} input[value='{ids['correction']}']").check()
    page.keyboard.press("Enter")
    expect(page.locator(f"#knowledge-{ids['proposed']} .u-badge")).to_have_text(re.compile("superseded"))


def test_findings_are_put_right_where_they_stand(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(URL)
    page.get_by_role("link", name="Add knowledge").click()
    page.get_by_label("Text", exact=True).fill("When deal-analyst answers, it names the period.")
    page.get_by_role("button", name="Save").click()
    card = page.locator("article[data-row]").first
    expect(card.locator(".u-findings")).to_contain_text("speaks of “deal-analyst” only")
    check(page, "findings under a card")
    card.get_by_role("button", name="Set agent").click()
    expect(card.locator(".u-meta")).to_contain_text("deal-analyst")
    expect(card.locator("[data-checks]")).to_contain_text("checks passed")
    page.keyboard.press("z")
    expect(card.locator(".u-meta")).to_contain_text("all agents")


def test_several_rows_are_ticked_and_retired(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{URL}?state=active")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("d")
    expect(page.get_by_label("Why deactivate them?")).to_be_focused()
    page.keyboard.type("Old")
    page.keyboard.press("Enter")
    page.locator("[data-toast]", has_text="Deactivated 1.").get_by_role("button", name="Undo").focus()
    expect(page.get_by_text("No matches")).to_be_visible()
    page.keyboard.press("z")
    expect(page.locator("article[data-row]")).to_have_count(1)


def test_who_was_late_takes_mine_or_theirs(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    row = fill(app, workspace).ids["correction"]
    visitor = visit(workspace.actor())
    visitor.expected = ("409",)
    page = visitor.page
    visitor.go(URL)
    page.locator(f"article#knowledge-{row}").get_by_role("link", name="Edit").click()
    page.get_by_label("Text", exact=True).fill("Mine: use LTM EBITDA.")
    owner = workspace.actor("owner")
    with app.app_context(), acting_as(owner), transaction():
        knowledge_rows.edit_row(row, {"content": "Theirs: use NTM EBITDA."}, 1, actor=owner)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".u-theirs")).to_contain_text("Theirs: use NTM EBITDA.")
    expect(page.get_by_label("Your text")).to_have_value("Mine: use LTM EBITDA.")
    check(page, "both texts")
    page.get_by_role("button", name="Use mine").click()
    expect(page.locator(f"article#knowledge-{row} .u-rule")).to_have_text("Mine: use LTM EBITDA.")


def test_a_vague_rule_is_saved_after_a_second_look(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    visitor.expected = ("422",)
    page = visitor.page
    visitor.go(URL)
    page.get_by_role("link", name="Add knowledge", exact=True).click()
    form = page.get_by_role("form", name="New knowledge")
    form.get_by_label("Text").fill("Be careful.")
    form.get_by_role("button", name="Save", exact=True).click()
    asked = form.get_by_role("alert")
    expect(asked).to_contain_text("Check this before you activate it.")
    expect(asked).to_contain_text("vague")
    check(page, "a rule that is asked about")
    form.get_by_label("Text").fill("Be careful with deals over 50m.")
    form.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("link", name="Be careful with deals over 50m.")).to_be_visible()
    expect(form).to_have_count(0)

    page.get_by_role("link", name="Add knowledge", exact=True).click()
    form.get_by_label("Text").fill("Be careful.")
    form.get_by_role("button", name="Save", exact=True).click()
    form.get_by_role("button", name="Save anyway").click()
    card = page.locator("article", has=page.get_by_role("link", name="Be careful.", exact=True))
    expect(card).to_be_visible()

    card.get_by_text("Deactivate…").click()
    card.get_by_label("Why deactivate it?").fill("Says nothing")
    card.get_by_role("button", name="Deactivate", exact=True).click()
    card.get_by_role("button", name="Activate", exact=True).click()
    expect(card.get_by_role("alert")).to_contain_text("vague")
    expect(card.locator(".u-badge").first).to_have_text(re.compile("inactive"))
    card.get_by_role("button", name="Activate anyway").click()
    expect(card.locator(".u-badge").first).to_have_text(re.compile("✓ active"))


def test_a_long_rule_takes_one_line_until_its_card_is_opened(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        text = "Say for which period a multiple is and where it comes from. " * 12
        row = knowledge_rows.add_row(knowledge_rows.NewRow(type="guideline", content=text.strip()), actor=admin).id
    visitor = visit(admin)
    page = visitor.page
    visitor.go(f"{URL}?state=active")
    rule = page.locator(f"#knowledge-{row} .u-rule")
    lines = "e => Math.round(e.clientHeight / parseFloat(getComputedStyle(e).lineHeight))"
    assert rule.evaluate(lines) == 1
    rule.get_by_role("link").click(position={"x": 5, "y": 5})
    expect(page.locator("#panel header")).to_be_visible()
    assert rule.evaluate(lines) > 2
