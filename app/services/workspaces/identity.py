"""People before a workspace is known: the doors that find them, and working for somebody from here on."""

from uuid import UUID

from sqlalchemy import select, text

from app.actor import Actor
from app.db import BIND, bound, db
from app.errors import NotFound
from app.formats.names import EMAIL
from app.models.people import Membership, User

NO_USER = UUID(int=0)
LOGIN = text("select door_login(:email)")
MEMBERSHIPS = text("select door_memberships(:user)")
LINK = text("select tenant_id from door_invite(:hash)")


def find_user(email: str) -> UUID | None:
    """Whose e-mail this is, whatever workspaces they are in."""
    email = email.strip()
    if not EMAIL.fullmatch(email) or not email.isprintable():
        return None
    found: UUID | None = db.session.scalar(LOGIN, {"email": email})
    return found


def tenants_of(user_id: UUID) -> list[UUID]:
    """The workspaces of a user, the newest membership last."""
    return list(db.session.scalars(MEMBERSHIPS, {"user": user_id}))


def tenant_of_link(token_hash: str) -> UUID | None:
    found: UUID | None = db.session.scalar(LINK, {"hash": token_hash})
    return found


def work_as(actor: Actor) -> None:
    """From here on work for the actor, in the transaction that is open too."""
    session = db.session()
    session.info["actor"] = actor
    session.execute(BIND, bound(actor))


def product_in(tenant_id: UUID) -> Actor:
    """The product itself at work in a workspace, before it is known who acts there."""
    return Actor(NO_USER, tenant_id, "system")


def system_in(tenant_id: UUID) -> Actor:
    """Work as the workspace's system user from here on."""
    work_as(product_in(tenant_id))
    actor = system_user(tenant_id)
    work_as(actor)
    return actor


def system_user(tenant_id: UUID) -> Actor:
    """The system user of the workspace that the transaction is bound to."""
    found = db.session.execute(
        select(User.id, User.name)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.tenant_id == tenant_id, Membership.role == "system")
    ).first()
    if found is None:
        raise NotFound(f"There is no workspace {tenant_id}.")
    return Actor(found.id, tenant_id, "system", found.name)


def enter_workspace(user_id: UUID, tenant_id: UUID, request_id: str | None = None) -> Actor | None:
    """Work as this person in this workspace from here on; None when they are no member of it."""
    work_as(Actor(user_id, tenant_id, "member"))
    found = db.session.execute(
        select(Membership.role, User.name)
        .join(User, User.id == Membership.user_id)
        .where(Membership.tenant_id == tenant_id, Membership.user_id == user_id, Membership.role != "system")
    ).one_or_none()
    if found is None:
        return None
    actor = Actor(user_id, tenant_id, found.role, found.name, request_id=request_id)
    work_as(actor)
    return actor
