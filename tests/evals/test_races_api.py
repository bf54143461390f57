"""Twenty admins and one group of complaints: over HTTP too, exactly one of them decides."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.models import AgentSession, Feedback
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession
from app.services.workspaces import people
from tests.conftest import Api, Workspace

CANDIDATES, GOLDEN = "/api/admin/evals/candidates", "/api/admin/evals/golden"
ADMINS, ROUNDS = 20, 5


@pytest.fixture
def admins(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> list[tuple[UUID, Api]]:
    """Twenty of them, each with a key of their own."""
    system, made = workspace.actor("system"), []
    with app.app_context(), acting_as(system), transaction():
        for number in range(ADMINS):
            email = f"admin-{number}-{workspace.slug}@example.test"
            user = people.create_person(email=email, name=f"Admin {number}", role="admin", actor=system)
            made.append(Actor(user.id, workspace.id, "admin", user.name))
    return [(actor.id, api(actor)) for actor in made]


def complained(app: Flask, workspace: Workspace, prompt: str) -> tuple[UUID, list[UUID]]:
    """A session, and what two people who were unhappy with it said."""
    with app.app_context(), acting_as(workspace.actor()), transaction():
        said = [NewEvent("user.message", {"text": prompt}), NewEvent("agent.message", {"text": "No."})]
        new = NewSession(agent="deal-analyst", status="completed", events=said)
        session_id = session_store.create_session(new, actor=workspace.actor())[0].id
    rows = []
    for who in ("member", "other"):
        actor = workspace.actor(who)
        with app.app_context(), acting_as(actor), transaction():
            given = NewFeedback(
                source_type="session", rating="negative", comment=f"Wrong for {who}", session_id=session_id
            )
            rows.append(feedback_intake.record_feedback(given, actor=actor).id)
    return session_id, rows


def decided(app: Flask, workspace: Workspace, rows: list[UUID]) -> set[Any]:
    with app.app_context(), acting_as(workspace.actor()):
        found = db.session.execute(select(Feedback.status, Feedback.reviewed_by_user_id).where(Feedback.id.in_(rows)))
        return {tuple(row) for row in found}


def test_one_of_twenty_settles_a_group(app: Flask, workspace: Workspace, admins: list[tuple[UUID, Api]]) -> None:
    for turn in range(ROUNDS):
        _, rows = complained(app, workspace, f"Compare round {turn}")

        def settle(number: int, rows: list[UUID] = rows) -> tuple[int, str, UUID]:
            action = "applied" if number % 2 else "dismissed"
            user_id, client = admins[number]
            sent = {"feedbackIds": [str(row) for row in rows], "action": action, "notes": "Decided."}
            answer = client.patch(CANDIDATES, json=sent)
            assert answer.status_code == 200, answer.get_data(as_text=True)
            return answer.get_json()["updated"], action, user_id

        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(settle, range(ADMINS)))
        assert sorted(updated for updated, *_ in said) == [0] * (ADMINS - 1) + [len(rows)]
        [(_, action, winner)] = [one for one in said if one[0]]
        assert decided(app, workspace, rows) == {(action, winner)}


def test_promoting_and_dismissing_one_group_leaves_it_in_one_piece(
    app: Flask, workspace: Workspace, admins: list[tuple[UUID, Api]]
) -> None:
    """Half of them promote the session with the complaints about it, half dismiss them."""
    for turn in range(ROUNDS):
        session_id, rows = complained(app, workspace, f"Promote round {turn}")
        ids = [str(row) for row in rows]

        def act(number: int, session_id: UUID = session_id, ids: list[str] = ids) -> tuple[str, int, UUID]:
            user_id, client = admins[number]
            if number % 2:
                sent: dict[str, Any] = {
                    "sessionId": str(session_id),
                    "feedbackIds": ids,
                    "expected": {"mentions": ["1"]},
                }
                return "promote", client.post(GOLDEN, json=sent).status_code, user_id
            answer = client.patch(CANDIDATES, json={"feedbackIds": ids, "action": "dismissed", "notes": "No."})
            return "dismiss", answer.get_json()["updated"], user_id

        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(act, range(ADMINS)))
        promoted = [user_id for what, code, user_id in said if (what, code) == ("promote", 201)]
        dismissed = [user_id for what, count, user_id in said if what == "dismiss" and count]
        refused = [code for what, code, _ in said if what == "promote" and code != 201]
        assert len(promoted) + len(dismissed) == 1, "one of them wins, and the others are told"
        assert set(refused) == {409}
        assert decided(app, workspace, rows) == (
            {("dismissed", dismissed[0])} if dismissed else {("applied", promoted[0])}
        ), "never half applied and half dismissed"
        with app.app_context(), acting_as(workspace.actor()):
            kept = db.session.get_one(AgentSession, session_id).meta.get("golden")
        assert [str(one) for one in promoted] == ([kept["promoted_by"]] if kept else [])


def test_promoting_says_how_many_of_the_complaints_it_settled(
    app: Flask, workspace: Workspace, api: Callable[..., Api]
) -> None:
    admin = api(workspace.actor("admin"))
    session_id, rows = complained(app, workspace, "Which deal closes next?")
    body = {"sessionId": str(session_id), "recorded_is_right": True}
    unknown = str(uuid4())
    assert admin.post(GOLDEN, {**body, "feedbackIds": [unknown]}).status_code == 409
    made = admin.post(GOLDEN, {**body, "feedbackIds": [*map(str, rows), unknown]})
    assert (made.status_code, made.json["updated"]) == (201, 2)
    assert {status for status, _ in decided(app, workspace, rows)} == {"applied"}
