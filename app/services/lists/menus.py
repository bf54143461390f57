"""What the filter menus of the lists offer, all of it in one query."""

from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, literal, null, select, union_all

from app.actor import Actor
from app.db import db
from app.models import Agent, Import, Membership, User
from app.services.privacy import is_hidden

MAX_OPTIONS = 200


def load_menus(*, actor: Actor, person_id: UUID | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return values with what they are called: `agents` by slug, `people` by id, the first 200 and the chosen one,
    `imports` by id, the newest 200 that were not undone. Where people are hidden, only the reader is offered."""
    here, seen = Membership.tenant_id == actor.tenant_id, ~is_hidden(User.id, actor)
    people = select(literal("people"), cast(User.id, Text), User.name, null().label("at"))
    created = func.to_char(func.timezone("UTC", Import.created_at), "DD Mon, HH24:MI")
    parts = (
        select(literal("agents"), Agent.slug, Agent.slug, null().label("at"))
        .where(Agent.tenant_id == actor.tenant_id, Agent.archived_at.is_(None))
        .order_by(Agent.is_system, Agent.slug)
        .limit(MAX_OPTIONS),
        people.join(Membership, Membership.user_id == User.id)
        .where(here, User.is_system.is_(False), seen)
        .order_by(User.name)
        .limit(MAX_OPTIONS),
        people.where(User.id == person_id, seen),
        select(literal("imports"), cast(Import.id, Text), func.coalesce(Import.filename, Import.kind), created)
        .where(Import.tenant_id == actor.tenant_id, Import.undone_at.is_(None))
        .order_by(Import.created_at.desc())
        .limit(MAX_OPTIONS),
    )
    menus: dict[str, dict[str, str]] = {"agents": {}, "people": {}, "imports": {}}
    rows: Any = db.session.execute(union_all(*parts))
    for kind, value, name, at in rows:
        menus[kind][value] = f"{name}, {at}" if at else name
    return {kind: list(menu.items()) for kind, menu in menus.items()}
