"""Who is signed in: begun with a password or a one-time link, stored as a row that can be ended at any time."""

from __future__ import annotations

import secrets
import unicodedata
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from app import tokens
from app.actor import Actor
from app.db import db, run
from app.errors import Invalid, NotFound
from app.models.people import LoginSession, User
from app.services import audit
from app.services.workspaces import credentials, identity, store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from argon2 import PasswordHasher

LIFETIME = timedelta(days=14)
RETENTION = timedelta(days=30)
DEMO_SLUG, DEMO_ADMIN = "demo", "admin@demo.test"
SPENT_LINK = "This link was already used or has expired. Ask for a new one."
make_link = partial(credentials.make_link, run)


def begin_login(*, actor: Actor, user_agent: str | None) -> str:
    """Sign the actor in and return what the cookie holds. It is stored as a hash and ends in any case after 14 days."""
    token, login_id = tokens.new_token(), uuid4()
    shown = "".join(char for char in user_agent or "" if char.isprintable())[:300]
    values = {
        "id": login_id,
        "tenant_id": actor.tenant_id,
        "user_id": actor.id,
        "token_hash": tokens.digest(token),
        "expires_at": func.now() + LIFETIME,
        "user_agent": shown.encode("utf-8", "replace").decode() or None,
    }
    db.session.execute(
        delete(LoginSession).where(*_logins_of(actor.id, actor), LoginSession.expires_at < func.now() - RETENTION)
    )
    db.session.execute(insert(LoginSession.__table__).values(**values).inline())  # type: ignore[arg-type]
    audit.record(actor, "login.began", "login", login_id)
    return token


def sign_in(email: str, password: str, *, user_agent: str | None, request_id: str | None = None) -> tuple[Actor, str]:
    """Sign in with a password, or say that it or the e-mail is wrong, never which. The same questions are asked for an
    address that nobody has, so that the time that the answer takes says nothing either.

    Call `throttle.count_attempt` before, in a transaction of its own, and `throttle.forget_attempts` after it."""
    user_id = identity.find_user(email) or identity.NO_USER
    tenant_id = next(reversed(identity.tenants_of(user_id)), identity.NO_USER)
    identity.work_as(Actor(user_id, tenant_id, "member"))
    stored = db.session.scalar(select(User.password_hash).where(User.id == user_id))
    right = verify_password(stored, password)
    actor = identity.enter_workspace(user_id, tenant_id, request_id) if right else None
    if actor is None:
        raise Invalid.of({"password": "Wrong email or password."})
    return actor, begin_login(actor=actor, user_agent=user_agent)


def end_login(login_id: UUID, *, actor: Actor) -> bool:
    """End one of the actor's own logins in this workspace; false when it had ended before."""
    ended = _end(LoginSession.id == login_id, LoginSession.user_id == actor.id)
    if ended:
        audit.record(actor, "login.ended", "login", login_id)
    return ended > 0


def end_all(user_id: UUID, *, actor: Actor, keep: UUID | None = None) -> int:
    """End all logins of a person in this workspace but the one to keep."""
    others = LoginSession.id.is_distinct_from(keep)
    ended = _end(*_logins_of(user_id, actor), others, LoginSession.expires_at > func.now())
    if ended:
        audit.record(actor, "logins.ended", "user", user_id, count=ended)
    return ended


def _end(*where: ColumnElement[bool]) -> int:
    ended = update(LoginSession).where(*where, LoginSession.revoked_at.is_(None)).values(revoked_at=func.now())
    return len(db.session.scalars(ended.returning(LoginSession.id)).all())


def _logins_of(user_id: UUID, actor: Actor) -> tuple[ColumnElement[bool], ...]:
    return LoginSession.tenant_id == actor.tenant_id, LoginSession.user_id == user_id


def end_everywhere(*, actor: Actor, keep: UUID | None) -> int:
    """End the actor's logins in all their workspaces but the one to keep."""
    ended = 0
    for tenant_id in identity.tenants_of(actor.id):
        there = identity.enter_workspace(actor.id, tenant_id, actor.request_id)
        if there is not None:
            ended += end_all(actor.id, actor=there, keep=keep)
    identity.work_as(actor)
    return ended


def list_logins(*, actor: Actor) -> Sequence[LoginSession]:
    """The actor's logins in this workspace that are still valid, the newest first."""
    return db.session.scalars(
        select(LoginSession)
        .where(*_logins_of(actor.id, actor), LoginSession.revoked_at.is_(None), LoginSession.expires_at > func.now())
        .order_by(LoginSession.created_at.desc(), LoginSession.id)
        .limit(100)
    ).all()


def link_works(token: str) -> bool:
    """Whether a sign-in link is still valid. Checking does not use it up."""
    return identity.find_link(token, "sign_in") is not None


def use_link(token: str, *, user_agent: str | None = None, request_id: str | None = None) -> tuple[Actor, str]:
    """Sign in with a one-time link. Of two at the same moment one gets in."""
    link, actor = identity.find_link(token, "sign_in"), None
    if link is not None and link.user_id is not None and identity.use_up(link):
        actor = identity.enter_workspace(link.user_id, link.tenant_id, request_id)
    if actor is None:
        raise NotFound(SPENT_LINK)
    return actor, begin_login(actor=actor, user_agent=user_agent)


def enter_demo(*, user_agent: str | None, request_id: str | None = None) -> tuple[Actor, str]:
    """Sign in as the demo's admin without a password. Only a server that nobody else can reach may offer this."""
    user_id = identity.find_user(DEMO_ADMIN)
    actor = identity.enter_workspace(user_id, store.find_workspace(DEMO_SLUG), request_id) if user_id else None
    if actor is None:
        raise NotFound("There is no demo workspace. Make it with `upshot demo seed`.")
    return actor, begin_login(actor=actor, user_agent=user_agent)


def switch_workspace(
    tenant_id: UUID, *, actor: Actor, login_id: UUID | None, user_agent: str | None = None
) -> tuple[Actor, str]:
    """Leave this workspace for another one of the person's."""
    if tenant_id not in identity.tenants_of(actor.id):
        raise NotFound("No such workspace.")
    if login_id is not None:
        end_login(login_id, actor=actor)
    there = identity.enter_workspace(actor.id, tenant_id, actor.request_id)
    if there is None:
        raise NotFound("No such workspace.")
    return there, begin_login(actor=there, user_agent=user_agent)


# Passwords

MIN_PASSWORD, MAX_PASSWORD = 10, 200


@lru_cache(maxsize=1)
def hasher() -> PasswordHasher:
    """19 MiB a check: every thread of the server may be checking one at the same time."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=3, memory_cost=19 * 1024, parallelism=1)


def hash_password(password: str) -> str:
    return hasher().hash(_same_form(password))


def verify_password(stored: str | None, password: str) -> bool:
    """Whether this is the password. Without a stored one the work is done all the same, so that the time that the
    answer takes does not say whether someone has an account."""
    from argon2.exceptions import Argon2Error, InvalidHashError

    nobody = _random_hash()
    try:
        hasher().verify(stored or nobody, _same_form(password[: MAX_PASSWORD * 2]))
    except (Argon2Error, InvalidHashError):
        return False
    return stored is not None


def check_password(password: str, email: str | None, field: str = "password") -> None:
    """Refuse a password that is too short, too long or the e-mail address itself."""
    if len(password) < MIN_PASSWORD:
        raise Invalid.of({field: f"Use at least {MIN_PASSWORD} characters."})
    if len(password) > MAX_PASSWORD:
        raise Invalid.of({field: f"Use at most {MAX_PASSWORD} characters."})
    if email and password.strip().lower() == email.lower():
        raise Invalid.of({field: "Don’t use your email address."})


@lru_cache(maxsize=1)
def _random_hash() -> str:
    return hash_password(secrets.token_urlsafe(32))


def _same_form(password: str) -> bytes:
    """Two keyboards may write the same letter in two ways."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
