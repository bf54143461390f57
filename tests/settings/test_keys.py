"""API keys act as their person, within their scopes, until they are revoked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from app import tokens
from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound
from app.models.people import ApiKey, AuditEntry
from app.security import authentication
from app.services.workspaces import keys as workspace_keys

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def make(actor, **more):
    with acting_as(actor), transaction():
        row, key = workspace_keys.create_key(**{"name": "CI", "scopes": ["admin", "ingest"], "actor": actor, **more})
        return row.id, key


def test_a_key_is_stored_as_a_hash_with_a_prefix_to_know_it_by(app, workspace):
    admin = workspace.actor("admin")
    key_id, key = make(admin)

    with acting_as(admin):
        row, name = workspace_keys.list_keys(actor=admin)[0]
        assert (row.id, row.scopes, name) == (key_id, ["ingest", "admin"], admin.name)
        assert key.startswith(row.prefix)
        assert len(row.prefix) < len(key) / 3
        assert row.key_hash == tokens.digest(key)
        details = db.session.scalars(select(AuditEntry.details).where(AuditEntry.action == "key.created")).one()
        assert key not in str(details)
    with app.test_request_context():
        found = authentication.bind(key)
        assert (found.kind, found.credential_id, found.user_id, found.role) == ("key", key_id, admin.id, "admin")


def test_a_revoked_or_expired_key_is_none(app, workspace):
    admin = workspace.actor("admin")
    revoked_id, revoked = make(admin)
    expired_id, expired = make(admin, expires_at=datetime.now(UTC) + timedelta(days=1))
    with acting_as(admin), transaction():
        workspace_keys.revoke_key(revoked_id, actor=admin)
        db.session.execute(update(ApiKey).where(ApiKey.id == expired_id).values(expires_at=func.now()))
    for key in (revoked, expired):
        with app.test_request_context():
            assert authentication.bind(key) is None
    with pytest.raises(NotFound), acting_as(admin), transaction():
        workspace_keys.revoke_key(revoked_id, actor=admin)


def test_nobody_makes_a_key_that_acts_as_someone_else(workspace):
    owner, admin, system = (workspace.actor(role) for role in ("owner", "admin", "system"))
    with pytest.raises(Forbidden):
        make(admin, user_id=owner.id)
    assert make(system, user_id=owner.id)


def test_keys_of_another_workspace_are_unknown(workspace, make_workspace):
    key_id, _ = make(make_workspace().actor("admin"))
    admin = workspace.actor("admin")
    with acting_as(admin):
        assert workspace_keys.list_keys(actor=admin) == []
        with pytest.raises(NotFound), transaction():
            workspace_keys.revoke_key(key_id, actor=admin)


def test_bad_keys_are_refused(workspace):
    admin, member = workspace.actor("admin"), workspace.actor("member")
    for field, wrong in (
        ("scopes", {"scopes": []}),
        ("scopes", {"scopes": ["root"]}),
        ("name", {"name": " "}),
        ("expires", {"expires_at": datetime.now(UTC)}),
    ):
        with pytest.raises(Invalid) as raised:
            make(admin, **wrong)
        assert list(raised.value.fields) == [field]
    key_id, _ = make(admin)
    with pytest.raises(Forbidden), acting_as(member), transaction():
        workspace_keys.revoke_key(key_id, actor=member)


def test_the_last_use_is_known_before_and_after_it_is_written(workspace, write_last_used):
    admin = workspace.actor("admin")
    key_id, _ = make(admin)
    workspace_keys.note_use(admin.__class__(admin.id, admin.tenant_id, "admin", key_id=key_id), None)
    noted = workspace_keys.last_used(key_id, None)
    write_last_used(workspace.id)

    assert workspace_keys.last_used(key_id, None) is None
    with acting_as(admin):
        assert workspace_keys.list_keys(actor=admin)[0][0].last_used_at == noted
