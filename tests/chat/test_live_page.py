"""Talking to an agent: said, answered, stopped, asked again; one answer at a time, and nobody else's conversation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import func, select, update

from app.db import acting_as, db, transaction
from app.models import AgentSession, Feedback, Message, SharedContext
from app.services.agents import versions
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.entities import store as entity_store
from app.services.sessions import leases
from app.services.sessions.leases import Lease, RunOutcome
from tests.agents.running import Desk
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
Run = Callable[[], int]
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
HELLO = "Which records are there?"


class Person:
    """Someone of the workspace at a browser, in a conversation."""

    def __init__(self, app: Flask, workspace: Workspace, client: FlaskClient, by: str = "member") -> None:
        self.app = app
        self.workspace = workspace
        self.client = client
        self.actor = workspace.actor(by)
        self.chat = ""

    def post(self, path: str, *, htmx: bool = False, **form: Any) -> Any:
        data = {"csrf_token": self.client.csrf, **form}  # type: ignore[attr-defined]
        return self.client.post(path, data=data, headers=HTMX if htmx else {})

    def begin(self, message: str = HELLO, agent: str = "assistant") -> Any:
        answer = self.post("/chat", agent=agent, message=message)
        if answer.status_code == 303:
            self.chat = answer.location
        return answer

    def say(self, message: str, **more: Any) -> Any:
        return self.post(f"{self.chat}/messages", message=message, **more)

    def again(self, **more: Any) -> Any:
        return self.post(f"{self.chat}/again", **more)

    def stop(self, **more: Any) -> Any:
        return self.post(f"{self.chat}/stop", **more)

    def page(self, query: str = "") -> Any:
        return soup(self.client.get(self.chat + query))

    def poll(self, run: Any) -> Any:
        return self.client.get(run["hx-get"], headers=HTMX)

    def read(self, *columns: Any, **where: Any) -> list[Any]:
        with self.app.app_context(), acting_as(self.workspace.actor("admin")), transaction():
            table = columns[0].class_
            wanted = select(*columns).where(table.tenant_id == self.workspace.id).filter_by(**where)
            return list(db.session.execute(wanted.order_by(table.created_at)))

    def messages(self) -> list[Any]:
        columns = (
            Message.role,
            Message.content,
            Message.turn_id,
            Message.session_id,
            Message.trace_id,
            Message.details,
        )
        return self.read(*columns, chat_id=UUID(self.chat.rsplit("/", 1)[-1]))

    def sessions(self) -> list[Any]:
        columns = (AgentSession.id, AgentSession.status, AgentSession.trace_id, AgentSession.session_type)
        return self.read(*columns, chat_id=UUID(self.chat.rsplit("/", 1)[-1]))

    def hold(self) -> Lease:
        """Take the waiting session up, as an executor does, and leave it running."""
        found = self.sessions()[-1].id
        with self.app.app_context(), acting_as(self.workspace.actor("system")), transaction():
            db.session.execute(
                update(AgentSession)
                .where(AgentSession.id == found)
                .values(
                    status="running",
                    lease_owner="t",
                    attempt=1,
                    lease_until=func.now() + func.make_interval(0, 0, 0, 0, 1),
                )
            )
        return Lease(found, self.workspace.id, "t", 1)

    def within(self, work: Callable[[], Any]) -> Any:
        with self.app.app_context(), acting_as(self.workspace.actor("system")), transaction():
            return work()


@pytest.fixture
def person(app: Flask, workspace: Workspace, sign_in: SignIn) -> Person:
    Desk(app, workspace).agent(instructions="Help.", tool_groups=["context", "entities-read"])
    return Person(app, workspace, sign_in(workspace.actor("member")))


def test_a_conversation_from_the_form_to_the_feedback(person: Person, run_sessions: Run) -> None:
    begun = person.begin()
    assert begun.status_code == 303
    page = person.page()
    assert page.select_one("#talk").text.count(HELLO) == 1
    assert page.select_one("#writing")["aria-busy"] == "true"
    assert page.select_one("noscript meta[http-equiv=refresh]") or 'http-equiv="refresh"' in str(page.head)
    assert page.select_one("#stop-it")
    assert not page.select_one("#send-it")

    run_sessions()
    answer = person.poll(page.select_one("#run"))
    assert answer.status_code == 200
    part = soup(answer)
    assert part.select_one("[hx-swap-oob='beforeend:#talk'] #m-1")
    assert "offline model: follows rules, no language model" in part.select_one("#m-1").text
    assert part.select_one("#spoken").text.startswith("Assistant: ")
    assert part.select_one("#send #send-it")
    asked, said = person.messages()
    (session,) = person.sessions()
    assert (asked.role, said.role, session.status, session.session_type) == ("user", "agent", "completed", "chat")
    assert asked.turn_id == said.turn_id
    assert asked.session_id == said.session_id == session.id
    assert len(session.trace_id) == 32
    assert asked.trace_id == said.trace_id == session.trace_id

    person.post(f"{person.chat}/messages/1/thumb", signal="not_helpful", do="give")
    columns = (Feedback.session_id, Feedback.turn_id, Feedback.trace_id, Feedback.agent_id, Feedback.source_type)
    (row,) = person.read(*columns, signal="not_helpful")
    assert (row.session_id, row.turn_id, row.trace_id) == (session.id, said.turn_id, session.trace_id)
    assert row.agent_id is not None
    assert row.source_type == "chat"


def test_nothing_new_is_an_empty_answer(person: Person, run_sessions: Run, count_queries: Callable[[], Any]) -> None:
    person.begin()
    run = person.page().select_one("#run")
    assert int(run["data-follow"]) <= 500
    with count_queries() as seen:
        assert person.poll(run).status_code == 204
    assert len(seen) == 1
    run_sessions()
    part = soup(person.poll(run))
    quiet = part.select_one("#run")
    assert int(quiet["data-follow"]) >= 4000
    assert person.poll(quiet).status_code == 204
    assert part.select_one("#run button").text == "Answer again"
    assert person.client.get(run["hx-get"]).location == f"{person.chat}#run", "without htmx it is the page"


def test_two_tabs_see_the_same(person: Person, run_sessions: Run) -> None:
    person.begin()
    run_sessions()
    there = person.page().select_one("#run")
    here = soup(person.say("And how many?", htmx=True, after="1"))
    assert here.select_one("[hx-swap-oob='beforeend:#talk'] #m-2").text.strip().endswith("And how many?")
    other = soup(person.poll(there))
    assert other.select_one("#m-2")
    assert not other.select_one("#m-1"), "what the page has is not sent again"
    assert other.select_one("#writing")


def test_one_answer_at_a_time(person: Person, run_sessions: Run) -> None:
    person.begin()
    second = person.say("Hurry up", htmx=True, after="0")
    assert second.status_code == 409
    assert "still in progress" in soup(second).select_one("#send .invalid-feedback").text
    assert person.again(htmx=True).status_code == 409
    assert person.say("Hurry up").status_code == 303
    assert "still in progress" in person.page().select_one("#toasts").text
    assert len(person.messages()) == 1
    run_sessions()

    def send(number: int) -> int:
        return int(person.say(f"Question {number}", htmx=True).status_code)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, range(4)))
    assert sorted(answers) == [200, 409, 409, 409]
    run_sessions()
    assert [message.role for message in person.messages()] == ["user", "agent", "user", "agent"]


def test_another_answer_keeps_the_first_and_is_a_weak_signal(person: Person, run_sessions: Run) -> None:
    person.begin()
    run_sessions()
    old = person.page().select_one("#run")
    assert person.again(htmx=True, after="1").status_code == 200
    run_sessions()
    asked, first, second = person.messages()
    assert asked.turn_id == first.turn_id == second.turn_id
    assert first.session_id != second.session_id
    assert second.details["instead_of"] == 1
    (row,) = person.read(Feedback.session_id, Feedback.rating, Feedback.message_id, signal="regenerate")
    assert (row.session_id, row.rating) == (first.session_id, "negative")

    part = soup(person.poll(old))
    assert part.select_one("#message-1[hx-swap-oob=delete]")
    assert "Answer 2 of 2" in part.select_one("#message-1:not([hx-swap-oob])").text
    page = person.page()
    assert not page.select_one("#m-1")
    assert not page.select_one("#m-2 .u-own"), "what was said about the first answer is not about the second"
    link = page.select_one("#m-2 .u-others a")
    assert link["aria-label"] == "Previous answer"
    shown = soup(person.client.get(link["hx-get"], headers=HTMX))
    assert "Answer 1 of 2" in shown.select_one("#message-1 #m-1").text
    assert "Asked for another answer" in shown.text
    whole = person.page("?answer=1")
    assert whole.select_one("#m-1")
    assert not whole.select_one("#m-2")
    person.post(f"{person.chat}/messages/2/thumb", signal="helpful", do="give")
    assert person.page().select_one("#helpful-m-2")["aria-pressed"] == "true"
    assert person.page("?at=1").select_one("#helpful-m-1")["aria-pressed"] == "false"


def test_the_next_run_knows_only_the_latest_answer(app: Flask, person: Person, run_sessions: Run) -> None:
    from app.services.runtime.inputs import load_inputs

    person.begin()
    run_sessions()
    person.again()
    run_sessions()
    person.say("Go on")
    lease = person.hold()
    work = person.within(lambda: load_inputs(leases.hold(lease)))
    assert [role for role, _ in work.earlier] == ["user", "agent"]
    person.within(
        lambda: leases.end(leases.hold(lease), RunOutcome(status="cancelled"), actor=person.workspace.actor("system"))
    )


def test_stopped_while_it_waits_and_while_it_writes(person: Person, run_sessions: Run) -> None:
    person.begin()
    stopped = soup(person.stop(htmx=True, after="0"))
    assert "Stopped before the answer started." in stopped.select_one("#run").text
    assert person.sessions()[0].status == "cancelled"
    assert run_sessions() == 0
    assert person.stop(htmx=True).status_code == 200, "stopping what has ended changes nothing"

    person.again()
    assert not person.read(Feedback.id, signal="regenerate"), "there was no answer to be unhappy with"
    lease = person.hold()
    person.within(lambda: leases.write_draft(lease, "Halden is **worth**"))
    page = person.page()
    assert page.select_one("#writing strong").text == "worth"
    stopping = soup(person.stop(htmx=True, after="0"))
    assert stopping.select_one("#stop-it[disabled]").text == "Stopping"
    system = person.workspace.actor("system")
    person.within(lambda: leases.end(leases.hold(lease), RunOutcome(status="cancelled"), actor=system))
    said = person.messages()[-1]
    assert (said.role, said.content) == ("agent", "Halden is **worth**")
    assert said.details == {"stopped": True}
    assert said.turn_id == person.messages()[0].turn_id
    shown = soup(person.poll(page.select_one("#run")))
    assert "stopped" in shown.select_one("#m-1 .u-who").text
    person.again()
    assert not person.read(Feedback.id, signal="regenerate"), "who stops an answer did not judge it"
    run_sessions()
    assert "Answer 2 of 2" in person.page().text


def test_a_failure_says_what_to_set_and_can_be_tried_again(
    app: Flask, workspace: Workspace, person: Person, run_sessions: Run
) -> None:
    with app.app_context(), acting_as(workspace.actor()), transaction():
        agent = versions.ensure_agent("assistant", actor=workspace.actor())
        versions.save_version(agent.id, {"model": "openai:gpt-5"}, actor=workspace.actor())
    person.begin()
    run = person.page().select_one("#run")
    run_sessions()
    part = soup(person.poll(run))
    fault = part.select_one("#run .u-fault")
    assert "Set OPENAI_API_KEY" in fault.text
    assert fault.select_one("button").text == "Try again"
    assert "No answer" in part.select_one("#spoken").text
    with app.app_context(), acting_as(workspace.actor()), transaction():
        versions.save_version(agent.id, {"model": "offline"}, actor=workspace.actor())
    person.again()
    run_sessions()
    assert [row.status for row in person.sessions()] == ["failed", "completed"]
    assert [row.role for row in person.messages()] == ["user", "agent"]
    assert not person.read(Feedback.id, signal="regenerate")


def test_a_question_without_an_answer_says_why_for_ever(person: Person, run_sessions: Run) -> None:
    person.begin("First")
    person.stop()
    person.say("Second")
    run_sessions()
    assert "No answer: it was stopped." in person.page().select_one("#m-0").text


def test_what_does_not_fit(app: Flask, workspace: Workspace, person: Person, sign_in: SignIn) -> None:
    empty = person.begin(" ")
    assert empty.status_code == 422
    assert soup(empty).select_one("#say[aria-invalid=true]")
    missing = person.begin("Hello", agent="nobody")
    assert missing.status_code == 404
    assert "Hello" in soup(missing).select_one("#say").text
    with app.app_context(), acting_as(workspace.actor()), transaction():
        versions.ensure_agent("elsewhere", actor=workspace.actor(), kind="external")
        chat = chat_store.create_chat(actor=person.actor, agent_slug="elsewhere", title="Told", user_id=person.actor.id)
        chat_store.append_messages(chat.id, [NewMessage(role="user", content="Hi")], actor=person.actor)
        chat_id = chat.id
    assert person.begin("Hello", agent="elsewhere").status_code == 409
    assert person.begin("Hello", agent="feedback-review-agent").status_code in (404, 409)
    page = soup(person.client.get("/chat"))
    assert [box["value"] for box in page.select("input[name=agent]")] == ["assistant"]
    assert "Help" not in page.text
    assert "reads records" in page.select_one(".u-partner").text
    assert "offline model" in page.select_one(".u-partner").text

    told = soup(person.client.get(f"/chat/{chat_id}"))
    assert not told.select_one("#composer")
    assert "outside Upshot" in told.text
    assert person.post(f"/chat/{chat_id}/messages", message="Hi", htmx=True).status_code == 409
    person.begin()
    assert person.say("x" * 70_000, htmx=True).status_code in (409, 413, 422)

    other = Person(app, workspace, sign_in(workspace.actor("other")), "other")
    other.chat = person.chat
    for answer in (other.say("Mine"), other.again(), other.stop(), other.client.get(f"{person.chat}/run")):
        assert answer.status_code == 404
    admin = Person(app, workspace, sign_in(workspace.actor("admin")), "admin")
    assert admin.client.get(person.chat).status_code == 404
    assert admin.client.get(person.chat.replace("/chat", "/admin/agent-review/conversations")).status_code == 200
    assert person.post(f"/chat/{uuid4()}/messages", message="Hi").status_code == 404


def test_no_agent_to_talk_to(workspace: Workspace, sign_in: SignIn) -> None:
    for role, words in (("member", "Ask an admin"), ("admin", "Create an agent")):
        page = soup(sign_in(workspace.actor(role)).get("/chat"))
        assert words in page.text
        assert not page.select_one("#new")


def test_ingested_messages_start_nothing(person: Person, api: Callable[..., Any], run_sessions: Run) -> None:
    person.begin()
    run_sessions()
    key = api(person.actor, "ingest")
    chat_id = person.chat.rsplit("/", 1)[-1]
    sent = key.post(f"/api/v1/chats/{chat_id}/messages", {"messages": [{"role": "user", "content": "Hello?"}]})
    assert sent.status_code in (200, 201)
    assert len(person.sessions()) == 1


def test_the_page_of_a_running_conversation_asks_at_most_eight_questions(
    person: Person, count_queries: Callable[[], Any], run_sessions: Run
) -> None:
    person.begin()
    for _ in range(2):
        with count_queries() as seen:
            person.page()
        assert len(seen) <= 8, seen
        run_sessions()


def test_a_routing_row_changes_the_tool_of_the_next_message_and_back(
    app: Flask, workspace: Workspace, person: Person, sign_in: SignIn, run_sessions: Run
) -> None:
    with app.app_context(), acting_as(workspace.actor()), transaction():
        entity_store.create_type(slug="deal", name="Deal", fields={}, actor=workspace.actor())
        entity_store.create_entity(entity_type="deal", name="Kestrel", fields={}, actor=workspace.actor())
    admin = Person(app, workspace, sign_in(workspace.actor("admin")), "admin")
    question = "Search entities for Kestrel"

    def tool_of_the_answer() -> str:
        run_sessions()
        return str(person.page().select("#talk .u-moment")[-1].select_one(".u-tool b").text)

    person.begin(question)
    usual = tool_of_the_answer()
    assert usual == "searchEntities"

    tab = "/admin/agent-review/knowledge"
    rule = "Use listEntities instead of searchEntities"
    added = admin.post(tab, content=rule, type="routing", context="search entities", agent_id="", entity_type_id="")
    assert added.status_code == 303
    person.say(question)
    assert tool_of_the_answer() == "listEntities"

    (row,) = admin.read(SharedContext.id, content=rule)
    off = admin.post(f"{tab}/{row.id}/state", state="inactive", reason="It hides what was searched for")
    assert off.status_code == 303
    person.say(question)
    assert tool_of_the_answer() == usual
