"""Every revision goes up and down, and what the older tables could hold survives the way there and back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg.rows import dict_row

from app.db import migrate
from app.db.connect import current, head, is_current
from app.db.migrate import check, downgrade, upgrade
from app.errors import Unusable
from app.services.workspaces.store import REVIEW_INSTRUCTIONS
from migrations.legacy import FEEDBACK_FROM_THUMBS
from tests.conftest import Server
from tests.db import legacy as old
from tests.db.legacy import (
    AGENT,
    ANN,
    BEN,
    CHAT,
    OTHER,
    SESSION,
    TENANT,
    THUMBS,
    fill_knowledge,
    fill_legacy,
    legacy_rows,
)
from tests.threads import run_at_once

pytestmark = pytest.mark.core

Open = Callable[[], Any]


@pytest.fixture
def owner(server: Server, empty_database: str) -> str:
    return server.conninfo("owner", empty_database)


@pytest.fixture
def look(server: Server, empty_database: str) -> Open:
    """A connection that sees the rows of all workspaces."""

    @contextmanager
    def opened() -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(server.conninfo("superuser", empty_database)) as connection:
            yield connection

    return opened


@pytest.fixture
def legacy(owner: str, look: Open) -> dict[str, list[str]]:
    """A database at the first revision with rows in it; what they say."""
    upgrade(owner, "0001_legacy")
    with look() as connection:
        fill_legacy(connection)
        return legacy_rows(connection)


@pytest.fixture(scope="module")
def backfilled(server: Server) -> Iterator[str]:
    """A database whose legacy rows came through the first revisions. Tests read it, or roll back."""
    name = f"backfilled_{secrets.token_hex(6)}"
    server.prepare(name)
    owner, superuser = server.conninfo("owner", name), server.conninfo("superuser", name)
    upgrade(owner, "0001_legacy")
    with psycopg.connect(superuser) as connection:
        fill_legacy(connection)
    upgrade(owner, "0003_shared_context")
    yield superuser
    server.drop(name)


def feedback_rows(connection: psycopg.Connection[Any]) -> dict[UUID, dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return {row["id"]: row for row in cursor.execute("SELECT * FROM feedback").fetchall()}


def test_thumbs_become_feedback(backfilled: str) -> None:
    with psycopg.connect(backfilled) as connection:
        rows = feedback_rows(connection)
    assert len([row for row in rows.values() if row["source_type"] == "chat"]) == len(THUMBS)
    for identity, tenant, chat, index, user, rating, comment in THUMBS:
        row = rows[identity]
        assert (row["tenant_id"], row["created_by"], row["comment"]) == (tenant, user, comment)
        assert row["rating"] == {"up": "positive", "down": "negative"}[rating]
        assert row["context"] == {"chat_id": str(chat), "message_index": index}
        assert (row["kind"], row["origin"], row["confidence"], row["status"]) == ("reaction", "user", 1, "pending")
        assert row["created_at"] == row["occurred_at"]
        assert row["created_at"].isoformat() == "2025-03-04T05:06:07.890000+00:00"
    known = rows[THUMBS[0][0]]
    assert (known["session_id"], known["agent_id"], known["trace_id"]) == (SESSION, AGENT, "trace-1")
    assert rows[THUMBS[3][0]]["session_id"] is None


def test_rejections_with_a_reason_become_feedback(backfilled: str) -> None:
    with psycopg.connect(backfilled) as connection:
        rows = [row for row in feedback_rows(connection).values() if row["source_type"] != "chat"]
        system = connection.execute("SELECT user_id FROM memberships WHERE role = 'system'").fetchall()
    said = {row["comment"]: row for row in rows}
    assert set(said) == {"In thousands", "Both wrong", "Not the right year"}
    assert len(rows) == 3
    assert all(
        (row["session_id"], row["entity_id"], row["agent_id"]) == (SESSION, old.NORTHWIND, AGENT) for row in rows
    )
    retried = said["In thousands"]
    assert (retried["source_type"], retried["kind"], retried["status"]) == (
        "extraction",
        "extraction_rejection",
        "applied",
    )
    assert retried["context"] == {
        "field_name": "ebitda",
        "entity_type_id": str(old.DEAL),
        "rejected_value": 12,
        "retry_ref": "legacy",
    }
    assert (retried["created_by"], retried["reviewed_by_user_id"]) == (BEN, BEN)
    assert said["Both wrong"]["context"]["rejected_value"] == {"ebitda": 12, "name": None}
    assert [(said["Both wrong"]["created_by"],)] == system
    waiting = said["Not the right year"]
    assert (waiting["source_type"], waiting["kind"], waiting["status"]) == ("response", "response_rejection", "pending")
    assert waiting["context"] == {
        "response_id": str(old.RESPONSES[2][0]),
        "criteria_set_id": str(old.CRITERIA),
        "field_name": "ebitda",
    }
    assert (waiting["created_by"], waiting["reviewed_at"]) == (ANN, None)


def test_items_become_rows(backfilled: str) -> None:
    with psycopg.connect(backfilled) as connection:
        rows = connection.execute(
            "SELECT tenant_id, type, content, context, state, superseded_by IS NULL FROM shared_context"
            " ORDER BY tenant_id, type, created_at"
        ).fetchall()
    lessons = [row[2:] for row in rows if row[:2] == (TENANT, "lesson")]
    assert len(lessons) == len(old.KNOWLEDGE[TENANT, "lessons"])
    assert [lesson for lesson in lessons if lesson[2] == "active"] == [
        ("Ask for the year", None, "active", True),
        ("Quote the page", None, "active", True),
        ("Round down", None, "active", True),
        ("Keep it", None, "active", True),
        ("Odd", None, "active", True),
        ("last", None, "active", True),
    ]
    assert [lesson for lesson in lessons if lesson[2] == "superseded"] == [
        (" ask  for the YEAR ", None, "superseded", False),
        ("Ask for the year", None, "superseded", False),
    ]
    assert {lesson[0] for lesson in lessons if lesson[2] == "deleted"} == {"(empty)"}
    assert [lesson[0] for lesson in lessons if lesson[2] == "inactive"] == [
        "12.5",
        "true",
        '["nested"]',
        '{"text": "no content"}',
        '{"content": ""}',
        '{"content": 7, "context": "c"}',
    ]
    assert (TENANT, "correction", "EBITDA, not EBIT", "in PE deals", "active", True) in rows
    assert (TENANT, "routing", "not even a list", None, "active", True) in rows
    assert (OTHER, "lesson", "Alone", "without a list", "active", True) in rows


def test_there_and_back_loses_nothing(owner: str, look: Open, legacy: dict[str, list[str]]) -> None:
    upgrade(owner)
    assert check(owner) == []
    with look() as connection:
        assert connection.execute("SELECT to_regclass('chat_feedback')").fetchone() == (None,)
        first = {key: {**row, "search": None} for key, row in feedback_rows(connection).items()}
        knowledge = "SELECT id, tenant_id, type, content, context, state, superseded_by, metadata FROM shared_context"
        knowledge += " ORDER BY id"
        rows = connection.execute(knowledge).fetchall()
    downgrade(owner, "0001_legacy")
    with look() as connection:
        assert legacy_rows(connection) == legacy
    upgrade(owner)
    assert check(owner) == []
    with look() as connection:
        assert {key: {**row, "search": None} for key, row in feedback_rows(connection).items()} == first
        assert connection.execute(knowledge).fetchall() == rows


@pytest.mark.exhaustive
def test_each_revision_goes_up_down_and_up(owner: str, look: Open, legacy: dict[str, list[str]]) -> None:
    revisions = [
        script.revision for script in reversed([*ScriptDirectory.from_config(migrate._config()).walk_revisions()])
    ]
    assert revisions[:3] == ["0001_legacy", "0002_feedback", "0003_shared_context"]
    assert "drop_chat_feedback" in revisions
    for before, revision in pairwise(revisions):
        upgrade(owner, revision)
        downgrade(owner, before)
        with look() as connection:
            assert current(connection) == before
        upgrade(owner, revision)
    downgrade(owner, "0001_legacy")
    with look() as connection:
        assert legacy_rows(connection) == legacy
    downgrade(owner, "base")
    with look() as connection:
        left = "SELECT count(*) FROM {} WHERE {} = 'public'::regnamespace"
        assert connection.execute(left.format("pg_proc", "pronamespace")).fetchone() == (0,)
        tables = "SELECT array_agg(tablename) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(tables).fetchone() == (["alembic_version"],)


def test_the_bytes_of_earlier_events_are_counted_also_of_goldens(
    owner: str, look: Open, legacy: dict[str, list[str]]
) -> None:
    upgrade(owner, "0021_evidence")
    with look() as connection:
        connection.execute("SET session_replication_role = replica")
        [golden] = connection.execute("SELECT id FROM sessions").fetchall()
        connection.execute("DELETE FROM session_events")
        for sequence, text in enumerate(("Grüße", "b"), 1):
            connection.execute(
                "INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload)"
                " SELECT tenant_id, id, %s, 'user.message', jsonb_build_object('text', %s::text) FROM sessions",
                (sequence, text),
            )
        connection.execute('UPDATE sessions SET metadata = \'{"golden": {"set": "a"}}\' WHERE id = %s', golden)
        connection.commit()
    upgrade(owner)
    with look() as connection:
        found = connection.execute("SELECT event_bytes, full_at FROM sessions").fetchall()
    assert found == [(2 * len('{"text": ""}') + len("Grüßeb".encode()), None)]


def test_filling_in_twice_is_filling_in_once(backfilled: str) -> None:
    feedback: Any = import_module("migrations.versions.0002_feedback")
    knowledge: Any = import_module("migrations.versions.0003_shared_context")
    with psycopg.connect(backfilled) as connection:
        before = feedback_rows(connection)
        for statement in (FEEDBACK_FROM_THUMBS, feedback.SYSTEM_USERS, feedback.FEEDBACK_FROM_REJECTIONS):
            assert connection.execute(statement).rowcount == 0
        assert feedback_rows(connection) == before
        items = sum(len(value) if isinstance(value, list) and value else 1 for value in old.KNOWLEDGE.values()) + 4
        assert connection.execute("SELECT count(*) FROM shared_context").fetchone() == (items,)
        connection.execute("CREATE TABLE shared_context_by_key (tenant_id uuid, key text, value jsonb)")
        fill_knowledge(connection, "shared_context_by_key")
        assert connection.execute(knowledge.ROWS_FROM_ITEMS).rowcount == 0
        connection.rollback()


def test_newer_rows_go_back_as_far_as_the_old_tables_can_hold_them(
    owner: str, look: Open, legacy: dict[str, list[str]]
) -> None:
    upgrade(owner, "0008_guards")
    late, held, neutral, scoped = UUID(int=300), UUID(int=301), UUID(int=302), UUID(int=303)
    with look() as connection:
        connection.execute(
            "INSERT INTO chat_feedback (id, tenant_id, chat_id, message_index, user_id, rating)"
            " VALUES (%s, %s, 'c', 1, %s, 'up')",
            (late, OTHER, ANN),
        )
    upgrade(owner)
    with look() as connection:
        assert set(feedback_rows(connection)) >= {late, *(thumb[0] for thumb in THUMBS)}
        for identity, rating, index in ((held, "positive", 4), (neutral, "neutral", 5)):
            connection.execute(
                "INSERT INTO feedback (id, tenant_id, source_type, kind, rating, context, created_by, turn_id)"
                " VALUES (%s, %s, 'chat', 'reaction', %s,"
                "         jsonb_build_object('chat_id', %s::text, 'message_index', %s::int), %s, %s)",
                (identity, TENANT, rating, CHAT, index, ANN, str(index)),
            )
        for identity, content, context, agent, state in (
            (UUID(int=311), "Newest", None, None, "active"),
            (UUID(int=312), "With a context", "in deals", None, "active"),
            (scoped, "For one agent", None, AGENT, "active"),
            (UUID(int=313), "Proposed", None, None, "proposed"),
        ):
            connection.execute(
                "INSERT INTO shared_context (id, tenant_id, type, content, context, agent_id, state, active)"
                " VALUES (%s, %s, 'correction', %s, %s, %s, %s, %s)",
                (identity, TENANT, content, context, agent, state, state == "active"),
            )
        connection.execute(
            "UPDATE shared_context SET context = 'later', version = 2 WHERE content = 'EBITDA, not EBIT'"
        )
        connection.execute("UPDATE shared_context SET state = 'deleted', active = false WHERE content = 'Be brief'")
    downgrade(owner, "0001_legacy")
    with look() as connection:
        thumbs = {row[0] for row in connection.execute("SELECT id FROM chat_feedback").fetchall()}
        assert thumbs == {late, held, *(thumb[0] for thumb in THUMBS)}
        items = connection.execute(
            "SELECT value FROM shared_context WHERE tenant_id = %s AND key = 'corrections'", (TENANT,)
        ).fetchone()
        assert items == (
            [
                "Figures are in thousands",
                {"content": "EBITDA, not EBIT", "context": "later"},
                "Newest",
                {"content": "With a context", "context": "in deals"},
            ],
        )
        gone = connection.execute("SELECT count(*) FROM shared_context WHERE key = 'guidelines'").fetchone()
        assert gone == (0,)


def test_reactions_to_turns_with_one_id_and_decisions_without_reviewer_go_down_and_up(owner: str, look: Open) -> None:
    tenant, ann = UUID(int=1), UUID(int=2)
    upgrade(owner)
    with look() as connection:
        connection.execute("INSERT INTO tenants (id, slug, name) VALUES (%s, 'w', 'W')", (tenant,))
        connection.execute("INSERT INTO users (id, email, name) VALUES (%s, 'ann@example.test', 'Ann')", (ann,))
        for chat in ("one", "two", "three"):
            connection.execute(
                "INSERT INTO feedback (tenant_id, source_type, kind, rating, created_by, chat_id, turn_id, details)"
                " VALUES (%s, 'chat', 'reaction', 'positive', %s, %s, 'turn-1', '{\"skipped\": false}')",
                (tenant, ann, chat),
            )
        connection.execute(
            "UPDATE feedback SET status = 'reviewed', reviewed_at = now(), reviewed_by_user_id = %s"
            " WHERE chat_id = 'one'",
            (ann,),
        )
        connection.execute("UPDATE feedback SET reviewed_by_user_id = NULL")
    downgrade(owner, "0021_evidence")
    with look() as connection:
        before = feedback_rows(connection).values()
        assert [row["turn_id"] for row in before if row["turn_id"]] == ["turn-1"]
        assert [row["reviewed_by_user_id"] for row in before if row["status"] == "reviewed"] == [ann]
    upgrade(owner)
    with look() as connection:
        after = feedback_rows(connection).values()
    assert {(row["chat_id"], row["turn_id"]) for row in after} == {(c, "turn-1") for c in ("one", "two", "three")}
    assert all(row["details"] == {"skipped": False} for row in after)


def test_two_at_once_do_it_once(owner: str, look: Open) -> None:
    run_at_once(*[lambda: upgrade(owner)] * 2)
    with look() as connection:
        assert is_current(connection)


def test_a_newer_database_is_left_alone(owner: str, look: Open) -> None:
    with psycopg.connect(owner) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('9999_later')")
        assert not is_current(connection)
    for attempt in (lambda: upgrade(owner), lambda: downgrade(owner, "base")):
        with pytest.raises(Unusable, match=r"made by a newer Upshot \(revision 9999_later\)"):
            attempt()
    with look() as connection:
        assert current(connection) == "9999_later"
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (1,)


def test_what_cannot_be_done_changes_nothing(server: Server, owner: str, look: Open, empty_database: str) -> None:
    with pytest.raises(Unusable, match="cannot go to that revision"):
        upgrade(owner, "no_such_revision")
    with pytest.raises(Unusable, match="upshot db init"):
        upgrade(server.conninfo("app", empty_database))
    with pytest.raises(Unusable, match="Cannot reach"):
        upgrade(server.conninfo("owner", "no_such_database"))
    with look() as connection:
        connection.execute("CREATE TABLE purges (id uuid)")
    with pytest.raises(Exception, match="purges"):
        upgrade(owner)
    with look() as connection:
        assert current(connection) is None
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (1,)


def test_the_app_role_may_read_the_revision(server: Server, empty_database: str, app_url: str) -> None:
    upgrade(server.conninfo("owner", empty_database), "0001_legacy")
    with psycopg.connect(server.conninfo("app", empty_database)) as connection:
        assert not is_current(connection)
    with psycopg.connect(app_url) as connection:
        assert is_current(connection)
        assert current(connection) == head()


def test_failed_replays_learn_the_run_that_they_failed_in(owner: str, look: Open, legacy: dict[str, list[str]]) -> None:
    upgrade(owner, import_module("migrations.versions.0032_failure_groups").down_revision)
    replays = [uuid4(), uuid4(), uuid4()]
    with look() as connection:
        connection.execute("SET session_replication_role = replica")
        runs = [
            found
            for _ in replays[:2]
            for (found,) in connection.execute(
                "INSERT INTO eval_runs (tenant_id, name, config_hash)"
                " SELECT tenant_id, 'R', 'h' FROM sessions LIMIT 1 RETURNING id"
            ).fetchall()
        ]
        for replay, run in zip(replays, runs, strict=False):
            connection.execute(
                "INSERT INTO sessions (id, tenant_id, title, agent_id, created_by, metadata)"
                " SELECT %s, tenant_id, 'S', agent_id, created_by, jsonb_build_object('eval_run_id', %s::text)"
                " FROM sessions LIMIT 1",
                (replay, str(run)),
            )
        # The last replay of the row is gone: the one before it says which run it was.
        connection.execute(
            "INSERT INTO feedback (tenant_id, source_type, kind, origin, rating, created_by, context)"
            " SELECT s.tenant_id, 'session', 'replay_failure', 'system', 'negative', u.id,"
            " jsonb_build_object('replay_session_ids', %s::jsonb) FROM (SELECT * FROM sessions LIMIT 1) AS s,"
            " (SELECT id FROM users LIMIT 1) AS u",
            (json.dumps([str(one) for one in replays]),),
        )
        connection.commit()
    upgrade(owner)
    with look() as connection:
        found = connection.execute(
            "SELECT eval_run_id, context ->> 'eval_run_id' FROM feedback WHERE kind = 'replay_failure'"
        ).fetchall()
    assert found == [(runs[1], str(runs[1]))]
    downgrade(owner, import_module("migrations.versions.0032_failure_groups").down_revision)
    with look() as connection:
        [(context,)] = connection.execute("SELECT context FROM feedback WHERE kind = 'replay_failure'").fetchall()
    assert context == {"replay_session_ids": [str(one) for one in replays]}


def test_review_agents_get_their_instructions_and_tasks_that_are_on_their_next_run(owner: str, look: Open) -> None:
    upgrade(owner, "0037_judgements")
    tenant, agent = uuid4(), uuid4()
    with look() as connection:
        connection.execute("INSERT INTO tenants (id, slug, name) VALUES (%s, 'acme', 'Acme')", (tenant,))
        connection.execute(
            "INSERT INTO agents (id, tenant_id, slug, name, kind, is_system)"
            " VALUES (%s, %s, 'feedback-review-agent', 'Feedback Review Agent', 'builtin', true)",
            (agent, tenant),
        )
        connection.execute(
            "INSERT INTO agent_versions (tenant_id, agent_id, version, config)"
            """ VALUES (%s, %s, 1, '{"tool_groups": ["context"]}')""",
            (tenant, agent),
        )
        connection.execute(
            "INSERT INTO tasks (tenant_id, slug, name, cron, enabled, agent_id)"
            " VALUES (%s, 'feedback-review', 'Feedback Review', '0 * * * *', true, %s)",
            (tenant, agent),
        )
    upgrade(owner)
    with look() as connection:
        [(version, config)] = connection.execute(
            "SELECT a.current_version, v.config FROM agents AS a JOIN agent_versions AS v"
            " ON v.agent_id = a.id AND v.version = a.current_version WHERE a.id = %s",
            (agent,),
        ).fetchall()
        assert (version, config["tool_groups"]) == (2, ["context"])
        assert config["instructions"] == REVIEW_INSTRUCTIONS, "the same that new workspaces get"
        assert connection.execute("SELECT next_run_at IS NOT NULL FROM tasks").fetchall() == [(True,)]
