"""Reports on reactions: exact shapes, exact counts, inclusive windows, one's own or everyone's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from app.db import acting_as, transaction
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import intake as feedback_intake
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from tests.conftest import Api, Workspace

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


class Desk:
    """A workspace with conversations, and keys to react and to report."""

    def __init__(self, app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
        self.app = app
        self.workspace = workspace
        self.member = api(workspace.actor("member"), "feedback")
        self.admin = api(workspace.actor("admin"), "admin")
        self.root = f"/conversations/{workspace.slug}/support"

    def talk(self, turns: int = 1) -> tuple[str, list[str]]:
        name, actor = f"conv-{uuid4().hex}", self.workspace.actor("member")
        ids = [f"turn_{uuid4().hex}" for _ in range(turns)]
        said = [
            NewMessage(role=role, content=f"{role}: {turn}", turn_id=turn) for turn in ids for role in ("user", "agent")
        ]
        with self.app.app_context(), acting_as(actor), transaction():
            chat = chat_store.create_chat(
                actor=actor, agent_slug="helper", title="T", external_id=name, project="support", created_at=NOON
            )
            chat_store.append_messages(chat.id, said, actor=actor)
        return name, ids

    def react(self, key: Api, name: str, turn: str, reaction: str | None, at: datetime = NOON, **more: Any) -> Any:
        sent = {"reaction": reaction, "ts": at.isoformat(), **more}
        response = key.post(f"{self.root}/{name}/turns/{turn}/feedback", sent)
        assert response.status_code == 200, response.get_data(as_text=True)
        return response.get_json()

    def infer(self, turn: str, rating: str, at: datetime = NOON) -> None:
        """What the machine gate writes."""
        system = self.workspace.actor("system")
        with self.app.app_context(), acting_as(system), transaction():
            feedback_intake.record_feedback(
                feedback_intake.NewFeedback(
                    kind="reaction", origin="machine", confidence=0.8, rating=rating, turn_id=turn, occurred_at=at
                ),
                actor=system,
            )

    def period(self, key: Api, start: datetime, end: datetime, **more: Any) -> dict[str, Any]:
        response = key.post(
            f"{self.root}/feedback/conversations-in-period", {"start": iso(start), "end": iso(end), **more}
        )
        assert response.status_code == 200, response.get_data(as_text=True)
        found: dict[str, Any] = response.get_json()
        return found

    def turns(self, key: Api, name: str, **body: Any) -> dict[str, Any]:
        response = key.post(f"{self.root}/{name}/turns-with-feedbacks", body)
        assert response.status_code == 200, response.get_data(as_text=True)
        found: dict[str, Any] = response.get_json()
        return found


@pytest.fixture
def desk(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> Desk:
    return Desk(app, workspace, api)


def test_the_report_of_a_period_is_exactly_this(desk: Desk) -> None:
    name, [turn] = desk.talk()
    given = desk.react(desk.member, name, turn, "ok", text="It was my issue.")
    found = desk.period(desk.member, NOON, NOON, include_turns=True)
    assert found == {
        "tenant": desk.workspace.slug,
        "project": "support",
        "window": {"start": iso(NOON), "end": iso(NOON)},
        "items": [
            {
                "conversation_id": name,
                "last_activity_at": iso(NOON),
                "started_at": iso(NOON),
                "feedback_counts": {"total": 1, "user": 1, "machine": 0, "ok": 1, "not_ok": 0, "neutral": 0},
                "turns": [
                    {
                        "turn_id": turn,
                        "ts": iso(NOON),
                        "feedbacks": [
                            {
                                "turn_id": turn,
                                "ts": iso(NOON),
                                "text": "It was my issue.",
                                "reaction": "ok",
                                "confidence": 1.0,
                                "origin": "user",
                                "rn": f"up:{desk.workspace.slug}:support:{name}:{turn}:reaction:{given['id']}",
                            }
                        ],
                    }
                ],
            }
        ],
        "next_cursor": None,
    }
    assert desk.period(desk.member, NOON, NOON)["items"][0]["turns"] is None


def test_the_window_includes_both_ends_and_nothing_beyond(desk: Desk) -> None:
    name, turns = desk.talk(4)
    tick = timedelta(microseconds=1)
    start, end = NOON, NOON + timedelta(hours=1)
    for turn, at in zip(turns, (start - tick, start, end, end + tick), strict=True):
        desk.react(desk.member, name, turn, "neutral", at)
    [item] = desk.period(desk.member, start, end, include_turns=True)["items"]
    assert [turn["turn_id"] for turn in item["turns"]] == turns[1:3]
    assert (item["feedback_counts"]["total"], item["last_activity_at"]) == (2, iso(end))
    assert desk.period(desk.member, start + tick, end - tick)["items"] == []


def test_counts_add_up_by_origin_and_by_reaction(desk: Desk) -> None:
    name, turns = desk.talk(3)
    desk.react(desk.member, name, turns[0], "ok")
    desk.react(desk.admin, name, turns[0], "not_ok")
    desk.react(desk.admin, name, turns[1], "neutral")
    desk.react(desk.member, name, turns[1], "ok")
    desk.react(desk.member, name, turns[1], None)
    for rating in ("negative", "negative", "positive"):
        desk.infer(turns[2], rating)
    desk.admin.post("/api/v1/feedback", {"message_id": "m", "signal": "helpful", "chat_id": name})
    counts = desk.period(desk.admin, NOON, NOON)["items"][0]["feedback_counts"]
    assert counts == {"total": 6, "user": 3, "machine": 3, "ok": 2, "not_ok": 3, "neutral": 1}
    [mine] = desk.period(desk.member, NOON, NOON)["items"]
    assert mine["feedback_counts"] == {"total": 1, "user": 1, "machine": 0, "ok": 1, "not_ok": 0, "neutral": 0}
    every = desk.period(desk.admin, NOON, NOON, include_turns=True)["items"][0]["turns"]
    told = [item for turn in every for item in turn["feedbacks"]]
    assert len(told) == 6
    assert len({item["rn"] for item in told}) == 6
    assert {item["confidence"] for item in told if item["origin"] == "machine"} == {0.8}


def test_pages_follow_the_latest_activity(desk: Desk) -> None:
    names = []
    for number in range(5):
        name, [turn] = desk.talk()
        # Two at the same moment: the cursor must not lose either.
        desk.react(desk.member, name, turn, "ok", NOON + timedelta(minutes=number // 2))
        names.append(name)
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = desk.period(desk.admin, NOON, NOON + timedelta(hours=1), limit=2, cursor=cursor)
        seen += [item["conversation_id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert len(seen) == 5
    assert set(seen) == set(names)
    assert seen[0] == names[4]
    assert set(seen[3:]) == set(names[:2])
    assert len(desk.period(desk.admin, NOON, NOON + timedelta(hours=1), limit=100_000)["items"]) == 5
    assert len(desk.period(desk.admin, NOON, NOON + timedelta(hours=1), limit=0)["items"]) == 1


def test_turns_with_feedback_include_their_messages(desk: Desk) -> None:
    name, turns = desk.talk(3)
    recent = datetime.now(UTC) - timedelta(days=1)
    desk.react(desk.member, name, turns[0], "ok", recent, text="Thanks")
    desk.react(desk.admin, name, turns[0], "not_ok", recent)
    desk.react(desk.admin, name, turns[1], "neutral", datetime.now(UTC) - timedelta(days=20))
    mine = desk.turns(desk.member, name)
    assert (mine["user_id"], mine["conversation_id"]) == (str(desk.workspace.actor("member").id), name)
    [turn] = mine["turns"]
    assert set(turn) == {"turn_id", "turn_log", "assistant", "user", "feedbacks", "reactions"}
    assert (turn["user"]["text"], turn["assistant"]["text"]) == (f"user: {turns[0]}", f"agent: {turns[0]}")
    [item], [artifact] = turn["feedbacks"], turn["reactions"]
    assert (item["reaction"], item["text"], item["rn"]) == ("ok", "Thanks", artifact["meta"]["rn"])
    assert artifact["reaction"] == {key: value for key, value in item.items() if key != "rn"}
    assert (artifact["conversation_id"], artifact["bundle_id"]) == (name, "helper")
    assert artifact["meta"] == {
        "rn": item["rn"],
        "turn_id": turns[0],
        "track_id": "support",
        "user_type": "registered",
        "kind": "turn.log.reaction",
    }
    assert artifact["tags"] == [
        "artifact:turn.log.reaction", f"turn:{turns[0]}", "origin:user", "track:support",
    ]  # fmt: skip
    assert turn["turn_log"] is None
    assert [turn["turn_id"] for turn in desk.turns(desk.admin, name, turn_ids=None, days=365)["turns"]] == [
        turns[1],
        turns[0],
    ]
    assert len(desk.turns(desk.admin, name, days=10)["turns"][0]["feedbacks"]) == 2
    assert [turn["turn_id"] for turn in desk.turns(desk.admin, name, turn_ids=[turns[1], "x"])["turns"]] == [turns[1]]
    assert desk.turns(desk.admin, name, turn_ids=[])["turns"] == []


def test_the_answer_to_a_reaction_is_the_whole_artifact(desk: Desk) -> None:
    name, [turn] = desk.talk()
    given = desk.react(desk.admin, name, turn, "ok")
    assert (given["meta"]["track_id"], given["meta"]["user_type"]) == ("support", "privileged")
    assert (given["bundle_id"], given["tags"][1]) == ("helper", f"turn:{turn}")
    gone = desk.react(desk.admin, name, turn, None)
    assert gone["meta"] is gone["bundle_id"] is gone["tags"] is None


def test_a_turn_log_holds_the_messages_tool_calls_and_reactions_of_its_turn(desk: Desk) -> None:
    admin, name = desk.workspace.actor("admin"), f"conv-{uuid4().hex}"
    events = []
    for number in (1, 2):
        call = {"id": f"call-{number}", "name": "searchEntities", "arguments": {"q": f"deal {number}"}}
        events += [
            NewEvent("user.message", {"text": f"Question {number}"}),
            NewEvent("tool.call", call),
            NewEvent("tool.result", {"call_id": f"call-{number}", "output": f"found {number}"}),
            NewEvent("agent.message", {"text": f"Answer {number}"}),
        ]
    with desk.app.app_context(), acting_as(admin), transaction():
        chat = chat_store.create_chat(actor=admin, agent_slug="helper", title="T", external_id=name, project="support")
        foreign = chat_store.create_chat(actor=admin, agent_slug="helper", title="Other", project="support")
        session, _ = session_store.create_session(
            NewSession(agent="helper", chat_id=chat.id, status="completed", events=events), actor=admin
        )
        other, _ = session_store.create_session(
            NewSession(agent="helper", chat_id=foreign.id, status="completed", events=events), actor=admin
        )
        said = [
            NewMessage(role=role, content=f"{words} {number}", turn_id=f"t{number}", session_id=session.id)
            for number in (1, 2)
            for role, words in (("user", "Question"), ("agent", "Answer"))
        ]
        said.append(NewMessage(role="agent", content="Stolen", turn_id="t2", session_id=other.id))
        chat_store.append_messages(chat.id, said, actor=admin)
    recent = datetime.now(UTC)
    desk.react(desk.admin, name, "t1", "not_ok", recent, text="Wrong deal")
    desk.react(desk.admin, name, "t2", "ok", recent + timedelta(seconds=1))
    first, second = (turn["turn_log"] for turn in desk.turns(desk.admin, name, include_turn_log=True)["turns"])
    assert [(entry["type"], entry["text"], entry["name"]) for entry in first["entries"]] == [
        ("user", "Question 1", None),
        ("tool_call", None, "searchEntities"),
        ("assistant", "Answer 1", None),
        ("feedback", "Wrong deal", "not_ok"),
    ]
    call = first["entries"][1]
    assert (call["arguments"], call["output"], call["is_error"]) == ({"q": "deal 1"}, "found 1", False)
    assert [item["reaction"] for item in first["feedbacks"]] == ["not_ok"]
    assert first["text"].splitlines() == [
        "[user] Question 1",
        '[tool] searchEntities({"q": "deal 1"}) -> found 1',
        "[assistant] Answer 1",
        "[feedback] not_ok: Wrong deal",
    ]
    calls = [entry["output"] for entry in second["entries"] if entry["type"] == "tool_call"]
    assert calls == ["found 2"], "the other turn's and another conversation's calls are not in it"


def test_other_projects_and_workspaces_are_not_in_it(
    desk: Desk, make_workspace: Callable[..., Workspace], api: Callable[..., Api], app: Flask
) -> None:
    name, [turn] = desk.talk()
    desk.react(desk.member, name, turn, "ok")
    window = {"start": iso(NOON), "end": iso(NOON)}
    elsewhere = Desk(app, make_workspace(), api)
    assert elsewhere.period(elsewhere.admin, NOON, NOON)["items"] == []
    sales = desk.root.replace("support", "sales")
    assert desk.admin.post(f"{sales}/feedback/conversations-in-period", window).get_json()["items"] == []
    for path, body in (
        (f"{desk.root}/feedback/conversations-in-period", window),
        (f"{desk.root}/{name}/turns-with-feedbacks", {}),
    ):
        assert elsewhere.admin.post(path, body).status_code == 404
    for path in (f"{sales}/{name}/turns-with-feedbacks", f"{desk.root}/nothing/turns-with-feedbacks"):
        assert desk.admin.post(path, {}).status_code == 404


def test_bad_requests_are_400(desk: Desk) -> None:
    name, _ = desk.talk()
    window = {"start": iso(NOON), "end": iso(NOON)}
    for body in (
        {},
        {"start": iso(NOON)},
        window | {"start": "2026-03-02T12:00:00"},
        window | {"end": "infinity"},
        window | {"start": iso(NOON + timedelta(seconds=1))},
        window | {"limit": "10"},
        window | {"limit": True},
        window | {"include_turns": 1},
        window | {"cursor": "%%%"},
        window | {"cursor": "AAAA"},
        window | {"cursor": "c" * 1001},
        window | {"user_id": "u"},
    ):
        response = desk.admin.post(f"{desk.root}/feedback/conversations-in-period", body)
        assert response.status_code == 400, body
    for sent in ({"days": 0}, {"days": 3651}, {"days": 1.5}, {"turn_ids": "t"}, {"turn_ids": ["t\x00"]}, {"x": 1}):
        assert desk.admin.post(f"{desk.root}/{name}/turns-with-feedbacks", sent).status_code == 400, sent


def test_a_report_takes_as_many_queries_for_one_conversation_as_for_many(
    desk: Desk, count_queries: Callable[..., Any]
) -> None:
    for _ in range(3):
        name, [turn] = desk.talk()
        desk.react(desk.member, name, turn, "ok")
    with count_queries() as seen:
        desk.period(desk.admin, NOON, NOON, include_turns=True)
    assert len(seen) <= 3, seen
