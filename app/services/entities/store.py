"""The workspace's own records: types and entities."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, or_, select, update
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.exc import IntegrityError

from app.actor import Actor
from app.db import db, get_own
from app.db.paging import Page, Slice, read_page
from app.errors import Invalid, NotFound, Refused, Stale
from app.models import AgentSession, Entity, EntityType
from app.services import audit
from app.services.entities.responses import list_responses
from app.services.knowledge import rows as knowledge_rows
from app.services.lists import filters as declare
from app.services.lists.filters import Condition, Filters, is_type
from app.text.words import WORD

SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}", re.ASCII)
OF_KIND: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@dataclass(frozen=True, kw_only=True)
class EntityFilters(Filters):
    entity_type: str | None = declare.slug(column="entity_type_id", compare=is_type)

    def conditions(self) -> list[Condition]:
        found = [*self._within(Entity.updated_at), *self.compare(Entity, self.chosen)]
        if self.q:
            found.append(Entity.name.icontains(self.q, autoescape=True))
        return found


@dataclass(frozen=True)
class EntityRow:
    id: UUID
    entity_type_id: UUID
    entity_type: str
    name: str
    fields: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class EntityDetail:
    entity: Entity
    entity_type: EntityType
    responses: Sequence[Any]


# The columns of an EntityRow, of records joined with their types.
COLUMNS: tuple[Any, ...] = (
    Entity.id, Entity.entity_type_id, EntityType.slug, Entity.name, Entity.fields, Entity.created_at, Entity.updated_at,
)  # fmt: skip
MAX_WORK = 20
# Of a search by name.
MAX_WORDS = 12
MIN_WORD = 2
SCAN_LIMIT = 500
MAX_TYPE_NAME = 120
MAX_FIELDS = 200
# How many records are held against a changed field.
MAX_CHECKED = 10_000


def create_type(
    *, slug: str, name: str, fields: dict[str, Any], actor: Actor, created_at: datetime | None = None
) -> EntityType:
    """A kind of record. `fields` maps each field's name to its JSON schema."""
    actor.check_admin("Only admins can change what records there are.")
    if not SLUG.fullmatch(slug):
        raise Invalid.of({"slug": "Small letters, digits, dashes and underscores, at most 60; such as deal."})
    check_definition(name.strip() or slug, fields)
    row = EntityType(tenant_id=actor.tenant_id, slug=slug, name=name.strip() or slug, fields=fields)
    if created_at:
        row.created_at = created_at
    _save(row, f"An entity type already uses the slug {slug}.")
    audit.record(actor, "entity_type.created", "entity_type", row.id, slug=slug)
    return row


def check_definition(name: str, fields: Mapping[str, Any]) -> None:
    """Refuse a definition whose name or fields could not be used."""
    if len(name) > MAX_TYPE_NAME or not name.isprintable():
        raise Invalid.of({"name": f"One line of at most {MAX_TYPE_NAME} characters."})
    if len(fields) > MAX_FIELDS:
        raise Invalid.of({"fields": f"At most {MAX_FIELDS} fields."})
    for field, schema in fields.items():
        if not isinstance(schema, dict) or schema.get("type") not in OF_KIND:
            raise Invalid.of({f"fields.{field}": f"Say its type: one of {', '.join(OF_KIND)}."})


def change_type(type_id: UUID | None, before: dict[str, Any], after: dict[str, Any], *, actor: Actor) -> EntityType:
    """Give a type another name and other fields, if it still is what `before` says and its records fit. Both hold
    `name` and `fields`."""
    actor.check_admin("Only admins can change what records there are.")
    row: EntityType = get_own(EntityType, type_id, "entity type", actor=actor, lock=True)
    if {"name": row.name, "fields": row.fields} != before or row.archived_at:
        current = {"name": row.name, "fields": row.fields}
        raise Stale(f"The entity type {row.slug} has changed. Review it again.", current)
    check_definition(after["name"], after["fields"])
    row.name, row.fields = after["name"], after["fields"]
    changed = [name for name in after["fields"] if before["fields"].get(name) != after["fields"][name]]
    _check_records(row, [name for name in changed if name in before["fields"]])
    _check_unused(row, [name for name in before["fields"] if name not in after["fields"]])
    db.session.flush()
    audit.record(actor, "entity_type.changed", "entity_type", row.id, name=row.name, fields=changed)
    return row


def _check_unused(kind: EntityType, gone: list[str]) -> None:
    """Refuse to take away fields in which records have values."""
    if not gone:
        return
    of_kind = Entity.tenant_id == kind.tenant_id, Entity.entity_type_id == kind.id, Entity.fields.has_any(array(gone))
    with db.session.no_autoflush:
        used = db.session.execute(select(Entity.name, Entity.fields).where(*of_kind).limit(1)).first()
    if used is not None:
        field = next(name for name in gone if name in used.fields)
        raise Refused(f"“{used.name[:80]}” has a value in {field}. Remove it there first.")


def _check_records(kind: EntityType, changed: list[str]) -> None:
    """Refuse a change of fields that values of existing records would not fit."""
    if not changed:
        return
    of_kind = Entity.tenant_id == kind.tenant_id, Entity.entity_type_id == kind.id
    with db.session.no_autoflush:
        rows = db.session.execute(select(Entity.name, Entity.fields).where(*of_kind).limit(MAX_CHECKED)).all()
    for name, fields in rows:
        try:
            check_fields({field: fields[field] for field in changed if field in fields}, kind)
        except Invalid as wrong:
            raise Refused(f"“{name[:80]}” has an invalid value. {wrong.detail} Change the record first.") from None


def find_type(slug: str, *, actor: Actor) -> EntityType:
    row = db.session.scalar(select(EntityType).where(EntityType.tenant_id == actor.tenant_id, EntityType.slug == slug))
    if row is None:
        raise NotFound(f"There is no entity type “{slug}” in this workspace.")
    return row


def list_types(*, actor: Actor) -> Sequence[Any]:
    """The types in use, with how many records each has. One query."""
    own = [Entity.tenant_id == EntityType.tenant_id, Entity.entity_type_id == EntityType.id]
    number = select(func.count()).select_from(Entity).where(*own).scalar_subquery()
    return db.session.execute(
        select(EntityType.id, EntityType.slug, EntityType.name, EntityType.fields, number.label("entities"))
        .where(EntityType.tenant_id == actor.tenant_id, EntityType.archived_at.is_(None))
        .order_by(EntityType.name)
    ).all()


def archive_type(type_id: UUID, *, actor: Actor) -> None:
    """Retire a type. What was learned for it alone no longer reaches a prompt; its records stay."""
    actor.check_admin("Only admins can change what records there are.")
    moved = db.session.scalar(
        update(EntityType)
        .where(EntityType.tenant_id == actor.tenant_id, EntityType.id == type_id, EntityType.archived_at.is_(None))
        .values(archived_at=datetime.now(UTC))
        .returning(EntityType.slug)
    )
    if moved is None:
        raise NotFound("There is no such entity type in use in this workspace.")
    knowledge_rows.deactivate_all(actor=actor, entity_type_id=type_id, reason=f"The entity type {moved} was archived.")
    audit.record(actor, "entity_type.archived", "entity_type", type_id, slug=moved)


def create_entity(
    *, entity_type: str, name: str, fields: dict[str, Any], actor: Actor, created_at: datetime | None = None
) -> Entity:
    """A record of a type. Only the type's own fields are taken."""
    kind = find_type(entity_type, actor=actor)
    if not name.strip():
        raise Invalid.of({"name": "Enter a name."})
    check_fields(fields, kind)
    entity = Entity(tenant_id=actor.tenant_id, entity_type_id=kind.id, name=name.strip()[:300], fields=fields)
    entity.created_at = entity.updated_at = created_at or datetime.now(UTC)
    db.session.add(entity)
    db.session.flush()
    audit.record(actor, "entity.created", "entity", entity.id, entity_type=kind.slug, name=entity.name)
    return entity


def update_entity(
    entity_id: UUID, changes: Mapping[str, Any], *, actor: Actor, at: datetime | None = None
) -> dict[str, dict[str, Any]]:
    """Change fields of a record and say from what to what. Null clears a field."""
    entity, kind = _find_entity(entity_id, actor, lock=True)
    check_fields(changes, kind)
    changed = {
        name: {"from": entity.fields.get(name), "to": value}
        for name, value in changes.items()
        if entity.fields.get(name) != value
    }
    if changed:
        after = {**entity.fields, **changes}
        entity.fields = {name: value for name, value in after.items() if value is not None}
        entity.updated_at = at or datetime.now(UTC)
        db.session.flush()
        audit.record(actor, "entity.updated", "entity", entity.id, changes=changed)
    return changed


def _find_entity(entity_id: UUID, actor: Actor, *, lock: bool = False) -> tuple[Entity, EntityType]:
    statement = (
        select(Entity, EntityType)
        .join(EntityType, EntityType.id == Entity.entity_type_id)
        .where(Entity.tenant_id == actor.tenant_id, Entity.id == entity_id)
    )
    if lock:
        statement = statement.with_for_update(of=Entity).execution_options(populate_existing=True)
    row = db.session.execute(statement).one_or_none()
    if row is None:
        raise NotFound("There is no such record in this workspace.")
    return row[0], row[1]


def get_entity(entity_id: UUID, *, actor: Actor) -> EntityDetail:
    """One record, its type and what was submitted about it."""
    return EntityDetail(*_find_entity(entity_id, actor), list_responses(entity_id, actor=actor))


def list_entities(filters: EntityFilters, page: Page, *, actor: Actor) -> Slice[EntityRow]:
    """One page of records, last changed first. Two queries."""
    where = [Entity.tenant_id == actor.tenant_id, *filters.conditions()]
    statement = select(*COLUMNS).join(EntityType, EntityType.id == Entity.entity_type_id)
    found = read_page(
        statement, page, at=Entity.updated_at, id=Entity.id, where=where, oldest_first=filters.oldest_first
    )
    return found.map(lambda row: EntityRow(*row))


def list_work(entity_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The latest sessions about a record, without those of other people's conversations. One query."""
    return db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status, AgentSession.created_at)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.entity_id == entity_id)
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_WORK)
    ).all()


def _save(row: EntityType, sentence: str) -> None:
    try:
        with db.session.begin_nested():
            db.session.add(row)
            db.session.flush()
    except IntegrityError:
        raise Refused(sentence) from None


def check_fields(fields: Mapping[str, Any], kind: EntityType) -> None:
    """Each is a field of that kind of record, with a value that fits; Invalid otherwise."""
    for name in fields:
        if name not in kind.fields:
            raise Invalid.of({f"fields.{name}": f"A {kind.slug} has no {name}; it has {', '.join(kind.fields)}."})
        _check_value(name, fields[name], kind.fields[name])


def _check_value(name: str, value: Any, schema: dict[str, Any]) -> None:
    """Of the field's kind, and one of its choices where it has any. Null clears a field."""
    if value is None:
        return
    wanted = schema.get("type", "")
    fits = isinstance(value, OF_KIND.get(wanted, (object,)))
    if not fits or (isinstance(value, bool) and wanted in ("number", "integer")):
        raise Invalid.of({f"fields.{name}": f"Enter {'an' if wanted[0] in 'aio' else 'a'} {wanted}."})
    if "enum" in schema and value not in schema["enum"]:
        raise Invalid.of({f"fields.{name}": f"Use one of {', '.join(map(str, schema['enum']))}."})


def search_entities(query: str, *, actor: Actor, entity_type: str | None = None, limit: int = 25) -> list[EntityRow]:
    """Records whose names have words of the query, or their beginnings; the best match first. One query."""
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
