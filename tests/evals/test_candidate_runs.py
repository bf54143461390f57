"""Candidates page by page, and those whose sessions failed: run again, and promoted once that worked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Problem
from app.jobs.executor import Executor
from app.models import Agent, AgentSession, AuditEntry, Feedback
from app.services.agents import versions
from app.services.evals import candidates, golden_lists
from app.services.evals import candidates as eval_candidates
from tests.agents.running import Desk
from tests.conftest import Api, Workspace, soup
from tests.evals.test_golden import complain
from tests.evals.test_pages import HTMX, SignIn, asked_session, send
from tests.loopback_model import LoopbackModel, say

URL = "/admin/agent-review/evals"
API = "/api/admin/evals/candidates"
PROMPT = "Which accounts had no touch?"


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def test_candidates_are_walked_through_with_a_cursor(
    app: Flask, workspace: Workspace, admin: Api, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = workspace.actor()
    for number in range(7):
        session_id = asked_session(app, person, f"Question {number}")
        for who in ("member", "other", "admin")[: 1 + number % 3]:
            complain(app, workspace.actor(who), session_id)
    whole = admin.get(API).json
    assert (len(whole["items"]), whole["total"], whole["next_cursor"]) == (7, 7, None)
    walked: list[Any] = []
    url = f"{API}?limit=2"
    for _ in range(4):
        page = admin.get(url).json
        walked += page["items"]
        url = f"{API}?limit=2&cursor={page['next_cursor']}"
        if len(walked) == 4:
            # What comes in meanwhile stands before this place and moves nothing behind it.
            complain(app, person, asked_session(app, person, "Question 2"))
    assert page["next_cursor"] is None
    assert [one["prompt"] for one in walked] == [one["prompt"] for one in whole["items"]]
    for wrong in ("x", "bm8", "LTF8eHx8"):
        assert admin.get(f"{API}?cursor={wrong}").status_code == 400
    monkeypatch.setattr(candidates, "MAX_GROUPS", 3)
    client, seen = sign_in(person), []
    html = soup(client.get(f"{URL}?all=1"))
    while True:
        seen += [row.text.strip() for row in html.select("[data-row] td.u-main")]
        link = html.select_one("#candidates-next a")
        if link is None:
            break
        answer = client.get(link["href"].partition("#")[0])
        assert answer.status_code == 200, answer.text
        plain = soup(answer)
        assert "Show from the start" in plain.select_one("#candidates").text
        html = soup(client.get(link["hx-get"], headers=HTMX))
        assert not html.select("h1")
        assert len(plain.select("#candidates [data-row]")) == len(html.select("[data-row]"))
    assert len(seen) == len(set(seen)) == 7


class Office:
    """An agent whose model is down, and a candidate of its failure."""

    def __init__(self, app: Flask, workspace: Workspace, model: LoopbackModel, executor: Executor) -> None:
        self.app, self.workspace, self.model, self.executor = app, workspace, model, executor
        self.admin = workspace.actor("admin")
        self.desk = Desk(app, workspace)
        self.agent = self.desk.agent(model="openai:loopback", instructions="Be brief.")
        model.mode = "status 401"
        self.failed = self.desk.ask(PROMPT)
        executor.drain()
        assert self.desk.look(self.failed).session.status == "failed"

    def candidate(self) -> candidates.Candidate:
        with self.app.app_context(), acting_as(self.admin):
            (found,) = candidates.list_candidates(actor=self.admin).items
            return found

    def work(self) -> None:
        self.model.mode = "script"
        self.executor.drain()


@pytest.fixture
def office(app: Flask, workspace: Workspace) -> Iterator[Office]:
    executor = Executor(app, slots=2)
    executor.drain()
    with LoopbackModel(say("Norrland Freight had none.")) as model:
        executor.settings = replace(executor.settings, openai_base_url=model.base_url)
        yield Office(app, workspace, model, executor)
    executor.stop()


def test_a_failed_candidate_runs_again_and_is_promoted(office: Office, admin: Api, sign_in: SignIn) -> None:
    office.desk.agent(model="openai:loopback", instructions="Be very brief.")
    client = sign_in(office.admin)
    row = soup(client.get(URL)).select_one(f"#candidate-{office.failed}")
    assert "Run again" in row.text
    assert "Promote" not in row.text

    started = send(client, f"/candidates/{office.failed}/run-again", HTMX)
    assert started.status_code == 200
    rerun = rerun_of(office)
    assert (rerun.status, rerun.created_by, rerun.turns) == ("pending", office.admin.id, [PROMPT])
    row = soup(client.get(URL)).select_one(f"#candidate-{office.failed}")
    assert row.select_one(f"a[href$='{rerun.id}']").text == "Running…"
    assert row["hx-trigger"] == "every 3s"
    again = admin.post(f"{API}/{office.failed}/run-again", {})
    assert (again.status_code, again.json["detail"]) == (409, "This candidate is already running again.")

    office.work()
    shown = soup(client.get(f"{URL}/candidates/{office.failed}?put=away", headers=HTMX))
    assert shown.select_one("tbody")["id"] == f"candidate-{rerun.id}"
    assert "Promote…" in shown.text
    (item,) = admin.get(API).json["items"]
    assert item["representativeSessionId"] == str(rerun.id)
    form = soup(client.get(f"{URL}/candidates/{rerun.id}", headers=HTMX))
    assert "negative feedback" not in form.select_one("form.u-inplace").text
    assert "Resolves 1 pending signal" in form.text
    done = send(client, f"/candidates/{rerun.id}/promote", HTMX, set="touches")
    assert done.status_code == 200
    assert "1 signal applied" in done.text
    with office.app.app_context(), acting_as(office.admin):
        kept = golden_lists.get_golden(rerun.id, actor=office.admin)
        assert (kept.set_name, kept.baseline_rejected, kept.agent_version) == ("touches", False, 2)
        assert db.session.scalars(select(Feedback.status)).all() == ["applied"]
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == rerun.id)).all()
        assert "candidate.run_again" in actions
    assert admin.get(API).json["items"] == []


def test_over_the_api_it_runs_again_and_its_feedback_is_resolved(office: Office, admin: Api) -> None:
    started = admin.post(f"{API}/{office.failed}/run-again", {})
    assert (started.status_code, started.json["status"]) == (202, "pending")
    (item,) = admin.get(API).json["items"]
    assert item["representativeSessionId"] == str(office.failed), "until it has completed"
    office.work()
    (item,) = admin.get(API).json["items"]
    assert item["representativeSessionId"] == started.json["sessionId"]
    body = {"sessionId": item["representativeSessionId"], "feedbackIds": item["feedbackIds"]}
    made = admin.post("/api/admin/evals/golden", body)
    assert (made.status_code, made.json["updated"], made.json["baselineRejected"]) == (201, 1, False)


def test_what_fails_again_can_run_again(office: Office, admin: Api) -> None:
    admin.post(f"{API}/{office.failed}/run-again", {})
    office.executor.drain()
    found = office.candidate()
    assert (found.occurrence_count, found.can_run_again, found.rerun) == (2, True, None)
    assert found.representative_session_id != office.failed
    assert admin.post(f"{API}/{office.failed}/run-again", {}).status_code == 202


def test_where_it_cannot_run_again_nothing_is_offered(
    office: Office, admin: Api, api: Callable[..., Api], sign_in: SignIn
) -> None:
    path = f"{API}/{office.failed}/run-again"
    assert api(office.workspace.actor("member"), "feedback").post(path, {}).status_code == 403
    assert admin.post(f"{API}/{office.agent}/run-again", {}).status_code == 404
    client = sign_in(office.admin)
    for kind, sentence in (("external", "runs outside Upshot"), ("endpoint", "repeat its real actions")):
        with office.app.app_context(), acting_as(office.admin), transaction():
            db.session.get_one(Agent, office.agent).kind = kind
        refused = admin.post(path, {})
        assert (refused.status_code, sentence in refused.json["detail"]) == (409, True)
        assert "Run again" not in soup(client.get(URL)).select_one("#candidates").text
    with office.app.app_context(), acting_as(office.admin), transaction():
        db.session.get_one(Agent, office.agent).kind = "builtin"
        versions.archive_agent(office.agent, actor=office.admin)
    assert admin.post(path, {}).status_code == 409
    assert "Run again" not in soup(client.get(URL)).select_one("#candidates").text


def test_of_several_who_press_at_once_one_starts_it(office: Office) -> None:
    def press(_: int) -> bool:
        with office.app.app_context(), acting_as(office.admin):
            try:
                with transaction():
                    eval_candidates.run_again(office.failed, actor=office.admin)
            except Problem:
                return False
            return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(press, range(4))) == 1
    office.work()


def test_a_mark_from_outside_is_refused(office: Office, admin: Api) -> None:
    body = {"agent": "far-away", "metadata": {"rerun_of": str(office.failed)}, "status": "completed"}
    assert admin.post("/api/v1/sessions", body).status_code == 400


def rerun_of(office: Office) -> Any:
    with office.app.app_context(), acting_as(office.admin):
        meta = AgentSession.meta
        return db.session.execute(
            select(AgentSession.id, AgentSession.status, AgentSession.created_by, meta["turns"].label("turns")).where(
                AgentSession.tenant_id == office.workspace.id, meta["rerun_of"].astext == str(office.failed)
            )
        ).one()


def test_a_completed_session_represents_its_group(app: Flask, workspace: Workspace) -> None:
    """Where one of the sessions completed, that one can be promoted; a failure after it changes nothing."""
    person = workspace.actor()
    completed: UUID = asked_session(app, person)
    complain(app, person, completed)
    complain(app, person, asked_session(app, person, status="failed"))
    with app.app_context(), acting_as(person):
        (found,) = candidates.list_candidates(actor=person).items
    assert (found.representative_session_id, found.promotable, found.can_run_again) == (completed, True, False)
