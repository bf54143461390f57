"""People before a workspace is known: the doors that find them, and working for someone from here on."""

from functools import partial
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, select, text, update

from app import tokens
from app.actor import Actor
from app.db import db, run
from app.db.connect import BIND, bound
from app.models.people import Membership, OneTimeLink, User
from app.services.workspaces import credentials

LINK = text("select tenant_id from door_invite(:hash)")
NO_USER = credentials.NO_USER
product_in = credentials.product_in
find_user = partial(credentials.find_user, run)
tenants_of = partial(credentials.tenants_of, run)
system_user = partial(credentials.system_user, run)


def work_as(actor: Actor) -> None:
    """From here on work for the actor, in the transaction that is open too."""
    db.session().info["actor"] = actor
    run(BIND, bound(actor))


def system_in(tenant_id: UUID) -> Actor:
    """Work as the workspace's system user from here on."""
    work_as(product_in(tenant_id))
    actor = system_user(tenant_id)
    work_as(actor)
    return actor


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


# One-time links: invitations and sign-in links


def open_links(kind: str) -> ColumnElement[bool]:
    return and_(OneTimeLink.kind == kind, OneTimeLink.used_at.is_(None), OneTimeLink.expires_at > func.now())


def find_link(token: str, kind: str) -> OneTimeLink | None:
    """The link of a token that still works; from here on the product works in its workspace."""
    token_hash = tokens.digest(token)
    tenant_id = db.session.scalar(LINK, {"hash": token_hash})
    if tenant_id is None:
        return None
    work_as(product_in(tenant_id))
    return db.session.scalar(select(OneTimeLink).where(OneTimeLink.token_hash == token_hash, open_links(kind)))


def use_up(link: OneTimeLink) -> bool:
    """Mark a link as used. Of two requests at the same moment one succeeds."""
    used = (
        update(OneTimeLink)
        .where(OneTimeLink.id == link.id, open_links(link.kind))
        .values(used_at=func.now())
        .returning(OneTimeLink.id)
    )
    return db.session.scalar(used) is not None
