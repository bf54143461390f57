"""Lists of sessions that are filtered by type or duration, or an agent's by status, read the index alone. Two indexes go:
pending feedback is found by `idx_feedback_tenant_status` as well, and no query asks for sessions by their owner."""

from migrations.helpers import run

revision = "0050_index_use"
down_revision = "0049_knowledge_scorecards"
branch_labels = depends_on = None

COLUMNS = {
    "sessions_recent_idx": "tenant_id, created_at DESC, id DESC",
    "sessions_agent_idx": "tenant_id, agent_id, created_at DESC, id DESC",
}
# What the filters of a scan and row-level security read of a row. Texts without a limit would not fit into an index. The
# first has no status: by it PostgreSQL would look for rare ones among all, past the index that has them together.
READ = {
    "sessions_recent_idx": "session_type, duration_ms, owner_id",
    "sessions_agent_idx": "status, duration_ms, owner_id",
}


def upgrade() -> None:
    for name, columns in COLUMNS.items():
        run(f"DROP INDEX {name}")
        run(f"CREATE INDEX {name} ON sessions ({columns}) INCLUDE ({READ[name]})")
    run("DROP INDEX idx_feedback_pending")
    run("DROP INDEX sessions_owner_idx")


def downgrade() -> None:
    run("CREATE INDEX sessions_owner_idx ON sessions (tenant_id, owner_id, created_at DESC, id DESC)")
    run("CREATE INDEX idx_feedback_pending ON feedback (tenant_id, created_at DESC) WHERE status = 'pending'")
    for name, columns in COLUMNS.items():
        run(f"DROP INDEX {name}")
        run(f"CREATE INDEX {name} ON sessions ({columns})")
