"""Which messages of a chat were checked for a judgement of an earlier answer, and one row for each judged turn."""

from migrations.helpers import as_door, run, whole_tables

revision = "0044_machine_feedback"
down_revision = "0043_digest"
branch_labels = depends_on = None

# What was stored before this revision is not checked.
COLUMNS = """
ALTER TABLE chats ADD COLUMN checked_count integer NOT NULL DEFAULT 0, ADD COLUMN check_lease_until timestamptz;
"""
INDEXES = """
CREATE INDEX chats_unchecked_idx ON chats (tenant_id, last_message_at) WHERE checked_count < message_count;
CREATE UNIQUE INDEX feedback_one_detection_key ON feedback (tenant_id, (details ->> 'detected_in'), turn_id)
    WHERE kind = 'reaction' AND origin = 'machine';
"""

DOOR = """
CREATE FUNCTION door_unchecked() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id FROM tenants AS t
     WHERE EXISTS (SELECT FROM chats AS c WHERE c.tenant_id = t.id AND c.checked_count < c.message_count
                      AND (c.check_lease_until IS NULL OR c.check_lease_until < now()))
$$;
"""
READABLE = "checked_count, message_count, check_lease_until"


def upgrade() -> None:
    run(COLUMNS)
    with whole_tables("chats"):
        run("UPDATE chats SET checked_count = message_count")
    run(INDEXES)
    run(f"GRANT SELECT ({READABLE}) ON chats TO upshot_door")
    with as_door():
        run(DOOR)
        run("REVOKE ALL ON FUNCTION door_unchecked() FROM PUBLIC")
        run("GRANT EXECUTE ON FUNCTION door_unchecked() TO upshot_app")


def downgrade() -> None:
    with as_door():
        run("DROP FUNCTION door_unchecked()")
    run(f"REVOKE SELECT ({READABLE}) ON chats FROM upshot_door")
    run("DROP INDEX feedback_one_detection_key")
    run("ALTER TABLE chats DROP COLUMN checked_count, DROP COLUMN check_lease_until")
