"""How people received sessions, for the knowledge that those sessions had in their prompts."""

from migrations.helpers import as_door, drop_tables, run, tear_down, wall, whole_tables

revision = "0017_receptions"
down_revision = "0016_scheduled_replays"
branch_labels = depends_on = None

TABLE = """
CREATE TABLE session_receptions (
    tenant_id uuid NOT NULL CONSTRAINT fk_session_receptions_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    session_id uuid NOT NULL,
    waiting boolean NOT NULL DEFAULT true,
    helpful integer NOT NULL DEFAULT 0,
    harmful integer NOT NULL DEFAULT 0,
    row_ids uuid[] NOT NULL DEFAULT '{}',
    CONSTRAINT pk_session_receptions PRIMARY KEY (tenant_id, session_id),
    CONSTRAINT fk_session_receptions_tenant_id_session_id FOREIGN KEY (tenant_id, session_id)
        REFERENCES sessions (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX session_receptions_waiting_idx ON session_receptions (tenant_id, session_id) WHERE waiting;
GRANT SELECT, INSERT, UPDATE, DELETE ON session_receptions TO upshot_app;
"""

# Whoever writes feedback marks its session, in the same transaction and however the row is written. Of a session that
# is marked already the mark is only held, which many may do at once: it stays until they are done, since whoever counts
# passes over what is held. A session that is being deleted has nothing left to count.
NOTE = """
CREATE FUNCTION note_reception() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    workspace uuid := coalesce(NEW.tenant_id, OLD.tenant_id);
BEGIN
    IF purging(workspace) THEN
        RETURN NULL;
    END IF;
    IF OLD.session_id IS NULL OR NEW.session_id IS NULL OR OLD.session_id = NEW.session_id THEN
        PERFORM FROM public.session_receptions AS r
          WHERE r.tenant_id = workspace AND r.session_id = coalesce(NEW.session_id, OLD.session_id) AND r.waiting
            FOR KEY SHARE;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO public.session_receptions AS r (tenant_id, session_id)
    SELECT s.tenant_id, s.id FROM public.sessions AS s
     WHERE s.tenant_id = workspace AND s.id IN (OLD.session_id, NEW.session_id) ORDER BY s.id
        ON CONFLICT (tenant_id, session_id) DO UPDATE SET waiting = true WHERE NOT r.waiting;
    RETURN NULL;
END
$$;
CREATE TRIGGER feedback_received AFTER INSERT ON feedback FOR EACH ROW
    WHEN (NEW.session_id IS NOT NULL AND NEW.origin = 'user' AND NEW.rating <> 'neutral')
    EXECUTE FUNCTION note_reception();
CREATE TRIGGER feedback_received_otherwise AFTER UPDATE ON feedback FOR EACH ROW
    WHEN (ROW(OLD.session_id, OLD.origin, OLD.rating, OLD.created_by, OLD.details ? 'retracted_at', OLD.details -> 'skipped')
          IS DISTINCT FROM
          ROW(NEW.session_id, NEW.origin, NEW.rating, NEW.created_by, NEW.details ? 'retracted_at', NEW.details -> 'skipped'))
    EXECUTE FUNCTION note_reception();
CREATE TRIGGER feedback_received_no_more AFTER DELETE ON feedback FOR EACH ROW
    WHEN (OLD.session_id IS NOT NULL AND OLD.origin = 'user') EXECUTE FUNCTION note_reception();
"""

BEFORE = """
INSERT INTO session_receptions (tenant_id, session_id)
SELECT DISTINCT f.tenant_id, f.session_id FROM feedback AS f
 WHERE f.session_id IS NOT NULL AND f.origin = 'user' AND f.rating <> 'neutral'
"""

DOOR = """
CREATE FUNCTION door_receptions() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id FROM tenants AS t
     WHERE EXISTS (SELECT FROM session_receptions AS r WHERE r.tenant_id = t.id AND r.waiting)
$$;
"""


def upgrade() -> None:
    run(TABLE)
    with whole_tables("feedback"):
        run(BEFORE)
    wall("session_receptions")
    run(NOTE)
    run("GRANT SELECT (tenant_id, waiting) ON session_receptions TO upshot_door")
    run("CREATE POLICY session_receptions_door ON session_receptions FOR SELECT TO upshot_door USING (true)")
    with as_door():
        run(DOOR)
        run("REVOKE ALL ON FUNCTION door_receptions() FROM PUBLIC")
        run("GRANT EXECUTE ON FUNCTION door_receptions() TO upshot_app")


def downgrade() -> None:
    with as_door():
        run("DROP FUNCTION door_receptions()")
    run("""
        DROP TRIGGER feedback_received ON feedback;
        DROP TRIGGER feedback_received_otherwise ON feedback;
        DROP TRIGGER feedback_received_no_more ON feedback;
        DROP FUNCTION note_reception();
        DROP POLICY session_receptions_door ON session_receptions;
    """)
    tear_down("session_receptions")
    drop_tables("session_receptions")
