"""A conversation belongs to its person: for other members its rows do not exist, as if in another workspace."""

from migrations.helpers import as_door, run, whole_tables

revision = "0027_conversations"
down_revision = "0026_clock_set_back"
branch_labels = depends_on = None

# Whose a session or a response is. Without an owner it is the workspace's own work, which every member sees.
COLUMNS = """
ALTER TABLE sessions ADD COLUMN owner_id uuid CONSTRAINT fk_sessions_owner_id REFERENCES users (id) ON DELETE RESTRICT;
ALTER TABLE entity_responses ADD COLUMN owner_id uuid
    CONSTRAINT fk_entity_responses_owner_id REFERENCES users (id) ON DELETE RESTRICT;
CREATE INDEX sessions_owner_idx ON sessions (tenant_id, owner_id, created_at DESC, id DESC);
GRANT SELECT (owner_id) ON sessions TO upshot_door;
GRANT UPDATE (owner_id) ON sessions TO upshot_replay;
GRANT SELECT (user_id) ON chats TO upshot_door;
"""

# Rows from before, in the order in which one follows from the other. Goldens are frozen for everybody but a migration.
# Tools that read people's feedback or memories make a session personal; their names are part of what was recorded.
BACKFILL = """
UPDATE sessions AS s SET owner_id = c.user_id FROM chats AS c WHERE c.tenant_id = s.tenant_id AND c.id = s.chat_id;
UPDATE sessions AS s SET owner_id = s.created_by
 WHERE s.owner_id IS NULL AND s.eval_source IS NULL AND (s.session_type = 'chat' OR EXISTS (
       SELECT FROM session_events AS e
        WHERE e.tenant_id = s.tenant_id AND e.session_id = s.id AND e.event_type = 'tool.call'
          AND e.payload ->> 'name' IN ('listFeedback', 'getFeedback', 'saveMemory')));
DO $$
DECLARE
    changed bigint;
    more bigint;
BEGIN
    LOOP
        UPDATE entity_responses AS r SET owner_id = s.owner_id FROM sessions AS s
         WHERE s.tenant_id = r.tenant_id AND s.id = r.session_id AND s.owner_id IS NOT NULL AND r.owner_id IS NULL;
        UPDATE sessions AS s SET owner_id = r.owner_id FROM entity_responses AS r
         WHERE r.tenant_id = s.tenant_id AND r.id::text = s.metadata ->> 'retry_of' AND r.owner_id IS NOT NULL
           AND s.owner_id IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        UPDATE sessions AS s SET owner_id = g.owner_id FROM sessions AS g
         WHERE g.tenant_id = s.tenant_id AND g.id::text = coalesce(s.eval_source, s.metadata ->> 'copied_from')
           AND g.owner_id IS NOT NULL AND s.owner_id IS NULL;
        GET DIAGNOSTICS more = ROW_COUNT;
        EXIT WHEN changed + more = 0;
    END LOOP;
END
$$;
"""

# The owner is found when a row is made, and stays when its conversation or its session is deleted. Read with the rights
# of whoever writes: a conversation that they may not see does not exist for them, also not as something to link to.
# What is written into another workspace is refused by its wall. A session of the workspace becomes its person's own when
# an agent reads feedback or keeps a memory in it; only that person or an admin makes it so.
OWNERS = """
CREATE FUNCTION own_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.chat_id IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.chat_id IS DISTINCT FROM OLD.chat_id) THEN
        SELECT c.user_id INTO NEW.owner_id FROM public.chats AS c WHERE c.tenant_id = NEW.tenant_id AND c.id = NEW.chat_id;
        IF NOT FOUND AND NEW.tenant_id = public.app_tenant() THEN
            RAISE EXCEPTION 'There is no such conversation.' USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'owner';
        END IF;
    ELSIF TG_OP = 'INSERT' AND NEW.owner_id IS NULL AND NEW.metadata ->> 'eval_source' ~ '^[0-9a-f-]{36}$' THEN
        SELECT g.owner_id INTO NEW.owner_id FROM public.sessions AS g
         WHERE g.tenant_id = NEW.tenant_id AND g.id = (NEW.metadata ->> 'eval_source')::uuid;
    ELSIF TG_OP = 'INSERT' AND NEW.owner_id IS NULL AND NEW.session_type = 'chat' THEN
        NEW.owner_id := NEW.created_by;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER sessions_own BEFORE INSERT OR UPDATE OF chat_id ON sessions FOR EACH ROW EXECUTE FUNCTION own_session();
CREATE FUNCTION own_response() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.session_id IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.session_id IS DISTINCT FROM OLD.session_id) THEN
        SELECT s.owner_id INTO NEW.owner_id FROM public.sessions AS s
         WHERE s.tenant_id = NEW.tenant_id AND s.id = NEW.session_id;
        IF NOT FOUND AND NEW.tenant_id = public.app_tenant() THEN
            RAISE EXCEPTION 'There is no such session.' USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'owner';
        END IF;
    END IF;
    RETURN NEW;
END
$$;
CREATE FUNCTION own_personal_session() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    personal CONSTANT uuid[] := ARRAY(SELECT DISTINCT a.session_id FROM added AS a WHERE a.event_type = 'tool.call'
        AND a.payload ->> 'name' IN ('listFeedback', 'getFeedback', 'saveMemory'));
BEGIN
    IF personal <> '{}' THEN
        UPDATE public.sessions AS s SET owner_id = s.created_by
         WHERE s.tenant_id = public.app_tenant() AND s.id = ANY (personal) AND s.owner_id IS NULL
           AND (s.created_by = public.app_user() OR public.app_role() IN ('admin', 'system'));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER session_events_own AFTER INSERT ON session_events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION own_personal_session();
CREATE TRIGGER entity_responses_own BEFORE INSERT OR UPDATE OF session_id ON entity_responses FOR EACH ROW
    EXECUTE FUNCTION own_response();
"""

# Ids that a sender chose are one person's own as well: another person's are neither found nor taken.
NAMES = """
DROP INDEX chats_external_key, sessions_external_key;
CREATE UNIQUE INDEX chats_external_key ON chats (tenant_id, external_id, user_id) WHERE external_id IS NOT NULL;
CREATE UNIQUE INDEX sessions_external_key ON sessions (tenant_id, external_id, owner_id) NULLS NOT DISTINCT
    WHERE external_id IS NOT NULL;
"""
OLD_NAMES = """
UPDATE {table} AS t SET external_id = t.external_id || '~' || t.id
  FROM (SELECT id, row_number() OVER (PARTITION BY tenant_id, external_id ORDER BY created_at, id) AS place
          FROM {table} WHERE external_id IS NOT NULL) AS named
 WHERE named.id = t.id AND named.place > 1;
DROP INDEX {table}_external_key;
CREATE UNIQUE INDEX {table}_external_key ON {table} (tenant_id, external_id) WHERE external_id IS NOT NULL;
"""

# Sub-selects are evaluated once for a statement. What belongs to a conversation or a session asks for that row by its
# key, one at a time: as EXISTS it might be answered by reading all sessions of the workspace first.
EVERYTHING = "(SELECT app_role()) IN ('admin', 'system')"
ME = "(SELECT app_user())"
WORKSPACE = "tenant_id = app_tenant()"
OWNED = f"{WORKSPACE} AND ({EVERYTHING} OR owner_id IS NULL OR owner_id = {ME})"
WALLS = {
    "chats": f"{WORKSPACE} AND ({EVERYTHING} OR user_id = {ME})",
    "messages": f"{WORKSPACE} AND ({EVERYTHING} OR (SELECT true FROM chats AS c"
    " WHERE c.tenant_id = messages.tenant_id AND c.id = messages.chat_id))",
    "sessions": OWNED,
    "entity_responses": OWNED,
} | {
    table: f"{WORKSPACE} AND ({EVERYTHING} OR (SELECT true FROM sessions AS s"
    f" WHERE s.tenant_id = {table}.tenant_id AND s.id = {table}.session_id))"
    for table in ("session_events", "session_drafts")
}

SEARCH = """
CREATE OR REPLACE FUNCTION door_search(kind text, query text, n integer) RETURNS TABLE (id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    matching text := CASE kind
        WHEN 'feedback' THEN 'SELECT f.id FROM feedback AS f
            WHERE f.search @@ $1 AND f.tenant_id = $2 AND ($3 OR f.created_by = $4) ORDER BY f.created_at DESC, f.id DESC'
        WHEN 'sessions' THEN 'SELECT s.id FROM sessions AS s
            WHERE s.search @@ $1 AND s.tenant_id = $2{sessions} ORDER BY s.created_at DESC, s.id DESC'
        WHEN 'chats' THEN 'SELECT c.id FROM chats AS c
            WHERE c.search @@ $1 AND c.tenant_id = $2{chats} ORDER BY c.last_message_at DESC, c.id DESC'
        WHEN 'messages' THEN 'SELECT m.chat_id FROM messages AS m
            WHERE m.search @@ $1 AND m.tenant_id = $2{messages} GROUP BY m.chat_id ORDER BY max(m.created_at) DESC, m.chat_id DESC'
        WHEN 'knowledge' THEN 'SELECT k.id FROM shared_context AS k
            WHERE k.search @@ $1 AND k.tenant_id = $2 ORDER BY k.updated_at DESC, k.id DESC'
        WHEN 'any feedback' THEN 'SELECT f.id FROM feedback AS f
            WHERE f.search @@ $1 AND f.tenant_id = $2 AND ($3 OR f.created_by = $4)'
        WHEN 'any sessions' THEN 'SELECT s.id FROM sessions AS s WHERE s.search @@ $1 AND s.tenant_id = $2{sessions}'
    END;
BEGIN
    IF matching IS NULL THEN
        RAISE EXCEPTION 'There is no search for %.', kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY EXECUTE matching || ' LIMIT $5'
        USING websearch_to_tsquery('english', query), app_tenant(), coalesce(app_role() IN ('admin', 'system'), false),
              app_user(), greatest(least(n, 1001), 0);
END
$$;
"""
SEARCHED = {
    "sessions": " AND ($3 OR s.owner_id IS NULL OR s.owner_id = $4)",
    "chats": " AND ($3 OR c.user_id = $4)",
    "messages": " AND ($3 OR (SELECT c.user_id FROM chats AS c WHERE c.tenant_id = m.tenant_id AND c.id = m.chat_id) = $4)",
}


def search(conditions: dict[str, str]) -> str:
    script = SEARCH
    for name in SEARCHED:
        script = script.replace(f"{{{name}}}", conditions.get(name, ""))
    return script


def change_walls(walls: dict[str, str]) -> None:
    for table, condition in walls.items():
        run(f"ALTER POLICY {table}_tenant ON {table} USING ({condition}) WITH CHECK ({condition})")


def upgrade() -> None:
    run(COLUMNS)
    run("ALTER TABLE sessions DISABLE TRIGGER USER")
    with whole_tables("chats", "sessions", "session_events", "entity_responses"):
        run(BACKFILL)
    run("ALTER TABLE sessions ENABLE TRIGGER USER")
    run(OWNERS)
    run(NAMES)
    change_walls(WALLS)
    with as_door():
        run(search(SEARCHED))


def downgrade() -> None:
    with as_door():
        run(search({}))
    change_walls(dict.fromkeys(WALLS, WORKSPACE))
    run("""
        DROP TRIGGER entity_responses_own ON entity_responses;
        DROP TRIGGER session_events_own ON session_events;
        DROP TRIGGER sessions_own ON sessions;
        DROP FUNCTION own_personal_session(), own_response(), own_session();
        ALTER TABLE sessions DISABLE TRIGGER USER;
    """)
    with whole_tables("chats", "sessions"):
        for table in ("chats", "sessions"):
            run(OLD_NAMES.format(table=table))
    run("""
        ALTER TABLE sessions ENABLE TRIGGER USER;
        REVOKE SELECT (owner_id) ON sessions FROM upshot_door;
        REVOKE UPDATE (owner_id) ON sessions FROM upshot_replay;
        REVOKE SELECT (user_id) ON chats FROM upshot_door;
        ALTER TABLE sessions DROP COLUMN owner_id;
        ALTER TABLE entity_responses DROP COLUMN owner_id;
    """)
