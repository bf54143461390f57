"""People whom only the workspace's own product knows: no sign-in, one row under the id that it calls them by."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select, text, update
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.models.people import User
from app.services import audit
from app.services.words import NAME_MOST, clean_name

LONGEST_SUBJECT = 256
NAME_ORIGIN = text("select set_config('app.origin', :origin, true)")
ALLOWED = text("select exists (select from tenants where settings -> 'feedback_origins' ? :origin)")
SET_ROLE = text("select set_config('app.role', :role, true)")


def ensure_person(subject: str, *, actor: Actor, name: str | None = None) -> UUID:
    """The person behind the team's own id for them; made when they are new, renamed when a new name is given."""
    subject = _clean_subject(subject)
    name = clean_name(name) if name is not None else None
    made: UUID | None = db.session.scalar(
        insert(User)
        .values(external_id=subject, external_tenant_id=actor.tenant_id, name=name or subject[:NAME_MOST])
        .on_conflict_do_nothing(
            index_elements=["external_tenant_id", "external_id"], index_where=User.external_id.is_not(None)
        )
        .returning(User.id)
    )
    if made is not None:
        audit.record(actor, "outside_person.added", "user", made)
        return made
    known = db.session.execute(
        select(User.id, User.name).where(User.external_tenant_id == actor.tenant_id, User.external_id == subject)
    ).one()
    if name is not None and name != known.name:
        _rename(known.id, name, actor)
    found: UUID = known.id
    return found


def is_allowed_origin(origin: str) -> bool:
    """Whether any workspace takes feedback from this site. The database shows those to whoever names the origin."""
    parameters = {"origin": origin.lower()}
    db.session.execute(NAME_ORIGIN, parameters)
    found: bool = db.session.execute(ALLOWED, parameters).scalar_one()
    return found


def _rename(user_id: UUID, name: str, actor: Actor) -> None:
    """Only people change their own rows, and these cannot sign in; so the product does it for them."""
    db.session.execute(SET_ROLE, {"role": "system"})
    db.session.execute(update(User).where(User.id == user_id).values(name=name))
    db.session.execute(SET_ROLE, {"role": actor.bound_role})
    audit.record(actor, "outside_person.renamed", "user", user_id)


def _clean_subject(subject: str) -> str:
    subject = subject.strip()
    if not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        sentence = f"Give 1 to {LONGEST_SUBJECT} characters that can be seen."
        raise Invalid(f"subject: {sentence}", {"subject": sentence})
    return subject
