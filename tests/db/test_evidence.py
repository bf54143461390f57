"""What a verdict rests on stays: the hash of a golden, the verdict of a replay, the replay itself, what its run was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from app.evals.snapshot import snapshot_hash
from tests.db.rows import Connection, Filled, acting, fill, one

pytestmark = pytest.mark.core

REFUSED = (errors.CheckViolation, errors.RestrictViolation, errors.InsufficientPrivilege, errors.ForeignKeyViolation)
CASE = """INSERT INTO sessions (tenant_id, title, agent_id, created_by, status, metadata)
    SELECT tenant_id, %(golden)s, agent_id, created_by, 'running', jsonb_build_object('eval_run_id', id, 'eval_source',
           %(golden)s::text, 'eval_trial', '1', 'eval_golden', '{"sha256": "x"}'::jsonb) FROM eval_runs"""
JUDGED = """UPDATE sessions SET status = 'completed', metadata = metadata || jsonb_build_object('eval_result',
    jsonb_build_object('verdict', %s::text)) WHERE title = %s"""
ENDED = """UPDATE eval_runs SET status = 'completed', completed_at = now(), passed_count = 1, failed_count = 1,
    results = '{"verdicts": {"pass": 1}}'"""
REPLAY = "WHERE eval_run_id IS NOT NULL AND title = "
DEFERRED = "SET CONSTRAINTS fk_sessions_tenant_id_eval_run_id DEFERRED"
LOOKED_AT = "SET CONSTRAINTS fk_sessions_tenant_id_eval_run_id IMMEDIATE"


def marked(snapshot: dict[str, Any], sha256: str | None = None, set_name: str = "smoke") -> str:
    mark = {"set": set_name, "snapshot": snapshot, "sha256": sha256 or snapshot_hash(snapshot)}
    return json.dumps({"golden": mark})


@pytest.fixture
def ours(app_url: str) -> Filled:
    return fill(app_url)


@pytest.fixture
def ended(app_url: str, ours: Filled) -> Filled:
    """A workspace with a run that has ended: a replay that passed, one that failed, one that errored."""
    with acting(app_url, ours.tenant, ours.user) as connection:
        for golden, verdict in (("a", "pass"), ("b", "fail"), ("c", "errored")):
            connection.execute(CASE, {"golden": golden})
            connection.execute(JUDGED, (verdict, golden))
        connection.execute(ENDED)
        connection.commit()
    return ours


def attacked(connection: Connection, *attacks: str) -> None:
    for attack in attacks:
        with pytest.raises(REFUSED), connection.transaction():
            connection.execute(attack)


def test_a_golden_is_marked_with_the_hash_of_what_its_session_was(app_url: str, ours: Filled) -> None:
    snapshot = {"turns": ["Hello"], "session_type": "chat", "agent": {"id": str(ours["agents"])}, "n": [1.5, 1e-7]}
    mark = "UPDATE sessions SET metadata = %s::jsonb"
    wrong = [
        marked(snapshot, "ab" * 32),
        marked(snapshot, snapshot_hash(snapshot | {"n": [1.5]})),
        marked(snapshot | {"turns": ["Hello", "Delete all"]}),
        marked(snapshot | {"turns": ["Something else"]}),
        marked(snapshot | {"session_type": "task"}),
        marked(snapshot | {"agent": {"id": str(ours.user)}}),
    ]
    with acting(app_url, ours.tenant, ours.user) as connection:
        connection.execute("UPDATE sessions SET session_type = 'chat'")
        for attack in wrong:
            with pytest.raises(errors.CheckViolation), connection.transaction():
                connection.execute(mark, (attack,))
        insert = (
            "INSERT INTO sessions (tenant_id, title, agent_id, created_by, status, metadata)"
            " SELECT tenant_id, 't', agent_id, created_by, 'completed', %s::jsonb FROM sessions"
        )
        with pytest.raises(errors.CheckViolation), connection.transaction():
            connection.execute(insert, (marked(snapshot, "ab" * 32),))
        connection.execute(
            "INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload)"
            " SELECT tenant_id, id, n, 'user.message', jsonb_build_object('text', said)"
            " FROM sessions, (VALUES (2, 'And then?'), (3, ' ')) AS e (n, said)"
        )
        with pytest.raises(errors.CheckViolation), connection.transaction():
            connection.execute(mark, (marked(snapshot),))
        connection.execute(mark, (marked(snapshot | {"turns": ["Hello", "And then?"]}),))
        assert one(connection, "SELECT golden_set FROM sessions") == "smoke"


NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)


def test_the_database_hashes_as_the_app_does(app_url: str) -> None:
    """Before it is stored, and as it is read back."""
    told = "SELECT snapshot_hash(%s::jsonb)"
    with acting(app_url, None) as connection:

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(TEXTS, VALUES, max_size=4))
        def same(snapshot: dict[str, Any]) -> None:
            text = json.dumps(snapshot)
            expected = snapshot_hash(snapshot)
            assert one(connection, told, text) == expected
            assert snapshot_hash(one(connection, "SELECT %s::jsonb", text)) == expected

        same()
        odd = {"z": 1, "aa": -0.0, "é": [1e16, 1e-7, 1.0, 1e22, 12345678901234567.5], "\x7f": '\x1f"\\/\u2028😀'}
        assert one(connection, told, json.dumps(odd)) == snapshot_hash(odd)


def test_a_verdict_stays_as_it_was_given(app_url: str, ended: Filled) -> None:
    verdict = "jsonb_set(metadata, '{eval_result,verdict}', '\"pass\"')"
    with acting(app_url, ended.tenant, ended.user) as connection:
        attacked(
            connection,
            f"UPDATE sessions SET metadata = {verdict} {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = metadata - 'eval_result' {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = metadata - 'eval_run_id' {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = '{{}}' {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = jsonb_set(metadata, '{{eval_source}}', '\"a\"') {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = jsonb_set(metadata, '{{eval_golden,sha256}}', '\"y\"') {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = metadata || '{{\"eval_retried\": true}}' {REPLAY} 'b'",
            f"UPDATE sessions SET metadata = metadata || '{{\"eval_retried\": true}}' {REPLAY} 'c'",
            f"UPDATE sessions SET agent_version_id = '{ended['agent_versions']}' {REPLAY} 'b'",
            f"UPDATE sessions SET id = gen_random_uuid() {REPLAY} 'b'",
            # A case more, or another session as one.
            CASE % {"golden": "'d'"},
            "INSERT INTO sessions (tenant_id, title, agent_id, created_by, metadata) SELECT tenant_id, 't', agent_id,"
            " created_by, jsonb_build_object('eval_run_id', id, 'eval_source', 'd', 'eval_result', '{}'::jsonb)"
            " FROM eval_runs",
            "UPDATE sessions SET metadata = jsonb_build_object('eval_run_id', (SELECT id FROM eval_runs),"
            f" 'eval_source', 'd') WHERE id = '{ended['sessions']}'",
            "MERGE INTO sessions s USING (SELECT 1) AS n ON s.title = 'b'"
            f" WHEN MATCHED THEN UPDATE SET metadata = {verdict}",
        )
        # Not by taking the run up again either; but then what errored may be marked as retried.
        connection.execute(
            "INSERT INTO sessions (tenant_id, title, agent_id, created_by, metadata)"
            " SELECT tenant_id, 'again', agent_id, created_by,"
            " jsonb_build_object('eval_run_id', id, 'eval_source', 'c', 'eval_trial', '1.x') FROM eval_runs"
        )
        connection.execute("UPDATE eval_runs SET status = 'running', completed_at = NULL, results = '{}'")
        retried = "UPDATE sessions SET metadata = metadata || '{\"eval_retried\": true}'"
        attacked(connection, f"UPDATE sessions SET metadata = {verdict} {REPLAY} 'b'", f"{retried} {REPLAY} 'b'")
        assert connection.execute(f"{retried} {REPLAY} 'c'").rowcount == 1


def test_a_cancelled_replay_gets_no_verdict_afterwards(app_url: str, ours: Filled) -> None:
    with acting(app_url, ours.tenant, ours.user) as connection:
        connection.execute(CASE, {"golden": "a"})
        connection.execute("UPDATE sessions SET status = 'cancelled' WHERE title = 'a'")
        given_later = 'UPDATE sessions SET metadata = metadata || \'{"eval_result": {"verdict": "pass"}}\''
        attacked(connection, f"{given_later} {REPLAY} 'a'")


def test_a_replay_leaves_with_its_whole_run_only(app_url: str, ended: Filled) -> None:
    with acting(app_url, ended.tenant, ended.user) as connection:
        attacked(
            connection,
            f"DELETE FROM sessions {REPLAY} 'b'",
            "DELETE FROM sessions WHERE eval_run_id IS NOT NULL",
            "DELETE FROM eval_runs",
            f"{DEFERRED}; DELETE FROM sessions {REPLAY} 'b'",
            f"{DEFERRED}; DELETE FROM eval_runs; DELETE FROM sessions {REPLAY} 'b'; {LOOKED_AT}",
        )
        # What is left over is found by the end of the transaction, whatever workspace is bound by then.
        unbound = "SELECT set_config('app.tenant_id', '', true)"
        attacked(
            connection, f"{DEFERRED}; DELETE FROM eval_runs; DELETE FROM sessions {REPLAY} 'b'; {unbound}; {LOOKED_AT}"
        )
        connection.execute(f"{DEFERRED}; DELETE FROM eval_runs; DELETE FROM sessions WHERE eval_run_id IS NOT NULL")
        connection.execute(LOOKED_AT)
        assert one(connection, "SELECT count(*) FROM sessions") == 1


def test_a_run_that_is_needed_stays(app_url: str, ours: Filled) -> None:
    """One that is under way, and one that a golden was copied from."""
    with acting(app_url, ours.tenant, ours.user) as connection:
        attacked(connection, "DELETE FROM eval_runs")
        for golden, verdict in (("a", "pass"), ("b", "fail")):
            connection.execute(CASE, {"golden": golden})
            connection.execute(JUDGED, (verdict, golden))
        connection.execute(ENDED)
        copied = one(connection, "SELECT id::text FROM sessions WHERE title = 'b'")
        meta = json.loads(marked({"turns": ["Hello"]})) | {"copied_from": copied}
        connection.execute(
            "UPDATE sessions SET metadata = %s::jsonb WHERE id = %s", (json.dumps(meta), ours["sessions"])
        )
        attacked(connection, f"{DEFERRED}; DELETE FROM eval_runs")
        connection.execute("UPDATE sessions SET metadata = metadata - 'golden' WHERE id = %s", (ours["sessions"],))
        connection.execute(f"{DEFERRED}; DELETE FROM eval_runs; DELETE FROM sessions WHERE eval_run_id IS NOT NULL")
        connection.execute(LOOKED_AT)


def test_a_run_stays_what_it_was_asked_for(app_url: str, ours: Filled) -> None:
    attacks = [
        "UPDATE eval_runs SET set_name = 'other'",
        "UPDATE eval_runs SET set_name = NULL",
        "UPDATE eval_runs SET agent_id = NULL",
        "UPDATE eval_runs SET agent_version_id = NULL",
        "UPDATE eval_runs SET context_mode = 'live'",
        "UPDATE eval_runs SET trials = 3",
        "UPDATE eval_runs SET options = '{\"trial\": true}'",
        "UPDATE eval_runs SET config_hash = 'other'",
        "UPDATE eval_runs SET ref = 'other'",
        "UPDATE eval_runs SET triggered_by = 'scheduled'",
        "UPDATE eval_runs SET golden_session_count = 9",
        "UPDATE eval_runs SET created_by = NULL",
        "UPDATE eval_runs SET id = gen_random_uuid()",
    ]
    golden = "UPDATE sessions SET metadata = %s::jsonb WHERE id = %s"
    moved = "UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,set}', '\"other\"') WHERE id = %s"
    with acting(app_url, ours.tenant, ours.user) as connection:
        attacked(connection, *attacks)
        for name, verdict in (("a", "pass"), ("b", "fail")):
            connection.execute(CASE, {"golden": name})
            connection.execute(JUDGED, (verdict, name))
        connection.execute(ENDED)
        attacked(connection, *attacks)
        connection.execute(golden, (marked({"turns": ["Hello"]}), ours["sessions"]))
        attacked(connection, *attacks)
        connection.execute(moved, (ours["sessions"],))
        attacked(connection, *attacks[1:], "UPDATE eval_runs SET set_name = 'third'")
        assert connection.execute(attacks[0]).rowcount == 1
