"""Knowledge: cards, adding, editing with a version, approving and retiring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services import knowledge
from tests.conftest import Workspace, soup
from tests.views.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/knowledge"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def post(client: Any, path: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    return client.post(path, data={"csrf_token": client.csrf, **form}, headers=headers)


def test_cards_say_what_when_for_whom_and_from_where(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    html = soup(sign_in(workspace.actor()).get(URL))

    card = html.select_one(f"#knowledge-{filled.ids['correction']}").get_text(" ", strip=True)
    for words in ("active", "correction", "all agents", "when: comparing valuations", "written by hand"):
        assert words in card
    assert "1 signal, 1 person, 1 session" in html.select_one(f"#knowledge-{filled.ids['proposed']}").text
    kinds = [link.get_text(" ", strip=True) for link in html.select(".u-seg a")]
    assert kinds == ["All", "Proposed 1", "Corrections 1", "Lessons 0", "Routing 0", "Insights 0", "Guidelines 0"]


def test_a_kind_is_a_link(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    links = soup(client.get(URL)).select(".u-seg a")
    proposed = soup(client.get(links[1]["href"]))

    assert len(proposed.select("[data-row]")) == 1
    assert proposed.select_one(".u-seg [aria-current=page]").text.startswith("Proposed")


def test_adding_a_row(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())
    assert soup(client.get(f"{URL}/new")).select_one("form#knowledge-form")["action"] == URL

    wrong = post(client, URL, type="lesson", content=" ", context="always")
    assert wrong.status_code == 422
    page = soup(wrong)
    assert page.select_one("textarea[aria-invalid=true][autofocus]") is not None
    assert page.select_one("[name=context]")["value"] == "always"
    assert post(client, URL, type="lesson", content="x" * 2001).status_code == 422
    assert post(client, URL, type="rumour", content="x").status_code == 422
    assert post(client, URL, type="lesson", content="x", agent_id=uuid4()).status_code == 422

    answer = post(client, URL, type="lesson", content="Say which period it is.")
    assert answer.status_code == 303
    page = soup(client.get(answer.location))
    assert page.select_one(".u-rule").get_text(strip=True) == "Say which period it is."
    assert "Added" in page.select_one("#toasts").text
    twice = post(client, URL, type="lesson", content="Say which period it is.")
    assert twice.status_code == 422
    assert "says the same" in soup(twice).select_one(".invalid-feedback").text


def test_editing_in_place_keeps_history(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())
    form = soup(client.get(f"{URL}/{row}/edit", headers=HTMX)).select_one(f"form#knowledge-{row}")
    sent = {field["name"]: field.get("value", "") for field in form.select("input:not([type=checkbox])")}
    sent |= {"type": "correction", "content": "Use LTM EBITDA, never the last fiscal year.", "reason": "clearer"}

    parts = soup(client.post(form["action"], data=sent, headers=HTMX))
    assert "never the last fiscal year" in parts.select_one(f"article#knowledge-{row}").text
    panel = soup(client.get(f"{URL}/{row}?panel=1", headers=HTMX))
    history = panel.select_one(".u-became")
    assert "clearer" in history.text
    assert history.select_one("ins") is not None
    assert soup(client.get(f"{URL}/{row}?card=1", headers=HTMX)).select_one("article") is not None


def test_whoever_is_late_sees_both_texts(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    owner = workspace.actor("owner")
    with app.app_context(), acting_as(owner), transaction():
        knowledge.edit_row(row, {"content": "Theirs."}, 1, actor=owner)
    client = sign_in(workspace.actor())
    mine = {"type": "correction", "content": "Mine.", "version": "1"}

    late = post(client, f"{URL}/{row}/edit", **mine)
    assert late.status_code == 409
    page = soup(late)
    assert "Theirs." in page.select_one(".u-theirs").text
    assert page.select_one("textarea").text.strip() == "Mine."
    version = page.select_one("[name=version]")["value"]
    assert version == "2"
    assert post(client, f"{URL}/{row}/edit", **{**mine, "version": version}).status_code == 303
    assert "Mine." in soup(client.get(f"{URL}/{row}")).select_one(".u-rule").text


def test_retiring_needs_a_reason_and_can_be_undone(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())

    refused = post(client, f"{URL}/{row}/state", HTMX, state="inactive", reason=" ")
    assert refused.status_code == 422
    assert "Say why" in soup(refused).select_one(".u-toast").text
    done = soup(post(client, f"{URL}/{row}/state", HTMX, state="inactive", reason="Outdated"))
    assert "inactive" in done.select_one("article").text
    undo = done.select_one("[data-undo]")
    fields = {field["name"]: field["value"] for field in undo.select("input")}
    back = soup(client.post(undo["action"], data=fields, headers=HTMX))
    assert back.select_one("article .u-badge.is-pass") is not None
    assert post(client, f"{URL}/{row}/state", state="golden").status_code == 303
    assert "Use one of" in soup(client.get(URL)).select_one("#toasts").text


def test_approving_what_was_proposed(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    client = sign_in(workspace.actor())
    assert "1 proposed" in soup(client.get(URL)).select_one(".u-tabs").text

    parts = soup(post(client, f"{URL}/{row}/state", HTMX, state="active"))
    assert "proposed" not in parts.select_one(".u-tabs").text
    panel = soup(client.get(f"{URL}/{row}?panel=1", headers=HTMX))
    assert "Used last year's EBITDA again" in panel.select_one(".u-evidence").text


def test_a_proposal_is_decided_in_the_panel(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    client = sign_in(workspace.actor())
    panel = soup(client.get(f"{URL}/{row}?panel=1", headers=HTMX))
    keys = {one["data-key"]: one.get_text(" ", strip=True) for one in panel.select("footer [data-key]")}
    assert keys == {"a": "A Approve", "d": "D Reject…", "e": "E Edit and approve", "m": "M Merge…"}

    form = panel.select_one("footer form:has([name=reason])")
    sent = {field["name"]: field["value"] for field in form.select("input")} | {"reason": "Said twice already"}
    done = soup(client.post(form["action"], data=sent, headers=HTMX))
    assert "inactive" in done.select_one("article .u-meta").text
    assert [one["data-key"] for one in done.select("#panel footer [data-key]")] == ["a", "e"]
    source = panel.select_one(".u-evidence a")["href"]
    became = soup(client.get(source)).get_text(" ", strip=True)
    assert "The rule made of it was rejected: Said twice already" in became
