"""The database keeps workspaces apart, whatever the app forgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from tests.db.rows import ROWS, Filled, acting, add, fill, one

pytestmark = pytest.mark.core

OF_TENANT = [*ROWS, "memberships"]
# How a link is set that is generated from something else, once, when the row is made.
GENERATED = {
    (
        "sessions",
        "eval_run_id",
    ): "INSERT INTO sessions (tenant_id, title, agent_id, created_by, metadata) SELECT tenant_id,"
    " title, agent_id, created_by, jsonb_build_object('eval_run_id', (%s)::text) FROM sessions"
}
# What was asked for stays, so these links are made with their row only.
KEPT = {"eval_runs"}


@pytest.fixture(scope="module")
def ours(app_url: str) -> Filled:
    return fill(app_url)


@pytest.fixture(scope="module")
def theirs(app_url: str) -> Filled:
    return fill(app_url)


@pytest.fixture
def superuser(superuser_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(superuser_url) as connection:
        yield connection


def test_every_table_of_a_workspace_is_covered(superuser: psycopg.Connection[Any]) -> None:
    tables = superuser.execute(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'"
        " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace"
    ).fetchall()
    assert {name for name, _ in tables} == set(OF_TENANT)
    assert all(walled for _, walled in tables)


def test_no_workspace_bound_shows_no_rows(app_url: str, owner_url: str, ours: Filled) -> None:
    for url in (app_url, owner_url):
        with acting(url, None) as connection:
            for table in [*OF_TENANT, "tenants", "users", "sign_in_attempts"]:
                assert one(connection, f"SELECT count(*) FROM {table}") == 0, table


def test_nothing_stays_bound_after_the_transaction(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user) as connection:
        assert one(connection, "SELECT count(*) FROM agents") == 1
        connection.commit()
        for table in [*OF_TENANT, "tenants", "users", "sign_in_attempts"]:
            assert one(connection, f"SELECT count(*) FROM {table}") == 0, table


def test_a_workspace_sees_itself_and_nothing_else(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user) as connection:
        for table in OF_TENANT:
            assert one(connection, f"SELECT array_agg(DISTINCT tenant_id) FROM {table}") == [ours.tenant], table
        assert one(connection, "SELECT array_agg(id) FROM tenants") == [ours.tenant]
        assert one(connection, "SELECT array_agg(id) FROM users") == [ours.user]


def test_rows_of_another_workspace_cannot_be_touched(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for table in OF_TENANT:
            for statement in (f"UPDATE {table} SET tenant_id = tenant_id", f"DELETE FROM {table}"):
                try:
                    with connection.transaction():
                        done = connection.execute(f"{statement} WHERE tenant_id = %s", (theirs.tenant,))
                        assert done.rowcount == 0, statement
                except errors.InsufficientPrivilege:
                    continue
        for table in ("tenants", "users"):
            done = connection.execute(f"UPDATE {table} SET name = 'x' WHERE id = %s", (theirs[table],))
            assert done.rowcount == 0, table


def test_rows_cannot_be_written_into_another_workspace(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for table in ROWS:
            with pytest.raises(errors.InsufficientPrivilege, match="row-level security"), connection.transaction():
                add(connection, table, theirs.tenant, theirs.ids | {"secret": uuid4().hex})
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(
                "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'owner')",
                (theirs.tenant, ours.user),
            )


def test_links_cannot_leave_the_workspace(app_url: str, ours: Filled, theirs: Filled) -> None:
    """For every foreign key between tables of a workspace, the other workspace's row counts as unknown."""
    links = """
        SELECT t.relname AS "table", a.attname AS "column", f.relname AS target
          FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class f ON f.oid = c.confrelid
          JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = c.conkey[array_upper(c.conkey, 1)]
         WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
           AND EXISTS (SELECT FROM pg_attribute x WHERE x.attrelid = t.oid AND x.attname = 'tenant_id')
           AND EXISTS (SELECT FROM pg_attribute x WHERE x.attrelid = f.oid AND x.attname = 'tenant_id')"""
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        found = connection.execute(links).fetchall()
        assert len(found) > 20
        for link in found:
            table, column, target = link["table"], link["column"], link["target"]
            if table not in KEPT and one(connection, "SELECT has_table_privilege(%s, 'UPDATE')", table):
                change = GENERATED.get((table, column), f"UPDATE {table} SET {column} = %s")
                with pytest.raises(errors.ForeignKeyViolation), connection.transaction():
                    connection.execute(change, (theirs[target],))
            else:
                mixed = ours.ids | {"secret": uuid4().hex, target: theirs[target]}
                with pytest.raises(errors.ForeignKeyViolation), connection.transaction():
                    add(connection, table, ours.tenant, mixed)


def test_a_member_sees_and_writes_only_their_own_feedback(app_url: str, ours: Filled) -> None:
    other = uuid4()
    with acting(app_url, ours.tenant, other, "member") as connection:
        assert one(connection, "SELECT count(*) FROM feedback") == 0
        assert one(connection, "SELECT count(*) FROM door_search('feedback', 'figure', 10)") == 0
        assert connection.execute("UPDATE feedback SET comment = 'x'").rowcount == 0
        assert connection.execute("DELETE FROM feedback").rowcount == 0
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            add(connection, "feedback", ours.tenant, ours.ids)
    with acting(app_url, ours.tenant, ours.user, "member") as connection:
        assert one(connection, "SELECT count(*) FROM feedback") == 1
        assert one(connection, "SELECT id FROM door_search('feedback', 'figure', 10)") == ours["feedback"]
    with acting(app_url, ours.tenant, other, "") as connection:
        assert one(connection, "SELECT count(*) FROM feedback") == 0


def test_a_conversation_is_seen_by_its_person_and_admins(app_url: str, ours: Filled) -> None:
    """With its messages, its sessions, their events and drafts, and what was submitted in it."""
    private = ("chats", "messages", "sessions", "session_events", "session_drafts", "entity_responses")
    words = {"chats": "deals", "messages": "EBITDA", "sessions": "filing", "any sessions": "filing"}
    for user, role, seen in (
        (uuid4(), "member", 0), (ours.user, "member", 1), (uuid4(), "admin", 1), (uuid4(), "system", 1),
        (uuid4(), "", 0),
    ):  # fmt: skip
        with acting(app_url, ours.tenant, user, role) as connection:
            for table in private:
                assert one(connection, f"SELECT count(*) FROM {table}") == seen, (table, role)
            for kind, word in words.items():
                assert one(connection, "SELECT count(*) FROM door_search(%s, %s, 10)", kind, word) == seen, kind


def test_a_member_neither_changes_nor_joins_the_conversation_of_another(app_url: str, ours: Filled) -> None:
    joining = "INSERT INTO sessions (tenant_id, title, agent_id, created_by, {0}) VALUES (%s, 'T', %s, %s, %s)"
    submitting = "INSERT INTO entity_responses (tenant_id, entity_id, session_id) VALUES (%s, %s, %s)"
    with acting(app_url, ours.tenant, ours.user, "admin") as connection:
        other: Any = one(
            connection, "INSERT INTO users (email, name) VALUES (%s, 'O') RETURNING id", f"{uuid4()}@x.test"
        )
        connection.commit()
    with acting(app_url, ours.tenant, other, "member") as connection:
        for table in ("chats", "messages", "sessions", "entity_responses"):
            assert connection.execute(f"UPDATE {table} SET id = id").rowcount == 0
            assert connection.execute(f"DELETE FROM {table}").rowcount == 0
        given = (ours.tenant, ours["agents"], other)
        for chat in (ours["chats"], uuid4()):
            with pytest.raises(errors.ForeignKeyViolation), connection.transaction():
                connection.execute(joining.format("chat_id"), (*given, chat))
        for session in (ours["sessions"], uuid4()):
            with pytest.raises(errors.ForeignKeyViolation), connection.transaction():
                connection.execute(submitting, (ours.tenant, ours["entities"], session))
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"), connection.transaction():
            connection.execute(joining.format("owner_id"), (*given, ours.user))
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"), connection.transaction():
            add(connection, "session_events", ours.tenant, ours.ids)


def test_a_session_keeps_its_owner_when_its_conversation_goes(app_url: str) -> None:
    filled = fill(app_url)
    with acting(app_url, filled.tenant, filled.user, "admin") as connection:
        connection.execute("DELETE FROM chats")
        assert one(connection, "SELECT owner_id FROM sessions WHERE chat_id IS NULL") == filled.user
        connection.execute("DELETE FROM sessions")
        assert one(connection, "SELECT owner_id FROM entity_responses WHERE session_id IS NULL") == filled.user


def test_reading_feedback_or_remembering_makes_a_session_personal(app_url: str) -> None:
    filled = fill(app_url)
    added = (
        "INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload)"
        " VALUES (%s, %s, 1, 'tool.call', jsonb_build_object('name', %s::text))"
    )
    made = "INSERT INTO sessions (tenant_id, title, agent_id, created_by) VALUES (%s, 'T', %s, %s) RETURNING id"
    with acting(app_url, filled.tenant, filled.user, "member") as connection:
        for name, owner in (
            ("searchEntities", None), ("getFeedback", filled.user), ("listFeedback", filled.user),
            ("saveMemory", filled.user),
        ):  # fmt: skip
            session = one(connection, made, filled.tenant, filled["agents"], filled.user)
            connection.execute(added, (filled.tenant, session, name))
            assert one(connection, "SELECT owner_id FROM sessions WHERE id = %s", session) == owner, name
        shared = one(connection, made, filled.tenant, filled["agents"], filled.user)
        connection.commit()
    with acting(app_url, filled.tenant, uuid4(), "member") as connection:
        connection.execute(added, (filled.tenant, shared, "getFeedback"))
        assert one(connection, "SELECT owner_id FROM sessions WHERE id = %s", shared) is None


def test_the_tools_that_make_a_session_personal_are_tools(superuser: psycopg.Connection[Any]) -> None:
    from app.tools import TOOLS

    body = one_text(superuser, "SELECT prosrc FROM pg_proc WHERE proname = 'own_personal_session'")
    named = set(re.findall(r"'([a-z]+[A-Z]\w+)'", body))
    assert named == {"listFeedback", "getFeedback", "saveMemory"}
    assert named <= {tool.name for tool in TOOLS}


def one_text(connection: psycopg.Connection[Any], statement: str) -> str:
    row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    return str(row[0]) if row else ""


def test_memories_are_seen_by_their_person_and_not_by_admins(app_url: str, ours: Filled) -> None:
    for role in ("admin", "member"):
        with acting(app_url, ours.tenant, uuid4(), role) as connection:
            assert one(connection, "SELECT count(*) FROM user_memories") == 0
            assert connection.execute("DELETE FROM user_memories").rowcount == 0
            with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                add(connection, "user_memories", ours.tenant, ours.ids)
    with acting(app_url, ours.tenant, None, "system") as connection:
        assert one(connection, "SELECT count(*) FROM user_memories") == 1
    with acting(app_url, ours.tenant, ours.user, "member") as connection:
        assert connection.execute("DELETE FROM user_memories").rowcount == 1


def test_people_are_seen_by_themselves_and_by_their_workspace(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, theirs.user) as connection:
        seen = one(connection, "SELECT array_agg(id) FROM users")
        assert sorted(seen) == sorted([ours.user, theirs.user])
    with acting(app_url, ours.tenant, ours.user, "member") as connection:
        assert connection.execute("UPDATE users SET name = 'Me'").rowcount == 1
        assert connection.execute("UPDATE users SET name = 'Me' WHERE id <> %s", (ours.user,)).rowcount == 0
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("INSERT INTO users (email, name) VALUES (%s, 'N')", (f"{uuid4()}@example.test",))


def test_who_adds_a_person_gets_the_row_back(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "admin") as connection:
        added = one(
            connection, "INSERT INTO users (email, name) VALUES (%s, 'N') RETURNING id", f"{uuid4()}@example.test"
        )
        connection.commit()
    for tenant in (ours.tenant, theirs.tenant):
        with acting(app_url, tenant, None, "system") as connection:
            assert one(connection, "SELECT count(*) FROM users WHERE id = %s", added) == 0


def test_a_person_known_from_outside_belongs_to_one_workspace(app_url: str, ours: Filled, theirs: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "member") as connection:
        statement = "INSERT INTO users (external_tenant_id, external_id, name) VALUES (%s, %s, 'N') RETURNING id"
        added = one(connection, statement, ours.tenant, uuid4().hex)
        assert one(connection, "SELECT count(*) FROM users WHERE id = %s", added) == 1
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute(statement, (theirs.tenant, uuid4().hex))


def test_attempts_are_seen_only_by_their_key(app_url: str) -> None:
    key = uuid4().hex
    with acting(app_url, None) as connection:
        connection.execute("SELECT set_config('app.throttle_key', %s, true)", (key,))
        connection.execute("INSERT INTO sign_in_attempts (key, failures) VALUES (%s, 1)", (key,))
        assert one(connection, "SELECT failures FROM sign_in_attempts") == 1
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("INSERT INTO sign_in_attempts (key) VALUES (%s)", (uuid4().hex,))


def test_the_app_role_has_no_way_around(app_url: str, ours: Filled) -> None:
    attempts = [
        "ALTER TABLE sessions DISABLE TRIGGER ALL",
        "ALTER TABLE sessions NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE feedback DISABLE ROW LEVEL SECURITY",
        "DROP POLICY feedback_tenant ON feedback",
        "CREATE TABLE mine (id int)",
        "CREATE TEMP TABLE sessions (id int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TRIGGER mine BEFORE INSERT ON feedback FOR EACH ROW EXECUTE FUNCTION guard_session()",
        "TRUNCATE audit_log",
        "TRUNCATE session_events",
        "SET ROLE upshot_owner",
        "SET ROLE upshot_door",
        "SET SESSION AUTHORIZATION upshot_owner",
        "SET session_replication_role = replica",
        "UPDATE audit_log SET action = 'x'",
        "DELETE FROM audit_log",
        "UPDATE session_events SET sequence = 9",
        "DELETE FROM session_events",
        "UPDATE shared_context_history SET action = 'x'",
        "DELETE FROM shared_context_history",
        "UPDATE agent_versions SET version = 9",
        "DELETE FROM agent_versions",
        "DELETE FROM tenants",
        "DELETE FROM users",
        "SELECT * FROM purges",
        f"SELECT purge_tenant('{ours.tenant}')",
        "UPDATE alembic_version SET version_num = 'x'",
    ]
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for attempt in attempts:
            with pytest.raises(errors.InsufficientPrivilege), connection.transaction():
                connection.execute(attempt)


def test_the_app_and_door_roles_own_and_bypass_nothing(superuser: psycopg.Connection[Any]) -> None:
    owned = superuser.execute(
        "SELECT count(*) FROM pg_class WHERE relowner = 'upshot_app'::regrole OR relowner = 'upshot_door'::regrole"
    ).fetchone()
    powers = superuser.execute(
        "SELECT bool_or(rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb) FROM pg_roles"
        " WHERE rolname IN ('upshot_app', 'upshot_door', 'upshot_owner', 'upshot_replay')"
    ).fetchone()
    assert owned == (0,)
    assert powers == (False,)


def test_indexes_are_used_under_the_policies(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "admin") as connection:
        for other_way in ("seqscan", "bitmapscan", "sort"):
            connection.execute(f"SET LOCAL enable_{other_way} = off")
        lists = {
            "SELECT id FROM feedback ORDER BY created_at DESC, id DESC LIMIT 50": "feedback_recent_idx",
            "SELECT id FROM sessions ORDER BY created_at DESC, id DESC LIMIT 50": "sessions_recent_idx",
            "SELECT id FROM chats ORDER BY last_message_at DESC, id DESC LIMIT 50": "chats_recent_idx",
            "SELECT id FROM shared_context WHERE active AND agent_id IS NULL AND entity_type_id IS NULL"
            " AND type = 'lesson' ORDER BY rank DESC, id LIMIT 8": "shared_context_global_idx",
        }
        for query, index in lists.items():
            plan = "\n".join(row["QUERY PLAN"] for row in connection.execute(f"EXPLAIN {query}"))
            assert index in plan, plan
            assert re.search(r"Index Cond: \(+tenant_id = ", plan), plan


def test_who_replays_reads_the_workspace_and_writes_none_of_it(app_url: str, ours: Filled) -> None:
    refused = (
        "feedback", "entities", "entity_responses", "shared_context", "user_memories", "agents", "chats", "messages",
        "tasks", "golden_sets", "eval_runs",
    )  # fmt: skip
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        connection.execute("SET LOCAL ROLE upshot_replay")
        assert one(connection, "SELECT count(*) FROM entities") == 1
        for table in refused:
            statements = (
                f"INSERT INTO {table} DEFAULT VALUES",
                f"UPDATE {table} SET tenant_id = tenant_id",
                f"DELETE FROM {table}",
            )
            for statement in statements:
                with pytest.raises(errors.InsufficientPrivilege), connection.transaction():
                    connection.execute(statement)
        for statement in ("UPDATE sessions SET metadata = '{}'", "DELETE FROM sessions", "SET ROLE upshot_owner"):
            with pytest.raises(errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
