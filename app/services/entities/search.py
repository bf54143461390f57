"""Records found by the words of their names, the best match first."""

from contextlib import suppress
from uuid import UUID

from sqlalchemy import func, or_, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.models import Entity, EntityType
from app.services.entities.store import COLUMNS, EntityRow
from app.text.words import WORD

MAX_WORDS = 12
MIN_WORD = 2
SCAN_LIMIT = 500


def search_entities(query: str, *, actor: Actor, entity_type: str | None = None, limit: int = 25) -> list[EntityRow]:
    """Records with a word that begins like one of the query's. Who matches more of them comes first, then the last
    changed. One query."""
    words = [word for word in dict.fromkeys(WORD.findall(query.lower())) if len(word) >= MIN_WORD][:MAX_WORDS]
    if not words:
        return []
    where = [
        Entity.tenant_id == actor.tenant_id,
        or_(*(Entity.name.icontains(word, autoescape=True) for word in words)),
    ]
    if entity_type:
        where.append(EntityType.slug == entity_type)
    rows = db.session.execute(
        select(*COLUMNS)
        .join(EntityType, (EntityType.tenant_id == Entity.tenant_id) & (EntityType.id == Entity.entity_type_id))
        .where(*where)
        .order_by(Entity.updated_at.desc(), Entity.id.desc())
        .limit(SCAN_LIMIT)
    )
    scored = [(count_matches(words, row.name), EntityRow(*row)) for row in rows]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
    return [row for _, row in best[:limit]]


def count_matches(words: list[str], name: str) -> int:
    """How many of the words the name has: a whole word counts twice, its beginning once from three letters on."""
    own = WORD.findall(name.lower())
    return sum(
        2 if word in own else any(len(word) > MIN_WORD and one.startswith(word) for one in own) for word in words
    )


def recent_names(*, actor: Actor, limit: int = 100) -> list[str]:
    """What the records are called that changed last. One query."""
    rows = db.session.scalars(
        select(Entity.name).where(Entity.tenant_id == actor.tenant_id).order_by(Entity.updated_at.desc()).limit(limit)
    )
    return list(dict.fromkeys(rows))


def find_record(name: str, *, actor: Actor) -> UUID:
    """Find a record by its id or by its whole name."""
    name = name.strip()
    with suppress(ValueError):
        found = db.session.scalar(select(Entity.id).where(Entity.tenant_id == actor.tenant_id, Entity.id == UUID(name)))
        if found is not None:
            return found
    same = func.lower(Entity.name) == name.lower()
    rows = db.session.scalars(select(Entity.id).where(Entity.tenant_id == actor.tenant_id, same).limit(2)).all()
    if len(rows) == 1:
        return rows[0]
    several = f"More than one record is called {name[:80]}; give its id."
    raise Invalid.of({"record": several if rows else f"No record is called {name[:80]}."})
