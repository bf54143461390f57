"""Knowledge as rows that can be edited, switched off and traced, instead of items in a JSON array."""

from migrations.helpers import run

revision = "0003_shared_context"
down_revision = "0002_feedback"
branch_labels = depends_on = None

TABLE = r"""
CREATE TABLE shared_context (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    type text NOT NULL,
    content text NOT NULL,
    context text,
    agent_id uuid,
    entity_type_id uuid,
    active boolean NOT NULL DEFAULT true,
    source_feedback_id uuid,
    created_by_agent_id uuid,
    created_by_user_id uuid,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL DEFAULT 'active',
    version integer NOT NULL DEFAULT 1,
    superseded_by uuid,
    pinned boolean NOT NULL DEFAULT false,
    rank real NOT NULL DEFAULT 1,
    content_hash text GENERATED ALWAYS AS (md5(lower(regexp_replace(btrim(content), '\s+', ' ', 'g')))) STORED NOT NULL,
    search tsvector GENERATED ALWAYS AS (to_tsvector('english', left(content || ' ' || coalesce(context, ''), 20000))) STORED NOT NULL,
    CONSTRAINT pk_shared_context PRIMARY KEY (id),
    CONSTRAINT uq_shared_context_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_shared_context_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_shared_context_tenant_id_entity_type_id FOREIGN KEY (tenant_id, entity_type_id) REFERENCES entity_types (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_shared_context_tenant_id_source_feedback_id FOREIGN KEY (tenant_id, source_feedback_id) REFERENCES feedback (tenant_id, id) ON DELETE SET NULL (source_feedback_id),
    CONSTRAINT fk_shared_context_tenant_id_created_by_agent_id FOREIGN KEY (tenant_id, created_by_agent_id) REFERENCES agents (tenant_id, id) ON DELETE SET NULL (created_by_agent_id),
    CONSTRAINT fk_shared_context_tenant_id_superseded_by FOREIGN KEY (tenant_id, superseded_by) REFERENCES shared_context (tenant_id, id) ON DELETE SET NULL (superseded_by),
    CONSTRAINT fk_shared_context_created_by_user_id FOREIGN KEY (created_by_user_id) REFERENCES users (id) ON DELETE SET NULL,
    CONSTRAINT fk_shared_context_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT shared_context_type_known CHECK (type IN ('correction', 'lesson', 'routing', 'insight', 'guideline')),
    CONSTRAINT shared_context_state_known CHECK (state IN ('proposed', 'active', 'inactive', 'superseded', 'deleted')),
    CONSTRAINT shared_context_active_is_state CHECK (active = (state = 'active')),
    CONSTRAINT shared_context_says_something CHECK (content <> '')
);
CREATE INDEX idx_shared_context_agent ON shared_context (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_shared_context_entity_type ON shared_context (entity_type_id) WHERE entity_type_id IS NOT NULL;
CREATE INDEX idx_shared_context_source_feedback ON shared_context (source_feedback_id) WHERE source_feedback_id IS NOT NULL;
CREATE INDEX idx_shared_context_tenant_type_active ON shared_context (tenant_id, type, active, created_at DESC);
CREATE INDEX shared_context_global_idx ON shared_context (tenant_id, type, rank DESC, id) WHERE active AND agent_id IS NULL AND entity_type_id IS NULL;
CREATE INDEX shared_context_of_agent_idx ON shared_context (tenant_id, agent_id, type, rank DESC, id) WHERE active AND agent_id IS NOT NULL AND entity_type_id IS NULL;
CREATE INDEX shared_context_of_both_idx ON shared_context (tenant_id, agent_id, entity_type_id, type, rank DESC, id) WHERE active AND agent_id IS NOT NULL AND entity_type_id IS NOT NULL;
CREATE INDEX shared_context_of_type_idx ON shared_context (tenant_id, entity_type_id, type, rank DESC, id) WHERE active AND agent_id IS NULL AND entity_type_id IS NOT NULL;
CREATE INDEX shared_context_recent_idx ON shared_context (tenant_id, updated_at DESC, id DESC);
CREATE UNIQUE INDEX shared_context_same_key ON shared_context (tenant_id, type, coalesce(agent_id, '00000000-0000-0000-0000-000000000000'::uuid), coalesce(entity_type_id, '00000000-0000-0000-0000-000000000000'::uuid), content_hash) WHERE active;
CREATE INDEX shared_context_search_idx ON shared_context USING gin (search);
CREATE INDEX shared_context_state_idx ON shared_context (tenant_id, state, updated_at DESC, id DESC);
"""

# Every item becomes one row, and `metadata.legacy` remembers where it stood and, unless it was a plain text, what it
# looked like. An item that says nothing readable is set aside (inactive, or deleted when there is nothing in it);
# one that repeats an earlier item is superseded by it. The id is made from the place, so doing this again adds nothing.
ROWS_FROM_ITEMS = r"""
WITH items AS (
    SELECT old.tenant_id, old.key, element.position, element.item, element.whole
      FROM shared_context_by_key AS old
     CROSS JOIN LATERAL (
           SELECT ordinality - 1 AS position, value AS item, false AS whole
             FROM jsonb_array_elements(CASE jsonb_typeof(old.value) WHEN 'array' THEN old.value ELSE '[]' END) WITH ORDINALITY
            UNION ALL
           SELECT 0, old.value, true WHERE jsonb_typeof(old.value) <> 'array' OR old.value = '[]'
     ) AS element
), texts AS (
    SELECT items.*,
           CASE WHEN jsonb_typeof(item) = 'string' AND btrim(item #>> '{}') <> '' THEN item #>> '{}'
                WHEN jsonb_typeof(item -> 'content') = 'string' AND btrim(item ->> 'content') <> '' THEN item ->> 'content'
           END AS content,
           CASE WHEN jsonb_typeof(item -> 'context') = 'string' THEN nullif(item ->> 'context', '') END AS context,
           item IN ('null', '{}', '[]') OR (jsonb_typeof(item) = 'string' AND btrim(item #>> '{}') = '') AS is_empty
      FROM items
), placed AS (
    SELECT texts.*, md5(concat_ws('/', tenant_id, key, position))::uuid AS id,
           first_value(md5(concat_ws('/', tenant_id, key, position))::uuid) OVER same_text AS first_id
      FROM texts
    WINDOW same_text AS (PARTITION BY tenant_id, key, md5(lower(regexp_replace(btrim(content), '\s+', ' ', 'g'))) ORDER BY position)
), judged AS (
    SELECT placed.*,
           CASE WHEN content IS NULL AND is_empty THEN 'deleted' WHEN content IS NULL THEN 'inactive'
                WHEN id <> first_id THEN 'superseded' ELSE 'active' END AS state
      FROM placed
)
INSERT INTO shared_context (id, tenant_id, type, content, context, state, active, superseded_by, metadata, created_at, updated_at)
SELECT id, tenant_id,
       CASE key WHEN 'corrections' THEN 'correction' WHEN 'lessons' THEN 'lesson' WHEN 'insights' THEN 'insight'
                WHEN 'guidelines' THEN 'guideline' ELSE 'routing' END,
       coalesce(content, CASE WHEN is_empty THEN '(empty)' ELSE item::text END), context, state, state = 'active',
       CASE WHEN state = 'superseded' THEN first_id END,
       jsonb_build_object('legacy', jsonb_build_object('key', key, 'position', position, 'state', state)
           || CASE WHEN content IS NULL OR jsonb_typeof(item) <> 'string' THEN jsonb_build_object('item', item) ELSE '{}' END
           || CASE WHEN whole THEN '{"whole": true}'::jsonb ELSE '{}' END),
       now() + position * interval '1 microsecond', now() + position * interval '1 microsecond'
  FROM judged
    ON CONFLICT (id) DO NOTHING
"""

# What the arrays can hold: rows for the whole workspace that are active, and items that are as they were set aside.
ITEMS_FROM_ROWS = """
WITH kept AS (
    SELECT rows.*, metadata -> 'legacy' AS legacy, metadata #> '{legacy,item}' AS item
      FROM shared_context_rows AS rows
     WHERE agent_id IS NULL AND entity_type_id IS NULL AND (active OR state = metadata #>> '{legacy,state}')
), written AS (
    SELECT kept.*, coalesce(legacy ? 'whole', false) AS whole,
           CASE WHEN NOT active AND state <> 'superseded' THEN item
                WHEN jsonb_typeof(item) = 'object'
                THEN CASE WHEN context IS NULL AND item ->> 'context' <> '' AND jsonb_typeof(item -> 'context') = 'string'
                          THEN item - 'context' ELSE item END
                     || jsonb_strip_nulls(jsonb_build_object('content', content, 'context', context))
                WHEN context IS NULL THEN to_jsonb(content)
                ELSE jsonb_build_object('content', content, 'context', context) END AS value
      FROM kept
)
INSERT INTO shared_context (tenant_id, key, value)
SELECT tenant_id,
       CASE type WHEN 'correction' THEN 'corrections' WHEN 'lesson' THEN 'lessons' WHEN 'insight' THEN 'insights'
                 WHEN 'guideline' THEN 'guidelines' ELSE 'routing' END AS key,
       CASE WHEN count(*) = 1 AND bool_and(whole) THEN (jsonb_agg(value)) -> 0
            ELSE jsonb_agg(value ORDER BY (legacy ->> 'position')::bigint NULLS LAST, created_at, id)
                 FILTER (WHERE NOT (whole AND value = '[]')) END
  FROM written
 GROUP BY tenant_id, type
    ON CONFLICT (tenant_id, key) DO NOTHING
"""


def upgrade() -> None:
    run("ALTER TABLE shared_context RENAME TO shared_context_by_key")
    run(TABLE)
    run(ROWS_FROM_ITEMS)
    run("DROP TABLE shared_context_by_key")


def downgrade() -> None:
    run("ALTER TABLE shared_context RENAME TO shared_context_rows")
    run("""
        CREATE TABLE shared_context (
            tenant_id uuid NOT NULL,
            key text NOT NULL,
            value jsonb NOT NULL DEFAULT '[]'::jsonb,
            CONSTRAINT pk_shared_context_by_key PRIMARY KEY (tenant_id, key),
            CONSTRAINT fk_shared_context_by_key_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
            CONSTRAINT shared_context_by_key_key_known
                CHECK (key IN ('corrections', 'lessons', 'routing', 'insights', 'guidelines'))
        )
    """)
    run(ITEMS_FROM_ROWS)
    run("DROP TABLE shared_context_rows")
