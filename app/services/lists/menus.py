"""The values that filters offer: the agents, people and imports of the workspace, and what its latest sessions have."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Text, Uuid, cast, func, literal, null, select, union_all

from app.actor import Actor
from app.db import db, queries
from app.db.queries import ASKING, keep_queries
from app.models import Agent, AgentSession, Chat, EntityType, Import, Membership, User
from app.services.privacy import is_hidden, name_of

MAX_VALUES = 200
# Values that are in no table of their own are those of so many of the latest rows.
RECENT_ROWS = 2000
ADMIN_ROLES = ("owner", "admin")


def _agents(actor: Actor) -> Any:
    here = Agent.tenant_id == actor.tenant_id, Agent.archived_at.is_(None), Agent.merged_into.is_(None)
    return select(Agent.slug, Agent.slug).where(*here).order_by(Agent.is_system, Agent.slug)


def _types(actor: Actor) -> Any:
    here = EntityType.tenant_id == actor.tenant_id, EntityType.archived_at.is_(None)
    return select(EntityType.slug, EntityType.slug).where(*here).order_by(EntityType.slug)


def _people(actor: Actor) -> Any:
    """Where people are hidden, only the reader is offered."""
    here = Membership.tenant_id == actor.tenant_id, User.is_system.is_(False), ~is_hidden(User.id, actor)
    people = select(cast(User.id, Text), User.name).join(Membership, Membership.user_id == User.id)
    return people.where(*here).order_by(func.lower(User.name), User.id)


def _admins(actor: Actor) -> Any:
    admins = select(cast(User.id, Text), User.name).join(Membership, Membership.user_id == User.id)
    here = Membership.tenant_id == actor.tenant_id, Membership.role.in_(ADMIN_ROLES)
    return admins.where(*here).order_by(func.lower(User.name), User.id)


def _imports(actor: Actor) -> Any:
    here = Import.tenant_id == actor.tenant_id, Import.undone_at.is_(None)
    return select(cast(Import.id, Text), _import_name()).where(*here).order_by(Import.created_at.desc())


def _import_name() -> Any:
    created = func.to_char(func.timezone("UTC", Import.created_at), ", DD Mon, HH24:MI")
    return func.coalesce(Import.filename, Import.kind) + created


def _recent(model: Any, value: Any, at: Any) -> Callable[[Actor], Any]:
    """The values of a column in the latest rows of the workspace."""

    def values(actor: Actor) -> Any:
        latest = select(value.label("value")).where(model.tenant_id == actor.tenant_id).order_by(at.desc())
        found = latest.limit(RECENT_ROWS).subquery()
        each = func.unnest(found.c.value).label("value") if value is AgentSession.tags else found.c.value
        values = select(each).subquery()
        return select(values.c.value, values.c.value).where(values.c.value != "").distinct().order_by(values.c.value)

    return values


MENUS: dict[str, Callable[[Actor], Any]] = {
    "agents": _agents,
    "types": _types,
    "people": _people,
    "admins": _admins,
    "imports": _imports,
    "environments": _recent(AgentSession, AgentSession.environment, AgentSession.created_at),
    "models": _recent(AgentSession, AgentSession.model, AgentSession.created_at),
    "tags": _recent(AgentSession, AgentSession.tags, AgentSession.created_at),
    "projects": _recent(Chat, Chat.project, Chat.last_message_at),
}
# Menus that have all values there are. The others only know what is recent.
WHOLE = frozenset({"agents", "types", "people", "admins", "imports"})
# Menus whose values are ids, which say nothing to people.
NAMED = frozenset({"people", "admins", "imports"})


def find_values(menu: str, words: str, *, actor: Actor, most: int = MAX_VALUES) -> list[tuple[str, str]]:
    """Values of a menu that have these words in their name, with what they are called. One query."""
    offered = MENUS[menu](actor).subquery()
    value, label = offered.c
    wanted = select(value, label).where(label.icontains(words, autoescape=True)).limit(most)
    return [(found[0], found[1]) for found in db.session.execute(wanted)]


@dataclass(frozen=True)
class Menus:
    """The values of menus with what they are called, and by menu what the ids that were asked for are called."""

    values: dict[str, list[tuple[str, str]]]
    names: dict[str, str]


def load_menus(wanted: Collection[str], ids: Mapping[str, UUID] | None = None, *, actor: Actor) -> Menus:
    """Load the values of these menus, and the names of ids as far as the reader may know. One query, none for none."""
    found = Menus({menu: [] for menu in wanted}, {})
    asked = {f"{menu}_id": row_id for menu, row_id in (ids or {}).items()}
    query = find_menus(tuple(found.values), tuple(ids or ())) if wanted or ids else None
    for menu, value, label in query(actor, **asked) if query else ():
        if value is None:
            found.names[menu] = label
        else:
            found.values[menu].append((value, label))
    return found


@keep_queries
def find_menus(wanted: tuple[str, ...], named: tuple[str, ...]) -> Any:
    names: dict[str, tuple[Any, Any]] = {
        "people": (User.id, name_of(User.id, ASKING)),
        "admins": (User.id, User.name),
        "imports": (Import.id, _import_name()),
    }
    parts = [
        select(literal(menu), null(), names[menu][1]).where(names[menu][0] == queries.value(f"{menu}_id", Uuid))
        for menu in named
    ]
    for menu in wanted:
        value, label = MENUS[menu](ASKING).limit(MAX_VALUES).subquery().c
        parts.append(select(literal(menu), value, label))
    return union_all(*parts)
