"""Upshot before the loop: chats and sessions, records and responses, thumbs nobody reads, knowledge in JSON arrays."""

from migrations.helpers import drop_tables, run
from migrations.legacy import CREATE_CHAT_FEEDBACK

revision = "0001_legacy"
down_revision = None
branch_labels = depends_on = None

TABLES = (
    "tenants", "users", "memberships", "agents", "agent_versions", "chats", "entity_types", "entities",
    "criteria_sets", "sessions", "session_events", "messages", "entity_responses", "chat_feedback", "shared_context",
)  # fmt: skip

CORE = """
CREATE TABLE tenants (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    slug text NOT NULL,
    name text NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}'::jsonb,
    secret text NOT NULL DEFAULT replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_tenants PRIMARY KEY (id),
    CONSTRAINT uq_tenants_slug UNIQUE (slug),
    CONSTRAINT tenants_slug_form CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,59}$')
);

CREATE TABLE users (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    email text,
    name text NOT NULL,
    password_hash text,
    is_system boolean NOT NULL DEFAULT false,
    external_id text,
    external_tenant_id uuid,
    erased_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_users PRIMARY KEY (id),
    CONSTRAINT fk_users_external_tenant_id FOREIGN KEY (external_tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT users_reachable CHECK (email IS NOT NULL OR is_system OR external_id IS NOT NULL OR erased_at IS NOT NULL)
);
CREATE UNIQUE INDEX users_email_key ON users (lower(email)) WHERE email IS NOT NULL;
CREATE UNIQUE INDEX users_external_key ON users (external_tenant_id, external_id) WHERE external_id IS NOT NULL;

CREATE TABLE memberships (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    role text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_memberships PRIMARY KEY (id),
    CONSTRAINT uq_memberships_tenant_id_user_id UNIQUE (tenant_id, user_id),
    CONSTRAINT fk_memberships_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_memberships_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT memberships_role_known CHECK (role IN ('member', 'admin', 'owner', 'system'))
);
CREATE INDEX memberships_user_idx ON memberships (user_id, created_at);

CREATE TABLE agents (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    description text,
    kind text NOT NULL DEFAULT 'external',
    is_system boolean NOT NULL DEFAULT false,
    current_version integer NOT NULL DEFAULT 1,
    archived_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_agents PRIMARY KEY (id),
    CONSTRAINT uq_agents_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_agents_tenant_id_slug UNIQUE (tenant_id, slug),
    CONSTRAINT fk_agents_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT agents_kind_known CHECK (kind IN ('builtin', 'endpoint', 'external')),
    CONSTRAINT agents_slug_form CHECK (slug ~ '^[a-z0-9][a-z0-9._-]{0,119}$')
);

CREATE TABLE agent_versions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    version integer NOT NULL,
    config jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_by uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_agent_versions PRIMARY KEY (id),
    CONSTRAINT uq_agent_versions_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_agent_versions_tenant_id_agent_id_version UNIQUE (tenant_id, agent_id, version),
    CONSTRAINT fk_agent_versions_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_agent_versions_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE SET NULL,
    CONSTRAINT fk_agent_versions_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

CREATE TABLE chats (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    external_id text,
    project text NOT NULL DEFAULT 'default',
    title text NOT NULL,
    user_id uuid NOT NULL,
    agent_id uuid,
    message_count integer NOT NULL DEFAULT 0,
    last_message_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    search tsvector GENERATED ALWAYS AS (to_tsvector('english', left(title, 20000))) STORED NOT NULL,
    CONSTRAINT pk_chats PRIMARY KEY (id),
    CONSTRAINT uq_chats_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_chats_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE SET NULL (agent_id),
    CONSTRAINT fk_chats_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_chats_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX chats_agent_idx ON chats (tenant_id, agent_id, last_message_at DESC);
CREATE UNIQUE INDEX chats_external_key ON chats (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX chats_person_idx ON chats (tenant_id, user_id, last_message_at DESC);
CREATE INDEX chats_recent_idx ON chats (tenant_id, last_message_at DESC, id DESC);
CREATE INDEX chats_search_idx ON chats USING gin (search);

CREATE TABLE entity_types (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}'::jsonb,
    archived_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_entity_types PRIMARY KEY (id),
    CONSTRAINT uq_entity_types_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_entity_types_tenant_id_slug UNIQUE (tenant_id, slug),
    CONSTRAINT fk_entity_types_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

CREATE TABLE entities (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    entity_type_id uuid NOT NULL,
    name text NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_entities PRIMARY KEY (id),
    CONSTRAINT uq_entities_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_entities_tenant_id_entity_type_id FOREIGN KEY (tenant_id, entity_type_id) REFERENCES entity_types (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_entities_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);
CREATE INDEX entities_type_idx ON entities (tenant_id, entity_type_id, updated_at DESC, id DESC);

CREATE TABLE criteria_sets (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    dimensions jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_criteria_sets PRIMARY KEY (id),
    CONSTRAINT uq_criteria_sets_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_criteria_sets_tenant_id_slug UNIQUE (tenant_id, slug),
    CONSTRAINT fk_criteria_sets_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

CREATE TABLE sessions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    external_id text,
    title text NOT NULL,
    session_type text NOT NULL DEFAULT 'agent',
    output_type text,
    status text NOT NULL DEFAULT 'pending',
    error text,
    agent_id uuid NOT NULL,
    agent_version_id uuid,
    chat_id uuid,
    entity_id uuid,
    created_by uuid NOT NULL,
    trace_id text,
    model text,
    input_tokens bigint,
    output_tokens bigint,
    cost numeric(14, 6),
    duration_ms bigint,
    environment text,
    tags text[] NOT NULL DEFAULT '{}'::text[],
    import_id uuid,
    event_count integer NOT NULL DEFAULT 0,
    lease_owner text,
    lease_until timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    golden_set text GENERATED ALWAYS AS (metadata #>> '{golden,set}') STORED,
    eval_source text GENERATED ALWAYS AS (metadata ->> 'eval_source') STORED,
    search tsvector GENERATED ALWAYS AS (to_tsvector('english', left(title || ' ' || coalesce(error, ''), 20000))) STORED NOT NULL,
    CONSTRAINT pk_sessions PRIMARY KEY (id),
    CONSTRAINT uq_sessions_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_sessions_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_sessions_tenant_id_agent_version_id FOREIGN KEY (tenant_id, agent_version_id) REFERENCES agent_versions (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_sessions_tenant_id_chat_id FOREIGN KEY (tenant_id, chat_id) REFERENCES chats (tenant_id, id) ON DELETE SET NULL (chat_id),
    CONSTRAINT fk_sessions_tenant_id_entity_id FOREIGN KEY (tenant_id, entity_id) REFERENCES entities (tenant_id, id) ON DELETE SET NULL (entity_id),
    CONSTRAINT fk_sessions_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_sessions_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT sessions_type_known CHECK (session_type IN ('chat', 'agent', 'response', 'tool', 'mixed')),
    CONSTRAINT sessions_status_known CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled'))
);
CREATE INDEX sessions_agent_idx ON sessions (tenant_id, agent_id, created_at DESC, id DESC);
CREATE INDEX sessions_chat_idx ON sessions (tenant_id, chat_id) WHERE chat_id IS NOT NULL;
CREATE INDEX sessions_claim_idx ON sessions (lease_until, created_at) WHERE status IN ('pending', 'running');
CREATE UNIQUE INDEX sessions_external_key ON sessions (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX sessions_golden_idx ON sessions (tenant_id, golden_set, created_at DESC) WHERE golden_set IS NOT NULL;
CREATE INDEX sessions_recent_idx ON sessions (tenant_id, created_at DESC, id DESC);
CREATE INDEX sessions_replay_idx ON sessions (tenant_id, eval_source, created_at DESC) WHERE eval_source IS NOT NULL;
CREATE INDEX sessions_search_idx ON sessions USING gin (search);
CREATE INDEX sessions_status_idx ON sessions (tenant_id, status, created_at DESC, id DESC);
CREATE INDEX sessions_trace_idx ON sessions (tenant_id, trace_id) WHERE trace_id IS NOT NULL;

CREATE TABLE session_events (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    sequence integer NOT NULL,
    event_type text NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}'::jsonb,
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_session_events PRIMARY KEY (id),
    CONSTRAINT uq_session_events_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_session_events_tenant_id_session_id_sequence UNIQUE (tenant_id, session_id, sequence),
    CONSTRAINT fk_session_events_tenant_id_session_id FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_session_events_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT session_events_type_known CHECK (event_type IN ('session.created', 'session.claimed', 'context.loaded', 'user.message', 'agent.message', 'tool.call', 'tool.result', 'entity.created', 'entity.updated', 'response.submitted', 'feedback.reviewed', 'knowledge.changed', 'agent.updated', 'session.completed', 'session.failed'))
);
CREATE INDEX session_events_order_idx ON session_events (tenant_id, session_id, occurred_at, sequence);

CREATE TABLE messages (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    chat_id uuid NOT NULL,
    session_id uuid,
    external_id text,
    message_index integer NOT NULL,
    turn_id text NOT NULL,
    role text NOT NULL,
    content text NOT NULL,
    trace_id text,
    details jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    search tsvector GENERATED ALWAYS AS (to_tsvector('english', left(content, 20000))) STORED NOT NULL,
    CONSTRAINT pk_messages PRIMARY KEY (id),
    CONSTRAINT uq_messages_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT uq_messages_tenant_id_chat_id_message_index UNIQUE (tenant_id, chat_id, message_index),
    CONSTRAINT fk_messages_tenant_id_chat_id FOREIGN KEY (tenant_id, chat_id) REFERENCES chats (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_messages_tenant_id_session_id FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id),
    CONSTRAINT fk_messages_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT messages_role_known CHECK (role IN ('user', 'agent', 'system', 'tool'))
);
CREATE INDEX messages_external_idx ON messages (tenant_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX messages_search_idx ON messages USING gin (search);
CREATE INDEX messages_session_idx ON messages (tenant_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX messages_turn_idx ON messages (tenant_id, turn_id);

CREATE TABLE entity_responses (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    criteria_set_id uuid,
    session_id uuid,
    agent_id uuid,
    values jsonb NOT NULL DEFAULT '{}'::jsonb,
    extracted boolean NOT NULL DEFAULT false,
    status text NOT NULL DEFAULT 'submitted',
    rejection_reason text,
    created_by uuid,
    decided_by uuid,
    decided_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_entity_responses PRIMARY KEY (id),
    CONSTRAINT uq_entity_responses_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_entity_responses_tenant_id_entity_id FOREIGN KEY (tenant_id, entity_id) REFERENCES entities (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT fk_entity_responses_tenant_id_criteria_set_id FOREIGN KEY (tenant_id, criteria_set_id) REFERENCES criteria_sets (tenant_id, id) ON DELETE SET NULL (criteria_set_id),
    CONSTRAINT fk_entity_responses_tenant_id_session_id FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id),
    CONSTRAINT fk_entity_responses_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE SET NULL (agent_id),
    CONSTRAINT fk_entity_responses_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_entity_responses_decided_by FOREIGN KEY (decided_by) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_entity_responses_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT entity_responses_status_known CHECK (status IN ('submitted', 'accepted', 'rejected'))
);
CREATE INDEX entity_responses_entity_idx ON entity_responses (tenant_id, entity_id, created_at DESC);
"""

KNOWLEDGE_BY_KEY = """
CREATE TABLE shared_context (
    tenant_id uuid NOT NULL,
    key text NOT NULL,
    value jsonb NOT NULL DEFAULT '[]'::jsonb,
    CONSTRAINT pk_shared_context_by_key PRIMARY KEY (tenant_id, key),
    CONSTRAINT fk_shared_context_by_key_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT shared_context_by_key_key_known CHECK (key IN ('corrections', 'lessons', 'routing', 'insights', 'guidelines'))
);
"""


def upgrade() -> None:
    run(CORE)
    run(CREATE_CHAT_FEEDBACK)
    run(KNOWLEDGE_BY_KEY)


def downgrade() -> None:
    drop_tables(*TABLES)
