"""Every index of feedback and sessions is one that a query of ours searches. Each costs every row that is written."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from flask import Flask

from app import create_app
from app.actor import Actor
from app.config import Settings
from app.db import acting_as, db, run
from app.db.boot import Opened
from app.db.paging import Page
from app.services.entities import store as entity_store
from app.services.evals import candidates
from app.services.feedback import failures, own, signals
from app.services.feedback.lists import FeedbackFilters
from app.services.lists.filters import find_ids
from app.services.sessions import leases
from app.services.sessions import lists as session_lists
from app.services.sessions.lists import SessionFilters

ROWS = 6000
RUN, ENTITY, REPLAYED = uuid4(), uuid4(), uuid4()
TODAY = datetime.now(UTC).date()
# Newest first, and every value that a filter asks for is rare.
SESSIONS = """
INSERT INTO sessions (tenant_id, title, status, agent_id, created_by, owner_id, chat_id, entity_id, external_id,
                      trace_id, model, environment, created_at, metadata)
SELECT %(tenant)s, 'Compare deal ' || n || CASE WHEN n %% 100 = 0 THEN ' by valuation' ELSE '' END,
       CASE WHEN n %% 60 = 0 THEN 'failed' ELSE 'completed' END,
       CASE WHEN n %% 60 = 7 THEN %(rare)s ELSE %(agent)s END::uuid,
       %(user)s, %(user)s, %(chat)s, CASE WHEN n %% 60 = 1 THEN %(entity)s::uuid END, 'e' || n, 't' || n,
       CASE WHEN n %% 60 = 2 THEN 'rare' ELSE 'usual' END, CASE WHEN n %% 60 = 3 THEN 'staging' ELSE 'production' END,
       now() - n * interval '1 minute',
       CASE n %% 60 WHEN 4 THEN jsonb_build_object('golden', jsonb_build_object('set', 'base'))
                    WHEN 5 THEN jsonb_build_object('eval_source', %(replayed)s::text)
                    WHEN 6 THEN jsonb_build_object('rerun_of', n::text) ELSE '{}' END
  FROM generate_series(1, %(rows)s) AS n
"""
FEEDBACK = """
INSERT INTO feedback (tenant_id, source_type, kind, origin, rating, signal, status, reviewed_at, comment, session_id,
                      agent_id, entity_id, message_id, chat_id, trace_id, created_by, assignee_id, created_at,
                      occurred_at, context)
SELECT s.tenant_id, 'session', CASE WHEN n = 5 THEN 'replay_failure' WHEN n = 8 THEN 'signal' ELSE 'comment' END,
       CASE WHEN n = 5 THEN 'system' ELSE 'user' END, CASE WHEN n %% 2 = 0 THEN 'negative' ELSE 'positive' END,
       CASE WHEN n = 8 THEN 'inaccurate' END, CASE WHEN n = 9 THEN 'reviewed' ELSE 'pending' END,
       CASE WHEN n = 9 THEN now() END, 'said ' || s.title, s.id, s.agent_id, s.entity_id, 'm-' || s.external_id,
       'c-' || s.external_id, s.trace_id, CASE WHEN n = 10 THEN %(other)s ELSE %(user)s END::uuid,
       CASE WHEN n = 11 THEN %(user)s::uuid END, s.created_at, s.created_at,
       CASE WHEN n = 5 THEN jsonb_build_object('eval_run_id', %(run)s::text) ELSE '{}' END
  FROM (SELECT *, right(external_id, -1)::integer %% 60 AS n FROM sessions WHERE tenant_id = %(tenant)s) AS s
"""
# A failed session that someone complained about can be run again.
EVENTS = """
INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload, occurred_at)
SELECT tenant_id, id, 1, 'user.message', jsonb_build_object('text', title), created_at FROM sessions
 WHERE tenant_id = %(tenant)s AND external_id = 'e60'
"""


def page_of(**wanted: Any) -> Callable[[Actor], Any]:
    return lambda actor: failures.list_folded(FeedbackFilters(**wanted), Page(50), actor=actor)


def sessions_of(**wanted: Any) -> Callable[[Actor], Any]:
    return lambda actor: session_lists.list_sessions(SessionFilters(**wanted), Page(50), actor=actor)


# What is read through each index. Those of unique keys keep a rule, which is their use.
USES: dict[str, Callable[[Actor], Any]] = {
    "feedback_recent_idx": page_of(),
    "idx_feedback_tenant_status": page_of(status="reviewed"),
    "feedback_rating_idx": page_of(status="reviewed", rating="negative"),
    "feedback_author_idx": lambda actor: own.list_own(FeedbackFilters(), Page(50), actor=actor),
    "feedback_assignee_idx": page_of(assignee="me"),
    "feedback_occurred_idx": page_of(since=TODAY - timedelta(days=1)),
    "feedback_run_idx": lambda actor: failures.group_of(RUN, FeedbackFilters(), actor=actor),
    "feedback_search_idx": lambda actor: find_ids("feedback", "valuation"),
    "idx_feedback_session": sessions_of(),
    "idx_feedback_entity": lambda actor: own.rows_about(ENTITY, actor=actor),
    "idx_feedback_agent": page_of(agent="rare"),
    "idx_feedback_trace": page_of(trace_id="t8"),
    "feedback_message_idx": lambda actor: signals.list_signals({"message_id": "m-e8"}, Page(50), actor=actor),
    "feedback_chat_idx": page_of(chat_id="c-e8"),
    "sessions_recent_idx": sessions_of(),
    "sessions_status_idx": sessions_of(status="failed"),
    "sessions_agent_idx": sessions_of(agent="rare"),
    "sessions_trace_idx": sessions_of(trace_id="t8"),
    "sessions_golden_idx": sessions_of(golden_set="base"),
    "sessions_replay_idx": sessions_of(replay="yes"),
    "sessions_chat_idx": sessions_of(chat_id=uuid4()),
    "sessions_claim_idx": lambda actor: leases.claim("here", 1, timedelta(seconds=60)),
    "sessions_environment_idx": sessions_of(environment="staging"),
    "sessions_model_idx": sessions_of(model="rare"),
    "sessions_entity_idx": lambda actor: entity_store.list_work(ENTITY, actor=actor),
    "sessions_rerun_idx": lambda actor: candidates.list_candidates(actor=actor),
    "sessions_search_idx": lambda actor: find_ids("sessions", "valuation"),
    "sessions_import_idx": sessions_of(import_id=uuid4()),
}
INDEXES = """
SELECT c.relname, i.indisunique, pg_stat_get_xact_numscans(i.indexrelid) FROM pg_index AS i
  JOIN pg_class AS c ON c.oid = i.indexrelid
 WHERE i.indrelid IN ('feedback'::regclass, 'sessions'::regclass)
"""


@pytest.fixture(scope="module")
def place(server: Any, template: str) -> Iterator[str]:
    """A database of its own: what other tests leave in theirs would change the planner's estimates."""
    with server.database(template, "indexes") as name:
        yield name


@pytest.fixture(scope="module")
def app(server: Any, place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    settings = Settings(data_dir_text=str(tmp_path_factory.mktemp("data")), threads=2)
    opened = Opened(server.conninfo("app", place), secrets.token_urlsafe(48), server.conninfo("owner", place))
    made = create_app(settings, opened)
    yield made
    with made.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def filled(app: Flask, workspace: Any, server: Any, place: str) -> Iterator[Actor]:
    admin, other = workspace.actor("admin"), workspace.actor("member")
    agents = [uuid4(), uuid4()]
    given = {
        "tenant": admin.tenant_id, "user": admin.id, "other": other.id, "agent": agents[0], "rare": agents[1],
        "chat": None, "entity": ENTITY, "replayed": REPLAYED, "run": RUN, "rows": ROWS,
    }  # fmt: skip
    with psycopg.connect(server.conninfo("superuser", place), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for agent, slug in zip(agents, ("usual", "rare"), strict=True):
            connection.execute(
                "INSERT INTO agents (id, tenant_id, slug, name, kind) VALUES (%s, %s, %s, %s, 'builtin')",
                (agent, admin.tenant_id, slug, slug),
            )
        connection.execute(SESSIONS, given)
        connection.execute(FEEDBACK, given)
        connection.execute(EVENTS, given)
        connection.execute("VACUUM ANALYZE sessions, feedback")
    with app.app_context(), acting_as(admin):
        yield admin
        db.session.rollback()


def scans() -> dict[str, int]:
    return {name: number for name, _, number in run(INDEXES, {})}


def test_every_index_is_searched_by_a_query_of_ours(filled: Actor) -> None:
    unique = {name for name, is_unique, _ in run(INDEXES, {}) if is_unique}
    assert sorted((scans().keys() - unique) ^ USES.keys()) == []
    unused = []
    for name, use in USES.items():
        before = scans()
        use(filled)
        after = scans()
        if after[name] <= before[name]:
            unused.append((name, sorted(one for one in after if after[one] > before[one])))
        db.session.rollback()
    assert unused == [], unused
