"""`upshot demo seed`: Acme Capital with its people, agents, records and two months of work."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.demo.history import build_history
from app.demo.playback import Player
from app.demo.world import World, load_talks, set_up
from app.errors import NotFound, Refused
from app.models import Agent, AgentSession, Chat, Entity, Feedback, Membership, SharedContext
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity
from app.services.workspaces import store as workspace_store
from app.services.workspaces.masking import share_masking

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
