"""Criteria sets: what responses and goldens are judged by. Each change writes a version; no version ever changes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from app.actor import Actor
from app.db import db, get_own
from app.errors import Invalid, NotFound, Refused, Stale
from app.formats.criteria import parse_dimensions
from app.formats.ids import clean_name
from app.models import CriteriaSet, CriteriaSetVersion, User
from app.services import audit
from app.services.entities.store import SLUG
from app.services.privacy import name_of

ADMINS_ONLY = "Only admins can change criteria sets."
MAX_NAME = 200
MAX_VERSIONS = 100


def create_criteria_set(
    *, slug: str, name: str, dimensions: Mapping[str, Any], actor: Actor, created_at: datetime | None = None
) -> CriteriaSet:
    """Make a criteria set with version 1. `dimensions` maps a name to a rule, see `app.formats.criteria`."""
    actor.check_admin(ADMINS_ONLY)
    if not SLUG.fullmatch(slug):
        raise Invalid.of({"slug": "Use small letters, digits, dashes and underscores, at most 60."})
    name = clean_name(name, MAX_NAME)
    row = CriteriaSet(
        tenant_id=actor.tenant_id, slug=slug, name=name, dimensions=parse_dimensions(dimensions), version=1
    )
    if created_at:
        row.created_at = row.updated_at = created_at
    try:
        with db.session.begin_nested():
            db.session.add(row)
            db.session.flush()
    except IntegrityError:
        raise Refused(f"A criteria set already uses the slug {slug}.") from None
    _add_version(row, actor, created_at)
    audit.record(actor, "criteria_set.created", "criteria_set", row.id, slug=slug)
    return row


def change_criteria_set(
    criteria_set_id: UUID,
    *,
    version: int,
    actor: Actor,
    name: str | None = None,
    dimensions: Mapping[str, Any] | None = None,
) -> CriteriaSet:
    """Change a name, dimensions or both; None leaves one as it is. `version` is the one that the change was made on.
    What says the same writes no version."""
    actor.check_admin(ADMINS_ONLY)
    row = get_own(CriteriaSet, criteria_set_id, "criteria set", actor=actor, lock=True)
    if version != row.version:
        raise Stale(f"Someone else saved version {row.version}. Review it first.", current=row.version)
    before = row.name, row.dimensions
    after = (
        row.name if name is None else clean_name(name, MAX_NAME),
        row.dimensions if dimensions is None else parse_dimensions(dimensions),
    )
    if after == before:
        return row
    row.name, row.dimensions = after
    row.version += 1
    row.updated_at = datetime.now(UTC)
    _add_version(row, actor)
    audit.record(actor, "criteria_set.changed", "criteria_set", row.id, version=row.version)
    return row


def _add_version(row: CriteriaSet, actor: Actor, created_at: datetime | None = None) -> None:
    version = CriteriaSetVersion(
        tenant_id=row.tenant_id, criteria_set_id=row.id, version=row.version,
        name=row.name, dimensions=row.dimensions, created_by=actor.id,
    )  # fmt: skip
    if created_at:
        version.created_at = created_at
    db.session.add(version)
    db.session.flush()


def list_criteria_sets(*, actor: Actor) -> list[CriteriaSet]:
    wanted = select(CriteriaSet).where(CriteriaSet.tenant_id == actor.tenant_id).order_by(CriteriaSet.name)
    return list(db.session.scalars(wanted))


def get_criteria_set(criteria_set_id: UUID, *, actor: Actor) -> CriteriaSet:
    """A criteria set as it is now."""
    return get_own(CriteriaSet, criteria_set_id, "criteria set", actor=actor)


def get_version(criteria_set_id: UUID, version: int, *, actor: Actor) -> CriteriaSetVersion:
    """A criteria set as it was in a version."""
    found = db.session.scalar(
        select(CriteriaSetVersion).where(*_versions_of(criteria_set_id, actor), CriteriaSetVersion.version == version)
    )
    if found is None:
        raise NotFound("There is no such version of a criteria set in this workspace.")
    return found


def list_versions(criteria_set_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """The newest versions, each with its `version, name, dimensions, created_at` and `author`. One query."""
    author = name_of(CriteriaSetVersion.created_by, actor).label("author")
    statement = (
        select(
            CriteriaSetVersion.version, CriteriaSetVersion.name, CriteriaSetVersion.dimensions,
            CriteriaSetVersion.created_at, author,
        )
        .outerjoin(User, User.id == CriteriaSetVersion.created_by)
        .where(*_versions_of(criteria_set_id, actor))
        .order_by(CriteriaSetVersion.version.desc())
        .limit(MAX_VERSIONS)
    )  # fmt: skip
    return db.session.execute(statement).all()


def _versions_of(criteria_set_id: UUID, actor: Actor) -> tuple[Any, ...]:
    return CriteriaSetVersion.tenant_id == actor.tenant_id, CriteriaSetVersion.criteria_set_id == criteria_set_id
