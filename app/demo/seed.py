"""`upshot demo seed | reset`: Acme Capital with its people, agents, records and two months of work."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.db.connect import connect
from app.demo.history import build_history
from app.demo.playback import Player
from app.demo.world import World, load_talks, set_up
from app.errors import NotFound, Refused, Unusable
from app.models import Agent, AgentSession, Chat, Entity, Feedback, Membership, SharedContext
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity
from app.services.workspaces import store as workspace_store
from app.services.workspaces.store import share_masking

SLUG = "demo"
NAME = "Acme Capital"
COUNTED = {
    "people": Membership,
    "agents": Agent,
    "entities": Entity,
    "chats": Chat,
    "sessions": AgentSession,
    "feedback": Feedback,
    "knowledge": SharedContext,
}


def seed() -> dict[str, Any]:
    """Fill the demo workspace in one transaction, unless it exists. Needs an application context."""
    with acting_as(None):
        try:
            return _describe_existing() or _create()
        except Refused:
            # Another process was faster.
            return _describe_existing() or _create()


def _describe_existing() -> dict[str, Any] | None:
    try:
        with transaction():
            system = identity.system_in(workspace_store.find_workspace(SLUG))
            return {"workspace": SLUG, "created": False, **_count_rows(system)}
    except NotFound:
        return None


def _create() -> dict[str, Any]:
    with transaction():
        _, system = workspace_store.create_workspace(slug=SLUG, name=NAME)
        world = World(datetime.now(UTC).replace(microsecond=0), system)
        with share_masking(system):
            set_up(world)
            for step in build_history(world, Player(world, list(load_talks()))):
                step()
        used = {row_id: (len(times), max(times)) for row_id, times in world.used.items()}
        knowledge_usage.note_injections(used, actor=system)
        return {"workspace": SLUG, "created": True, **_count_rows(system)}


def _count_rows(actor: Actor) -> dict[str, int]:
    found = {}
    for name, model in COUNTED.items():
        rows = select(func.count()).select_from(model).where(model.tenant_id == actor.tenant_id)
        found[name] = db.session.scalar(rows) or 0
    found["people"] -= 1  # The workspace's system user is no person.
    return found


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
