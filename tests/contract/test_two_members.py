"""Every route and tool with the ids of another member's conversation answers as for ids that nobody has, shows nothing
of it and changes nothing in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.db import acting_as, db, transaction
from app.models import AgentSession, Message, SessionEvent
from app.security import access
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse, decide_response, submit_response
from app.services.evals import promotion
from app.services.evals import runs as eval_runs
from app.services.evals.promotion import Promotion
from app.services.evals.runs import NewRun
from app.tools import TOOLS, Tool, ToolScope, run_tool
from tests.agents.running import Desk
from tests.conftest import Api, Workspace
from tests.contract.test_two_workspaces import FORM, JSON

pytestmark = pytest.mark.exhaustive

# In every text of the other member. The word is what is searched for; the answer may repeat it, but not the secret.
SECRET, WORD = "pelican-4711", "cormorant"
TEXT = f"{WORD} {SECRET}"
GUARDED = (
    "chats", "messages", "sessions", "session_events", "session_drafts", "session_receptions", "entity_responses",
    "feedback", "user_memories", "eval_runs",
)  # fmt: skip
CONFIG = {"instructions": "Help.", "model": "offline", "tool_groups": ["context", "entities-read", "feedback-review"]}
# What differs from request to request and says nothing.
NOISE = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"(?<![0-9a-z])(their_[a-z]+_)?[0-9a-f]{32}\b", "ID"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", "TIME"),
    (r'"request_id": ?"\w+"|<code[^>]*>\w{16}</code>|\b[0-9a-f]{16}\b', ""),
)


@dataclass
class Private:
    """What a member has that nobody else may see: ids of ours, and ids that their own product chose."""

    ids: dict[str, UUID] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    entity: UUID = field(default_factory=uuid4)
    shared_session: UUID = field(default_factory=uuid4)


class Walk:
    """A workspace in which `member` has conversations, and what others of it get to see."""

    def __init__(self, app: Flask, workspace: Workspace, api: Callable[..., Api], sign_in: Callable[..., Any]) -> None:
        self.app, self.workspace, self.api, self.sign_in = app, workspace, api, sign_in
        self.victim, self.admin, self.other = (workspace.actor(name) for name in ("member", "admin", "other"))
        self.private = Private()
        self.keys: dict[str, Api] = {}
        self.browser: Any = None

    def within(self, work: Callable[[], Any], actor: Any = None) -> Any:
        with self.app.app_context(), acting_as(actor or self.admin), transaction():
            return work()

    def fill(self, drain: Callable[[], int]) -> None:
        Desk(self.app, self.workspace).agent(**CONFIG)
        self._talk(drain)
        self._store_over_the_api()
        self._submit()
        self._give_feedback()
        self._replay(drain)
        self._read_feedback_as_agent()
        self._share()

    def _talk(self, drain: Callable[[], int]) -> None:
        """A conversation on the chat page: one answer that came, one that is being written."""
        browser = self.sign_in(self.victim)
        begun = browser.post(
            "/chat", data={"agent": "assistant", "message": f"Who is {TEXT}?", "csrf_token": browser.csrf}
        )
        assert begun.status_code == 303, begun.text
        drain()
        chat = self.private.ids["chat"] = UUID(begun.location.rsplit("/", 1)[-1])
        browser.post(f"{begun.location}/messages", data={"message": TEXT, "csrf_token": browser.csrf})

        def read() -> None:
            ran, waiting = db.session.scalars(
                select(AgentSession).where(AgentSession.chat_id == chat).order_by(AgentSession.created_at)
            )
            said = db.session.scalars(select(Message).where(Message.chat_id == chat).order_by(Message.message_index))
            first, answer = list(said)[:2]
            event = db.session.scalar(select(SessionEvent.id).where(SessionEvent.session_id == ran.id).limit(1))
            self.private.ids |= {"session": ran.id, "waiting": waiting.id, "message": answer.id, "event": event}
            self.private.names |= {"turn": first.turn_id, "trace": str(ran.trace_id)}
            assert ran.status == "completed"

        self.within(read)
        with psycopg.connect(self.superuser_url) as connection:
            connection.execute(
                "INSERT INTO session_drafts (tenant_id, session_id, text) VALUES (%s, %s, %s)",
                (self.workspace.id, self.private.ids["waiting"], TEXT),
            )

    superuser_url = ""

    def _store_over_the_api(self) -> None:
        """A conversation of an agent elsewhere, with sessions of every type, a memory and a failure."""
        key = self.api(self.victim, "ingest")
        ours = self.private
        ours.names |= {name: f"{name}_{uuid4().hex}" for name in ("their_chat", "their_message", "their_session")}
        messages = [
            {"role": "user", "content": TEXT, "turn_id": "t-1"},
            {"role": "agent", "content": TEXT, "turn_id": "t-1", "external_id": ours.names["their_message"]},
        ]
        chat = key.post(
            "/api/v1/chats",
            {"agent": "elsewhere", "title": TEXT, "external_id": ours.names["their_chat"], "messages": messages},
        )
        ours.ids["stored_chat"] = UUID(chat.json["id"])
        remembers = {"id": "c1", "name": "saveMemory", "arguments": {"content": TEXT}}
        events = [
            {"event_type": "user.message", "payload": {"text": TEXT}},
            {"event_type": "tool.call", "payload": remembers},
            {"event_type": "tool.result", "payload": {"call_id": "c1", "output": TEXT}},
        ]
        for kind in ("chat", "agent", "response", "tool", "mixed"):
            sent = {
                "agent": "elsewhere",
                "title": TEXT,
                "session_type": kind,
                "chat_id": chat.json["id"],
                "error": TEXT,
            }
            more = {"external_id": ours.names["their_session"], "trace_id": f"trace-{uuid4().hex}"}
            made = key.post(
                "/api/v1/sessions", sent | {"status": "failed", "events": events} | (more if kind == "tool" else {})
            )
            assert made.status_code == 201, made.text
            ours.ids[f"{kind}_session"] = UUID(made.json["id"])
        alone = {"agent": "elsewhere", "title": TEXT, "status": "completed"}
        for name, sent in (("typed", alone | {"session_type": "chat"}), ("remembering", alone | {"events": events})):
            ours.ids[name] = UUID(key.post("/api/v1/sessions", sent).json["id"])

    def _submit(self) -> None:
        """Two responses of the conversation: one that waits, one that was rejected and is tried again."""

        def write() -> None:
            entity_store.create_type(slug="deal", name="Deal", fields={"note": {"type": "string"}}, actor=self.admin)
            record = entity_store.create_entity(entity_type="deal", name="Halden", fields={}, actor=self.admin)
            self.private.entity = record.id
            session = db.session.get_one(AgentSession, self.private.ids["session"])
            session.output_type = "fields"
            db.session.flush()
            for name in ("response", "rejected"):
                new = NewResponse(
                    entity_id=record.id, values={"note": {"value": TEXT}}, session_id=session.id,
                    agent_id=session.agent_id,
                )  # fmt: skip
                self.private.ids[name] = submit_response(new, actor=self.admin).id
            decide_response(self.private.ids["rejected"], "rejected", actor=self.admin, reason=TEXT)
            retry = select(AgentSession.id).where(
                AgentSession.meta["retry_of"].astext == str(self.private.ids["rejected"])
            )
            self.private.ids["retry"] = db.session.scalars(retry).one()

        self.within(write)

    def _give_feedback(self) -> None:
        sent = {
            "source_type": "chat",
            "rating": "negative",
            "comment": TEXT,
            "context": {"chat_id": str(self.private.ids["chat"]), "message_index": 1},
        }
        made = self.api(self.victim, "feedback").post("/api/feedback", sent)
        assert made.status_code == 201, made.text
        self.private.ids["feedback"] = UUID(made.json["id"])

    def _replay(self, drain: Callable[[], int]) -> None:
        """The conversation's session becomes golden, is replayed, and the replay takes its place."""
        golden_id = self.private.ids["session"]

        def start() -> UUID:
            promotion.promote_session(golden_id, Promotion(recorded_is_right=True), actor=self.admin)
            return eval_runs.start_run(NewRun(golden_ids=[golden_id], trials=2), actor=self.admin).id

        run_id = self.within(start)
        drain()

        def swap() -> None:
            replays = db.session.scalars(select(AgentSession).where(AgentSession.eval_run_id == run_id)).all()
            assert {replay.status for replay in replays} == {"completed"}
            self.private.ids["replay"] = replays[0].id
            self.private.ids["copy"] = promotion.promote_replay(golden_id, replays[1].id, actor=self.admin).session.id

        self.within(swap)

    def _read_feedback_as_agent(self) -> None:
        """An agent that works for an admin reads what people said, in a session of no conversation."""
        events = [
            {"event_type": "tool.call", "payload": {"id": "c1", "name": "getFeedback", "arguments": {}}},
            {"event_type": "tool.result", "payload": {"call_id": "c1", "output": {"comment": TEXT}}},
        ]
        sent = {"agent": "reviewer", "title": "Review", "status": "completed", "events": events}
        self.private.ids["review"] = UUID(self.api(self.admin, "admin").post("/api/v1/sessions", sent).json["id"])

    def _share(self) -> None:
        """Work of no conversation, about the same record."""
        sent = {
            "agent": "elsewhere",
            "title": f"Reads the filing {WORD}",
            "status": "completed",
            "entity_id": str(self.private.entity),
            "events": [{"event_type": "agent.message", "payload": {"text": "Done."}}],
        }
        made = self.api(self.victim, "ingest").post("/api/v1/sessions", sent)
        self.private.shared_session = UUID(made.json["id"])

    def enter(self) -> None:
        """The other member: at a browser, and with keys of every scope that is not for admins."""
        self.browser = self.sign_in(self.other)
        scopes = ("ingest", "feedback", "feedback-token", "context", "knowledge")
        self.keys = {"member": self.api(self.other, *scopes), "admin's key": self.api(self.admin, *scopes)}
        token = self.keys["member"].post("/api/v1/feedback/token", {"subject": "visitor-1"}).json["token"]
        self.keys["visitor"] = Api(self.app.test_client(), token)

    def rows(self) -> dict[str, set[str]]:
        with psycopg.connect(self.superuser_url) as connection:
            return {
                table: {
                    row[0]
                    for row in connection.execute(
                        f"SELECT t::text FROM {table} AS t WHERE tenant_id = %s",  # type: ignore[arg-type]
                        (self.workspace.id,),
                    )
                }
                for table in GUARDED
            }

    def every_id(self) -> dict[str, str]:
        return {name: str(found) for name, found in self.private.ids.items()} | self.private.names

    def address(self, rule: Rule, **values: Any) -> str:
        with self.app.test_request_context():
            return str(rule.build({name: values[name] for name in rule.arguments})[1])  # type: ignore[index]


@pytest.fixture
def walk(
    app: Flask, workspace: Workspace, api: Callable[..., Api], sign_in: Callable[..., Any], superuser_url: str,
    run_sessions: Callable[[], int],
) -> Iterator[Walk]:  # fmt: skip
    run_sessions()
    made = Walk(app, workspace, api, sign_in)
    made.superuser_url = superuser_url
    made.fill(run_sessions)
    made.enter()
    before = made.rows()
    yield made
    after = made.rows()
    for table in GUARDED:
        assert before[table] <= after[table], f"{table}: {before[table] - after[table]}"


def comparable(response: TestResponse, asked: str) -> tuple[int, str]:
    """The answer without what differs from request to request. It never has the other member's secret."""
    text = response.get_data(as_text=True) + response.headers.get("Location", "")
    assert SECRET not in text, (response.request.method, response.request.path)
    for pattern, word in NOISE:
        text = re.sub(pattern, word, text)
    return response.status_code, text.replace(asked, "ID").replace(asked[:8], "ID")


def with_places(app: Flask) -> Iterator[tuple[Rule, str]]:
    for rule in app.url_map.iter_rules():
        kinds = {name: type(rule._converters[name]).__name__ for name in rule.arguments}
        if "UUIDConverter" in kinds.values() or "conversation_id" in kinds:
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield rule, method


def ids_for(rule: Rule, ids: dict[str, str]) -> dict[str, str]:
    """What a route is asked with: a session's with every kind of session, others with one of each other kind."""
    if {"session_id", "golden_id", "replay_id"} & rule.arguments:
        return ids
    few = ("chat", "stored_chat", "session", "message", "event", "feedback", "response", "rejected", "replay")
    return {name: ids[name] for name in few}


def test_the_ids_in_an_address_are_unknown(app: Flask, walk: Walk) -> None:
    """Alone, and behind the id of something that the reader does see."""
    ids = {name: str(found) for name, found in walk.private.ids.items()}
    known = {"entity_id": walk.private.entity, "session_id": walk.private.shared_session}

    def ask(rule: Rule, method: str, found: str, fixed: dict[str, Any]) -> tuple[int, str]:
        values: dict[str, Any] = dict.fromkeys(rule.arguments, found)
        values |= {"index": 1, "tenant": walk.workspace.slug, "project": "default"} | fixed
        path = walk.address(rule, **values)
        if path.startswith(("/api/", "/conversations/")):
            return comparable(walk.keys["member"].request(method, path, JSON.get(rule.rule)), found)
        form = FORM | {"csrf_token": walk.browser.csrf, "response_id": found, "into": found}
        if method == "GET":
            return comparable(walk.browser.get(path), found)
        # As pages send it: a refusal is then a toast, without the frame of a page that is the same for every id.
        return comparable(walk.browser.open(path, method=method, data=form, headers={"HX-Request": "true"}), found)

    asked, wrong = 0, []
    for rule, method in with_places(app):
        several = len([name for name in rule.arguments if name not in {"tenant", "project", "index"}]) > 1
        for fixed in ({}, known) if several else ({},):
            unknown = ask(rule, method, str(uuid4()), fixed)
            # What is for admins alone refuses before it reads an id.
            for name, found in list(ids_for(rule, ids).items())[: 2 if unknown[0] == 403 else None]:
                asked += 1
                if ask(rule, method, found, fixed) != unknown:
                    wrong.append(f"{method} {rule.rule} tells {name} apart")
    assert not wrong, "\n".join(wrong)
    assert asked > 350


def test_turns_of_a_conversation_are_unknown_under_all_its_names(walk: Walk) -> None:
    root = f"/conversations/{walk.workspace.slug}/default"
    chats = [str(walk.private.ids[name]) for name in ("chat", "stored_chat")] + [walk.private.names["their_chat"]]
    for key in ("member", "admin's key"):
        for chat in chats:
            for turn in (walk.private.names["turn"], "t-1", str(walk.private.ids["message"])):
                for path, body in (
                    (f"turns/{turn}/feedback", {"reaction": "ok"}),
                    (f"turns/{turn}/feedback", {"reaction": None}),
                    ("turns-with-feedbacks", {}),
                    ("turns-with-feedbacks", {"include_turn_log": True}),
                ):
                    found = walk.keys[key].post(f"{root}/{chat}/{path}", body)
                    unknown = walk.keys[key].post(f"{root}/{uuid4()}/{path}", body)
                    assert comparable(found, chat) == comparable(unknown, unknown.request.path.split("/")[4]), (
                        key,
                        path,
                    )
                    assert found.status_code in {400, 404}


def sent_over_the_api(one: str) -> Iterator[tuple[str, str, Any]]:
    """Every way to name something in a query or a body."""
    signal = {"message_id": one, "signal": "edit", "reason": f"I want {WORD}"}
    yield from (
        ("POST", "/api/feedback", {"source_type": "session", "rating": "negative", "session_id": one}),
        ("POST", "/api/feedback", {"source_type": "session", "rating": "negative", "trace_id": one}),
        ("POST", "/api/feedback", {"source_type": "chat", "rating": "negative", "chat_id": one}),
        (
            "POST",
            "/api/feedback",
            {"source_type": "chat", "rating": "negative", "context": {"chat_id": one, "message_index": 1}},
        ),
        (
            "POST",
            "/api/feedback",
            {"source_type": "response", "rating": "negative", "context": {"response_id": one, "field_name": "note"}},
        ),
        (
            "POST",
            "/api/feedback",
            {"source_type": "session", "rating": "negative", "context": {"failure_reason": "f", "event_id": one}},
        ),
        ("POST", "/api/v1/feedback", signal),
        ("POST", "/api/v1/feedback", signal | {"signal": "helpful"}),
        ("POST", "/api/v1/feedback", signal | {"chat_id": one}),
        ("POST", "/api/v1/feedback", signal | {"message_id": f"mine-{one}", "trace_id": one}),
        ("POST", "/api/v1/feedback", {"trace_id": one, "signal": "inaccurate"}),
        ("GET", f"/api/v1/feedback?message_id={one}", None),
        ("GET", f"/api/v1/feedback?chat_id={one}", None),
        ("GET", f"/api/v1/feedback?trace_id={one}", None),
        ("DELETE", f"/api/v1/feedback?message_id={one}&signal=edit", None),
        ("GET", f"/api/v1/sessions?trace_id={one}", None),
        ("GET", f"/api/v1/sessions?external_id={one}", None),
        ("GET", f"/api/v1/chats?external_id={one}", None),
        ("POST", "/api/v1/sessions", {"agent": "elsewhere", "chat_id": one}),
        ("POST", "/api/v1/sessions", {"agent": "elsewhere", "external_id": one, "status": "completed"}),
        ("POST", "/api/v1/sessions", {"agent": "elsewhere", "trace_id": one, "status": "completed"}),
        ("POST", "/api/v1/sessions", {"agent": "elsewhere", "metadata": {"retry_of": one, "copied_from": one}}),
        ("POST", "/api/v1/chats", {"agent": "elsewhere", "external_id": one}),
        (
            "POST",
            "/api/v1/chats",
            {"agent": "elsewhere", "messages": [{"role": "agent", "content": "c", "session_id": one}]},
        ),
        (
            "POST",
            "/api/v1/chats",
            {"agent": "elsewhere", "messages": [{"role": "agent", "content": "c", "external_id": one, "turn_id": one}]},
        ),
        ("POST", "/api/v1/responses", {"entity_id": one, "criteria_set_id": one, "values": {}, "session_id": one}),
        ("GET", f"/api/v1/context?agent={one}", None),
    )


def alike(found: str) -> str:
    """An id of the same shape that nobody has."""
    return re.sub(r"[0-9a-f]{32}", lambda _: uuid4().hex, found) if "-" not in found else str(uuid4())


def test_the_ids_in_a_body_or_a_query_are_unknown(walk: Walk) -> None:
    # What one reader stores under a name, the next may find: so the unknown ids are the same for all of them.
    wrong, nobodys = [], {name: alike(found) for name, found in walk.every_id().items()}
    few = ("chat", "session", "message", "trace", "their_chat", "their_session")
    # These differ from `tool_session` in their type alone.
    alike_sessions = ("chat_session", "agent_session", "response_session", "mixed_session")
    for who, key in walk.keys.items():
        for name, found in walk.every_id().items():
            if name in alike_sessions if who == "member" else name not in few:
                continue
            unknown = nobodys[name]
            for (method, path, body), (_, elsewhere, other) in zip(
                sent_over_the_api(found), sent_over_the_api(unknown), strict=True
            ):
                answers = (
                    comparable(key.request(method, path, body), found),
                    comparable(key.request(method, elsewhere, other), unknown),
                )
                if answers[0] != answers[1]:
                    wrong.append(f"{who}: {method} {path} {body} tells {name} apart: {answers}")
    assert not wrong, "\n".join(wrong)


def test_nothing_given_on_it_shows_anything_later(walk: Walk) -> None:
    """What the reader says about a conversation that is not theirs stays without its texts, on every page of theirs."""
    for found in walk.every_id().values():
        for method, path, body in sent_over_the_api(found):
            if method == "POST" and path.endswith("feedback"):
                comparable(walk.keys["member"].request(method, path, body), found)
    items = walk.keys["member"].get("/api/feedback?limit=100").json["items"]
    assert len(items) > 50
    for item in items:
        assert item["session_id"] is None
        comparable(walk.keys["member"].get(f"/api/feedback/{item['id']}"), "-" * 9)
    for path in ("/feedback/mine", "/api/v1/feedback?limit=100", "/api/feedback?limit=100"):
        comparable(walk.browser.get(path), "-" * 9)


def test_feedback_from_before_shows_nothing_of_it(walk: Walk) -> None:
    """Rows that were linked to another member's conversation when that was possible."""
    ours = walk.private
    with psycopg.connect(walk.superuser_url) as connection:
        for number, (kind, session) in enumerate(
            [("comment", "session"), ("signal", "tool_session"), ("reaction", "copy")]
        ):
            connection.execute(
                "INSERT INTO feedback (tenant_id, source_type, rating, kind, signal, comment, session_id, message_id,"
                " chat_id, turn_id, trace_id, context, created_by) VALUES (%s, 'chat', 'negative', %s, %s, 'Mine',"
                " %s, %s, %s, %s, %s, %s, %s)",
                (
                    walk.workspace.id, kind, "edit" if kind == "signal" else None, ours.ids[session],
                    str(ours.ids["message"]), str(ours.ids["chat"]), ours.names["turn"], ours.names["trace"],
                    json.dumps({"chat_id": str(ours.ids["chat"]), "message_index": number,
                                "retry_ref": str(ours.ids["retry"])}),
                    walk.other.id,
                ),
            )  # fmt: skip
    own = walk.keys["member"].get("/api/feedback?limit=100").json["items"]
    assert len(own) == 3
    for row in own:
        read = walk.keys["member"].get(f"/api/feedback/{row['id']}")
        assert read.status_code == 200
        comparable(read, "-" * 9)
    root = f"/conversations/{walk.workspace.slug}/default"
    period = {"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z", "include_turns": True}
    comparable(walk.keys["member"].post(f"{root}/feedback/conversations-in-period", period), "-" * 9)
    for path in ("/feedback/mine", "/feedback/mine?status=pending", "/palette?q=Mine", "/search?q=Mine"):
        comparable(walk.browser.get(path), "-" * 9)


def test_lists_and_searches_are_without_it(app: Flask, walk: Walk) -> None:
    """Every page and list without an id that a member may open, searched for a word of the other member's texts, for
    each id, and for the eight characters that pages show of some."""
    names = walk.every_id()
    queries = ["", "q=" + WORD, "query=" + WORD, "status=failed", "type=chat", "limit=100"]
    queries += [f"q={found}" for found in names.values()]
    queries += [f"q={names[name][-8:]}" for name in ("chat", "session", "message", "feedback", "their_session")]
    queries += [f"chat_id={names[name]}" for name in ("chat", "stored_chat", "their_chat")]
    queries += [f"trace_id={names['trace']}"]
    for rule in app.url_map.iter_rules():
        found = access.access_of(app, rule.endpoint)
        if rule.arguments or "GET" not in (rule.methods or set()) or found is None or found.level == "public":
            continue
        for query in queries if found.level in {"member", "signed_in"} else queries[:2]:
            response = walk.browser.get(f"{rule.rule}?{query}")
            assert response.status_code < 500, (rule.rule, query)
            assert SECRET not in response.get_data(as_text=True), (rule.rule, query)
    panel = walk.browser.get(f"/entities/{walk.private.entity}").get_data(as_text=True)
    assert SECRET not in panel
    assert "Reads the filing" in panel
    listed = walk.keys["member"].get("/api/v1/sessions?limit=100").json["items"]
    assert [item["id"] for item in listed] == [str(walk.private.shared_session)]
    assert walk.keys["member"].get("/api/v1/chats").json["items"] == []


def test_members_of_the_workspace_see_its_own_work_and_their_own(walk: Walk) -> None:
    """The tests above would pass in an empty house."""
    shared = walk.private.shared_session
    assert "Reads the filing" in walk.browser.get(f"/sessions/{shared}").get_data(as_text=True)
    assert walk.keys["member"].get(f"/api/v1/sessions/{shared}").json["events"]
    victim, key = walk.sign_in(walk.victim), walk.api(walk.victim, "ingest", "feedback")
    admins, whole = walk.sign_in(walk.admin), walk.api(walk.admin, "admin")
    ours = walk.private.ids
    assert SECRET in victim.get(f"/chat/{ours['chat']}").get_data(as_text=True)
    for name in ("session", "tool_session", "mixed_session", "replay", "copy", "retry", "remembering"):
        for browser in (victim, admins):
            page = browser.get(f"/sessions/{ours[name]}")
            assert (page.status_code, SECRET in page.text) == (200, True), name
        assert [one.get(f"/api/v1/sessions/{ours[name]}").status_code for one in (key, whole)] == [200, 200], name
    assert admins.get(f"/sessions/{ours['review']}").status_code == 200
    assert SECRET in key.get(f"/api/feedback/{ours['feedback']}").text


def arguments_of(tool: Tool, one: str) -> dict[str, Any]:
    """The tool's arguments with the id wherever an id or a name may be, and something that fits elsewhere."""
    fits: dict[str, Any] = {
        "content": "c", "query": WORD, "rating": "negative", "action": "dismissed", "notes": "n", "reason": "r",
        "name": "N", "sourceType": "session", "comment": "c", "values": {"note": {"value": "v"}}, "fields": {},
        "changes": {}, "instructions": "i",
    }  # fmt: skip
    given = {}
    for name in tool.parameters["properties"]:
        if name.lower().endswith("id") or name in {"agent", "entityType"}:
            given[name] = one
        elif name in fits:
            given[name] = fits[name]
    return given


def test_tools_know_nothing_of_it(app: Flask, walk: Walk) -> None:
    """Each tool of ours, for the member and for an agent that works for them; and those that a key reaches over MCP."""
    agent = replace(walk.other, agent_id=Desk(app, walk.workspace).agent(**CONFIG))
    for tool in TOOLS:
        for actor in (walk.other, agent):
            for name, found in walk.private.ids.items():
                answers = []
                for one in (str(found), str(uuid4())):
                    with app.app_context():
                        outcome = run_tool(tool, arguments_of(tool, one), ToolScope(actor=actor))
                    text = json.dumps([outcome.output, outcome.is_error], default=str).replace(one, "ID")
                    assert SECRET not in text, (tool.name, name)
                    answers.append(re.sub(*NOISE[2], re.sub(*NOISE[0], text)) if tool.writes else text)
                if tool.name != "listFeedback":
                    assert answers[0] == answers[1], (tool.name, name)
    with app.app_context():
        listing = ToolScope(actor=walk.other)
        given = {"entityId": str(walk.private.entity)}
        outcome = run_tool(next(tool for tool in TOOLS if tool.name == "listResponses"), given, listing)
    assert outcome.output == {"items": []}


def test_mcp_knows_nothing_of_it(walk: Walk) -> None:
    headers = {"Accept": "application/json, text/event-stream"}

    def call(name: str, given: dict[str, Any]) -> TestResponse:
        sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}
        return walk.keys["member"].post("/mcp", sent, headers=headers)

    for name, found in walk.private.ids.items():
        for tool, given in (
            ("getFeedback", {"id": "{}"}),
            ("addFeedback", {"rating": "negative", "sourceType": "session", "sessionId": "{}"}),
            ("addFeedback", {"rating": "negative", "sourceType": "chat", "messageId": "{}"}),
        ):
            answers = []
            for one in (str(found), str(uuid4())):
                response = call(tool, {key: value.format(one) for key, value in given.items()})
                assert response.status_code == 200, response.text
                answers.append(comparable(response, one))
            assert answers[0] == answers[1], (tool, name)
    listed = call("listFeedback", {"limit": 100})
    assert SECRET not in listed.text
    assert listed.json["result"]["isError"] is False


def test_an_agent_does_not_carry_responses_into_a_session_that_all_read(app: Flask, walk: Walk) -> None:
    """An agent that works for an admin sees everybody's responses, but not in a session that every member reads."""
    tool = next(tool for tool in TOOLS if tool.name == "listResponses")
    given = {"entityId": str(walk.private.entity)}
    for session, seen in ((walk.private.shared_session, False), (walk.private.ids["session"], True), (None, True)):
        with app.app_context():
            outcome = run_tool(tool, given, ToolScope(actor=walk.admin, session_id=session))
        assert (SECRET in json.dumps(outcome.output, default=str)) is seen


def test_imports_neither_find_nor_touch_it(walk: Walk) -> None:
    for found in walk.every_id().values():
        answers = []
        for one in (found, f"name-{uuid4().hex}"):
            line = {"external_id": one, "agent": "elsewhere", "messages": [{"role": "user", "content": "Hello"}]}
            sent = walk.keys["member"].client.post(
                "/api/v1/import/messages",
                data=json.dumps(line).encode(),
                headers={"Authorization": f"Bearer {walk.keys['member'].key}", "Content-Type": "application/x-ndjson"},
            )
            answers.append(comparable(sent, one))
        assert answers[0] == answers[1]


def test_an_answer_is_not_repeated_to_who_may_see_less(walk: Walk) -> None:
    """The same request under the same idempotency key, by the same person: first as admin, then with a smaller key."""
    sent = {"agent": "elsewhere", "external_id": walk.private.names["their_session"], "status": "completed"}
    headers = {"Idempotency-Key": "once"}
    first = walk.api(walk.admin, "admin").post("/api/v1/sessions", sent, headers=headers)
    assert SECRET in first.text
    again = walk.keys["admin's key"].post("/api/v1/sessions", sent, headers=headers)
    assert (again.status_code, SECRET in again.text) == (201, False)


def test_every_route_of_a_member_is_walked(app: Flask) -> None:
    """A new route without an id in its address is added to what is sent above, or is a list."""
    sent = {(method, path.split("?")[0]) for method, path, _ in sent_over_the_api("x")}
    elsewhere = {
        "/mcp", "/api/v1/import/messages", "/api/v1/feedback/token", "/chat", "/sign-out", "/workspace",
        "/conversations/<tenant>/<project>/feedback/conversations-in-period", "/account/name", "/account/password",
        "/account/logins/end-others", "/account/memories/delete",
    }  # fmt: skip
    walked = {rule.rule for rule, _ in with_places(app)}
    for rule in app.url_map.iter_rules():
        declared = access.access_of(app, rule.endpoint)
        if declared is None or declared.level not in {"member", "signed_in"} or rule.rule in walked:
            continue
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS", "GET"}:
            assert (method, rule.rule) in sent or rule.rule in elsewhere, f"{method} {rule.rule}"
