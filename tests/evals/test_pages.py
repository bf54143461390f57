"""Evals: candidates settled by one of many, goldens promoted with what should have happened, sets and their goldens."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AgentSession, AuditEntry
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions.events import NewEvent
from tests.agents.test_replays import CONFIG, Bench
from tests.conftest import Workspace, soup
from tests.evals.forms import calls
from tests.evals.test_golden import complain, promote, ran, status_of
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/evals"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
ANSWER = "Norrland Freight has 17 accounts."


def send(client: Any, path: str, headers: dict[str, str] | None = None, **data: Any) -> Any:
    return client.post(f"{URL}{path}", data={"csrf_token": client.csrf, **data}, headers=headers or {})


def asked_session(app: Flask, actor: Any, text: str = "Which accounts had no touch?", **more: Any) -> UUID:
    return ran(
        app,
        actor,
        NewEvent("user.message", {"text": text}),
        NewEvent("tool.call", {"id": "c1", "name": "searchAccounts", "arguments": {}}),
        NewEvent("tool.result", {"call_id": "c1", "output": [{"name": "Norrland Freight", "accounts": 17}]}),
        NewEvent("agent.message", {"text": f"I looked: {ANSWER}"}),
        **more,
    )


def golden_mark_of(app: Flask, actor: Any, session_id: UUID) -> dict[str, Any] | None:
    with app.app_context(), acting_as(actor):
        return db.session.scalar(select(AgentSession.meta["golden"]).where(AgentSession.id == session_id))


def test_nothing_yet_says_what_will_be_here(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    html = soup(sign_in(workspace.actor()).get(URL))

    assert html.select_one(".u-blank h2").text == "No golden sessions yet"
    assert "No candidates" in html.select_one("#candidates").text
    assert "%" not in html.select_one("main").text


def test_five_candidates_and_all_of_them(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    admin = workspace.actor()
    for number in range(7):
        session_id = asked_session(app, admin, f"Question {number}")
        complain(app, workspace.actor("member"), session_id)
        if number == 3:
            complain(app, workspace.actor("other"), session_id)
    promote(app, admin, asked_session(app, admin), set_name="sales-ops")
    client = sign_in(admin)

    with count_queries() as seen:
        html = soup(client.get(URL))
    assert len(seen) <= 8, seen
    rows = html.select("#candidates [data-row]")
    assert len(rows) == 5
    assert [cell.get_text(strip=True) for cell in rows[0].select("td")][:4] == [
        "Question 3",
        "deal-analystv1",
        "×2",
        "2",
    ]
    assert html.select_one("#candidates header a").text == "View all 7"
    assert len(soup(client.get(f"{URL}?all=1")).select("#candidates [data-row]")) == 7
    assert "1 in 1 set" in html.select_one("#sets").text
    assert client.get(f"{URL}?colour=red").status_code == 400


def test_a_candidate_is_promoted_in_place_with_what_should_have_happened(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    admin = workspace.actor()
    session_id = asked_session(app, admin)
    signals = [complain(app, admin, session_id), complain(app, workspace.actor("other"), asked_session(app, admin))]
    sid = find(app, admin)
    client = sign_in(admin)

    opened = soup(client.get(f"{URL}/candidates/{sid}", headers=HTMX))
    assert opened.select_one("tbody")["id"] == f"candidate-{sid}"
    assert "1 turn, 0 knowledge rows, 1 tool recording" in opened.select_one("form.u-inplace").text
    assert "Resolves 2 pending signals" in opened.text
    assert "17" in [box["value"] for box in opened.select("[name=mention]")]
    without_script = soup(client.get(f"{URL}?promote={sid}")).select_one(f"#candidate-{sid} form.u-inplace")
    assert "Resolves 2 pending signals" in without_script.text
    for form in (opened, without_script):
        assert not form.select("[name=mention][checked], [name=should][checked]"), "nothing of a wrong answer is right"

    wrong = send(client, f"/candidates/{sid}/promote", HTMX, set="Sales Ops", note="Count mail too", should="right")
    assert wrong.status_code == 422
    assert soup(wrong).select_one("[name=note]")["value"] == "Count mail too"
    assert "lowercase letters" in soup(wrong).select_one(".invalid-feedback").text
    for should in ([], ["right", "mention"], ["answer"], ["call"]):
        silent = send(client, f"/candidates/{sid}/promote", set="sales-ops", should=should)
        assert silent.status_code == 422, should
        assert soup(silent).select_one(f"#candidate-{sid} .invalid-feedback"), should
    assert golden_mark_of(app, admin, sid) is None

    done = send(
        client,
        f"/candidates/{sid}/promote",
        HTMX,
        set="sales-ops",
        note="Count mail too",
        should=["mention", "call"],
        mention="17 accounts",
        **{"mention-new": " Norrland ", "must-not": "60 days", "no-call-new": "sendMail"},
        **calls(("searchAccounts", {"region": "DACH"})),
    )
    assert done.status_code == 200
    assert "2 signals applied" in done.text
    assert not soup(done).select("#candidates [data-row]")
    golden = golden_mark_of(app, admin, sid)
    assert golden
    assert golden["expected"] == {
        "mentions": ["17 accounts", "Norrland"],
        "must_not_mention": ["60 days"],
        "calls": [{"name": "searchAccounts", "arguments": {"region": "DACH"}}],
        "no_calls": ["sendMail"],
    }
    assert status_of(app, admin, signals) == {"applied"}


def find(app: Flask, actor: Any) -> UUID:
    from app.services.evals import candidates

    with app.app_context(), acting_as(actor):
        found = candidates.list_candidates(actor=actor).items
        return found[0].representative_session_id


def test_dismissal_can_be_undone_and_only_one_wins(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    session_id = asked_session(app, admin)
    signals = [complain(app, admin, session_id), complain(app, workspace.actor("other"), session_id)]
    client = sign_in(admin)

    gone = send(client, f"/candidates/{session_id}/dismiss", HTMX)
    assert "Dismissed 2 signals" in gone.text
    assert status_of(app, admin, signals) == {"dismissed"}
    again = send(client, f"/candidates/{session_id}/dismiss", HTMX)
    assert again.status_code == 409
    assert "already decided on this candidate" in again.text
    late = send(client, f"/candidates/{session_id}/promote", HTMX, set="x", should="right")
    assert late.status_code == 409
    assert golden_mark_of(app, admin, session_id) is None
    undo = {box["name"]: box["value"] for box in soup(gone).select("[data-undo] input") if box["name"] != "csrf_token"}
    back = send(client, "/candidates/undo", HTMX, **undo)
    assert len(soup(back).select("#candidates [data-row]")) == 1
    assert status_of(app, admin, signals) == {"pending"}
    assert send(client, "/candidates/undo", ids="garbage").status_code == 400


def test_of_many_admins_one_settles(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    session_id = asked_session(app, admin)
    complain(app, admin, session_id)
    clients = [sign_in(admin) for _ in range(6)]

    def settle(number: int) -> int:
        if number % 2:
            return int(send(clients[number], f"/candidates/{session_id}/dismiss", HTMX).status_code)
        data = {"set": "x", "should": "right"}
        return int(send(clients[number], f"/candidates/{session_id}/promote", HTMX, **data).status_code)

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(settle, range(6)))
    assert answers == [200, 409, 409, 409, 409, 409]


def test_a_session_is_promoted_from_its_page_and_panel(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    session_id = asked_session(app, admin)
    client = sign_in(admin)
    page = f"/admin/agent-review/sessions/{session_id}"

    assert soup(client.get(page)).select_one(f"#promote-link-{session_id}")
    assert soup(client.get(f"{page}?panel=1", headers=HTMX)).select_one(f"footer #promote-link-{session_id}")
    form = soup(client.get(f"{URL}/promote/{session_id}"))
    assert not form.select("[name=should][value=right]")
    assert not form.select("[name=should][checked]")
    done = send(client, f"/promote/{session_id}", set="smoke", note="Good")
    assert done.status_code == 303
    assert golden_mark_of(app, admin, session_id)["note"] == "Good"  # type: ignore[index]
    assert not soup(client.get(page)).select(f"#promote-link-{session_id}")
    assert send(client, f"/promote/{session_id}", HTMX, set="smoke").status_code == 409
    assert client.get(f"{URL}/promote/{session_id}").status_code == 409


def test_a_session_that_was_complained_about_takes_its_signals_along(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    admin = workspace.actor()
    session_id = asked_session(app, admin)
    signal = complain(app, workspace.actor("member"), session_id)
    client = sign_in(admin)

    assert "Resolves 1 pending signal" in client.get(f"{URL}/promote/{session_id}").text
    assert send(client, f"/promote/{session_id}", HTMX, set="smoke").status_code == 422
    assert status_of(app, admin, [signal]) == {"pending"}
    assert send(client, f"/promote/{session_id}", HTMX, set="smoke", should="right").status_code == 200
    assert status_of(app, admin, [signal]) == {"applied"}
    golden = golden_mark_of(app, admin, session_id)
    assert golden
    assert golden["recorded_is_right"] is True


def test_where_it_is_not_possible_there_is_no_button(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    client = sign_in(admin)
    silent = ran(app, admin, NewEvent("agent.message", {"text": "Hello"}))
    for session_id in (silent, asked_session(app, admin, status="failed")):
        html = soup(client.get(f"/admin/agent-review/sessions/{session_id}"))
        assert not html.select(f"#promote-link-{session_id}")
        assert client.get(f"{URL}/promote/{session_id}").status_code in {409, 422}


def test_the_preferred_answer_of_an_edit_is_offered(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    form = soup(sign_in(workspace.actor()).get(f"{URL}/promote/{filled.session}"))
    assert form.select_one("[name=should][value=answer]").has_attr("checked")
    assert "9.6× LTM EBITDA" in form.select_one("[name=answer]").text
    behind = soup(sign_in(workspace.actor()).get(f"/admin/agent-review/conversations/{filled.chat}"))
    assert behind.select_one("#chat-sessions a.btn")["href"].endswith(f"/promote/{filled.session}")


def test_several_sessions_at_once(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    good, bad, failed = (
        asked_session(app, admin),
        asked_session(app, admin, "Other"),
        asked_session(app, admin, status="failed"),
    )
    complain(app, admin, bad)
    client = sign_in(admin)

    html = soup(send(client, "/promote", ids=f"{good},{bad},{failed}"))
    assert html.select_one("[name=ids]")["value"] == str(good)
    assert "got negative feedback" in html.text
    assert "is failed, not completed" in html.text
    assert send(client, "/promote/confirmed", ids=str(good), set="Bad Name").status_code == 422
    assert send(client, "/promote/confirmed", HTMX, ids=f"{good},{bad}", set="smoke").status_code == 409
    assert golden_mark_of(app, admin, good) is None
    assert send(client, "/promote/confirmed", ids=str(good), set="smoke").status_code == 303
    assert golden_mark_of(app, admin, good)["set"] == "smoke"  # type: ignore[index]
    assert send(client, "/promote").status_code == 400


@pytest.fixture
def row_id(app: Flask, workspace: Workspace) -> UUID:
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        return knowledge_rows.add_row(NewRow(type="lesson", content="Say the period."), actor=admin).id


def test_a_set_with_its_goldens(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any], row_id: UUID
) -> None:
    admin = workspace.actor()
    loaded = NewEvent("context.loaded", {"row_ids": [str(row_id)], "versions": [1], "sha256": "0" * 64})
    said = (NewEvent("user.message", {"text": "Same"}), NewEvent("agent.message", {"text": "Yes."}))
    ids = [ran(app, admin, loaded, *said), ran(app, admin, *said), asked_session(app, admin)]
    complain(app, admin, ids[2])
    for session_id in ids:
        promote(app, admin, session_id, set_name="smoke", note="kept")
    with app.app_context(), acting_as(admin), transaction():
        knowledge_rows.set_state(row_id, "inactive", actor=admin, reason="Old.")
    client = sign_in(admin)

    with count_queries() as seen:
        html = soup(client.get(f"{URL}/sets/smoke"))
    assert len(seen) <= 8, seen
    marks = {row["id"]: row.select_one(".u-main").get_text(" ", strip=True) for row in html.select("[data-row]")}
    assert "row inactive" in marks[f"golden-{ids[0]}"]
    assert "duplicate" in marks[f"golden-{ids[0]}"]
    assert "duplicate" in marks[f"golden-{ids[1]}"]
    assert "baseline was rejected" in marks[f"golden-{ids[2]}"]
    assert "duplicate" not in marks[f"golden-{ids[2]}"]
    panel = soup(client.get(f"{URL}/{ids[0]}?panel=1", headers=HTMX)).select_one("#panel")
    assert "1 turn, 1 knowledge row, 0 tool recordings" in panel.text
    assert "No replays yet" in panel.text
    assert soup(client.get(f"{URL}/{ids[0]}")).select_one("h1")
    assert client.get(f"{URL}/sets/nothing").status_code == 404

    wrong = send(client, f"/{ids[0]}/edit", set="Not A Slug", note="x")
    assert wrong.status_code == 422
    assert soup(wrong).select_one("#golden-set")["value"] == "Not A Slug"
    assert send(client, f"/{ids[0]}/edit", set="smoke", note="Better").status_code == 303
    assert golden_mark_of(app, admin, ids[0])["note"] == "Better"  # type: ignore[index]
    moved = send(client, "/sets/smoke/move", ids=f"{ids[0]},{ids[1]}", set="other")
    assert moved.location.endswith("/sets/smoke")
    assert golden_mark_of(app, admin, ids[1])["set"] == "other"  # type: ignore[index]
    assert "Revoke this golden?" in client.get(f"{URL}/{ids[1]}/revoke").text
    assert send(client, f"/{ids[1]}/revoke").status_code == 303
    assert golden_mark_of(app, admin, ids[1]) is None
    assert client.get(f"{URL}/{ids[1]}").status_code == 404


def test_a_set_is_renamed_with_its_policy_and_runs(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    promote(app, admin, asked_session(app, admin), set_name="smoke")
    promote(app, admin, asked_session(app, admin, "Other"), set_name="taken")
    client = sign_in(admin)

    bad = send(client, "/sets/smoke/policy", **{"threshold.final_message": "2", "on_miss": "unknown"})
    assert bad.status_code == 422
    assert soup(bad).select_one("#t-final_message")["value"] == "2"
    good = {"threshold.final_message": "0,8", "decides.tool_calls": "yes", "on_miss": "unknown", "on_drift": "fail"}
    assert send(client, "/sets/smoke/policy", **good).status_code == 303
    policy = {"thresholds": {"final_message": 0.8}, "decides": {"tool_calls": True}, "on_miss": "unknown"}
    assert send(client, "/sets/smoke/rename", name="taken").status_code == 409
    assert send(client, "/sets/smoke/rename", name="No Slug").status_code == 422
    assert send(client, "/sets/smoke/rename", name="chat-smoke").location.endswith("/sets/chat-smoke")
    with app.app_context(), acting_as(admin):
        assert eval_golden.policy_of("chat-smoke", actor=admin) == policy
        assert eval_golden.policy_of("smoke", actor=admin) == {}
        found = db.session.scalars(select(AuditEntry.action).where(AuditEntry.action == "golden_set.policy_changed"))
        assert len(found.all()) == 1
    assert soup(client.get(f"{URL}/sets/chat-smoke")).select_one("#t-final_message")["value"] == "0.8"


def test_members_see_none_of_it(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    session_id = asked_session(app, workspace.actor())
    client = sign_in(workspace.actor("member"))
    for path in ("", f"/promote/{session_id}", "/sets/smoke", f"/{session_id}"):
        assert client.get(f"{URL}{path}").status_code in {403, 404}, path
    assert send(client, f"/promote/{session_id}", set="x").status_code in {403, 404}


def test_what_runs_say_of_a_set(
    app: Flask, workspace: Workspace, sign_in: SignIn, run_sessions: Callable[[], int], count_queries: Callable[[], Any]
) -> None:
    bench = Bench(app, workspace, run_sessions)
    ids = [bench.golden(f"What is the stage of {name}?", set_name="smoke") for name in ("Halden", "Kestrel")]
    bench.run(set_name="smoke")
    open_run = bench.run(set_name="smoke", drain=False)
    client = sign_in(workspace.actor())

    with count_queries() as seen:
        line = soup(client.get(URL)).select_one("#sets li").get_text(" ", strip=True)
    assert len(seen) <= 8, seen
    assert "2 of 2" in line
    assert "100% 95% CI 34–100%" in line
    assert soup(client.get(URL)).select_one(f"#sets a[href$='/runs/{open_run.id}']")
    assert send(client, "/sets/smoke/rename", name="other").status_code == 409
    run_sessions()
    with count_queries() as seen:
        page = soup(client.get(f"{URL}/sets/smoke"))
    assert len(seen) <= 8, seen
    assert "2 goldens: too few to tell drops from noise." in page.text
    assert "The offline model is deterministic, so any failure is real." in page.text
    assert all("pass 1.00" in row.text for row in page.select("[data-row]"))
    panel = soup(client.get(f"{URL}/{ids[0]}?panel=1", headers=HTMX)).select_one("#panel")
    diffs = [link["href"] for link in panel.select(f"a[href*='/diff/{ids[0]}/']")]
    assert len(diffs) == 2
    with bench.acting():
        versions.save_version(bench.agent_id, {**CONFIG, "tool_groups": ["entities-read"]}, actor=bench.admin)
    gone = soup(client.get(f"{URL}/sets/smoke")).select_one("[data-row] [title='entities-write']")
    assert "tool gone" in gone.text
