"""The demo workspace, new again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.db import db, transaction
from app.db.connect import connect
from app.demo.seed import SLUG, seed
from app.errors import NotFound, Unusable
from app.services.workspaces import store as workspace_store


def reset(owner_url: str | None) -> dict[str, Any]:
    """Delete the demo workspace for good and fill it again. What others keep in their workspaces is not touched."""
    if not owner_url:
        raise Unusable("Deleting a workspace needs the owner of the database; set UPSHOT_OWNER_DATABASE_URL.")
    tenant_id = _demo_id()
    if tenant_id is not None:
        with connect(owner_url, "UPSHOT_OWNER_DATABASE_URL") as connection:
            connection.execute("select purge_tenant(%s)", (tenant_id,))
    return seed() | {"removed": tenant_id is not None}


def _demo_id() -> UUID | None:
    try:
        with transaction():
            return workspace_store.find_workspace(SLUG)
    except NotFound:
        return None
    finally:
        # Nothing that this session remembers of the old workspace may come back.
        db.session.remove()
