"""The knowledge of a prompt, read with a plan that a connection makes once."""

from migrations.helpers import run

revision = "0020_prompt_rows"
down_revision = "0019_verdict_guards"
branch_labels = depends_on = None

# Each scope has an index of its own that holds active rows by rank, so a type costs a few short index scans however
# many rows there are. Planning them takes several times as long as reading them, and PostgreSQL would plan anew wherever
# that looks cheaper, which it does where workspaces differ in size. Here the first plan stays, and since it may have been
# made for a small workspace, it may not rely on that: rows come from those indexes in their order, and in no other way.
# A scan looks at all that fits on a page of its index. So the rows for everyone are read first: of the other scopes only
# those can have a place that rank no lower than the last of these. Whoever asks sees what they always see: the function
# has no rights of its own.
ROWS = """
CREATE FUNCTION prompt_rows(workspace uuid, agent uuid, entity_type uuid, types text[], usual integer, fewest integer)
    RETURNS TABLE (secret text, top_n integer, id text, type text, content text, context text, scope text,
                   version integer, rank real)
    LANGUAGE plpgsql STABLE ROWS 40 SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.secret, w.top_n, p.id::text, p.type, p.content, p.context, p.scope, p.version, p.rank
      FROM (SELECT t.secret, t.top_n, greatest(t.top_n, fewest) AS most
              FROM (SELECT o.secret, CASE WHEN o.settings ->> 'context_top_n' ~ '^[0-9]{1,2}$'
                                          THEN greatest(least((o.settings ->> 'context_top_n')::integer, 50), 1)
                                          ELSE usual END AS top_n
                      FROM public.tenants AS o WHERE o.id = public.app_tenant() AND o.id = workspace) AS t) AS w
      LEFT JOIN LATERAL (
           SELECT r.*, k.type FROM unnest(types) AS k (type)
            CROSS JOIN LATERAL (
                WITH wide AS MATERIALIZED (
                    SELECT c.id, c.content, c.context, 'workspace' AS scope, c.version, c.rank
                      FROM public.shared_context AS c
                     WHERE c.tenant_id = public.app_tenant() AND c.type = k.type AND c.active
                       AND c.agent_id IS NULL AND c.entity_type_id IS NULL
                     ORDER BY c.rank DESC, c.id LIMIT w.most),
                least AS MATERIALIZED (
                    SELECT CASE WHEN count(*) = w.most THEN min(wide.rank) ELSE '-Infinity' END AS rank FROM wide)
                SELECT s.* FROM (
                    SELECT wide.* FROM wide
                    UNION ALL
                    (SELECT c.id, c.content, c.context, 'agent', c.version, c.rank
                       FROM public.shared_context AS c
                      WHERE c.tenant_id = public.app_tenant() AND c.type = k.type AND c.active
                        AND c.agent_id = agent AND c.entity_type_id IS NULL
                        AND c.rank >= (SELECT least.rank FROM least)
                      ORDER BY c.rank DESC, c.id LIMIT w.most)
                    UNION ALL
                    (SELECT c.id, c.content, c.context, 'entity_type', c.version, c.rank
                       FROM public.shared_context AS c
                      WHERE c.tenant_id = public.app_tenant() AND c.type = k.type AND c.active
                        AND c.agent_id IS NULL AND c.entity_type_id = entity_type
                        AND c.rank >= (SELECT least.rank FROM least)
                      ORDER BY c.rank DESC, c.id LIMIT w.most)
                    UNION ALL
                    (SELECT c.id, c.content, c.context, 'both', c.version, c.rank
                       FROM public.shared_context AS c
                      WHERE c.tenant_id = public.app_tenant() AND c.type = k.type AND c.active
                        AND c.agent_id = agent AND c.entity_type_id = entity_type
                        AND c.rank >= (SELECT least.rank FROM least)
                      ORDER BY c.rank DESC, c.id LIMIT w.most)
                    ) AS s ORDER BY s.rank DESC, s.id LIMIT w.most) AS r
           ) AS p ON true;
END
$$;
REVOKE ALL ON FUNCTION prompt_rows(uuid, uuid, uuid, text[], integer, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION prompt_rows(uuid, uuid, uuid, text[], integer, integer) TO upshot_app, upshot_replay;
"""


def upgrade() -> None:
    run(ROWS)


def downgrade() -> None:
    run("DROP FUNCTION prompt_rows(uuid, uuid, uuid, text[], integer, integer)")
