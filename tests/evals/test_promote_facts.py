"""What someone says about a session that was complained about: nothing wrong is kept silently, no signal left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions.events import NewEvent
from tests.agents.test_replays import Bench
from tests.conftest import Api, Workspace, soup
from tests.evals.forms import calls
from tests.evals.test_golden import complain, ran, status_of
from tests.evals.test_pages import URL, SignIn, find, golden_mark_of, send
from tests.evals.test_promote_changes import bench, complained_session

__all__ = ["bench"]
UPDATED = ("Search entities Kestrel", "Update entity Kestrel valuation to 10.5")


@pytest.mark.parametrize("parts", [{"should": "answer", "answer": "Only its owner may."}, {"should": "mention"}])
def test_where_something_changed_someone_says_whether_that_was_right(
    bench: Bench, sign_in: SignIn, parts: dict[str, Any]
) -> None:
    session_id = complained_session(bench, *UPDATED)
    client = sign_in(bench.admin)
    data: dict[str, Any] = {"set": "smoke", "mention-new": "its owner", **parts}

    form = soup(client.get(f"{URL}/promote/{session_id}"))
    assert "What it changed was right" in form.select_one(".u-picks").text
    assert not form.select("[name=should][checked], [name=mention][checked]")
    silent = send(client, f"/promote/{session_id}", **data)
    assert silent.status_code == 422
    told = soup(silent).select_one(".u-should > .invalid-feedback").text
    assert "It changed something: update Kestrel: valuation = 10.5. Say whether that was right" in told
    for should in (["kept", "change"], ["kept"]):
        assert send(client, f"/promote/{session_id}", **{**data, "should": should}).status_code == 422
    assert golden_mark_of(bench.app, bench.admin, session_id) is None

    done = send(client, f"/promote/{session_id}", **{**data, "should": [parts["should"], "kept"]})
    assert done.status_code == 303
    golden = golden_mark_of(bench.app, bench.admin, session_id)
    assert golden
    assert "effects" not in golden["expected"], "as it was recorded"
    assert "baseline_rejected" not in golden


def test_a_forbidden_tool_says_that_what_it_changed_was_wrong(bench: Bench, sign_in: SignIn) -> None:
    session_id = complained_session(bench, *UPDATED)
    client = sign_in(bench.admin)

    assert (
        send(client, f"/promote/{session_id}", set="smoke", should="call", **{"no-call": "sendMail"}).status_code == 422
    )
    sent = send(client, f"/promote/{session_id}", set="smoke", should="call", **{"no-call": "updateEntity"})
    assert sent.status_code == 303
    result = bench.run(set_name="smoke").results["bySession"][str(session_id)]
    assert (result["verdict"], result["baseline"]) == ("fail", "expected")
    diff = soup(client.get(f"{URL}/diff/{session_id}/{result['replay_session_id']}"))
    assert "which should not happen" in diff.select_one(".u-verdict").text
    assert "Expected" in diff.select_one(".u-sbs thead").text


@pytest.mark.parametrize(
    "data",
    [
        {"should": "mention", "mention-new": "14.2 million", "must-not": "14.2"},
        {"should": "call", **calls(("updateEntity",)), "no-call": "updateEntity"},
        {"should": ["change", "call"], "nothing": "1", **calls(("updateEntity",))},
    ],
)
def test_what_excludes_itself_is_reported_under_both_fields(
    app: Flask, workspace: Workspace, sign_in: SignIn, data: dict[str, Any]
) -> None:
    admin = workspace.actor()
    session_id = ran(app, admin)
    complain(app, admin, session_id)
    wrong = send(sign_in(admin), f"/promote/{session_id}", set="smoke", **data)
    assert wrong.status_code == 422
    assert len(soup(wrong).select(".invalid-feedback")) == 2
    assert golden_mark_of(app, admin, session_id) is None


def test_the_api_names_both_fields(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor()
    session_id = ran(app, admin)
    client = api(admin)
    both = (
        (
            {"expected": {"mentions": ["LTM"], "must_not_mention": ["ltm"]}},
            "expected.mentions expected.must_not_mention",
        ),
        ({"expected": {"calls": [{"name": "x"}], "no_calls": ["x"]}}, "expected.calls expected.no_calls"),
        ({"expected": {"mentions": ["LTM"]}, "recorded_is_right": True}, "expected recorded_is_right"),
    )
    for given, names in both:
        body = {"sessionId": str(session_id), **given}
        answer = client.post("/api/admin/evals/golden", json=body)
        assert answer.status_code == 400, answer.text
        assert all(name in answer.json["detail"] for name in names.split())
        assert [name for name in names.split() if name not in str(answer.json["errors"])] == []
    assert golden_mark_of(app, admin, session_id) is None


def said_of(app: Flask, actor: Any, session_id: UUID, **links: Any) -> UUID:
    """A thumb that names the message, the turn or the trace, and not the session."""
    with app.app_context(), acting_as(actor), transaction():
        given = NewFeedback(kind="signal", signal="inaccurate", rating="negative", **links)
        found: UUID = feedback_intake.record_feedback(given, actor=actor).id
        row = db.session.scalars(select(Feedback).where(Feedback.id == found)).one()
        row.session_id = links.get("session_id")
        return found


def test_promoting_applies_what_hangs_on_a_message_a_trace_or_a_flag(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    admin, member, other = workspace.actor(), workspace.actor("member"), workspace.actor("other")
    asked_for = NewEvent("user.message", {"text": "Marlow EBITDA?"}), NewEvent("agent.message", {"text": "Done."})
    session_id = ran(app, admin, *asked_for, trace_id="a" * 32)
    elsewhere = ran(app, admin, *asked_for, trace_id="b" * 32)
    with app.app_context(), acting_as(admin), transaction():
        chat = chat_store.create_chat(agent_slug="deal-analyst", title="Marlow", external_id="talk-1", actor=admin)
        chat_store.append_messages(
            chat.id,
            [
                NewMessage(role="user", content="Marlow EBITDA?", session_id=session_id),
                NewMessage(role="agent", content="Done.", session_id=session_id, external_id="m-1"),
                NewMessage(role="agent", content="Done.", session_id=elsewhere, external_id="m-2"),
            ],
            actor=admin,
        )
    rows = [
        said_of(app, member, session_id, message_id="m-1", chat_id="talk-1"),
        said_of(app, other, session_id, trace_id="a" * 32),
        complain(app, admin, session_id, "observation", kind="flag"),
    ]
    others = [
        said_of(app, other, session_id, message_id="m-1", chat_id="talk-2"),
        said_of(app, member, session_id, message_id="m-2", chat_id="talk-1"),
        said_of(app, other, session_id, trace_id="b" * 32),
    ]
    client = sign_in(admin)

    assert "Resolves 3 pending signals" in client.get(f"{URL}/promote/{session_id}").text
    assert send(client, f"/promote/{session_id}", set="smoke").status_code == 422, "it was complained about"
    assert status_of(app, admin, rows) == {"pending"}
    assert send(client, f"/promote/{session_id}", set="smoke", should="right").status_code == 303
    assert status_of(app, admin, rows) == {"applied"}
    assert status_of(app, admin, others) == {"pending"}


def test_a_candidate_includes_the_chat_before_it(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    session_id = ran(app, admin)
    rows = [complain(app, workspace.actor("member"), session_id), complain(app, admin, session_id, "chat")]
    client = sign_in(admin)
    sid = find(app, admin)

    assert "Resolves 2 pending signals" in client.get(f"{URL}?promote={sid}").text
    done = send(client, f"/candidates/{sid}/promote", {"HX-Request": "true"}, set="smoke", should="right")
    assert "2 signals applied" in done.text
    assert status_of(app, admin, rows) == {"applied"}
