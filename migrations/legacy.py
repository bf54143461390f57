"""`chat_feedback`, the table that thumbs used to go to, and its way into `feedback` and back."""

CREATE_CHAT_FEEDBACK = """
CREATE TABLE chat_feedback (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL,
    chat_id text NOT NULL,
    message_index integer NOT NULL,
    user_id uuid NOT NULL,
    rating text NOT NULL,
    comment text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_chat_feedback PRIMARY KEY (id),
    CONSTRAINT fk_chat_feedback_tenant_id FOREIGN KEY (tenant_id) REFERENCES tenants (id) ON DELETE CASCADE,
    CONSTRAINT fk_chat_feedback_user_id FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE RESTRICT,
    CONSTRAINT chat_feedback_rating_known CHECK (rating IN ('up', 'down'))
);
CREATE INDEX chat_feedback_chat_idx ON chat_feedback (tenant_id, chat_id, message_index);
"""

# A thumb keeps its id, so doing this again adds nothing. What the rated message knows is filled in, except its turn:
# the old table allowed several thumbs of one person on one turn, and none of them may be lost.
FEEDBACK_FROM_THUMBS = """
INSERT INTO feedback (id, tenant_id, source_type, kind, rating, comment, context, chat_id, session_id, agent_id,
                      trace_id, created_by, created_at, occurred_at)
SELECT thumb.id, thumb.tenant_id, 'chat', 'reaction',
       CASE thumb.rating WHEN 'up' THEN 'positive' ELSE 'negative' END, thumb.comment,
       jsonb_build_object('chat_id', thumb.chat_id, 'message_index', thumb.message_index), thumb.chat_id,
       message.session_id, chat.agent_id, message.trace_id, thumb.user_id, thumb.created_at, thumb.created_at
  FROM chat_feedback AS thumb
  LEFT JOIN chats AS chat ON chat.tenant_id = thumb.tenant_id AND chat.id::text = thumb.chat_id
  LEFT JOIN messages AS message ON message.tenant_id = thumb.tenant_id AND message.chat_id = chat.id
                               AND message.message_index = thumb.message_index
    ON CONFLICT (id) DO NOTHING
"""

# Neutral ratings and feedback on anything but a chat message have no place in the old table.
THUMBS_FROM_FEEDBACK = """
INSERT INTO chat_feedback (id, tenant_id, chat_id, message_index, user_id, rating, comment, created_at)
SELECT id, tenant_id, context ->> 'chat_id', (context ->> 'message_index')::integer, created_by,
       CASE rating WHEN 'positive' THEN 'up' ELSE 'down' END, comment, created_at
  FROM feedback
 WHERE source_type = 'chat' AND rating IN ('positive', 'negative')
   AND context ->> 'chat_id' IS NOT NULL AND context ->> 'message_index' ~ '^-?[0-9]{1,9}$'
    ON CONFLICT (id) DO NOTHING
"""
