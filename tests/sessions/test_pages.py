"""Sessions: the list, the timeline and the transcript, for admins and for members; flagging."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from app.views.format import money, span
from app.views.transcript import timeline
from app.views.transcript import turns as transcript_turns
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/sessions"
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


@dataclass
class Happened:
    event_type: str
    payload: dict[str, Any]
    seconds: float
    id: UUID = field(default_factory=uuid4)

    @property
    def occurred_at(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)


def test_the_list_shows_what_a_run_cost(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    row = soup(sign_in(workspace.actor()).get(URL)).select_one(f"#session-{filled.session}")
    words = [cell.get_text(" ", strip=True) for cell in row.select("td")]

    assert words[1:10] == [
        "✓ completed", "Compare Kestrel and Bluefin on EV/EBITDA", "deal-analyst v1", "chat", "offline",
        "✗3 3 negative", "8.0 s", "7,026", "$0.0042",
    ]  # fmt: skip


def test_the_page_tells_the_whole_run(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    page = soup(sign_in(workspace.actor()).get(f"{URL}/{filled.session}"))

    assert "model 7.5 s" in page.select_one(".u-wave svg")["aria-label"]
    assert (
        page.select_one(".u-tool summary").get_text(" ", strip=True).startswith('searchDeals (q="Kestrel") → 2 results')
    )
    assert page.select_one(".u-change code").get_text(" ", strip=True) == "valuation: 8.2 → 14.5"
    assert page.select_one(".u-say strong").text == "11.2×"
    assert len(page.select(".u-margin .u-note")) == 3
    facts = page.select_one(".u-facts").text
    for word in ("production", "6,214 in · 812 out", "ic-pack", "$0.0042"):
        assert word in facts
    rail = page.select_one(".u-rail")
    assert "1 row, 61 tokens" in rail.text
    assert rail.select_one(f"a[href$='{filled.chat}']") is not None


def test_members_open_the_workspaces_own_work_and_see_their_own_feedback(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    filled = fill(app, workspace)
    task = NewSession(
        agent="deal-analyst",
        title="Reads filings",
        status="completed",
        events=[NewEvent("user.message", {"text": "Read."}), NewEvent("agent.message", {"text": "Done."})],
    )
    with app.app_context():
        with acting_as(workspace.actor()), transaction():
            shared = session_store.create_session(task, actor=workspace.actor())[0].id
        for role in ("member", "other"):
            with acting_as(workspace.actor(role)), transaction():
                new = NewFeedback(source_type="session", rating="negative", session_id=shared, comment=f"By {role}")
                feedback_intake.record_feedback(new, actor=workspace.actor(role))

    for role, session_id, notes in (("member", filled.session, 2), ("member", shared, 1), ("other", shared, 1)):
        page = soup(sign_in(workspace.actor(role)).get(f"/sessions/{session_id}"))
        assert len(page.select(".u-margin .u-note")) == notes
        assert not page.select(".u-margin a")
        assert not page.select("a[href*='/admin/']")
        assert "Flag" not in page.select_one("main").text
    assert sign_in(workspace.actor("other")).get(f"/sessions/{filled.session}").status_code == 404


def test_a_session_without_events_says_so(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    page = soup(sign_in(workspace.actor()).get(f"{URL}/{filled.failed}"))

    assert "No events recorded" in page.text
    assert "searchAccounts timed out" in page.select_one("main").text


def test_flagging_a_turn_writes_feedback_about_it(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    url = f"{URL}/{filled.session}"
    anchor = soup(client.get(url)).select(".u-turn")[-1]["id"]
    form = soup(client.get(f"{url}?flag={anchor}")).select_one("form.u-inplace")
    assert form["action"] == f"{url}/flag"
    sent = {"csrf_token": client.csrf, "at": anchor, "rating": "negative"}  # type: ignore[attr-defined]

    answer = client.post(form["action"], data={**sent, "comment": " "})
    assert answer.status_code == 422
    assert "Enter what was right or wrong" in soup(answer).select_one(".invalid-feedback").text
    answer = client.post(form["action"], data={**sent, "rating": "purple", "comment": "kept text"})
    assert answer.status_code == 422
    assert "kept text" in soup(answer).select_one("textarea").text

    answer = client.post(form["action"], data={**sent, "comment": "It must say which period it used"})
    assert answer.status_code == 303
    page = soup(client.get(answer.location))
    turn = page.select_one(f"#{anchor}").parent
    assert "It must say which period it used" in turn.select_one(".u-margin").text
    assert "Flagged" in page.select_one("#toasts").text
    listed = soup(client.get("/admin/agent-review/feedback?source_type=observation"))
    assert len(listed.select("[data-row]")) == 1
    before = int(listed.select_one("#count-side").find(string=True))
    again = {**sent, "comment": "And which currency"}
    parts = soup(client.post(form["action"], data=again, headers={"HX-Request": "true", "HX-Request-Type": "partial"}))
    for place in ("#count-side", "#count-feedback"):
        assert (
            parts.select_one(f"hx-partial[hx-target='{place}']").get_text(" ", strip=True).startswith(f"{before + 1}")
        )


def test_turns_keep_what_belongs_together() -> None:
    events = [
        Happened("context.loaded", {"row_ids": ["a", "b"]}, 0),
        Happened("user.message", {"text": "Hello"}, 1),
        Happened("tool.call", {"id": "1", "name": "look", "arguments": {"q": "x"}}, 2),
        Happened("tool.result", {"call_id": "1", "output": {"error": "no"}, "is_error": True}, 2.5),
        Happened("tool.call", {"id": "2", "name": "never"}, 3),
        Happened("agent.message", {"text": "Done"}, 4),
        Happened("user.message", {"text": "Thanks"}, 60),
        Happened(
            "entity.created", {"entity_type": "deal", "fields": {"name": {"value": "Halden", "source": "CIM"}}}, 61
        ),
        Happened("session.failed", {"error": "out of time"}, 62),
    ]
    steps = transcript_turns.session_steps(events, version="v4")
    turns = transcript_turns.build_turns(steps, person="Sam", agent="deal-analyst")

    assert [(turn.name, turn.agent) for turn in turns] == [
        ("Sam", False), ("deal-analyst", True), ("Sam", False), ("deal-analyst", True),
    ]  # fmt: skip
    first = turns[1]
    assert [part.kind for part in first.parts] == ["loaded", "tool", "tool", "say"]
    assert first.parts[0].text == "2 rows"
    assert first.parts[1].failed
    assert first.parts[1].ms == 500
    assert first.parts[2].failed
    assert first.detail == "v4 · 3.0 s"
    assert turns[3].parts[0].changes == [("name", None, "Halden")]
    assert turns[3].parts[1].text == "out of time"


def test_shapes_nobody_promised_are_shown_as_they_are() -> None:
    events = [
        Happened("agent.message", {"text": 7}, 0),
        Happened("tool.result", {"output": [1]}, 1),
        Happened("entity.updated", {"changes": {"a": 1}}, 2),
        Happened("entity.updated", {"changes": "x"}, 3),
        Happened("entity.created", {"fields": []}, 4),
        Happened("response.submitted", {}, 5),
        Happened("context.loaded", {"row_ids": "x", "token_count": "y"}, 6),
        Happened("knowledge.changed", {}, 7),
    ]
    turns = transcript_turns.build_turns(transcript_turns.session_steps(events), person="Sam", agent="a")

    assert len(turns) == 1
    assert turns[0].parts[0].text == "7"
    assert turns[0].parts[2].changes == [("a", None, 1)]


def test_time_is_what_was_worked_not_what_was_waited() -> None:
    events = [
        Happened("user.message", {"text": "a"}, 0),
        Happened("tool.call", {"id": "1"}, 2),
        Happened("tool.result", {"call_id": "1"}, 3),
        Happened("agent.message", {"text": "b"}, 4),
        Happened("user.message", {"text": "c"}, 100),
        Happened("agent.message", {"text": "d"}, 106),
    ]
    found = timeline.build_timeline(events)

    assert found is not None
    assert found.total == 10
    assert found.seconds == {"model": 9, "tools": 1, "writes": 0}
    assert [name for name, _, _ in found.lanes] == ["model", "tools"]
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.01 for bar in found.bars)
    assert timeline.build_timeline([]) is None
    assert timeline.build_timeline(events[:1]) is None


def test_sums_and_spans_in_words() -> None:
    assert [money(value) for value in (0, 0.00001, 0.0042, 0.5, 1204)] == [
        "$0",
        "$0.00001",
        "$0.0042",
        "$0.5",
        "$1,204.00",
    ]
    spans = [span(NOON - timedelta(**ago), NOON) for ago in ({"seconds": 5}, {"minutes": 61}, {"days": 3})]
    assert spans == ["1 minute", "1 hour", "3 days"]


def test_times_that_tell_nothing_are_not_shown() -> None:
    """Recordings without times have their events a few microseconds apart, or none."""

    def took(after: float, told: dict[str, object] | None = None) -> float | None:
        call = Happened("tool.call", {"id": "1", "name": "look"}, 0)
        result = Happened("tool.result", {"call_id": "1", "output": 1, **(told or {})}, after)
        return next(transcript_turns.session_steps([call, result])).part.ms

    assert [took(0), took(0.0001), took(0.25)] == [None, None, 250]
    assert [took(0, {"duration_ms": 12}), took(1, {"duration_ms": True}), took(1, {"duration_ms": -1})] == [
        12,
        1000,
        1000,
    ]
    events = [Happened("user.message", {"text": "a"}, 0), Happened("agent.message", {"text": "b"}, 0.00001)]
    assert timeline.build_timeline(events) is None
