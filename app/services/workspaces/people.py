"""The people of a workspace: added by the operator or invited by an admin, given roles, removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, case, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from app import tokens
from app.actor import RANK, Actor
from app.db import db, run
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.formats.ids import MAX_NAME, clean_email, clean_name
from app.models.people import ROLES, ApiKey, Membership, OneTimeLink, Tenant, User
from app.services import audit
from app.services.workspaces import identity, logins

INVITE_LIFETIME = timedelta(days=7)
NOT_JOINED = "This password doesn't work. If you have an account, use its password or sign in first."
SPENT_INVITE = "This invitation was used, withdrawn or has expired. Ask for a new one."


@dataclass(frozen=True)
class Invitation:
    """An open invitation. `user_id` is set when the e-mail has an account already."""

    link: OneTimeLink
    workspace: str
    email: str
    role: str
    user_id: UUID | None


def create_person(*, email: str, name: str, role: str, actor: Actor, password: str | None = None) -> User:
    """Add a person to the workspace. An existing account keeps its name and password."""
    email, name = clean_email(email), clean_name(name)
    _check_grant(role, actor)
    user_id = identity.find_user(email)
    if user_id is None:
        return _add_user(email, name, role, actor=actor, password=password)
    if password is not None:
        raise Refused(f"{email} has an account already. Leave the password out.")
    _add_membership(user_id, role, actor=actor)
    return get_person(user_id, actor=actor)


def _add_user(email: str, name: str, role: str, *, actor: Actor, password: str | None) -> User:
    user = User(email=email, name=name)
    if password is not None:
        logins.check_password(password, email)
        user.password_hash = logins.hash_password(password)
    _insert(user, f"Someone just made an account for {email}; try again.")
    _add_membership(user.id, role, actor=actor)
    return user


def _add_membership(user_id: UUID, role: str, *, actor: Actor) -> None:
    member = Membership(tenant_id=actor.tenant_id, user_id=user_id, role=role)
    _insert(member, "This person is already a member.")
    audit.record(actor, "member.added", "user", user_id, role=role)


def _insert(row: User | Membership, refusal: str) -> None:
    try:
        with db.session.begin_nested():
            db.session.add(row)
    except IntegrityError:
        raise Refused(refusal) from None


def get_person(user_id: UUID, *, actor: Actor) -> User:
    """A person of this workspace, or the actor."""
    user = db.session.scalar(select(User).where(User.id == user_id))
    if user is None:
        raise NotFound("No such person.")
    return user


def list_members(*, actor: Actor) -> Sequence[Any]:
    """Everyone who can sign in to the workspace, owners first: id, name, email, role and joined_at."""
    return db.session.execute(
        select(User.id, User.name, User.email, Membership.role, Membership.created_at.label("joined_at"))
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.tenant_id == actor.tenant_id, Membership.role != "system", User.email.is_not(None))
        .order_by(case(RANK, value=Membership.role).desc(), func.lower(User.name), User.id)
    ).all()


class Workspace(NamedTuple):
    id: UUID
    name: str
    role: str


WORKSPACES = """
    SELECT id, name, CASE WHEN id = %(here)s::uuid THEN %(role)s ELSE '' END FROM tenants
     WHERE id IN (SELECT door_memberships(%(user)s)) ORDER BY lower(name), slug
"""


def workspaces_of(user_id: UUID) -> list[Workspace]:
    """The workspaces that the person who acts may switch to, by name. Their role is known of the one they are in."""
    actor: Actor | None = db.session().info.get("actor")
    here = {"here": actor.tenant_id, "role": actor.role} if actor else {"here": None, "role": ""}
    return [Workspace(*row) for row in run(WORKSPACES, {"user": user_id, **here})]


def change_role(user_id: UUID, role: str, *, actor: Actor) -> str:
    """Give a member another role and return the one they had. A lower one signs them out of this workspace."""
    member = _lock_member(user_id, actor)
    _check_grant(role, actor)
    before = member.role
    if before == role:
        return before
    member.role = role
    audit.record(actor, "member.role_changed", "user", user_id, **{"from": before, "to": role})
    if RANK[role] < RANK[before]:
        logins.end_all(user_id, actor=actor)
        _withdraw(OneTimeLink.created_by == user_id, actor=actor)
    return before


def remove_member(user_id: UUID, *, actor: Actor) -> None:
    """Remove a member: their logins, keys and open invitations end, their feedback stays."""
    member = _lock_member(user_id, actor)
    logins.end_all(user_id, actor=actor)
    _withdraw(OneTimeLink.created_by == user_id, actor=actor)
    db.session.execute(
        update(ApiKey)
        .where(ApiKey.tenant_id == actor.tenant_id, ApiKey.user_id == user_id, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )
    audit.record(actor, "member.removed", "user", user_id, role=member.role)
    db.session.delete(member)
    db.session.flush()


def _lock_member(user_id: UUID, actor: Actor) -> Membership:
    """The membership to change. All owners are locked with it, so that two of them cannot remove each other."""
    rows = db.session.scalars(
        select(Membership)
        .where(Membership.tenant_id == actor.tenant_id, (Membership.role == "owner") | (Membership.user_id == user_id))
        .order_by(Membership.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()
    member = next((row for row in rows if row.user_id == user_id and row.role != "system"), None)
    if member is None:
        raise NotFound("No such person in this workspace.")
    if member.role == "owner" and not actor.at_least("owner"):
        raise Forbidden("Only owners can change or remove an owner.")
    if member.role == "owner" and sum(row.role == "owner" for row in rows) == 1:
        raise Refused("This is the last owner. Make someone else an owner first.")
    return member


def _check_grant(role: str, actor: Actor) -> None:
    if role not in ROLES:
        raise Invalid.of({"role": "Choose member, admin or owner."})
    actor.check_admin("Only admins can add people and changes roles.")
    if role == "owner" and not actor.at_least("owner"):
        raise Forbidden("Only owners can appoint an owner.")


def change_password(old: str, new: str, *, actor: Actor, keep: UUID | None) -> None:
    """Set the actor's password; all their logins but the one to keep end, in every workspace."""
    user = get_person(actor.id, actor=actor)
    if user.password_hash is not None and not logins.verify_password(user.password_hash, old):
        raise Invalid.of({"old": "Wrong current password."})
    logins.check_password(new, user.email, "new")
    user.password_hash = logins.hash_password(new)
    audit.record(actor, "password.changed", "user", actor.id)
    logins.end_everywhere(actor=actor, keep=keep)


def rename_person(name: str, *, actor: Actor) -> None:
    """Change the actor's own name."""
    user = get_person(actor.id, actor=actor)
    name = clean_name(name)
    if name != user.name:
        before, user.name = user.name, name
        audit.record(actor, "person.renamed", "user", user.id, **{"from": before, "to": name})


# Invitations


def invite_person(*, email: str, role: str, actor: Actor) -> str:
    """Invite an address and return the link's token. An earlier open invitation of it is withdrawn."""
    email = clean_email(email)
    _check_grant(role, actor)
    user_id = identity.find_user(email)
    if user_id is not None and actor.tenant_id in identity.tenants_of(user_id):
        raise Invalid.of({"email": "This person is already a member."})
    _withdraw(OneTimeLink.email == email, actor=actor)
    token = tokens.new_token()
    link = OneTimeLink(tenant_id=actor.tenant_id, kind="invite", token_hash=tokens.digest(token), created_by=actor.id)
    link.email, link.role, link.expires_at = email, role, func.now() + INVITE_LIFETIME
    db.session.add(link)
    db.session.flush()
    audit.record(actor, "member.invited", "invitation", link.id, email=email, role=role)
    return token


def list_invites(*, actor: Actor) -> Sequence[OneTimeLink]:
    """Open invitations, the newest first."""
    return db.session.scalars(
        select(OneTimeLink)
        .where(OneTimeLink.tenant_id == actor.tenant_id, identity.open_links("invite"))
        .order_by(OneTimeLink.created_at.desc(), OneTimeLink.id)
    ).all()


def withdraw_invite(invite_id: UUID, *, actor: Actor) -> None:
    invited = db.session.get(OneTimeLink, invite_id)
    if invited is not None and invited.role == "owner" and not actor.at_least("owner"):
        raise Forbidden("Only owners can withdraw an owner's invitation.")
    if not _withdraw(OneTimeLink.id == invite_id, actor=actor):
        raise NotFound("No such invitation.")


def _withdraw(condition: ColumnElement[bool], *, actor: Actor) -> int:
    withdrawn = db.session.scalars(
        update(OneTimeLink)
        .where(OneTimeLink.tenant_id == actor.tenant_id, identity.open_links("invite"), condition)
        .values(expires_at=func.now())
        .returning(OneTimeLink.id)
    ).all()
    for invite_id in withdrawn:
        audit.record(actor, "invitation.withdrawn", "invitation", invite_id)
    return len(withdrawn)


def look_up_invite(token: str) -> Invitation:
    """Read an invitation by its token. Reading does not use it up."""
    link = identity.find_link(token, "invite")
    if link is None:
        raise NotFound(SPENT_INVITE)
    workspace = db.session.scalar(select(Tenant.name).where(Tenant.id == link.tenant_id))
    email = link.email or ""
    return Invitation(link, workspace or "", email, link.role or "member", identity.find_user(email))


def accept_invite(
    token: str, name: str, password: str, *, signed_in_as: UUID | None = None, request_id: str | None = None
) -> Actor:
    """Join the workspace of an invitation. An address without an account gets one with this name and password; one
    with an account joins when its owner is signed in or gives its password, for a link alone proves no identity.
    Call `check_newcomer` and count the attempt before (`throttle.count_attempt`): a wrong password here is a wrong one.
    """
    invited = look_up_invite(token)
    system = identity.system_in(invited.link.tenant_id)
    user_id = invited.user_id
    if user_id is None:
        check_newcomer(name, password, invited.email)
        user_id = _add_user(invited.email, clean_name(name), invited.role, actor=system, password=password).id
    else:
        if signed_in_as != user_id:
            _check_account_password(user_id, password, system)
        _add_membership(user_id, invited.role, actor=system)
    used = identity.use_up(invited.link)
    actor = identity.enter_workspace(user_id, system.tenant_id, request_id) if used else None
    if actor is None:
        raise NotFound(SPENT_INVITE)
    audit.record(actor, "invitation.accepted", "invitation", invited.link.id, role=invited.role)
    return actor


def check_newcomer(name: str, password: str, email: str) -> None:
    """Raise unless a new person could join like this. Asked of everyone, so that the answer tells nobody whether the
    address has an account; the password of an account passed this when it was chosen."""
    fields: dict[str, str] = {}
    for check in (lambda: clean_name(name), lambda: logins.check_password(password, email)):
        try:
            check()
        except Invalid as problem:
            fields |= problem.fields
    if fields:
        raise Invalid.of(fields)


def _check_account_password(user_id: UUID, password: str, system: Actor) -> None:
    identity.work_as(Actor(user_id, system.tenant_id, "member"))
    stored = db.session.scalar(select(User.password_hash).where(User.id == user_id))
    identity.work_as(system)
    if not logins.verify_password(stored, password):
        raise Invalid.of({"password": NOT_JOINED})


# External people: known to the workspace's own product, without sign-in here

MAX_SUBJECT = 256
NAME_ORIGIN = text("select set_config('app.origin', :origin, true)")
ALLOWED = text("select exists (select from tenants where settings -> 'feedback_origins' ? :origin)")
SET_ROLE = text("select set_config('app.role', :role, true)")


def ensure_person(subject: str, *, actor: Actor, name: str | None = None) -> UUID:
    """The person behind the team's own id for them; made when they are new, renamed when a new name is given."""
    subject = subject.strip()
    if not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise Invalid.of({"subject": f"Enter 1 to {MAX_SUBJECT} visible characters."})
    name = clean_name(name) if name is not None else None
    made: UUID | None = db.session.scalar(
        insert(User)
        .values(external_id=subject, external_tenant_id=actor.tenant_id, name=name or subject[:MAX_NAME])
        .on_conflict_do_nothing(
            index_elements=["external_tenant_id", "external_id"], index_where=User.external_id.is_not(None)
        )
        .returning(User.id)
    )
    if made is not None:
        audit.record(actor, "outside_person.added", "user", made)
        return made
    user_id, known_as = db.session.execute(
        select(User.id, User.name).where(User.external_tenant_id == actor.tenant_id, User.external_id == subject)
    ).one()
    if name is not None and name != known_as:
        # Only people change their own rows, and these cannot sign in; so the product does it for them.
        db.session.execute(SET_ROLE, {"role": "system"})
        db.session.execute(update(User).where(User.id == user_id).values(name=name))
        db.session.execute(SET_ROLE, {"role": actor.bound_role})
        audit.record(actor, "outside_person.renamed", "user", user_id)
    return user_id


def is_allowed_origin(origin: str) -> bool:
    """Whether any workspace takes feedback from this origin."""
    parameters = {"origin": origin.lower()}
    db.session.execute(NAME_ORIGIN, parameters)
    return bool(db.session.scalar(ALLOWED, parameters))
