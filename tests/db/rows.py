"""One row in every table of a workspace, and what tests of the walls do with them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

Connection = psycopg.Connection[dict[str, Any]]

# In the order that foreign keys allow. `{name}` stands for the id of an earlier row.
ROWS = {
    "agents": "(slug, name, kind) VALUES ('analyst', 'Analyst', 'builtin')",
    "agent_versions": "(agent_id, version) VALUES ('{agents}', 1)",
    "chats": "(title, user_id, agent_id) VALUES ('About deals', '{users}', '{agents}')",
    "entity_types": "(slug, name) VALUES ('deal', 'Deal')",
    "entities": "(entity_type_id, name) VALUES ('{entity_types}', 'Northwind')",
    "criteria_sets": "(slug, name) VALUES ('exact', 'Exact')",
    "criteria_set_versions": "(criteria_set_id, version, name) VALUES ('{criteria_sets}', 1, 'Exact')",
    "sessions": "(title, agent_id, agent_version_id, chat_id, entity_id, created_by, status)"
    " VALUES ('Reads a filing', '{agents}', '{agent_versions}', '{chats}', '{entities}', '{users}', 'completed')",
    "session_events": "(session_id, sequence, event_type, payload)"
    " VALUES ('{sessions}', 1, 'user.message', '{{\"text\": \"Hello\"}}')",
    "session_receptions": "(session_id) VALUES ('{sessions}')",
    "messages": "(chat_id, session_id, message_index, turn_id, role, content)"
    " VALUES ('{chats}', '{sessions}', 0, 't0', 'user', 'What is the EBITDA?')",
    "entity_responses": "(entity_id, criteria_set_id, session_id, agent_id, created_by)"
    " VALUES ('{entities}', '{criteria_sets}', '{sessions}', '{agents}', '{users}')",
    "feedback": "(source_type, rating, comment, session_id, entity_id, agent_id, created_by)"
    " VALUES ('session', 'negative', 'Wrong figure', '{sessions}', '{entities}', '{agents}', '{users}')",
    "feedback_comments": "(feedback_id, user_id, body) VALUES ('{feedback}', '{users}', 'Look at this one')",
    "feedback_daily": "(day, rating, total) VALUES (current_date, 'negative', 1)",
    "imports": "(kind, created_by) VALUES ('messages', '{users}')",
    "saved_views": "(user_id, tab, name, query) VALUES ('{users}', 'feedback', 'Mine', 'status=pending')",
    "list_columns": "(user_id, list, hidden) VALUES ('{users}', 'sessions', '{{cost}}')",
    "shared_context": "(type, content, agent_id, entity_type_id, source_feedback_id, created_by_agent_id)"
    " VALUES ('lesson', 'Figures are in thousands', '{agents}', '{entity_types}', '{feedback}', '{agents}')",
    "shared_context_feedback": "(shared_context_id, feedback_id) VALUES ('{shared_context}', '{feedback}')",
    "shared_context_history": "(shared_context_id, version, action) VALUES ('{shared_context}', 1, 'created')",
    "shared_context_usage": "(shared_context_id) VALUES ('{shared_context}')",
    "shared_context_embeddings": "(shared_context_id, model, content_hash, vector)"
    " VALUES ('{shared_context}', 'words', 'h', '{{0.5}}')",
    "served_prompts": "(user_id, sha256, row_ids, served_at) VALUES ('{users}', 'h', '{{}}', now())",
    "session_drafts": "(session_id, text) VALUES ('{sessions}', 'So far')",
    "user_memories": "(user_id, content, session_id) VALUES ('{users}', 'Prefers euros', '{sessions}')",
    "webhooks": "(url, origin, format) VALUES ('https://a.test/x', 'https://a.test', 'json')",
    "webhook_subscriptions": "(webhook_id, event) VALUES ('{webhooks}', 'feedback.submitted')",
    "webhook_deliveries": "(webhook_id, event) VALUES ('{webhooks}', 'test')",
    "login_sessions": "(user_id, token_hash, expires_at) VALUES ('{users}', '{secret}', now() + interval '1 day')",
    "one_time_links": "(kind, token_hash, user_id, expires_at)"
    " VALUES ('sign_in', '{secret}', '{users}', now() + interval '1 day')",
    "api_keys": "(user_id, name, prefix, key_hash, scopes)"
    " VALUES ('{users}', 'key', 'up_', 'key-{secret}', '{{admin}}')",
    "idempotency_keys": "(user_id, route, key, body_hash) VALUES ('{users}', 'POST /api', 'k', 'h')",
    "tasks": "(slug, name, cron, agent_id) VALUES ('review', 'Review', '0 * * * *', '{agents}')",
    "task_ticks": "(task_id, scheduled_for, owner, session_id) VALUES ('{tasks}', '2026-01-01Z', 'me', '{sessions}')",
    "golden_sets": "(name) VALUES ('smoke')",
    "eval_runs": "(name, set_name, agent_id, agent_version_id, config_hash, created_by)"
    " VALUES ('Smoke', 'smoke', '{agents}', '{agent_versions}', 'h', '{users}')",
    "eval_verdicts": "(run_id, golden_id, agent_version_id, context_mode, trial, verdict, replay_session_id, ended_at)"
    " VALUES ('{eval_runs}', '{sessions}', '{agent_versions}', 'frozen', false, 'pass', '{sessions}', now())",
    "judgements": "(run_id, session_id, criteria_set_id, criteria_version, model, status, finished_at)"
    " VALUES ('{eval_runs}', '{sessions}', '{criteria_sets}', 1, 'm', 'judged', now())",
    "judgement_overrules": "(judgement_id, dimension, passed, reason, created_by)"
    " VALUES ('{judgements}', 'tone', true, 'It is polite', '{users}')",
    "judge_labels": "(criteria_set_id, model, judgement_id, dimension, passed, judge_passed, created_by)"
    " VALUES ('{criteria_sets}', 'm', '{judgements}', '{secret}', true, true, '{users}')",
    "knowledge_proofs": "(shared_context_id, row_version, row_hash, batch_id, trials, with_run_id, without_run_id,"
    " agent_version_ids, golden_ids, golden_hashes, created_by)"
    " VALUES ('{shared_context}', 1, 'h', '{shared_context}', 1, '{eval_runs}', '{eval_runs}', '{{{agent_versions}}}',"
    " '{{{sessions}}}', '{{h}}', '{users}')",
    "feedback_patterns": "(label, agent_id, shared_context_id, first_seen_at, last_seen_at)"
    " VALUES ('Wrong figure', '{agents}', '{shared_context}', now(), now())",
    "feedback_pattern_rows": "(feedback_id, pattern_id, occurred_at, waits)"
    " VALUES ('{feedback}', '{feedback_patterns}', now(), '{secret}')",
    "review_runs": "(session_id, trigger) VALUES ('{sessions}', 'manual')",
    "change_drafts": "(agent_id, base_version, before, after, session_id, created_by_agent_id, created_by)"
    " VALUES ('{agents}', 1, '{{}}', '{{\"instructions\": \"Quote the page\"}}', '{sessions}', '{agents}', '{users}')",
    "knowledge_scorecards": "(passed, created_by) VALUES (true, '{users}')",
    "audit_log": "(actor_user_id, action, subject_type) VALUES ('{users}', 'created', 'agent')",
}


class Filled:
    """A workspace with one row in every table. `ids` maps a table to the id of its row."""

    def __init__(self, tenant: UUID, user: UUID, ids: dict[str, Any]) -> None:
        self.tenant = tenant
        self.user = user
        self.ids = ids
        self.secret = str(ids["secret"])

    def __getitem__(self, table: str) -> UUID:
        found: UUID = self.ids[table]
        return found


@contextmanager
def acting(url: str, tenant: UUID | None, user: UUID | None = None, role: str = "admin") -> Iterator[Connection]:
    """A connection inside one transaction that works for someone; rolled back unless committed."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        if tenant is not None:
            bind(connection, tenant, user, role)
        yield connection
        connection.rollback()


def bind(connection: Connection, tenant: UUID, user: UUID | None, role: str) -> None:
    connection.execute(
        "SELECT set_config('app.tenant_id', %s, true), set_config('app.user_id', %s, true),"
        " set_config('app.role', %s, true)",
        (str(tenant), str(user or ""), role),
    )


def fill(app_url: str) -> Filled:
    """Make a workspace as the app would, and commit it."""
    tenant, user, secret = uuid4(), uuid4(), secrets.token_hex(8)
    with acting(app_url, tenant, user, "system") as connection:
        connection.execute("INSERT INTO tenants (id, slug, name) VALUES (%s, %s, 'W')", (tenant, f"w-{secret}"))
        connection.execute("INSERT INTO users (id, email, name) VALUES (%s, %s, 'P')", (user, f"{secret}@example.test"))
        membership = one(
            connection,
            "INSERT INTO memberships (tenant_id, user_id, role) VALUES (%s, %s, 'admin') RETURNING id",
            tenant,
            user,
        )
        ids: dict[str, Any] = {"users": user, "tenants": tenant, "memberships": membership, "secret": secret}
        for table in ROWS:
            ids[table] = add(connection, table, tenant, ids)
        connection.commit()
    return Filled(tenant, user, ids)


def add(connection: Connection, table: str, tenant: UUID, ids: dict[str, Any]) -> UUID:
    """Insert the table's row for a tenant, with links as `ids` says."""
    columns, values = ROWS[table].format(**ids).split(" VALUES (", 1)
    keys = dict.fromkeys(("shared_context_usage", "shared_context_embeddings"), "shared_context_id")
    keys |= {"webhook_subscriptions": "webhook_id", "list_columns": "user_id"}
    keys |= {"feedback_daily": "tenant_id", "golden_sets": "tenant_id", "session_drafts": "session_id"}
    keys |= {"eval_verdicts": "run_id", "session_receptions": "session_id", "served_prompts": "user_id"}
    keys |= {"list_columns": "user_id"}
    keys |= {"feedback_pattern_rows": "feedback_id", "review_runs": "session_id"}
    key = keys.get(table, "id")
    statement = f"INSERT INTO {table} (tenant_id, {columns[1:]} VALUES ('{tenant}', {values} RETURNING {key} AS id"
    found: UUID = one(connection, statement)
    return found


def one(connection: Connection, statement: str, *values: Any) -> Any:
    """The only value that a statement returns."""
    row = connection.execute(statement, values or None).fetchone()
    return next(iter(row.values())) if row else None
