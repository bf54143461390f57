"""Search counts in any order what lists show the newest of."""

from migrations.helpers import as_door, run

revision = "0011_search"
down_revision = "0010_runtime"
branch_labels = depends_on = None

# To count, no row needs its place: the thousand that are read first do, wherever they lie.
IN_ANY_ORDER = """
        WHEN 'any feedback' THEN 'SELECT f.id FROM feedback AS f
            WHERE f.search @@ $1 AND f.tenant_id = $2 AND ($3 OR f.created_by = $4)'
        WHEN 'any sessions' THEN 'SELECT s.id FROM sessions AS s WHERE s.search @@ $1 AND s.tenant_id = $2'"""
SEARCH = """
CREATE OR REPLACE FUNCTION door_search(kind text, query text, n integer) RETURNS TABLE (id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    matching text := CASE kind
        WHEN 'feedback' THEN 'SELECT f.id FROM feedback AS f
            WHERE f.search @@ $1 AND f.tenant_id = $2 AND ($3 OR f.created_by = $4) ORDER BY f.created_at DESC, f.id DESC'
        WHEN 'sessions' THEN 'SELECT s.id FROM sessions AS s
            WHERE s.search @@ $1 AND s.tenant_id = $2 ORDER BY s.created_at DESC, s.id DESC'
        WHEN 'chats' THEN 'SELECT c.id FROM chats AS c
            WHERE c.search @@ $1 AND c.tenant_id = $2 ORDER BY c.last_message_at DESC, c.id DESC'
        WHEN 'messages' THEN 'SELECT m.chat_id FROM messages AS m
            WHERE m.search @@ $1 AND m.tenant_id = $2 GROUP BY m.chat_id ORDER BY max(m.created_at) DESC, m.chat_id DESC'
        WHEN 'knowledge' THEN 'SELECT k.id FROM shared_context AS k
            WHERE k.search @@ $1 AND k.tenant_id = $2 ORDER BY k.updated_at DESC, k.id DESC'{in_any_order}
    END;
BEGIN
    IF matching IS NULL THEN
        RAISE EXCEPTION 'There is no search for %.', kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY EXECUTE matching || ' LIMIT $5'
        USING websearch_to_tsquery('english', query), app_tenant(), coalesce(app_role() IN ('admin', 'system'), false),
              app_user(), greatest(least(n, {most}), 0);
END
$$;
"""


def upgrade() -> None:
    with as_door():
        run(SEARCH.format(in_any_order=IN_ANY_ORDER, most=1001))


def downgrade() -> None:
    with as_door():
        run(SEARCH.format(in_any_order="", most=1000))
