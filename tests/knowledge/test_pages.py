"""Knowledge: cards, adding, editing with a version, approving and retiring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update

from app.db import acting_as, db, transaction
from app.models import SharedContext
from app.services.agents import versions
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.prompt import load_shared_context_prompt
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/knowledge"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def post(client: Any, path: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    return client.post(path, data={"csrf_token": client.csrf, **form}, headers=headers)


def post_anyway(client: Any, path: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    """Send a form, and once more with what its answer offers to save all the same."""
    asked = soup(post(client, path, headers, **form)).select_one("button[name=confirm]")
    return post(client, path, headers, **form, confirm=asked["value"])


def test_cards_say_what_when_for_whom_and_from_where(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    html = soup(sign_in(workspace.actor()).get(URL))

    card = html.select_one(f"#knowledge-{filled.ids['correction']}").get_text(" ", strip=True)
    for words in ("active", "correction", "all agents", "when: comparing valuations", "added manually"):
        assert words in card
    assert "1 signal, 1 person, 1 session" in html.select_one(f"#knowledge-{filled.ids['proposed']}").text
    kinds = [link.get_text(" ", strip=True) for link in html.select(".u-seg a")]
    assert kinds == [
        "All 2", "Proposed 1", "Corrections 1", "Lessons 0", "Routing 0", "Insights 0", "Guidelines 0", "Inactive 0",
        "Replaced 0",
    ]  # fmt: skip
    assert "2 rows" in html.select_one("#list").get_text(" ", strip=True)


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
    assert page.select_one("[name=context]").text.strip() == "always"
    assert post(client, URL, type="lesson", content="x" * 2001).status_code == 422
    assert post(client, URL, type="rumour", content="x").status_code == 422
    assert post(client, URL, type="lesson", content="x", agent_id=uuid4()).status_code == 422

    answer = post(client, URL, type="lesson", content="Say which period it is, such as FY2024.")
    assert answer.status_code == 303
    page = soup(client.get(answer.location))
    assert page.select_one(".u-rule").get_text(strip=True) == "Say which period it is, such as FY2024."
    assert "Added" in page.select_one("#toasts").text
    twice = post(client, URL, type="lesson", content="Say which period it is, such as FY2024.")
    assert twice.status_code == 422
    assert "has the same text" in soup(twice).select_one(".invalid-feedback").text


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


def test_who_is_late_sees_both_texts(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    owner = workspace.actor("owner")
    with app.app_context(), acting_as(owner), transaction():
        knowledge_rows.edit_row(row, {"content": "Theirs."}, 1, actor=owner)
    client = sign_in(workspace.actor())
    mine = {"type": "correction", "content": "Compare deals on LTM EBITDA.", "version": "1"}

    late = post(client, f"{URL}/{row}/edit", **mine)
    assert late.status_code == 409
    page = soup(late)
    assert "Theirs." in page.select_one(".u-theirs").text
    assert page.select_one("textarea").text.strip() == "Compare deals on LTM EBITDA."
    version = page.select_one("[name=version]")["value"]
    assert version == "2"
    assert post(client, f"{URL}/{row}/edit", **{**mine, "version": version}).status_code == 303
    assert "on LTM EBITDA." in soup(client.get(f"{URL}/{row}")).select_one(".u-rule").text


def test_retiring_needs_a_reason_and_can_be_undone(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())

    refused = post(client, f"{URL}/{row}/state", HTMX, state="inactive", reason=" ")
    assert refused.status_code == 422
    assert "Enter a reason" in soup(refused).select_one(".u-toast").text
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
    assert parts.select_one("#count-knowledge").text == ""
    numbers = {one["id"]: one.text for one in parts.select("[id^=count-of-]")}
    assert numbers.items() >= {"count-of-all": "2", "count-of-proposed": "0", "count-of-lesson": "1"}.items()
    undo = parts.select_one("[data-undo]")
    sent = {field["name"]: field["value"] for field in undo.select("input")}
    back = soup(client.post(undo["action"], data=sent, headers=HTMX))
    assert "1 proposed" in back.select_one("#count-knowledge").text
    assert back.select_one("article [data-key=a]") is not None
    panel = soup(client.get(f"{URL}/{row}?panel=1", headers=HTMX))
    assert "Used last year's EBITDA again" in panel.select_one(".u-evidence").text


def test_a_proposal_is_decided_in_the_panel(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    client = sign_in(workspace.actor())
    panel = soup(client.get(f"{URL}/{row}?panel=1", headers=HTMX))
    keys = {one["data-key"]: one.get_text(" ", strip=True) for one in panel.select("footer [data-key]")}
    assert keys == {"a": "A Approve", "d": "D Reject…", "e": "E Edit and approve", "m": "M Merge…", "p": "P Prove"}

    form = panel.select_one("footer form:has([name=reason])")
    sent = {field["name"]: field["value"] for field in form.select("input")} | {"reason": "Said twice already"}
    done = soup(client.post(form["action"], data=sent, headers=HTMX))
    assert "inactive" in done.select_one("article .u-meta").text
    assert [one["data-key"] for one in done.select("#panel footer [data-key]")] == ["a", "e", "p"]
    source = panel.select_one(".u-evidence a")["href"]
    became = soup(client.get(source)).get_text(" ", strip=True)
    assert "The rule made of it was rejected: Said twice already" in became


def test_a_proposal_leads_with_the_evidence(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    card = soup(sign_in(workspace.actor()).get(f"{URL}?state=proposed")).select_one(f"#knowledge-{row}")

    order = [one.name if one.name != "p" else " ".join(one["class"]) for one in card.find_all(["ul", "p", "footer"])]
    assert order.index("ul") < order.index("u-rule u-break u-verbatim") < order.index("footer")
    links = {link["href"].split("/")[-2] for link in card.select(".u-evidence a")}
    assert links == {"feedback", "sessions"}
    keys = {one["data-key"]: one.get_text(" ", strip=True) for one in card.select("footer [data-key]")}
    assert keys == {"a": "A Approve", "d": "D Reject…", "e": "E Edit and approve", "m": "M Merge into…", "p": "P Prove"}
    assert "Checking" in card.select_one("[data-checks]").text


def test_checks_come_in_a_second_request_and_to_those_without_a_script(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    row = fill(app, workspace).ids["proposed"]
    client = sign_in(workspace.actor())
    url = soup(client.get(f"{URL}?state=proposed")).select_one("div[hx-trigger=load]")["hx-get"]
    parts = soup(client.get(url, headers=HTMX))

    assert parts.select_one(f"hx-partial[hx-target=\"article [data-checks='{row}']\"]") is not None
    assert "checks passed" in soup(client.get(url)).select_one(".u-proof").text


def test_what_is_saved_is_checked_in_place(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())

    parts = soup(post_anyway(client, URL, HTMX, type="lesson", content="Use the LTM EBITDA when comparing deals."))
    found = parts.select_one(".u-findings").get_text(" ", strip=True)
    assert "duplicate" in found
    assert "says the same as “Use LTM EBITDA when comparing deals.”" in found
    assert any(str(row) in link["href"] for link in parts.select(".u-findings a"))
    assert "2 findings" in parts.select_one(".u-toast").text
    vague = {"type": "correction", "content": "Be careful.", "version": "1"}
    edited = post_anyway(client, f"{URL}/{row}/edit", HTMX, **vague)
    assert edited.status_code == 200, "findings do not stop an admin who has read them"
    assert "vague" in soup(edited).select_one("article .u-findings").text


def test_what_nobody_sees_is_shown_and_not_saved(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())
    refused = post(client, f"{URL}/{row}/edit", type="correction", content="State the per\u200biod.", version="1")

    assert refused.status_code == 422
    page = soup(refused)
    assert "U+200B zero width space" in page.select_one(".invalid-feedback").text
    assert page.select_one("textarea").text.strip() == "State the period.", "what is offered can be seen"


def test_a_row_stored_with_hidden_characters_is_in_no_prompt_and_says_so(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    """Rows of earlier versions may have such texts: saving refuses them today."""
    actor, ids = workspace.actor(), fill(app, workspace).ids
    with app.app_context(), acting_as(actor), transaction():
        for name in ("correction", "proposed"):
            stored = update(SharedContext).where(SharedContext.id == ids[name])
            db.session.execute(stored.values(content=f"Name\u202e the source of a {name}."))
        assert load_shared_context_prompt(workspace.id).text == ""
    client = sign_in(actor)
    card = soup(client.get(f"{URL}/{ids['correction']}")).select_one("article")
    assert "Not in prompts because its text has hidden characters." in card.text
    assert "has hidden characters" in soup(client.get(f"{URL}/preview")).select_one(".u-below").text
    stopped = post(client, f"{URL}/{ids['proposed']}/state", HTMX, state="active")
    assert stopped.status_code == 422
    assert "U+202E" in soup(stopped).select_one(".u-toast").text
    for name in ("correction", "proposed"):
        assert post(client, f"{URL}/{ids[name]}/set", HTMX, clean="1", version="1").status_code == 200
    asked = post(client, f"{URL}/{ids['proposed']}/state", HTMX, state="active")
    assert "duplicate" in soup(asked).select_one(".u-asked").text, "a proposal that repeats a rule is asked about"
    box = soup(asked).select_one("form")
    sent = {field["name"]: field["value"] for field in box.select("input")}
    assert client.post(box["action"], data=sent, headers=HTMX).status_code == 200
    assert "Not in prompts" not in soup(client.get(f"{URL}/{ids['correction']}")).text
    with app.app_context(), acting_as(actor):
        assert load_shared_context_prompt(workspace.id).text.count("Name the source of a ") == 2


def test_what_is_shown_is_what_prompts_get(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())
    text = "Write\n  ```sql\n\tSELECT  1\n``` ⟨so⟩ <<<x>>> ##  and   nothing else."
    # Browsers send two characters for a line break.
    post(client, URL, type="lesson", content=text.replace("\n", "\r\n"), context="writing\r\n  SQL")

    assert soup(client.get(URL)).select_one(".u-rule").text == text
    row = soup(client.get(URL)).select_one("[data-row]")["id"].removeprefix("knowledge-")
    form = soup(client.get(f"{URL}/{row}/edit", headers=HTMX))
    assert [area.text.removeprefix("\n") for area in form.select("textarea")] == [text, "writing\n  SQL"]
    preview = soup(client.get(f"{URL}/preview"))
    assert f"\n{text}\nwhen " in preview.select_one("#prompt-text").text
    with app.app_context(), acting_as(workspace.actor()):
        prompt = load_shared_context_prompt(workspace.id)
    assert preview.select_one("#prompt-text").text == prompt.text, "to the last byte"
    assert preview.select_one(f"[data-copy='{prompt.sha256}']") is not None


def test_the_preview_says_what_fell_below_the_line(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        for number in range(9):
            new = knowledge_rows.NewRow(type="correction", content=f"Rule number {number} of many.")
            knowledge_rows.add_row(new, actor=actor)
    client = sign_in(actor)

    page = soup(client.get(f"{URL}/preview"))
    assert "2 rows left out" in page.select_one(".u-cutline").text
    assert "ninth of type correction" in page.select_one(".u-below").text
    assert page.select_one("progress")["max"] == "2000"
    low = soup(client.get(f"{URL}/preview?row={page.select_one('.u-below a')['href'].rsplit('/', 1)[1]}"))
    assert "doesn’t fit" in low.select_one(".u-proof").text
    offered = soup(client.get(f"{URL}/preview?row={filled.ids['proposed']}"))
    assert "If active" in offered.select_one(".u-proof").text
    assert "Say which period" in offered.select_one("mark").text
    assert offered.select_one("ins").text.startswith("+")
    assert client.get(f"{URL}/preview?agent=nobody").status_code == 404
    assert client.get(f"{URL}/preview?row={uuid4()}").status_code == 200
    assert "working on" in soup(client.get(f"{URL}/preview?agent=deal-analyst&entity_type=deal")).text


def test_rolling_back_from_the_history(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())
    words = "Use FY2024 EBITDA."
    saved = soup(post(client, f"{URL}/{row}/edit", HTMX, type="lesson", content=words, version="1"))
    undo = {field["name"]: field["value"] for field in saved.select_one("[data-undo]").select("input")}
    assert (undo["to"], undo["version"]) == ("1", "2")

    page = soup(client.get(f"{URL}/{row}"))
    assert "kind: correction → lesson" in page.select_one(".u-became").get_text(" ", strip=True).replace("  ", " ")
    form = page.select_one(".u-became form")
    sent = {field["name"]: field["value"] for field in form.select("input")}
    done = soup(client.post(form["action"], data=sent, headers=HTMX))
    assert "Use LTM EBITDA when comparing deals." in done.select_one("article .u-rule").text
    assert "v3" in done.select_one("#knowledge-detail .u-became li.is-now").text
    assert client.post(form["action"], data=sent, headers=HTMX).status_code == 409, "it was made on version 2"
    assert post(client, f"{URL}/{row}/roll-back", HTMX, to="77", version="3").status_code == 409


def test_merging_and_replacing_are_chosen_from_what_is_near(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    form = soup(client.get(f"{URL}/{ids['proposed']}/choose", headers=HTMX)).select_one("form")
    assert [one["value"] for one in form.select("[name=into]")] == [str(ids["correction"])]
    assert soup(client.get(f"{URL}/{ids['proposed']}/choose?q=zanzibar")).select("[name=into]") == []

    assert form.select("[checked]") == [], "whose text stays is for the person to say"
    unchosen = post(client, form["action"], HTMX)
    assert unchosen.status_code == 422
    assert "Choose a row to merge into." in soup(unchosen).select_one("form [role=alert]").text
    assert "Choose a row to merge into." in soup(post(client, form["action"])).select_one("main [role=alert]").text
    linked = soup(client.get(f"{URL}/{ids['proposed']}/choose?into={ids['correction']}"))
    assert [one.has_attr("checked") for one in linked.select("[name=into]")] == [False]
    done = soup(post(client, form["action"], HTMX, into=str(ids["correction"])))
    assert "superseded" in done.select_one("article .u-meta").text
    target = soup(client.get(f"{URL}/{ids['correction']}"))
    assert "Used last year's EBITDA again" in target.select_one("#knowledge-detail .u-evidence").text

    post(client, URL, type="lesson", content="Say which period a multiple is for.")
    heir = soup(client.get(f"{URL}?type=lesson&state=active")).select_one("[data-row]")["id"].removeprefix("knowledge-")
    chooser = soup(client.get(f"{URL}/{ids['correction']}/choose", headers=HTMX))
    assert [one["value"] for one in chooser.select("[name=superseded_by]")] == [heir]
    path = chooser.select_one("form")["action"]
    unchosen = post(client, path, HTMX)
    assert unchosen.status_code == 422
    assert "Choose a replacement row." in soup(unchosen).select_one("form [role=alert]").text
    assert post(client, path, HTMX, superseded_by=heir).status_code == 200
    assert "Say which period" in soup(client.get(f"{URL}/{ids['correction']}")).select_one("#knowledge-detail").text


def test_a_row_out_of_use_can_be_compared_while_others_are_proposed(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    post(client, f"{URL}/{ids['correction']}/state", state="inactive", reason="Old.")
    chooser = client.get(f"{URL}/{ids['correction']}/choose", headers=HTMX)
    assert chooser.status_code == 200
    assert str(ids["correction"]) not in [one["value"] for one in soup(chooser).select("[name=superseded_by]")]


def test_one_thing_at_a_click(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    row = ids["correction"]

    pinned = soup(post(client, f"{URL}/{row}/set", HTMX, pinned="1", version="1"))
    assert "pinned" in pinned.select_one("article .u-meta").text
    undo = {field["name"]: field["value"] for field in pinned.select_one("[data-undo]").select("input")}
    assert (undo["to"], undo["version"]) == ("1", "2")
    with app.app_context(), acting_as(workspace.actor()):
        agent_id = versions.resolve_agent("deal-analyst", actor=workspace.actor()).id
    narrowed = soup(post(client, f"{URL}/{row}/set", HTMX, agent_id=str(agent_id), version="2"))
    assert "deal-analyst" in narrowed.select_one("article .u-meta").text
    assert post(client, f"{URL}/{row}/set", HTMX, pinned="0", version="2").status_code == 409
    assert post(client, f"{URL}/{row}/set", HTMX, colour="red").status_code == 422
    assert post(client, f"{URL}/{row}/set", HTMX, agent_id="x").status_code == 422
    gone = soup(post(client, f"{URL}/{row}/state", HTMX, state="deleted"))
    assert "deleted" in gone.select_one("article .u-meta").text
    assert gone.select("article footer .btn") == []


def test_several_at_once(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    both = f"{ids['correction']},{ids['proposed']}"
    assert (
        "Enter a reason"
        in soup(post(client, f"{URL}/decide", HTMX, state="inactive", ids=both)).select_one(".u-toast").text
    )
    off = soup(post(client, f"{URL}/decide", HTMX, state="inactive", ids=both, reason="Old."))
    assert "Deactivated 2." in off.select_one(".u-toast").text
    assert off.select_one("[data-undo]") is None, "they were not the same before"
    on = soup(post(client, f"{URL}/decide", HTMX, state="active", ids=str(ids["correction"])))
    undo = on.select_one("[data-undo]")
    sent = {field["name"]: field["value"] for field in undo.select("input")}
    back = soup(client.post(undo["action"], data=sent, headers=HTMX))
    assert "Deactivated 1." in back.select_one(".u-toast").text
    assert post(client, f"{URL}/decide", state="active", ids="x").status_code == 303


def test_all_findings_on_one_page(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor), transaction():
        versions.ensure_agent("deal-analyst", actor=actor)
        new = knowledge_rows.NewRow(type="correction", content="Use LTM EBITDA when comparing deals.")
        knowledge_rows.add_row(new, actor=actor)
    client = sign_in(actor)
    assert "No findings" in soup(client.get(f"{URL}/checks")).select_one(".u-blank").text
    post_anyway(client, URL, type="lesson", content="Use the LTM EBITDA when comparing deals.")
    post_anyway(client, URL, type="guideline", content="Be careful.")
    post(client, URL, type="guideline", content="When deal-analyst answers, it states the period.")

    with count_queries() as seen:
        page = soup(client.get(f"{URL}/checks"))
    assert len(seen) <= 8
    kinds = [link.get_text(" ", strip=True) for link in page.select(".u-seg a")]
    assert kinds == ["All 3", "Duplicate 1", "Vague 1", "Unscoped 1"]
    assert len(page.select("section.u-card")) == 3
    only = soup(client.get(f"{URL}/checks?check=unscoped"))
    form = only.select_one(".u-findings form")
    sent = {field["name"]: field["value"] for field in form.select("input")}
    fixed = client.post(form["action"], data=sent)
    assert fixed.status_code == 303
    assert fixed.location.startswith(f"{URL}/checks?check=unscoped")
    assert "Unscoped" not in soup(client.get(f"{URL}/checks")).select_one(".u-seg").text


def test_proposals_take_few_queries(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        for number in range(12):
            knowledge_rows.add_row(
                knowledge_rows.NewRow(type="lesson", content=f"Proposal {number}: name it."), actor=member
            )
    client = sign_in(workspace.actor())
    for path in ("", "?state=proposed", "?type=correction&state=active", "/preview"):
        with count_queries() as seen:
            assert client.get(URL + path).status_code == 200
        assert len(seen) <= 8, (path, len(seen))


def texts_in_use(client: Any) -> list[str]:
    return [one.text for one in soup(client.get(f"{URL}?state=active")).select(".u-rule")]


def test_a_vague_or_repeated_rule_goes_live_after_a_second_look(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    before = texts_in_use(client)
    for form, check, reason in (
        ({"type": "guideline", "content": "Be careful."}, "vague", "names no tool, field, record, number or name"),
        ({"type": "lesson", "content": "Use the LTM EBITDA when comparing deals."}, "duplicate", "says the same as"),
        ({"type": "lesson", "content": "Never use LTM EBITDA when comparing deals."}, "contradiction", "contradicts"),
    ):
        asked = post(client, URL, **form, context="always")
        assert asked.status_code == 422
        page = soup(asked)
        assert check in page.select_one(".u-asked").text
        assert reason in page.select_one(".u-asked").text
        assert [area.text.strip() for area in page.select("textarea")] == [form["content"], "always"]
        assert page.select_one("form.is-editing button").text == "Save", "Enter must not save anyway"
        assert page.select_one("button[name=confirm]").text == "Save anyway"
        assert texts_in_use(client) == before, "nothing was saved"
        assert post(client, URL, **form, confirm="1").status_code == 422, "only these findings are confirmed"
        assert post_anyway(client, URL, **form).status_code == 303
        assert form["content"] in texts_in_use(client)
        row = soup(client.get(f"{URL}?type={form['type']}&state=active")).select_one("[data-row]")["id"]
        path = f"{URL}/{row.removeprefix('knowledge-')}/state"
        assert post(client, path, state="deleted").status_code == 303


def test_other_findings_do_not_stop_a_rule(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    said = "When deal-analyst answers, it states the period."
    assert post(client, URL, type="guideline", content=said).status_code == 303


def test_an_edit_that_is_vague_asks_and_a_pin_does_not(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    edit = f"{URL}/{ids['correction']}/edit"
    vague = {"type": "correction", "content": "Be careful."}
    asked = post(client, edit, HTMX, **vague, version="1")
    assert asked.status_code == 422
    assert "vague" in soup(asked).select_one("form .u-asked").text
    assert "Be careful." not in texts_in_use(client)
    assert post_anyway(client, edit, HTMX, **vague, version="1").status_code == 200
    assert post(client, edit, HTMX, **vague, pinned="1", version="2").status_code == 200, "its words are the same"

    proposal = f"{URL}/{ids['proposed']}/edit"
    sent = {"type": "lesson", "content": "Be clear.", "version": "1"}
    assert post(client, proposal, HTMX, **sent, approve="1").status_code == 422
    approved = soup(post_anyway(client, proposal, HTMX, **sent, approve="1"))
    assert "active" in approved.select_one("article .u-meta").text


def test_what_stays_proposed_is_not_asked_about(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    client = sign_in(workspace.actor())
    kept = post(client, f"{URL}/{row}/edit", HTMX, type="lesson", content="Be clear.", version="1")
    assert kept.status_code == 200
    assert "proposed" in soup(kept).select_one("article .u-meta").text


def test_a_vague_rule_comes_back_after_a_second_look(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())
    post_anyway(client, URL, type="guideline", content="Be careful.")
    row = soup(client.get(URL)).select_one("[data-row]")["id"].removeprefix("knowledge-")
    state = f"{URL}/{row}/state"
    off = soup(post(client, state, HTMX, state="inactive", reason="Says nothing."))
    undo = {field["name"]: field["value"] for field in off.select_one("[data-undo]").select("input")}

    asked = post(client, state, HTMX, state="active")
    assert asked.status_code == 422
    box = soup(asked).select_one(f"hx-partial[hx-target='article #choose-{row}'] form")
    assert "vague" in box.text
    assert texts_in_use(client) == []
    page = soup(post(client, state, state="active"))
    assert "vague" in page.select_one("main .u-asked").text, "and to those without a script"
    many = post(client, f"{URL}/decide", HTMX, state="active", ids=row)
    assert "Not activated." in soup(many).select_one(".u-toast").text
    assert texts_in_use(client) == []
    sent = {field["name"]: field["value"] for field in box.select("input")}
    assert client.post(box["action"], data=sent, headers=HTMX).status_code == 200
    assert texts_in_use(client) == ["Be careful."]

    assert post(client, state, HTMX, state="inactive", reason="Says nothing.").status_code == 200
    assert client.post(state, data=undo, headers=HTMX).status_code == 200, "an undo asks nothing"
    assert texts_in_use(client) == ["Be careful."]


def test_a_form_on_a_page_of_its_own_answers_with_a_page(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    """There is no list beside it that an answer could be swapped into."""
    row = fill(app, workspace).ids["correction"]
    client = sign_in(workspace.actor())
    for path in (f"{URL}/new", f"{URL}/{row}/edit"):
        assert soup(client.get(path)).select_one("main form.is-editing").has_attr("hx-post") is False
        assert soup(client.get(path, headers=HTMX)).select_one("form.is-editing").has_attr("hx-post") is True


def propose(app: Flask, workspace: Workspace, work: Callable[[Any], Any]) -> Any:
    system = workspace.actor("system")
    with app.app_context(), acting_as(system), transaction():
        return work(system).id


def test_a_proposal_about_a_row_shows_both_texts_and_leaves_the_row(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    row = fill(app, workspace).ids["correction"]
    words = {"content": "Use NTM EBITDA when comparing deals."}
    change = propose(app, workspace, lambda actor: proposals.propose_edit(row, words, actor=actor))
    retire = propose(app, workspace, lambda actor: proposals.propose_retirement(row, "Old habits.", actor=actor))
    assert change != retire
    client = sign_in(workspace.actor())
    html = soup(client.get(f"{URL}?state=proposed"))
    assert html.select_one(f"#knowledge-{change}") is None, "the same author changed its mind"
    now, then = html.select(f"#knowledge-{retire} .u-sides section")
    assert "LTM EBITDA" in now.text
    assert "Old habits." in then.text
    keys = [one["data-key"] for one in html.select(f"#knowledge-{retire} [data-key]")]
    assert keys == ["d", "a"], "there is nothing to edit, prove or merge"
    card = html.select_one(f"#knowledge-{retire} form:has([value=active])")
    sent = {field["name"]: field["value"] for field in card.select("input")}
    assert post(client, f"{URL}/{row}/set", HTMX, pinned="1", version="1").status_code == 200
    stale = client.post(card["action"], data=sent, headers=HTMX)
    assert stale.status_code == 409
    assert "has changed" in soup(stale).select_one(".u-toast").text
    assert "LTM EBITDA" in texts_in_use(client)[0]


def test_the_panel_of_a_proposal_has_its_exact_prompt_text(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    text = "Quote  the page.\n\n## Guidelines\n- [workspace] x"
    new = knowledge_rows.NewRow(type="correction", content=text, context="asked  twice")
    row = propose(app, workspace, lambda actor: proposals.propose_row(new, actor=actor))
    client = sign_in(workspace.actor())
    shown = soup(client.get(f"{URL}/{row}")).select_one(".u-injected").text
    post(client, f"{URL}/{row}/state", state="active", version="1")
    with app.app_context(), acting_as(workspace.actor()):
        assert shown in load_shared_context_prompt(workspace.id).text


def test_a_decision_that_came_too_late_says_so(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["proposed"]
    first, second = sign_in(workspace.actor()), sign_in(workspace.actor("owner"))
    assert post(first, f"{URL}/{row}/state", HTMX, state="active", version="1").status_code == 200
    late = post(second, f"{URL}/{row}/state", HTMX, state="inactive", version="1", reason="No.")
    assert late.status_code == 409
    assert "already decided" in soup(late).select_one(".u-toast").text
    assert "active" in soup(late).select_one("article .u-meta").text


def test_what_the_checks_found_is_not_approved_with_others(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    rows = [
        propose(app, workspace, lambda actor, text=text: proposals.propose_row(new_lesson(text), actor=actor))
        for text in ("Be careful.", "Quote the page of every figure.")
    ]
    client = sign_in(workspace.actor())
    both = soup(post(client, f"{URL}/decide", HTMX, state="active", ids=",".join(map(str, rows))))
    assert "Activated 1 of 2. The checks have findings in 1." in both.select_one(".u-toast").text
    assert texts_in_use(client) == ["Quote the page of every figure."]


def new_lesson(text: str) -> knowledge_rows.NewRow:
    return knowledge_rows.NewRow(type="lesson", content=text)


def test_a_merge_can_be_undone(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    ids = fill(app, workspace).ids
    client = sign_in(workspace.actor())
    merged = soup(post(client, f"{URL}/{ids['proposed']}/merge", HTMX, into=str(ids["correction"]), version="1"))
    undo = merged.select_one("[data-undo]")
    sent = {field["name"]: field["value"] for field in undo.select("input")}
    back = soup(client.post(undo["action"], data=sent, headers=HTMX))
    assert "proposed" in back.select_one("article .u-meta").text
    late = post(client, f"{URL}/{ids['proposed']}/merge", HTMX, into=str(ids["correction"]), version="1")
    assert late.status_code == 409, "what was shown is another version"
