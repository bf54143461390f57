"""`upshot demo reset`: delete the demo workspace and fill it again."""

from typing import Any
from uuid import UUID

from app.db import db, transaction
from app.db.connect import connect
from app.demo.seed import SLUG, seed
from app.errors import NotFound, Unusable
from app.services.workspaces import store as workspace_store


def reset(owner_url: str | None) -> dict[str, Any]:
    """Delete the demo workspace for good and fill it again. Other workspaces are not touched."""
    if not owner_url:
        raise Unusable("Deleting a workspace needs the owner of the database; set UPSHOT_OWNER_DATABASE_URL.")
    tenant_id = _find_demo()
    if tenant_id is not None:
        purge(owner_url, tenant_id)
    return seed() | {"removed": tenant_id is not None}


def purge(owner_url: str, tenant_id: UUID) -> None:
    """Delete a workspace with everything in it."""
    with connect(owner_url, "UPSHOT_OWNER_DATABASE_URL") as connection:
        connection.execute("select purge_tenant(%s)", (tenant_id,))


def _find_demo() -> UUID | None:
    try:
        with transaction():
            return workspace_store.find_workspace(SLUG)
    except NotFound:
        return None
    finally:
        # Rows that this database session has loaded from the old workspace must not come back.
        db.session.remove()
