"""The doors are exactly these, hand out ids only, and signing in binds what it should."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from tests.db.rows import Connection, Filled, acting, add, bind, fill, one

pytestmark = pytest.mark.core

DOORS = {
    "door_claim",
    "door_counts",
    "door_deliveries",
    "door_due",
    "door_invite",
    "door_judgements",
    "door_key",
    "door_login",
    "door_memberships",
    "door_receptions",
    "door_search",
    "door_unchecked",
}


@pytest.fixture
def ours(app_url: str) -> Filled:
    return fill(app_url)


def bound(connection: Connection) -> list[Any]:
    names = ("app.tenant_id", "app.user_id", "app.role")
    return [one(connection, "SELECT current_setting(%s, true)", name) for name in names]


def test_the_list_of_doors_is_exact(superuser_url: str) -> None:
    with psycopg.connect(superuser_url) as connection:
        doors = connection.execute(
            "SELECT proname, proconfig, prorettype::regtype::text, proargmodes, proallargtypes::regtype[]::text[],"
            " has_function_privilege('public', oid, 'EXECUTE'), has_function_privilege('upshot_app', oid, 'EXECUTE'),"
            " pg_get_userbyid(proowner) FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
        ).fetchall()
    assert {door[0] for door in doors} == DOORS
    for name, config, returned, modes, types, public, app, owner in doors:
        assert config == ["search_path=pg_catalog, public, pg_temp"], name
        assert (public, app, owner) == (False, True, "upshot_door"), name
        columns = {kind for mode, kind in zip(modes or (), types or (), strict=True) if mode == "t"} or {returned}
        assert columns <= {"uuid", "integer", "bigint"}, name


def test_the_door_role_reads_only_named_columns(superuser_url: str) -> None:
    with psycopg.connect(superuser_url) as connection:
        whole = connection.execute(
            "SELECT table_name, privilege_type FROM information_schema.table_privileges WHERE grantee = 'upshot_door'"
        ).fetchall()
        written = connection.execute(
            "SELECT DISTINCT table_name, privilege_type FROM information_schema.column_privileges"
            " WHERE grantee = 'upshot_door' AND privilege_type <> 'SELECT'"
        ).fetchall()
        texts = connection.execute(
            "SELECT table_name || '.' || column_name FROM information_schema.column_privileges"
            " WHERE grantee = 'upshot_door' AND privilege_type = 'SELECT' AND column_name IN"
            " ('comment', 'content', 'title', 'payload', 'metadata', 'name', 'password_hash', 'settings', 'secret')"
        ).fetchall()
    assert (whole, written, texts) == ([], [("sessions", "UPDATE")], [])


def test_a_key_binds_its_person_and_workspace(app_url: str, ours: Filled) -> None:
    with acting(app_url, None) as connection:
        found = connection.execute("SELECT * FROM bind_credential(%s)", (f"key-{ours.secret}",)).fetchall()
        assert found == [
            {
                "kind": "key",
                "credential_id": ours["api_keys"],
                "user_id": ours.user,
                "tenant_id": ours.tenant,
                "role": "admin",
                "scopes": ["admin"],
                "name": "P",
                "email": f"{ours.secret}@example.test",
                "tenant_name": "W",
                "tenant_slug": f"w-{ours.secret}",
                "seen_at": None,
            }
        ]
        assert bound(connection) == [str(ours.tenant), str(ours.user), "admin"]
        assert one(connection, "SELECT count(*) FROM feedback") == 1


def test_a_login_binds_and_a_key_without_the_admin_scope_binds_a_member(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user) as connection:
        connection.execute("UPDATE api_keys SET scopes = '{feedback}'")
        connection.commit()
        found = connection.execute("SELECT * FROM bind_credential(%s)", (ours.secret,)).fetchone()
        assert found is not None
        assert (found["kind"], found["credential_id"], found["scopes"]) == ("login", ours["login_sessions"], None)
        assert found["seen_at"] is not None
        assert bound(connection)[2] == "admin"
        connection.execute("SELECT * FROM bind_credential(%s)", (f"key-{ours.secret}",))
        assert bound(connection)[2] == "member"


def test_dead_credentials_bind_nothing(app_url: str, ours: Filled) -> None:
    ends = {
        f"key-{ours.secret}": (
            "UPDATE api_keys SET revoked_at = now()",
            "UPDATE api_keys SET expires_at = now() - interval '1 s'",
            "DELETE FROM memberships",
        ),
        ours.secret: (
            "UPDATE login_sessions SET revoked_at = now()",
            "UPDATE login_sessions SET created_at = now() - interval '2 d', expires_at = now() - interval '1 s'",
            "DELETE FROM login_sessions",
            "DELETE FROM memberships",
        ),
        secrets.token_hex(): ("SELECT 1",),
    }
    for credential, statements in ends.items():
        for statement in statements:
            with acting(app_url, ours.tenant, ours.user, "system") as connection:
                connection.execute(statement)
                connection.execute("SELECT set_config('app.tenant_id', '', true), set_config('app.user_id', '', true)")
                assert connection.execute("SELECT * FROM bind_credential(%s)", (credential,)).fetchall() == []
                assert bound(connection)[:2] == ["", ""], statement


def test_sign_in_finds_people_and_their_workspaces(app_url: str, ours: Filled) -> None:
    second = fill(app_url)
    with acting(app_url, second.tenant, second.user, "system") as connection:
        connection.execute(
            "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'member')", (second.tenant, ours.user)
        )
        connection.commit()
    with acting(app_url, None) as connection:
        assert one(connection, "SELECT door_login(%s)", f"{ours.secret}@EXAMPLE.test") == ours.user
        assert one(connection, "SELECT door_login('nobody@example.test')") is None
        workspaces = [
            row["door_memberships"] for row in connection.execute("SELECT door_memberships(%s)", (ours.user,))
        ]
        assert workspaces == [ours.tenant, second.tenant]
        connection.execute("SELECT set_config('app.user_id', %s, true)", (str(ours.user),))
        seen = {row["id"] for row in connection.execute("SELECT id FROM tenants")}
        assert seen == {ours.tenant, second.tenant}
        assert one(connection, "SELECT email FROM users") == f"{ours.secret}@example.test"


def test_a_link_opens_until_it_was_used(app_url: str, ours: Filled) -> None:
    with acting(app_url, None) as connection:
        found = connection.execute("SELECT * FROM door_invite(%s)", (ours.secret,)).fetchall()
        assert found == [{"link_id": ours["one_time_links"], "tenant_id": ours.tenant, "user_id": ours.user}]
        bind(connection, ours.tenant, ours.user, "system")
        connection.execute("UPDATE one_time_links SET used_at = now()")
        assert connection.execute("SELECT * FROM door_invite(%s)", (ours.secret,)).fetchall() == []


def new_session(connection: Connection, ours: Filled, status: str = "pending", **columns: Any) -> UUID:
    names, places = "".join(f", {name}" for name in columns), ", %s" * len(columns)
    statement = (
        "INSERT INTO sessions (tenant_id, title, agent_id, created_by, created_at, status"
        f"{names}) VALUES (%s, 'Claim me', %s, %s, '1990-01-01', %s{places}) RETURNING id"
    )
    found: UUID = one(connection, statement, ours.tenant, ours["agents"], ours.user, status, *columns.values())
    return found


def test_work_is_claimed_once_and_again_when_the_lease_ran_out(app_url: str, ours: Filled) -> None:
    lease = timedelta(minutes=5)
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        waiting = new_session(connection, ours)
        expired = new_session(connection, ours, "running", attempt=1, lease_until="1991-01-01")
        exhausted = new_session(connection, ours, "running", attempt=3, lease_until="1991-01-01")
        elsewhere = new_session(connection, ours, "running")
        claimed = connection.execute("SELECT * FROM door_claim('me', 1000, %s)", (lease,)).fetchall()
        mine = {row["session_id"]: row["attempt"] for row in claimed if row["tenant_id"] == ours.tenant}
        assert mine == {waiting: 1, expired: 2, exhausted: 4}
        again = connection.execute("SELECT * FROM door_claim('you', 1000, %s)", (lease,)).fetchall()
        assert not {row["session_id"] for row in again} & {waiting, expired, exhausted, elsewhere}
        row = connection.execute("SELECT * FROM sessions WHERE id = %s", (waiting,)).fetchone()
        assert row is not None
        assert (row["status"], row["lease_owner"], row["started_at"] is None) == ("running", "me", False)
        connection.execute("UPDATE agents SET kind = 'external'")
        outside = new_session(connection, ours)
        rest = connection.execute("SELECT * FROM door_claim('me', 1000, %s)", (lease,)).fetchall()
        assert outside not in {row["session_id"] for row in rest}


def test_people_do_not_wait_behind_replays(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        replays = {new_session(connection, ours, metadata='{"eval_source": "x"}') for _ in range(3)}
        connection.execute("UPDATE sessions SET created_at = '1980-01-01' WHERE id = ANY(%s)", (list(replays),))
        asked = new_session(connection, ours)
        claim = "SELECT session_id FROM door_claim('me', 1, '1 minute')"
        # Other tests may have left sessions of their own workspaces.
        claimed = iter(lambda: one(connection, claim), None)
        order = [session_id for session_id in claimed if session_id in {asked, *replays}]
        assert order[0] == asked
        assert set(order[1:]) == replays


def test_due_tasks_and_counts(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        due = "SELECT task_id FROM door_due(now()) WHERE tenant_id = %s"
        assert one(connection, due, ours.tenant) is None
        connection.execute("UPDATE tasks SET enabled = true, next_run_at = now()")
        assert one(connection, due, ours.tenant) == ours["tasks"]
        before = connection.execute("SELECT * FROM door_counts()").fetchone()
        assert before is not None
        assert before["tenants"] >= 1
        assert before["tasks_due"] >= 1
        assert before["feedback_pending"] >= 1


def test_search_finds_words_of_the_bound_workspace_newest_first(app_url: str, ours: Filled) -> None:
    other = fill(app_url)
    expected = {
        "feedback": ("wrong figures", ours["feedback"]),
        "any feedback": ("wrong figures", ours["feedback"]),
        "sessions": ("filing", ours["sessions"]),
        "any sessions": ("filing", ours["sessions"]),
        "chats": ("deal", ours["chats"]),
        "messages": ("ebitda", ours["chats"]),
        "knowledge": ("thousands", ours["shared_context"]),
    }
    with acting(app_url, ours.tenant, ours.user) as connection:
        for kind, (words, found) in expected.items():
            assert one(connection, "SELECT array_agg(id) FROM door_search(%s, %s, 10)", kind, words) == [found], kind
            assert one(connection, "SELECT array_agg(id) FROM door_search(%s, 'absent', 10)", kind) is None
            assert one(connection, "SELECT array_agg(id) FROM door_search(%s, '', 10)", kind) is None
        newer = add(connection, "feedback", ours.tenant, ours.ids)
        connection.execute("UPDATE feedback SET created_at = now() + interval '1 s' WHERE id = %s", (newer,))
        both = [row["id"] for row in connection.execute("SELECT id FROM door_search('feedback', 'figure', 10)")]
        assert both == [newer, ours["feedback"]]
        assert one(connection, "SELECT count(*) FROM door_search('feedback', 'figure', 1)") == 1
        assert one(connection, "SELECT count(*) FROM door_search('feedback', 'figure', -1)") == 0
        with pytest.raises(errors.InvalidParameterValue), connection.transaction():
            connection.execute("SELECT * FROM door_search('users', 'x', 1)")
    with acting(app_url, None) as connection:
        assert one(connection, "SELECT count(*) FROM door_search('feedback', 'figure', 1000)") == 0
    assert other.tenant != ours.tenant
