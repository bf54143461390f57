"""Goldens stay as they are, history is not rewritten, and only a purge removes either."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row

from app.evals.snapshot import snapshot_hash
from tests.db.rows import ROWS, Connection, Filled, acting, bind, fill, one

pytestmark = pytest.mark.core

SNAPSHOT = {"n": 1, "turns": ["Hello"]}
MARK = json.dumps(
    {"set": "default", "note": "n", "criteriaSetId": None, "sha256": snapshot_hash(SNAPSHOT), "snapshot": SNAPSHOT}
)
GOLDEN = f"""'{{"golden": {MARK}, "k": 1}}'"""
NEW_EVENT = "INSERT INTO session_events (tenant_id, session_id, sequence, event_type) VALUES (%s, %s, 2, 'tool.call')"
REFUSED = (errors.CheckViolation, errors.RestrictViolation, errors.InsufficientPrivilege, errors.ForeignKeyViolation)


@pytest.fixture
def ours(app_url: str) -> Filled:
    return fill(app_url)


@pytest.fixture
def golden(app_url: str, ours: Filled) -> Filled:
    """A workspace whose session is golden."""
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        connection.execute(f"UPDATE sessions SET metadata = {GOLDEN}")
        connection.commit()
    return ours


def as_it_was(connection: Connection) -> Any:
    return one(
        connection, "SELECT md5(string_agg(s::text || e::text, '')) FROM sessions s LEFT JOIN session_events e ON true"
    )


def test_a_golden_withstands_every_attack(app_url: str, golden: Filled) -> None:
    session = golden["sessions"]
    attacks = [
        "DELETE FROM sessions",
        "UPDATE sessions SET status = 'failed'",
        "UPDATE sessions SET metadata = metadata - 'golden', status = 'failed'",
        "UPDATE sessions SET metadata = metadata - 'golden', title = 'x'",
        "UPDATE sessions SET metadata = '{}'",
        """UPDATE sessions SET metadata = '{"golden": {"set": "default"}}'""",
        "UPDATE sessions SET metadata = metadata - 'k'",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{k}', '2')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{k}', '1.0')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,snapshot,n}', '2')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,snapshot,n}', '1.0')",
        "UPDATE sessions SET metadata = metadata #- '{golden,snapshot}'",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,sha256}', '\"x\"')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,extra}', '1')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden}', 'null')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden}', '[]')",
        "UPDATE sessions SET metadata = metadata #- '{golden,set}'",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,set}', '\"No slug\"')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{eval_source}', '\"x\"')",
        "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,note}', '\"x\"'), model = 'x'",
        "UPDATE sessions SET created_at = now()",
        "UPDATE sessions SET event_count = 9",
        "UPDATE sessions SET id = gen_random_uuid()",
        "UPDATE sessions SET agent_version_id = NULL",
        NEW_EVENT.replace("%s", "'{}'").format(golden.tenant, session),
        "UPDATE session_events SET payload = '{\"x\": 1}'",
        "UPDATE session_events SET session_id = gen_random_uuid()",
        "DELETE FROM session_events",
        "DELETE FROM chats",
        "DELETE FROM entities",
        "DELETE FROM agents",
        "DELETE FROM agent_versions",
        "DELETE FROM tenants",
        "INSERT INTO sessions (id, tenant_id, title, agent_id, created_by)"
        " SELECT id, tenant_id, title, agent_id, created_by"
        " FROM sessions ON CONFLICT (id) DO UPDATE SET title = 'x'",
        "MERGE INTO sessions s USING (SELECT 1) AS one ON true WHEN MATCHED THEN UPDATE SET title = 'x'",
        "MERGE INTO session_events e USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE",
        "WITH stripped AS (UPDATE sessions SET metadata = metadata - 'golden', tags = '{x}' RETURNING id)"
        " SELECT count(*) FROM stripped",
        "TRUNCATE sessions CASCADE",
        "TRUNCATE session_events",
        "ALTER TABLE sessions DISABLE TRIGGER ALL",
        "ALTER TABLE sessions NO FORCE ROW LEVEL SECURITY",
        "DROP TABLE session_events",
        "SET LOCAL session_replication_role = replica",
        "SELECT purge_tenant(tenant_id) FROM sessions",
    ]
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        before = as_it_was(connection)
        for attack in attacks:
            with pytest.raises(REFUSED), connection.transaction():
                connection.execute(attack)
            connection.execute("SELECT set_config('app.purging', %s, true)", (str(golden.tenant),))
            with pytest.raises(REFUSED), connection.transaction():
                connection.execute(attack)
            connection.execute("SELECT set_config('app.purging', '', true)")
        assert as_it_was(connection) == before


def test_a_golden_can_be_renamed_noted_judged_otherwise_and_revoked(app_url: str, golden: Filled) -> None:
    edits = [
        "jsonb_set(metadata, '{golden,set}', '\"smoke\"')",
        "metadata #- '{golden,note}'",
        f"jsonb_set(metadata, '{{golden,criteriaSetId}}', '\"{golden['criteria_sets']}\"')",
    ]
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        for edit in edits:
            assert connection.execute(f"UPDATE sessions SET metadata = {edit}").rowcount == 1
        assert one(connection, "SELECT golden_set FROM sessions") == "smoke"
        with pytest.raises(errors.RestrictViolation), connection.transaction():
            connection.execute("DELETE FROM criteria_sets")
        connection.execute("UPDATE sessions SET metadata = metadata - 'golden'")
        assert one(connection, "SELECT golden_set FROM sessions") is None
        connection.execute("DELETE FROM criteria_sets")
        connection.execute("DELETE FROM sessions")
        assert one(connection, "SELECT count(*) FROM session_events") == 0


RUN = "UPDATE eval_runs SET status = 'completed', completed_at = now()"
CASE = """INSERT INTO sessions (tenant_id, title, agent_id, created_by, status, metadata)
    SELECT tenant_id, 't', agent_id, created_by, %s, jsonb_build_object('eval_run_id', id, 'eval_source', %s::text,
           'eval_trial', %s::text, 'eval_result', jsonb_build_object('verdict', %s::text)) FROM eval_runs"""


RETRIED = """INSERT INTO sessions (tenant_id, title, agent_id, created_by, metadata) SELECT tenant_id, 't', agent_id,
    created_by, jsonb_build_object('eval_run_id', id, 'eval_source', 'd', 'eval_trial', '1') FROM eval_runs"""


def test_the_figures_of_a_run_are_those_of_its_cases_and_stay(app_url: str, ours: Filled) -> None:
    early = [
        "INSERT INTO eval_runs (tenant_id, name, config_hash, passed_count)"
        " SELECT tenant_id, 'x', 'x', 1 FROM eval_runs",
        "INSERT INTO eval_runs (tenant_id, name, config_hash, status, completed_at)"
        " SELECT tenant_id, 'x', 'x', 'completed', now() FROM eval_runs",
        "UPDATE eval_runs SET passed_count = 1",
        """UPDATE eval_runs SET results = '{"accuracy": 1}'""",
        f"{RUN}, passed_count = 3",
        f'{RUN}, passed_count = 1, failed_count = 2, results = \'{{"verdicts": {{"pass": 3}}}}\'',
        f'{RUN}, passed_count = 1, failed_count = 0, results = \'{{"verdicts": {{"pass": 1}}}}\'',
    ]
    late = [
        "UPDATE eval_runs SET passed_count = 3, failed_count = 0",
        "UPDATE eval_runs SET failed_count = failed_count - 1",
        """UPDATE eval_runs SET results = '{"verdicts": {"pass": 3}}'""",
        "UPDATE eval_runs SET golden_session_count = 9",
        "UPDATE eval_runs SET set_name = 'x', passed_count = 3",
        "UPDATE eval_runs SET completed_at = now() - interval '1 day'",
        "UPDATE eval_runs SET status = 'cancelled'",
        "UPDATE eval_runs SET status = 'running', completed_at = NULL, results = '{}'",
        "DELETE FROM eval_runs",
    ]
    with acting(app_url, ours.tenant, ours.user, "system") as connection:

        def attacked(attacks: list[str]) -> None:
            for attack in attacks:
                with pytest.raises(REFUSED), connection.transaction():
                    connection.execute(attack)

        for case in (
            ("a", "0", "pass"),
            ("b", "0", "pass"),
            ("b", "1", "fail"),
            ("c", "0", "fail"),
            ("d", "0", "errored"),
        ):
            connection.execute(CASE, ("completed", *case))
        attacked(early)
        with connection.transaction(force_rollback=True):
            connection.execute(CASE, ("running", "e", "0", "pass"))
            attacked([f'{RUN}, passed_count = 2, failed_count = 2, results = \'{{"verdicts": {{"pass": 2}}}}\''])
        connection.execute(f'{RUN}, passed_count = 1, failed_count = 2, results = \'{{"verdicts": {{"pass": 1}}}}\'')
        attacked(late)
        connection.execute(RETRIED)
        connection.execute("UPDATE eval_runs SET status = 'running', completed_at = NULL, results = '{}'")


def test_only_a_completed_session_that_is_no_replay_becomes_golden(app_url: str, ours: Filled) -> None:
    insert = (
        "INSERT INTO sessions (tenant_id, title, agent_id, created_by, status, metadata)"
        f" VALUES (%s, 't', %s, %s, %s, {GOLDEN})"
    )
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for status in ("pending", "running", "failed", "cancelled"):
            with pytest.raises(errors.CheckViolation), connection.transaction():
                connection.execute(insert, (ours.tenant, ours["agents"], ours.user, status))
        connection.execute('UPDATE sessions SET metadata = \'{"eval_source": "x"}\'')
        with pytest.raises(errors.CheckViolation), connection.transaction():
            connection.execute('UPDATE sessions SET metadata = metadata || \'{"golden": {"set": "a"}}\'')
        connection.execute("UPDATE sessions SET metadata = '{}'")
        whole = json.loads(MARK)
        parts = [
            whole | {"snapshot": None},
            whole | {"snapshot": {}},
            whole | {"snapshot": {"turns": []}},
            whole | {"sha256": "abc"},
            {name: value for name, value in whole.items() if name != "sha256"},
            {name: value for name, value in whole.items() if name != "snapshot"},
        ]
        for mark in ("null", "[]", "1", "{}", '{"set": "A b"}', '{"set": "a"}', *map(json.dumps, parts)):
            with pytest.raises(errors.CheckViolation), connection.transaction():
                connection.execute("UPDATE sessions SET metadata = jsonb_build_object('golden', %s::jsonb)", (mark,))


def test_ended_sessions_keep_their_status(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for ended in ("completed", "failed", "cancelled"):
            insert = (
                "INSERT INTO sessions (tenant_id, title, agent_id, created_by, status)"
                " VALUES (%s, 't', %s, %s, 'running') RETURNING id"
            )
            session = one(connection, insert, ours.tenant, ours["agents"], ours.user)
            connection.execute("UPDATE sessions SET status = %s WHERE id = %s", (ended, session))
            connection.execute("UPDATE sessions SET title = 'still editable' WHERE id = %s", (session,))
            for status in {"pending", "running", "completed", "failed", "cancelled"} - {ended}:
                with pytest.raises(errors.CheckViolation), connection.transaction():
                    connection.execute("UPDATE sessions SET status = %s WHERE id = %s", (status, session))


def test_links_are_cut_or_followed_under_the_policies(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "admin") as connection:
        connection.execute("DELETE FROM sessions")
        assert one(connection, "SELECT count(*) FROM session_events") == 0
        for table in ("messages", "entity_responses", "feedback"):
            row = connection.execute(f"SELECT tenant_id, session_id FROM {table}").fetchone()
            assert row == {"tenant_id": ours.tenant, "session_id": None}, table
        connection.execute("DELETE FROM feedback")
        assert one(connection, "SELECT source_feedback_id IS NULL FROM shared_context")
        assert one(connection, "SELECT count(*) FROM shared_context_feedback") == 0
        connection.execute("DELETE FROM chats")
        assert one(connection, "SELECT count(*) FROM messages") == 0


def test_history_is_not_rewritten_by_the_owner_either(owner_url: str, ours: Filled) -> None:
    with acting(owner_url, ours.tenant, ours.user, "system") as connection:
        for table in ("audit_log", "shared_context_history", "agent_versions", "session_events"):
            assert one(connection, f"SELECT count(*) FROM {table}") == 1
            for statement in (f"UPDATE {table} SET created_at = now()", f"DELETE FROM {table}"):
                with pytest.raises(errors.RestrictViolation), connection.transaction():
                    connection.execute(statement)


def test_new_feedback_is_pending_unless_the_retry_applied_it(app_url: str, ours: Filled) -> None:
    insert = (
        "INSERT INTO feedback (tenant_id, source_type, rating, created_by, status, reviewed_by_user_id, reviewed_at,"
        " review_notes, context) VALUES (%s, %s, 'negative', %s, %s, %s, now(), 'n', %s::jsonb)"
    )
    with acting(app_url, ours.tenant, ours.user, "system") as connection:

        def begin(source: str, status: str, context: str) -> None:
            with connection.transaction():
                connection.execute(insert, (ours.tenant, source, ours.user, status, ours.user, context))

        begin("extraction", "applied", '{"retry_ref": "s1"}')
        for source, status, context in (
            ("extraction", "applied", "{}"),
            ("extraction", "applied", '{"retry_ref": ""}'),
            ("extraction", "reviewed", '{"retry_ref": "s1"}'),
            ("chat", "applied", '{"retry_ref": "s1"}'),
            ("chat", "dismissed", "{}"),
        ):
            with pytest.raises(errors.CheckViolation):
                begin(source, status, context)


def test_words_that_must_be_there(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        for statement in (
            "UPDATE feedback SET status = 'dismissed', reviewed_at = now(), reviewed_by_user_id = created_by",
            "UPDATE feedback SET status = 'reviewed', reviewed_at = now()",
            "UPDATE feedback SET status = 'reviewed', reviewed_by_user_id = created_by",
            "UPDATE entity_responses SET status = 'rejected'",
            "UPDATE entity_responses SET status = 'rejected', rejection_reason = ''",
            "UPDATE shared_context SET active = false",
            "UPDATE shared_context SET content = ''",
        ):
            with pytest.raises(errors.CheckViolation), connection.transaction():
                connection.execute(statement)


def test_a_decision_outlives_its_reviewer(superuser_url: str, ours: Filled) -> None:
    with psycopg.connect(superuser_url, row_factory=dict_row) as connection:
        leaver = one(connection, "INSERT INTO users (email, name) VALUES ('leaver@example.test', 'L') RETURNING id")
        retired = one(
            connection,
            "INSERT INTO agents (tenant_id, slug, name, kind) VALUES (%s, 'retired', 'R', 'builtin') RETURNING id",
            ours.tenant,
        )
        decided = "UPDATE feedback SET status = 'reviewed', reviewed_at = now(), reviewed_by_user_id = %s,"
        for user, agent, deleted in (
            (leaver, None, "DELETE FROM users WHERE id = %s"),
            (None, retired, "DELETE FROM agents WHERE id = %s"),
        ):
            connection.execute(f"{decided} reviewed_by_agent_id = %s WHERE id = %s", (user, agent, ours["feedback"]))
            connection.execute(deleted, (user or agent,))
            row = connection.execute("SELECT * FROM feedback WHERE id = %s", (ours["feedback"],)).fetchone()
            assert row is not None
            assert (row["status"], row["tenant_id"], row["reviewed_at"] is not None) == ("reviewed", ours.tenant, True)
            assert (row["reviewed_by_user_id"], row["reviewed_by_agent_id"]) == (None, None)
        with pytest.raises(errors.CheckViolation), connection.transaction():
            connection.execute(
                "UPDATE feedback SET reviewed_by_user_id = %s, reviewed_by_agent_id = %s WHERE id = %s",
                (ours.user, ours["agents"], ours["feedback"]),
            )
        connection.rollback()


def test_a_late_event_waits_for_a_promotion_and_is_refused(app_url: str, ours: Filled) -> None:
    """Promotion and append at once: whichever commits first, no golden has an event that came after it."""
    outcome: list[type[BaseException] | None] = []

    def append() -> None:
        with acting(app_url, ours.tenant, ours.user, "system") as late:
            try:
                late.execute(NEW_EVENT, (ours.tenant, ours["sessions"]))
                outcome.append(None)
            except errors.CheckViolation as refused:
                outcome.append(type(refused))

    with acting(app_url, ours.tenant, ours.user, "system") as promoting:
        promoting.execute(f"UPDATE sessions SET metadata = {GOLDEN}")
        thread = threading.Thread(target=append)
        thread.start()
        thread.join(0.2)
        promoting.commit()
        thread.join(60)
    assert outcome == [errors.CheckViolation]


def test_purging_removes_a_workspace_and_nothing_else(app_url: str, owner_url: str, golden: Filled) -> None:
    other = fill(app_url)
    with acting(app_url, other.tenant, other.user, "system") as connection:
        connection.execute(
            "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'member')", (other.tenant, golden.user)
        )
        connection.commit()
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        lonely = one(connection, "INSERT INTO users (name, is_system) VALUES ('S', true) RETURNING id")
        connection.execute(
            "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'system')", (golden.tenant, lonely)
        )
        connection.commit()
    with acting(owner_url, None) as connection:
        counts = one(connection, "SELECT purge_tenant(%s)", golden.tenant)
        assert one(connection, "SELECT current_setting('app.purging', true)") == ""
        connection.commit()
        assert counts == dict.fromkeys(ROWS, 1) | {"memberships": 2, "tenants": 1, "users": 1}
        assert one(connection, "SELECT counts FROM purges WHERE workspace_id = %s", golden.tenant) == counts
        for filled, expected in ((golden, 0), (other, 1)):
            bind(connection, filled.tenant, filled.user, "system")
            for table in ROWS:
                assert one(connection, f"SELECT count(*) FROM {table}") == expected, table
            assert one(connection, "SELECT count(*) FROM tenants") == expected
        bind(connection, other.tenant, None, "system")
        assert one(connection, "SELECT count(*) FROM users WHERE id = %s", golden.user) == 1


def test_the_superuser_of_the_tests_can_purge_too(superuser_url: str, golden: Filled) -> None:
    with psycopg.connect(superuser_url) as connection:
        connection.execute("SELECT purge_tenant(%s)", (golden.tenant,))
        left = connection.execute("SELECT count(*) FROM sessions WHERE tenant_id = %s", (golden.tenant,)).fetchone()
        connection.rollback()
    assert left == (0,)
