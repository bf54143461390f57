"""A decision about feedback outlives the person or agent who made it."""

from migrations.helpers import run, whole_tables

revision = "0025_reviewers_leave"
down_revision = "0024_turns_and_edits"
branch_labels = depends_on = None

# Who decided is required at the moment of the decision only. A CHECK would also apply when the reviewer is deleted
# later, so a trigger on the status asks for it.
UP = """
ALTER TABLE feedback
    DROP CONSTRAINT fk_feedback_tenant_id_reviewed_by_agent_id,
    DROP CONSTRAINT fk_feedback_reviewed_by_user_id,
    DROP CONSTRAINT feedback_reviewed_by_one,
    ADD CONSTRAINT fk_feedback_tenant_id_reviewed_by_agent_id FOREIGN KEY (tenant_id, reviewed_by_agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE SET NULL (reviewed_by_agent_id),
    ADD CONSTRAINT fk_feedback_reviewed_by_user_id FOREIGN KEY (reviewed_by_user_id)
        REFERENCES users (id) ON DELETE SET NULL (reviewed_by_user_id),
    ADD CONSTRAINT feedback_reviewed_by_one
        CHECK (status = 'pending' OR num_nonnulls(reviewed_by_user_id, reviewed_by_agent_id) <= 1);
CREATE FUNCTION guard_feedback_reviewer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF num_nonnulls(NEW.reviewed_by_user_id, NEW.reviewed_by_agent_id) = 0 THEN
        RAISE EXCEPTION 'A decision about feedback names who made it.' USING ERRCODE = 'check_violation', CONSTRAINT = 'reviewed_by_one';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER feedback_reviewer BEFORE INSERT OR UPDATE OF status ON feedback FOR EACH ROW
    WHEN (NEW.status <> 'pending') EXECUTE FUNCTION guard_feedback_reviewer();
"""

# The older tables require a reviewer. Where that one is gone, the workspace's system user takes their place.
DOWN = """
DROP TRIGGER feedback_reviewer ON feedback;
DROP FUNCTION guard_feedback_reviewer();
UPDATE feedback AS f
   SET reviewed_by_user_id = coalesce((SELECT m.user_id FROM memberships AS m
            WHERE m.tenant_id = f.tenant_id AND m.role = 'system' ORDER BY m.created_at, m.id LIMIT 1), f.created_by)
 WHERE f.status <> 'pending' AND num_nonnulls(f.reviewed_by_user_id, f.reviewed_by_agent_id) = 0;
"""
RESTRICT = """
ALTER TABLE feedback
    DROP CONSTRAINT fk_feedback_tenant_id_reviewed_by_agent_id,
    DROP CONSTRAINT fk_feedback_reviewed_by_user_id,
    DROP CONSTRAINT feedback_reviewed_by_one,
    ADD CONSTRAINT fk_feedback_tenant_id_reviewed_by_agent_id FOREIGN KEY (tenant_id, reviewed_by_agent_id)
        REFERENCES agents (tenant_id, id) ON DELETE RESTRICT,
    ADD CONSTRAINT fk_feedback_reviewed_by_user_id FOREIGN KEY (reviewed_by_user_id)
        REFERENCES users (id) ON DELETE RESTRICT,
    ADD CONSTRAINT feedback_reviewed_by_one
        CHECK (status = 'pending' OR num_nonnulls(reviewed_by_user_id, reviewed_by_agent_id) = 1);
"""


def upgrade() -> None:
    run(UP)


def downgrade() -> None:
    with whole_tables("feedback", "memberships"):
        run(DOWN)
    run(RESTRICT)
