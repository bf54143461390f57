"""One table for every signal, filled from thumbs and from rejected responses."""

from migrations.helpers import run
from migrations.legacy import FEEDBACK_FROM_THUMBS, THUMBS_FROM_FEEDBACK

revision = "0002_feedback"
down_revision = "0001_legacy"
branch_labels = depends_on = None

TABLE = """
CREATE TABLE feedback (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    source_type text NOT NULL,
    rating text NOT NULL,
    comment text,
    session_id uuid,
    entity_id uuid,
    agent_id uuid,
    context jsonb NOT NULL DEFAULT '{}'::jsonb,
    status text NOT NULL DEFAULT 'pending',
    reviewed_by_agent_id uuid,
    reviewed_by_user_id uuid,
    reviewed_at timestamptz,
    review_notes text,
    created_by uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL DEFAULT 'comment',
    origin text NOT NULL DEFAULT 'user',
    confidence double precision NOT NULL DEFAULT 1,
    signal text,
    trace_id text,
    chat_id text,
    message_id text,
    turn_id text,
    project text NOT NULL DEFAULT 'default',
    details jsonb NOT NULL DEFAULT '{}'::jsonb,
    outcome jsonb NOT NULL DEFAULT '{}'::jsonb,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    replay_session_id uuid GENERATED ALWAYS AS ((context #>> '{replay_session_ids,0}')::uuid) STORED,
    search tsvector GENERATED ALWAYS AS (to_tsvector('english', left(coalesce(comment, ''), 20000))) STORED NOT NULL,
    CONSTRAINT pk_feedback PRIMARY KEY (id),
    CONSTRAINT uq_feedback_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT fk_feedback_tenant_id_session_id FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE SET NULL (session_id),
    CONSTRAINT fk_feedback_tenant_id_entity_id FOREIGN KEY (tenant_id, entity_id) REFERENCES entities (tenant_id, id) ON DELETE SET NULL (entity_id),
    CONSTRAINT fk_feedback_tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE SET NULL (agent_id),
    CONSTRAINT fk_feedback_tenant_id_reviewed_by_agent_id FOREIGN KEY (tenant_id, reviewed_by_agent_id) REFERENCES agents (tenant_id, id) ON DELETE RESTRICT,
    CONSTRAINT fk_feedback_reviewed_by_user_id FOREIGN KEY (reviewed_by_user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_feedback_created_by FOREIGN KEY (created_by) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT fk_feedback_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT feedback_source_type_known CHECK (source_type IN ('chat', 'response', 'extraction', 'tool', 'session', 'observation')),
    CONSTRAINT feedback_rating_known CHECK (rating IN ('positive', 'negative', 'neutral')),
    CONSTRAINT feedback_status_known CHECK (status IN ('pending', 'reviewed', 'applied', 'dismissed')),
    CONSTRAINT feedback_origin_known CHECK (origin IN ('user', 'machine', 'system')),
    CONSTRAINT feedback_kind_known CHECK (kind IN ('reaction', 'signal', 'flag', 'response_rejection', 'extraction_rejection', 'tool_observation', 'session_failure', 'replay_failure', 'comment')),
    CONSTRAINT feedback_signal_known CHECK (signal IS NULL OR signal IN ('helpful', 'not_helpful', 'inaccurate', 'unsafe', 'edit', 'regenerate')),
    CONSTRAINT feedback_signal_named CHECK ((kind = 'signal') = (signal IS NOT NULL)),
    CONSTRAINT feedback_confidence_range CHECK (confidence >= 0 AND confidence <= 1),
    CONSTRAINT feedback_people_are_sure CHECK (origin <> 'user' OR confidence = 1),
    CONSTRAINT feedback_machine_is_sure_enough CHECK (origin <> 'machine' OR confidence >= 0.70),
    CONSTRAINT feedback_reviewed_when CHECK ((status = 'pending') = (reviewed_at IS NULL)),
    CONSTRAINT feedback_reviewed_by_one CHECK (status = 'pending' OR num_nonnulls(reviewed_by_user_id, reviewed_by_agent_id) = 1),
    CONSTRAINT feedback_dismissed_has_notes CHECK (status <> 'dismissed' OR coalesce(review_notes, '') <> '')
);
CREATE INDEX feedback_author_idx ON feedback (tenant_id, created_by, created_at DESC, id DESC);
CREATE INDEX feedback_chat_idx ON feedback (tenant_id, chat_id) WHERE chat_id IS NOT NULL;
CREATE INDEX feedback_message_idx ON feedback (tenant_id, message_id) WHERE message_id IS NOT NULL;
CREATE UNIQUE INDEX feedback_one_failure_key ON feedback (tenant_id, session_id) WHERE kind = 'session_failure';
CREATE UNIQUE INDEX feedback_one_reaction_key ON feedback (tenant_id, turn_id, created_by) WHERE kind = 'reaction' AND origin = 'user';
CREATE UNIQUE INDEX feedback_one_replay_key ON feedback (tenant_id, replay_session_id) WHERE kind = 'replay_failure';
CREATE UNIQUE INDEX feedback_one_signal_key ON feedback (tenant_id, message_id, created_by, signal) WHERE kind = 'signal';
CREATE INDEX feedback_rating_idx ON feedback (tenant_id, rating, status, created_at DESC, id DESC);
CREATE INDEX feedback_recent_idx ON feedback (tenant_id, created_at DESC, id DESC);
CREATE INDEX feedback_search_idx ON feedback USING gin (search);
CREATE INDEX idx_feedback_agent ON feedback (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_feedback_entity ON feedback (entity_id) WHERE entity_id IS NOT NULL;
CREATE INDEX idx_feedback_pending ON feedback (tenant_id, created_at DESC) WHERE status = 'pending';
CREATE INDEX idx_feedback_session ON feedback (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX idx_feedback_tenant_status ON feedback (tenant_id, status, created_at DESC);
CREATE INDEX idx_feedback_trace ON feedback (trace_id) WHERE trace_id IS NOT NULL;
"""

# A rejection of which nobody knows who made it belongs to the workspace's system user.
SYSTEM_USERS = """
WITH needed AS (
    SELECT DISTINCT tenant_id, md5('system user of ' || tenant_id)::uuid AS user_id
      FROM entity_responses
     WHERE status = 'rejected' AND btrim(rejection_reason) <> ''
       AND rejection_reason NOT IN ('No reason was recorded.', 'An empty reason was recorded.')
       AND decided_by IS NULL AND created_by IS NULL
       AND tenant_id NOT IN (SELECT tenant_id FROM memberships WHERE role = 'system')
), made AS (
    INSERT INTO users (id, name, is_system) SELECT user_id, 'Upshot', true FROM needed
        ON CONFLICT (id) DO NOTHING
)
INSERT INTO memberships (tenant_id, user_id, role) SELECT tenant_id, user_id, 'system' FROM needed
    ON CONFLICT (tenant_id, user_id) DO NOTHING
"""

# The id is made from the response's, so doing this again adds nothing. An extraction was tried again when it was
# rejected, which is what applied it; any other rejection still waits for a review.
FEEDBACK_FROM_REJECTIONS = """
WITH rejected AS (
    SELECT response.*, entity.entity_type_id,
           coalesce(response.decided_by, response.created_by,
                    (SELECT user_id FROM memberships
                      WHERE tenant_id = response.tenant_id AND role = 'system' ORDER BY created_at, id LIMIT 1)) AS author,
           coalesce(response.decided_at, response.created_at) AS rejected_at,
           CASE WHEN jsonb_typeof(response."values") = 'object'
                THEN (SELECT min(key) FROM jsonb_object_keys(response."values") AS key HAVING count(*) = 1) END AS field_name
      FROM entity_responses AS response
      JOIN entities AS entity ON entity.tenant_id = response.tenant_id AND entity.id = response.entity_id
     WHERE response.status = 'rejected' AND btrim(response.rejection_reason) <> ''
       AND response.rejection_reason NOT IN ('No reason was recorded.', 'An empty reason was recorded.')
)
INSERT INTO feedback (id, tenant_id, source_type, kind, rating, comment, session_id, entity_id, agent_id, context,
                      status, reviewed_by_user_id, reviewed_at, outcome, created_by, created_at, occurred_at)
SELECT md5('rejection of ' || id)::uuid, tenant_id,
       CASE WHEN extracted THEN 'extraction' ELSE 'response' END,
       CASE WHEN extracted THEN 'extraction_rejection' ELSE 'response_rejection' END,
       'negative', rejection_reason, session_id, entity_id, agent_id,
       CASE WHEN extracted
            THEN jsonb_build_object('field_name', field_name, 'entity_type_id', entity_type_id,
                                    'rejected_value', coalesce("values" -> field_name, "values"), 'retry_ref', 'legacy')
            ELSE jsonb_build_object('response_id', id, 'criteria_set_id', criteria_set_id, 'field_name', field_name) END,
       CASE WHEN extracted THEN 'applied' ELSE 'pending' END,
       CASE WHEN extracted THEN author END,
       CASE WHEN extracted THEN rejected_at END,
       CASE WHEN extracted THEN '{"retry_ref": "legacy"}'::jsonb ELSE '{}'::jsonb END,
       author, rejected_at, rejected_at
  FROM rejected
    ON CONFLICT (id) DO NOTHING
"""

# From here on a rejection has a reason. Old ones without say so in words that the way back recognises.
REASONS = """
UPDATE entity_responses
   SET rejection_reason = CASE WHEN rejection_reason IS NULL THEN 'No reason was recorded.' ELSE 'An empty reason was recorded.' END
 WHERE status = 'rejected' AND coalesce(rejection_reason, '') = '';
ALTER TABLE entity_responses ADD CONSTRAINT entity_responses_rejection_has_reason
    CHECK (status <> 'rejected' OR coalesce(rejection_reason, '') <> '');
"""
NO_REASONS = """
ALTER TABLE entity_responses DROP CONSTRAINT entity_responses_rejection_has_reason;
UPDATE entity_responses SET rejection_reason = NULL
 WHERE status = 'rejected' AND rejection_reason = 'No reason was recorded.';
UPDATE entity_responses SET rejection_reason = ''
 WHERE status = 'rejected' AND rejection_reason = 'An empty reason was recorded.';
"""


def backfill() -> None:
    run(FEEDBACK_FROM_THUMBS)
    run(SYSTEM_USERS)
    run(FEEDBACK_FROM_REJECTIONS)


def upgrade() -> None:
    run(TABLE)
    backfill()
    run(REASONS)


def downgrade() -> None:
    run(NO_REASONS)
    run(THUMBS_FROM_FEEDBACK)
    run("DROP TABLE feedback")
