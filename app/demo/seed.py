"""The demo workspace: Acme Capital, its people, agents, records and two months of work with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import func, select

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.demo.goldens import golden_steps
from app.demo.learning import learning_steps, note_usage
from app.demo.play import Kept, Player, play
from app.demo.recording import read_recorded
from app.demo.setting import set_up
from app.demo.talks import place_of
from app.demo.world import World, talks
from app.errors import NotFound, Refused
from app.models import Agent, AgentSession, Chat, Entity, Feedback, Membership, SharedContext
from app.services.workspaces import identity
from app.services.workspaces import store as workspace_store
from app.services.workspaces.masking import one_masking

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
    """Fill the demo workspace in one transaction, or say that it is there. Needs an application context."""
    with acting_as(None):
        try:
            return _there() or _made()
        except Refused:
            # Another process was quicker.
            return _there() or _made()


def _there() -> dict[str, Any] | None:
    try:
        with transaction():
            return {"workspace": SLUG, "created": False, **counts(_demo())}
    except NotFound:
        return None


def _made() -> dict[str, Any]:
    with transaction():
        _, system = workspace_store.create_workspace(slug=SLUG, name=NAME)
        world = World(datetime.now(UTC).replace(microsecond=0), system)
        with one_masking(system):
            set_up(world)
            for step in history(world, Kept(world, read_recorded(), list(talks()))):
                step()
        note_usage(world)
        return {"workspace": SLUG, "created": True, **counts(system)}


def history(world: World, player: Player) -> list[Callable[[], None]]:
    """Everything that happened, in order: conversations, what people said about them, and what was learned."""
    steps = [*learning_steps(world, player), *golden_steps(world, player)]
    for talk in talks():
        steps.append((place_of(talk.when), partial(play, world, talk, player)))
    return [step for _, step in sorted(steps, key=lambda item: item[0])]


def _demo() -> Actor:
    return identity.system_in(workspace_store.find_workspace(SLUG))


def counts(actor: Actor) -> dict[str, int]:
    """What the demo holds."""
    found = {}
    for name, model in COUNTED.items():
        rows = select(func.count()).select_from(model).where(model.tenant_id == actor.tenant_id)  # type: ignore[attr-defined]
        found[name] = db.session.scalar(rows) or 0
    found["people"] -= 1  # The workspace's system user is nobody.
    return found
