"""The demo workspace: whole, believable, made once, and new again on demand."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask import Flask
from sqlalchemy import func, select

from app.cli import command
from app.config import Settings
from app.db import act_as, db, transaction
from app.db.boot import Opened
from app.demo.reset import reset
from app.demo.seed import seed
from app.demo.talks import expand, read_remark, read_talks
from app.demo.world import talks
from app.errors import Unusable
from app.models import (
    AgentSession,
    AgentVersion,
    Chat,
    Entity,
    EntityResponse,
    Feedback,
    Membership,
    Message,
    SessionEvent,
    SharedContext,
    SharedContextFeedback,
    SharedContextUsage,
    User,
)
from app.models.feedback import KINDS, ORIGINS, SIGNALS, SOURCES, STATUSES
from app.models.knowledge import KNOWLEDGE_STATES, KNOWLEDGE_TYPES
from app.models.sessions import SESSION_STATUSES, SESSION_TYPES
from app.services import accounts, comparisons, feedback, workspaces
from app.services.filters import FeedbackFilters
from app.services.pages import Page

# One worker, so that the demo is made once.
pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def place(server: Any, template: str) -> Iterator[str]:
    """A database of its own: other tests may have a demo too."""
    name = f"demo_{secrets.token_hex(6)}"
    with server.alone(7302):
        server.copy(template, name)
    server.prepare(name)
    yield name
    server.drop(name)


@pytest.fixture(scope="module")
def demo_app(server: Any, place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    from app import create_app

    settings = Settings(data_dir_text=str(tmp_path_factory.mktemp("data")), threads_text="2")
    opened = Opened(server.conninfo("app", place), secrets.token_urlsafe(48), server.conninfo("owner", place))
    app = create_app(settings, opened)
    with app.app_context():
        made = seed()
    app.config["MADE"] = made
    yield app
    with app.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def demo(demo_app: Flask) -> Iterator[Any]:
    """In the demo, as its system user."""
    with demo_app.app_context():
        with transaction():
            actor = accounts.system_in(workspaces.find_workspace("demo"))
        act_as(actor)
        yield actor


def values(column: Any) -> set[Any]:
    return set(db.session.scalars(select(column).distinct()))


def test_a_second_seed_says_it_is_there(demo_app: Flask) -> None:
    made = demo_app.config["MADE"]
    assert made["created"] is True
    with demo_app.app_context():
        again = seed()
    assert again == made | {"created": False}
    assert again["people"] == 9
    assert again["sessions"] >= 40
    assert again["feedback"] >= 110


def test_people_have_no_password_and_the_roles_they_are_promised(demo: Any) -> None:
    rows = db.session.execute(
        select(User.email, Membership.role, User.password_hash)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.role != "system")
    ).all()
    roles = {email: role for email, role, _ in rows}
    assert roles["admin@demo.test"] == "admin"
    assert roles["owner@demo.test"] == "owner"
    assert roles["member@demo.test"] == "member"
    assert all(password is None for _, _, password in rows)


def test_feedback_comes_in_every_form(demo: Any) -> None:
    assert values(Feedback.source_type) == set(SOURCES)
    assert values(Feedback.status) == set(STATUSES)
    assert values(Feedback.origin) == set(ORIGINS)
    assert values(Feedback.rating) == {"positive", "negative", "neutral"}
    assert values(Feedback.signal) == {None, *SIGNALS}
    assert values(Feedback.kind) == set(KINDS) - {"replay_failure"}, "there are no replays yet"
    by_status = Counter(db.session.scalars(select(Feedback.status)))
    assert min(by_status.values()) >= 5
    page = feedback.list_feedback(FeedbackFilters(), Page(25), actor=demo)
    assert page.next_cursor is not None
    assert page.count >= 110


def test_every_decision_has_its_reason(demo: Any) -> None:
    rows = db.session.scalars(select(Feedback)).all()
    for row in rows:
        assert row.status != "applied" or row.outcome["kind"] in ("knowledge", "retry", "manual"), row.comment
        assert row.status != "dismissed" or row.review_notes
    edits = [row for row in rows if row.signal == "edit"]
    assert len(edits) == 2
    assert all(0 < row.details["output_review"]["edit_distance"] < 100 for row in edits)
    failed = select(func.count()).select_from(AgentSession).where(AgentSession.status == "failed")
    assert db.session.scalar(failed) == sum(row.kind == "session_failure" for row in rows)


def test_knowledge_has_every_type_state_and_scope(demo: Any) -> None:
    assert values(SharedContext.type) == set(KNOWLEDGE_TYPES)
    assert values(SharedContext.state) == set(KNOWLEDGE_STATES)
    rows = db.session.execute(select(SharedContext.agent_id, SharedContext.entity_type_id).where(SharedContext.active))
    scopes = {(agent is not None, entity_type is not None) for agent, entity_type in rows}
    assert scopes == {(True, True), (True, False), (False, True), (False, False)}
    linked = db.session.scalar(select(func.count(SharedContextFeedback.shared_context_id.distinct()))) or 0
    assert linked >= 15
    applied = select(Feedback.id).where(Feedback.outcome["kind"].astext == "knowledge")
    behind = set(db.session.scalars(select(SharedContextFeedback.feedback_id)))
    assert set(db.session.scalars(applied)) <= behind
    used = db.session.scalar(select(func.sum(SharedContextUsage.injected))) or 0
    assert used > 100


def test_sessions_come_in_every_type_and_state(demo: Any) -> None:
    assert values(AgentSession.session_type) == set(SESSION_TYPES)
    assert values(AgentSession.status) == set(SESSION_STATUSES)
    tags = Counter(tag for row in db.session.scalars(select(AgentSession.tags)) for tag in row)
    assert min(tags[name] for name in ("pe-analyst", "sales-ops", "first-time-admin")) >= 8
    rows = db.session.execute(
        select(AgentSession.duration_ms, AgentSession.cost, AgentSession.input_tokens).where(
            AgentSession.status.in_(("completed", "failed")), AgentSession.model.is_not(None)
        )
    ).all()
    assert all(duration and cost and tokens for duration, cost, tokens in rows)
    versions = Counter(db.session.scalars(select(AgentSession.agent_version_id)))
    assert len(versions) == db.session.scalar(select(func.count()).select_from(AgentVersion)) - 1, (
        "every version but the review agent's was at work"
    )


def test_calls_and_results_belong_together(demo: Any) -> None:
    inferred = 0
    for session_id in db.session.scalars(select(AgentSession.id)):
        events = db.session.execute(
            select(SessionEvent.event_type, SessionEvent.payload)
            .where(SessionEvent.session_id == session_id)
            .order_by(SessionEvent.occurred_at, SessionEvent.sequence)
        ).all()
        called: dict[str, str] = {}
        for event_type, payload in events:
            if event_type == "tool.call":
                called[payload["id"]] = payload["name"]
            if event_type == "tool.result":
                assert called[payload["call_id"]] == payload["name"]
                inferred += payload.get("is_error_inferred", False)
        assert events[0].event_type == "user.message"
    assert inferred == 1


def test_records_agree_with_what_was_done_to_them(demo: Any) -> None:
    fields: dict[str, Any] = dict(list(db.session.execute(select(Entity.name, Entity.fields))))
    assert fields["Halden Logistics"]["valuation"] == 14.5
    assert fields["Halden Health"]["valuation"] == 8.2
    assert fields["Sofie Brandt"]["title"] == "COO"
    statuses = Counter(db.session.scalars(select(EntityResponse.status)))
    assert statuses["rejected"] >= 5
    assert statuses["accepted"] >= 2


def test_everything_lies_in_the_last_two_months(demo: Any) -> None:
    now = datetime.now(UTC)
    moments = [
        AgentSession.created_at, Chat.last_message_at, Message.created_at, Feedback.created_at, Feedback.reviewed_at,
        SessionEvent.occurred_at,
    ]  # fmt: skip
    for column in moments:
        first, last = db.session.execute(select(func.min(column), func.max(column))).one()
        assert first > now - timedelta(days=60), column
        assert last <= now, column
    days = {row.date() for row in db.session.scalars(select(Feedback.created_at))}
    assert len(days) > 25


def test_nobody_says_the_same_thing_twice(demo: Any) -> None:
    said = Counter(db.session.scalars(select(Message.content)))
    assert [text for text, times in said.items() if times > 1] == []
    people = select(Feedback.comment).where(Feedback.comment.is_not(None), Feedback.kind != "session_failure")
    comments = Counter(db.session.scalars(people))
    assert [text for text, times in comments.items() if times > 1] == []
    leftovers = [text for text in [*said, *comments] if "{" in text or "ref:" in text]
    assert leftovers == []


def test_reset_makes_it_new_and_leaves_the_others_alone(
    demo_app: Flask, server: Any, place: str, tmp_path: Path
) -> None:
    with demo_app.app_context():
        with transaction():
            before = workspaces.find_workspace("demo")
        act_as(None)
        with transaction():
            other, _ = workspaces.create_workspace(slug=f"other-{secrets.token_hex(4)}", name="Other")
            slug = other.slug
        act_as(None)
        with pytest.raises(Unusable, match="UPSHOT_OWNER_DATABASE_URL"):
            reset(None)
    environment = {
        "UPSHOT_DATABASE_URL": server.conninfo("app", place),
        "UPSHOT_OWNER_DATABASE_URL": server.conninfo("owner", place),
        "UPSHOT_SECRET_KEY": secrets.token_urlsafe(48),
        "UPSHOT_DATA_DIR": str(tmp_path),
    }
    answer = CliRunner().invoke(command, ["demo", "reset", "--json"], env=environment)
    assert answer.exit_code == 0, answer.output
    made = json.loads(answer.output)
    assert made == demo_app.config["MADE"] | {"removed": True}
    with demo_app.app_context(), transaction():
        assert workspaces.find_workspace("demo") != before
        assert workspaces.find_workspace(slug)


def test_the_conversations_read_as_they_are_written() -> None:
    [talk] = read_talks(
        "# A title\nagent: a v1\nwhen: 2d 09:40\n\n> Hello\n< One\n\n  - two\n~ sam helpful +3h | Yes\n"
    )
    now = datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
    assert talk.began(now) == datetime(2026, 2, 27, 9, 40, 7, tzinfo=UTC)
    assert [(step.mark, step.text) for step in talk.steps[:2]] == [(">", "Hello"), ("<", "One\n\n- two")]
    remark = read_remark("sam edit +3h id=x applied=rule | Words || Note")
    assert (remark.who, remark.what, remark.after) == ("sam", "edit", timedelta(hours=3))
    assert (remark.options, remark.words, remark.note) == ({"id": "x", "applied": "rule"}, "Words", "Note")
    assert expand("{FY}: {iso 1}, {day 2}", now) == "FY25: 2026-02-28, 27 February"
    openings = Counter(talk.steps[0].text for talk in talks())
    assert len(openings) >= 45


def test_every_session_equals_itself(demo: Any) -> None:
    sessions = db.session.execute(select(AgentSession.id, AgentSession.title, AgentSession.status)).all()
    for session_id, title, status in sessions:
        found = comparisons.compare_sessions(session_id, session_id, actor=demo)
        assert found.divergences == [], title
        if status == "completed":
            assert (found.verdict, found.overall_accuracy) == ("pass", 1.0), title
        else:
            assert found.passed is None, title
