"""Drafts of agents and entity types: read, tried on goldens, decided about, and stale once the base changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app.db import acting_as, transaction
from app.errors import Forbidden, Problem, Throttled
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.review import drafts
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.threads import run_at_once

__all__ = ["bench"]
PATH = "/api/admin/drafts"
PAGE = "/admin/agent-review/drafts"
HTMX = {"HX-Request": "true"}
READS = {"tool_groups": ["entities-read"]}


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., Any]) -> Any:
    return sign_in(workspace.actor("admin"))


def draft(bench: Bench, reason: str = "It changed a deal by itself.", **changes: Any) -> UUID:
    """A draft by another agent of the workspace."""
    with bench.acting():
        author = replace(bench.admin, agent_id=versions.ensure_agent("reviewer", actor=bench.admin).id)
        found: UUID = drafts.draft_agent(bench.agent_id, changes or READS, actor=author, reason=reason).id
    return found


def type_draft(bench: Bench, **fields: Any) -> UUID:
    with bench.acting():
        kind = entity_store.find_type("deal", actor=bench.admin)
        found: UUID = drafts.draft_type(kind.id, fields, actor=bench.admin, reason="Say the currency.").id
    return found


def post(client: Any, path: str, **data: Any) -> Any:
    return client.post(f"{PAGE}/{path}", data={"csrf_token": client.csrf, **data}, headers=HTMX)


def test_goldens_speak_about_a_draft_and_count_nowhere(bench: Bench, admin: Api, client: Any) -> None:
    kept, broken = bench.golden("List entities"), bench.golden("Update entity Kestrel: set stage to won")
    bench.run(set_name="default")
    counted = len(versions_listed(bench))
    draft_id = draft(bench)
    started = admin.post(f"{PATH}/{draft_id}/trial", {})
    assert started.status_code == 202
    [run_id] = started.json["run_ids"]
    assert admin.post(f"{PATH}/{draft_id}/trial", {}).json["run_ids"] == [run_id], "while it runs, that one is answered"
    assert "of 2 replayed" in soup(client.get(f"{PAGE}/{draft_id}")).text
    bench.drain()

    read = admin.get(f"{PATH}/{draft_id}").json
    [trial] = read["trials"]
    assert (trial["status"], trial["accuracy"], trial["better"], trial["worse"], trial["same"]) == (
        "completed", 0.5, 0, 1, 1,
    )  # fmt: skip
    run = bench.look(UUID(run_id))
    assert run.options["trial"] is True
    found = run.results["bySession"]
    assert (found[str(kept)]["verdict"], found[str(broken)]["verdict"]) == ("pass", "fail")
    assert not bench.complaints(), "a trial writes no feedback"
    assert len(versions_listed(bench)) == counted, "a draft is no version"
    with bench.acting():
        assert versions.get_agent(bench.agent_id, actor=bench.admin).current_version == 1
    card = soup(client.get(PAGE)).select_one(f"#draft-{draft_id}").get_text(" ", strip=True)
    assert "draft" in soup(client.get(f"/admin/agent-review/evals/runs/{run_id}")).select_one("main").text
    markers = admin.get("/api/admin/evals/trend?set=default").json["markers"]
    assert [one["title"] for one in markers if one["kind"] == "agent"] == []
    assert "50%" in card
    assert "1 worse" in card
    assert "entities-write" in card


def versions_listed(bench: Bench) -> Any:
    with bench.acting():
        return versions.list_versions(bench.agent_id, actor=bench.admin)


def test_approving_makes_a_version_and_rejecting_changes_nothing(bench: Bench, client: Any) -> None:
    draft_id = draft(bench)
    done = post(client, f"{draft_id}/decide", status="approved")
    assert "Approved." in soup(done).select_one(".u-toast").text
    with bench.acting():
        held = versions.read_contents(bench.agent_id, [1, 2], actor=bench.admin)
    assert (held[1], held[2]) == (CONFIG, CONFIG | READS)

    second = draft(bench, instructions="Never write.")
    rejected = soup(post(client, f"{second}/decide", status="rejected", note="It has to."))
    assert "rejected" in rejected.select_one("article .u-meta").text
    again = post(client, f"{second}/decide", status="approved")
    assert again.status_code == 409
    undo = rejected.select_one("[data-undo]")
    sent = {field["name"]: field["value"] for field in undo.select("input")}
    assert client.post(undo["action"], data=sent, headers=HTMX).status_code == 200
    assert len(versions_listed(bench)) == 2
    assert post(client, f"{second}/decide", status="maybe").status_code == 422


def test_feedback_and_draft_link_to_each_other(bench: Bench, client: Any) -> None:
    with bench.acting():
        new = NewFeedback(source_type="session", rating="negative", comment="It wrote a record again")
        signal = record_feedback(new, actor=bench.admin).id
        author = replace(bench.admin, agent_id=versions.ensure_agent("reviewer", actor=bench.admin).id)
        made = drafts.draft_agent(bench.agent_id, READS, actor=author, reason="It writes.", feedback_ids=[signal]).id
    quote = soup(client.get(PAGE)).select_one(f"#draft-{made} .u-evidence a")
    assert "It wrote a record again" in quote.text
    became = soup(client.get(quote["href"])).select_one(f"#became-{signal}")
    assert became.select_one(f"a[href$='{made}']").text == "“It writes.”"


def test_an_approved_entity_type_is_undone_unless_records_use_it(bench: Bench, client: Any, admin: Api) -> None:
    with bench.acting():
        kind = entity_store.find_type("deal", actor=bench.admin)
        before = dict(kind.fields)
        signal = record_feedback(NewFeedback(rating="negative", comment="Which currency?"), actor=bench.admin).id
        made = drafts.draft_type(
            kind.id, {"currency": {"type": "string"}}, actor=bench.admin, reason="Say it.", feedback_ids=[signal]
        ).id

    def fields() -> Any:
        with bench.acting():
            return entity_store.find_type("deal", actor=bench.admin).fields

    def own() -> str:
        return " ".join(soup(client.get("/feedback/mine")).select_one("main").text.split())

    toast = post(client, f"{made}/decide", status="approved").text
    assert "Undo" in toast
    assert "currency" in fields()
    assert f"Led to a change: the record type {kind.name} has the new field currency." in own()
    assert (
        soup(client.get(f"{PAGE}/{made}")).select_one(f"form[action$='{made}/decide'] button").text == "Undo approval"
    )
    with bench.acting():
        deal = entity_store.create_entity(
            entity_type="deal", name="Priced", fields={"currency": "EUR"}, actor=bench.admin
        ).id
    refused = post(client, f"{made}/decide", status="open")
    assert (refused.status_code, "“Priced” has a value in currency" in refused.text) == (409, True)
    with bench.acting():
        entity_store.update_entity(deal, {"currency": None}, actor=bench.admin)
    assert post(client, f"{made}/decide", status="open").status_code == 200
    assert fields() == before
    assert "Not reviewed yet" in own()
    assert admin.get(f"{PATH}/{made}").json["status"] == "open"
    agent_draft = draft(bench)
    page = soup(client.get(f"/admin/agents/{bench.agent_id}"))
    assert page.select_one(f"#drafts a[href$='{agent_draft}']").text == "It changed a deal by itself."
    assert admin.patch(f"{PATH}/{agent_draft}", {"status": "approved"}).status_code == 200
    late = admin.patch(f"{PATH}/{agent_draft}", {"status": "open"})
    assert (late.status_code, "earlier version" in late.json["detail"]) == (409, True)


def test_a_draft_is_stale_once_its_base_changed(bench: Bench, admin: Api, client: Any) -> None:
    draft_id = draft(bench)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"instructions": "Be brief."}, actor=bench.admin)
    assert admin.get(f"{PATH}/{draft_id}").json["stale"] is True
    late = admin.patch(f"{PATH}/{draft_id}", {"status": "approved"})
    assert late.status_code == 409
    assert "has version 2 now" in late.json["detail"]
    assert admin.post(f"{PATH}/{draft_id}/trial", {}).status_code == 409
    card = soup(client.get(PAGE)).select_one(f"#draft-{draft_id}")
    assert "Out of date" in card.text
    assert card.select_one("[data-key=a]") is None

    first, second = type_draft(bench, currency={"type": "string"}), None
    with bench.acting():
        system = replace(bench.workspace.actor("system"))
        kind = entity_store.find_type("deal", actor=bench.admin)
        second = drafts.draft_type(kind.id, {"stage": {"type": "number"}}, actor=system, reason="").id
    assert admin.patch(f"{PATH}/{second}", {"status": "approved"}).status_code == 409, "records have texts there"
    assert admin.patch(f"{PATH}/{first}", {"status": "approved"}).status_code == 200
    late = admin.patch(f"{PATH}/{second}", {"status": "approved"})
    assert "has changed" in late.json["detail"]


def test_of_two_who_decide_at_once_one_wins(app: Flask, bench: Bench) -> None:
    draft_id, answers = draft(bench), list[str]()

    def decide(decision: Callable[..., Any]) -> None:
        with app.app_context(), acting_as(bench.admin):
            try:
                with transaction():
                    decision(draft_id, actor=bench.admin)
                answers.append("done")
            except Problem as refusal:
                answers.append(str(refusal.status))

    run_at_once(lambda: decide(drafts.approve_draft), lambda: decide(drafts.reject_draft))
    assert sorted(answers) == ["409", "done"]


def test_what_drafts_never_touch(bench: Bench, admin: Api) -> None:
    with bench.acting():
        system = next(one for one in versions.list_agents(actor=bench.admin) if one.is_system)
        with pytest.raises(Forbidden, match="is built in"):
            drafts.draft_agent(system.id, READS, actor=bench.workspace.actor("system"), reason=None)
        system_version = system.current_version
    assert system_version == 1
    no_goldens = admin.post(f"{PATH}/{draft(bench)}/trial", {})
    assert (no_goldens.status_code, "no goldens yet" in no_goldens.json["detail"]) == (409, True)
    fields = type_draft(bench, currency={"type": "string"})
    assert admin.post(f"{PATH}/{fields}/trial", {}).status_code == 409
    for number in range(drafts.MAX_PER_HOUR - 2):
        draft(bench, instructions=f"Version {number}.")
    with pytest.raises(Throttled):
        draft(bench, instructions="One too many.")


def test_members_and_other_workspaces_see_no_draft(
    bench: Bench, admin: Api, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    draft_id = draft(bench)
    assert [one["id"] for one in admin.get(f"{PATH}?status=open").json["items"]] == [str(draft_id)]
    stranger = api(make_workspace().actor("admin"), "admin")
    assert stranger.get(PATH).json["items"] == []
    assert stranger.get(f"{PATH}/{draft_id}").status_code == 404
    assert stranger.patch(f"{PATH}/{draft_id}", {"status": "approved"}).status_code == 404
    assert stranger.post(f"{PATH}/{draft_id}/trial", {}).status_code == 404
    member = api(bench.workspace.actor("member"), "knowledge")
    assert member.get(PATH).status_code == 403
    assert member.patch(f"{PATH}/{draft_id}", {"status": "approved"}).status_code == 403


def test_the_page_takes_few_queries(bench: Bench, client: Any, count_queries: Callable[[], Any]) -> None:
    for number in range(5):
        with bench.acting():
            author = replace(bench.admin, agent_id=versions.ensure_agent(f"r{number}", actor=bench.admin).id)
            drafts.draft_agent(bench.agent_id, {"instructions": f"Do {number}."}, actor=author, reason="Why.")
    with count_queries() as seen:
        page = soup(client.get(PAGE))
    assert len(page.select("article")) == 5
    assert len(seen) <= 8
    assert "No rejected drafts" in soup(client.get(f"{PAGE}?status=rejected")).text
