"""Webhooks: where a workspace sends its events, which ones, and each delivery. Addresses can be secrets, so only admins
read them; whoever does what an event is about queues its deliveries."""

from migrations.helpers import as_door, drop_tables, run, tear_down, wall

revision = "0041_webhooks"
down_revision = "0040_change_drafts"
branch_labels = depends_on = None

TABLES = ("webhooks", "webhook_subscriptions", "webhook_deliveries")
ADMINS = "tenant_id = app_tenant() AND app_role() IN ('admin', 'system')"
CREATE = """
CREATE TABLE webhooks (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_webhooks PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_webhooks_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    url text NOT NULL,
    origin text NOT NULL,
    format text NOT NULL,
    created_by uuid CONSTRAINT fk_webhooks_created_by REFERENCES users (id) ON DELETE SET NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_webhooks_tenant_id_id UNIQUE (tenant_id, id),
    CONSTRAINT webhooks_format_known CHECK (format IN ('json', 'slack'))
);
CREATE TABLE webhook_subscriptions (
    tenant_id uuid NOT NULL CONSTRAINT fk_webhook_subscriptions_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    event text NOT NULL,
    webhook_id uuid NOT NULL,
    CONSTRAINT pk_webhook_subscriptions PRIMARY KEY (tenant_id, event, webhook_id),
    CONSTRAINT fk_webhook_subscriptions_tenant_id_webhook_id FOREIGN KEY (tenant_id, webhook_id)
        REFERENCES webhooks (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT webhook_subscriptions_event_known CHECK (event IN
        ('feedback.submitted', 'proposal.created', 'knowledge.activated', 'eval.regressed'))
);
CREATE INDEX webhook_subscriptions_hook_idx ON webhook_subscriptions (tenant_id, webhook_id);
CREATE TABLE webhook_deliveries (
    id uuid NOT NULL DEFAULT gen_random_uuid() CONSTRAINT pk_webhook_deliveries PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT fk_webhook_deliveries_tenant_id REFERENCES tenants (id) ON DELETE CASCADE,
    webhook_id uuid NOT NULL,
    event text NOT NULL,
    subject_id uuid,
    details jsonb NOT NULL DEFAULT '{}'::jsonb,
    status text NOT NULL DEFAULT 'pending',
    attempt integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL DEFAULT now(),
    payload jsonb,
    response_status integer,
    error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    CONSTRAINT fk_webhook_deliveries_tenant_id_webhook_id FOREIGN KEY (tenant_id, webhook_id)
        REFERENCES webhooks (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT webhook_deliveries_status_known CHECK (status IN ('pending', 'delivered', 'failed', 'dropped')),
    CONSTRAINT webhook_deliveries_ends CHECK ((status = 'pending') = (finished_at IS NULL))
);
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (tenant_id, next_at, id) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_recent_idx ON webhook_deliveries (tenant_id, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_hook_idx ON webhook_deliveries (tenant_id, webhook_id, created_at DESC, id DESC);
GRANT SELECT, INSERT, DELETE ON webhooks, webhook_subscriptions TO upshot_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_deliveries TO upshot_app;
GRANT SELECT (tenant_id, status, next_at) ON webhook_deliveries TO upshot_door;
"""
# A member's feedback queues deliveries that the member cannot read.
QUEUED = """
CREATE POLICY webhook_deliveries_queued ON webhook_deliveries FOR INSERT
    WITH CHECK (tenant_id = app_tenant() AND status = 'pending' AND payload IS NULL);
CREATE POLICY webhook_deliveries_door ON webhook_deliveries FOR SELECT TO upshot_door USING (true);
"""
DOOR = """
CREATE FUNCTION door_deliveries() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.id FROM tenants AS t
     WHERE EXISTS (SELECT FROM webhook_deliveries AS d
                    WHERE d.tenant_id = t.id AND d.status = 'pending' AND d.next_at <= clock_timestamp())
$$;
"""


def upgrade() -> None:
    run(CREATE)
    wall("webhooks", ADMINS)
    wall("webhook_subscriptions")
    wall("webhook_deliveries", ADMINS)
    run(QUEUED)
    with as_door():
        run(DOOR)
        run("REVOKE ALL ON FUNCTION door_deliveries() FROM PUBLIC")
        run("GRANT EXECUTE ON FUNCTION door_deliveries() TO upshot_app")


def downgrade() -> None:
    with as_door():
        run("DROP FUNCTION door_deliveries()")
    run("""
        DROP POLICY webhook_deliveries_door ON webhook_deliveries;
        DROP POLICY webhook_deliveries_queued ON webhook_deliveries;
    """)
    for table in TABLES:
        tear_down(table)
    drop_tables(*TABLES)
