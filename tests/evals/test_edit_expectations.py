"""The page on which a golden's expectations are edited: saved with a past, refused where it is wrong or overtaken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.services.entities import store as entity_store
from app.services.evals import drafts
from app.services.evals.drafts import RecordingCheck
from tests.agents.test_replays import Bench, bench
from tests.conftest import Workspace, soup
from tests.evals.forms import calls, changes
from tests.evals.test_golden import complain, promote
from tests.evals.test_pages import HTMX, URL, SignIn, golden_mark_of, send
from tests.evals.test_promote_changes import complained_session

__all__ = ["bench"]
UPDATED = ("Search entities Kestrel", "Update entity Kestrel valuation to 10.5")
ELEVEN = {"should": "change", **changes(("update", "Kestrel", {"valuation": 11}))}


def save(client: Any, session_id: Any, headers: dict[str, str] | None = None, **data: Any) -> Any:
    return send(client, f"/{session_id}/expectations", headers, **data)


def test_expectations_are_edited_and_their_past_is_shown(bench: Bench, sign_in: SignIn) -> None:
    golden_id = bench.golden(*UPDATED, set_name="smoke")
    client = sign_in(bench.admin)
    page = soup(client.get(f"{URL}/{golden_id}")).select_one("main")
    assert "No required facts, so answers are compared by wording." in page.text
    assert page.select_one("a.u-inline")["href"] == f"{URL}/{golden_id}/expectations?add=mention"

    form = soup(client.get(f"{URL}/{golden_id}/expectations?add=mention")).select_one("form.u-edit-expect")
    assert [one["value"] for one in form.select("[name=should][checked]")] == ["mention"]
    assert not form.select("[name=mention][checked]"), "facts are there to be clicked"
    assert form.select_one("[name=change-0-record]")["value"] == "Kestrel", "what was recorded is there to be put right"
    assert form.select_one("[name=change-0-value-0]")["inputmode"] == "decimal"

    data = {**ELEVEN, "should": ["change", "mention"], "mention-new": "11", "revision": "0", "reason": "It is 11"}
    saved = save(client, golden_id, **data)
    assert (saved.status_code, saved.location) == (303, f"{URL}/{golden_id}")
    golden = golden_mark_of(bench.app, bench.admin, golden_id)
    assert golden is not None
    assert golden["expected"]["mentions"] == ["11"]
    shown = soup(client.get(f"{URL}/{golden_id}")).select_one("main")
    assert "No required facts" not in shown.text
    (past,) = shown.select(".u-past > li")
    assert "Revision 1" in past.text
    assert bench.admin.name in past.text
    assert "“It is 11”" in past.text
    assert [one.text for one in past.select("ins")] == ["11", "update Kestrel: valuation = 11"]

    # The form starts from what the golden is held to now.
    again = soup(client.get(f"{URL}/{golden_id}/expectations")).select_one("form.u-edit-expect")
    assert [one["value"] for one in again.select("[name=should][checked]")] == ["mention", "change"]
    assert again.select_one("[name=mention][checked]")["value"] == "11"
    assert again.select_one("[name=change-0-value-0]")["value"] == "11"
    assert again.select_one("[name=revision]")["value"] == "1"

    assert save(client, golden_id, should="change", nothing="1", revision="1").status_code == 303
    shown = soup(client.get(f"{URL}/{golden_id}")).select_one("main")
    changed = [(one.name, one.text) for one in shown.select(".u-past > li:first-child :is(ins, del)")]
    assert changed == [("del", "11"), ("del", "update Kestrel: valuation = 11"), ("ins", "nothing may change")]
    assert save(client, golden_id, revision="2").status_code == 303
    golden = golden_mark_of(bench.app, bench.admin, golden_id)
    assert golden is not None
    assert "expected" not in golden, "the recording counts again"


def test_what_is_wrong_or_overtaken_is_not_saved(bench: Bench, sign_in: SignIn) -> None:
    golden_id = bench.golden(*UPDATED)
    client = sign_in(bench.admin)
    rows = changes(("update", "Kestral", {"valuation": 11}))
    for headers in ({}, HTMX):
        wrong = save(client, golden_id, headers, should=["change", "call"], **rows, **calls(("updateEntty",)))
        assert wrong.status_code == 422
        form = soup(wrong).select_one("form.u-edit-expect")
        assert [one["name"] for one in form.select("[aria-invalid=true]")] == ["call-0-tool", "change-0-record"]
        assert "Not saved. Fix 2 fields." in form.text
        assert form.select_one("[name=change-0-record]")["value"] == "Kestral"

    assert save(client, golden_id, **ELEVEN, revision="0").status_code == 303
    late = save(client, golden_id, should="mention", **{"mention-new": "Kestrel", "revision": "0", "reason": "Mine"})
    assert late.status_code == 409
    form = soup(late).select_one("form.u-edit-expect")
    assert "Someone changed these expectations while you edited them" in form.select_one("[role=alert]").text
    assert form.select_one("[name=mention][checked]")["value"] == "Kestrel"
    assert form.select_one("[name=reason]")["value"] == "Mine"
    sent = {"mention": "Kestrel", "revision": form.select_one("[name=revision]")["value"]}
    assert save(client, golden_id, should="mention", **sent).status_code == 303, "saving once more is a decision"

    plain = bench.desk.ask("List entities")
    bench.drain()
    assert client.get(f"{URL}/{plain}/expectations").status_code == 404
    assert save(client, plain, should="mention", mention="x").status_code == 404
    member = sign_in(bench.workspace.actor("member"))
    assert member.get(f"{URL}/{golden_id}/expectations").status_code == 403
    assert save(member, golden_id, should="mention", mention="x").status_code == 403


def test_a_complaint_can_be_overruled_and_buttons_save_nothing(bench: Bench, sign_in: SignIn) -> None:
    session_id = complained_session(bench, *UPDATED)
    promote(bench.app, bench.admin, session_id)
    client = sign_in(bench.admin)
    form = soup(client.get(f"{URL}/{session_id}/expectations"))
    assert "The recording is right after all" in form.select_one(".u-picks").text
    pressed = save(client, session_id, do="add-update", **ELEVEN)
    assert pressed.status_code == 200
    assert soup(pressed).select_one("[autofocus]")["name"] == "change-1-record"
    assert "would fail: entity Kestrel: valuation is 10.5 instead of 11." in soup(pressed).select_one(".u-recheck").text
    golden = golden_mark_of(bench.app, bench.admin, session_id)
    assert golden is not None
    assert "revisions" not in golden
    assert save(client, session_id, should="right").status_code == 303
    page = soup(client.get(f"{URL}/{session_id}")).select_one("main").text
    assert "The recording counts as correct." in page
    assert "was rejected" in page


def test_only_the_fields_or_only_the_sentence_come_back_in_place(bench: Bench, sign_in: SignIn) -> None:
    golden_id = bench.golden(*UPDATED)
    client = sign_in(bench.admin)
    sentence = send(client, f"/{golden_id}/expectations/draft", HTMX, do="verdict", **ELEVEN)
    (line,) = soup(sentence).find_all(True, recursive=False)
    assert (line.name, line["id"]) == ("p", f"check-{golden_id}")
    assert "would fail" in line.text
    for what, says in ((ELEVEN | {"change-0-record": "x"}, "Not complete yet. There is no record"), ({}, "would pass")):
        assert says in send(client, f"/{golden_id}/expectations/draft", HTMX, do="verdict", **what).text
    fields = soup(send(client, f"/{golden_id}/expectations/draft", HTMX, do="refresh", **ELEVEN))
    (whole,) = fields.find_all(True, recursive=False)
    assert whole["id"] == f"expect-{golden_id}"
    missing = send(client, f"/{bench.workspace.id}/expectations/draft", HTMX, do="refresh")
    assert missing.status_code == 404


def test_records_are_found_by_name_those_of_the_session_first(bench: Bench, sign_in: SignIn) -> None:
    golden_id = bench.golden(*UPDATED)
    with bench.acting():
        for name in ("Kestrel North", "Twin", "Twin"):
            entity_store.create_entity(entity_type="deal", name=name, fields={}, actor=bench.admin)
    client = sign_in(bench.admin)

    def found(text: str) -> list[tuple[str, str]]:
        answer = client.get(f"{URL}/{golden_id}/expectations/records?change-0-record={text}", headers=HTMX)
        return [(one["value"], one.text) for one in soup(answer).select("option")]

    assert found("kestrel") == [("Kestrel", "Deal"), ("Kestrel North", "Deal")]
    assert [about for _, about in found("twin")] == ["Twin, Deal"] * 2, "by their ids, for both have one name"
    assert found("") == [("Kestrel", "Deal")]
    assert found("nothing like it") == []
    offered = soup(client.get(f"{URL}/{golden_id}/expectations")).select("datalist[id$=-records] option")
    assert [one["value"] for one in offered] == ["Kestrel"]
    tools = soup(client.get(f"{URL}/{golden_id}/expectations")).select("datalist[id$=-tools] option")
    assert [one["value"] for one in tools][:2] == ["searchEntities", "updateEntity"], "what it called comes first"


def test_no_transaction_is_open_while_the_recording_is_compared(
    bench: Bench, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.db import db

    golden_id = bench.golden(*UPDATED)
    seen = []
    compare: Callable[[RecordingCheck], Any] = RecordingCheck.compare

    def watched(check: RecordingCheck) -> Any:
        seen.append(db.session().in_transaction())
        return compare(check)

    monkeypatch.setattr(drafts.RecordingCheck, "compare", watched)
    send(sign_in(bench.admin), f"/{golden_id}/expectations/draft", HTMX, do="verdict", **ELEVEN)
    assert seen == [False]


def test_the_page_reads_little(
    bench: Bench, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    golden_id = bench.golden(*UPDATED, expected={"effects": []})
    complain(bench.app, workspace.actor("member"), golden_id)
    client = sign_in(bench.admin)
    for revision in range(4):
        save(client, golden_id, **{"should": "mention", "mention": str(revision)}, revision=str(revision))
    with count_queries() as queries:
        assert client.get(f"{URL}/{golden_id}").status_code == 200
    assert len(queries) <= 16, "as with one revision"
