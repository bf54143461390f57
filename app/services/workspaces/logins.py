"""Who is signed in: begun with a password or a one-time link, kept as a row that can be ended at any time."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from sqlalchemy import delete, func, insert, select, update

from app import tokens
from app.actor import Actor
from app.db import db, run
from app.errors import Invalid, NotFound
from app.models.people import LoginSession, OneTimeLink, User
from app.services import audit
from app.services.workspaces import credentials, identity, store, throttle

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LIFETIME = timedelta(days=14)
RETENTION = timedelta(days=30)
DEMO_SLUG, DEMO_ADMIN = "demo", "admin@demo.test"
WRONG_SIGN_IN = "E-mail or password is not right."
SPENT_LINK = "This link is not valid any more: it was used already, or it is too old. Ask for a new one."
make_link = partial(credentials.make_link, run)


def begin_login(*, actor: Actor, user_agent: str | None) -> str:
    """Sign the actor in and return what the cookie holds. It is stored as a hash and ends in any case after 14 days."""
    token = tokens.new_token()
    values = {
        "id": uuid4(),
        "tenant_id": actor.tenant_id,
        "user_id": actor.id,
        "token_hash": tokens.digest(token),
        "expires_at": func.now() + LIFETIME,
        "user_agent": _printable(user_agent),
    }
    _forget_old(actor)
    db.session.execute(insert(LoginSession.__table__).values(**values).inline())  # type: ignore[arg-type]
    audit.record(actor, "login.began", "login", values["id"])  # type: ignore[arg-type]
    return token


def _forget_old(actor: Actor) -> None:
    """Logins that ended long ago are of no use to anybody."""
    old = LoginSession.expires_at < func.now() - RETENTION
    db.session.execute(
        delete(LoginSession).where(LoginSession.tenant_id == actor.tenant_id, LoginSession.user_id == actor.id, old)
    )


def sign_in(
    email: str,
    password: str,
    *,
    address: str,
    user_agent: str | None,
    request_id: str | None = None,
    device: str | None = None,
) -> tuple[Actor, str]:
    """Sign in with a password. Call `throttle.count_attempt` before, in a transaction of its own."""
    actor = authenticate(email, password, address=address, request_id=request_id, device=device)
    return actor, begin_login(actor=actor, user_agent=user_agent)


def authenticate(
    email: str, password: str, *, address: str, request_id: str | None = None, device: str | None = None
) -> Actor:
    """Work as whoever has this e-mail and this password, or say that one of them is wrong, never which. The same
    questions are asked for an address that nobody has, so that the time that the answer takes says nothing either."""
    user_id = identity.find_user(email) or identity.NO_USER
    tenant_id = next(reversed(identity.tenants_of(user_id)), identity.NO_USER)
    identity.work_as(Actor(user_id, tenant_id, "member"))
    stored = db.session.scalar(select(User.password_hash).where(User.id == user_id))
    right = verify_password(stored, password)
    actor = identity.enter_workspace(user_id, tenant_id, request_id) if right else None
    if actor is None:
        raise Invalid(WRONG_SIGN_IN, {"password": WRONG_SIGN_IN})
    throttle.forget_attempts(email, address, device)
    return actor


def end_login(login_id: UUID, *, actor: Actor) -> bool:
    """End one of the actor's own logins in this workspace; false when it had ended before."""
    ended = db.session.execute(
        update(LoginSession)
        .where(LoginSession.id == login_id, LoginSession.user_id == actor.id, LoginSession.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(LoginSession.id)
    ).scalar()
    if ended is not None:
        audit.record(actor, "login.ended", "login", login_id)
    return ended is not None


def end_all(user_id: UUID, *, actor: Actor, keep: UUID | None = None) -> int:
    """End all logins of a person in this workspace but the one to keep."""
    conditions = [LoginSession.user_id == user_id, LoginSession.tenant_id == actor.tenant_id]
    if keep is not None:
        conditions.append(LoginSession.id != keep)
    ended = db.session.execute(
        update(LoginSession)
        .where(*conditions, LoginSession.revoked_at.is_(None), LoginSession.expires_at > func.now())
        .values(revoked_at=func.now())
        .returning(LoginSession.id)
    ).all()
    if ended:
        audit.record(actor, "logins.ended", "user", user_id, count=len(ended))
    return len(ended)


def end_everywhere(*, actor: Actor, keep: UUID | None) -> int:
    """End the actor's logins in all their workspaces but the one to keep."""
    ended = 0
    for tenant_id in identity.tenants_of(actor.id):
        there = (
            actor if tenant_id == actor.tenant_id else identity.enter_workspace(actor.id, tenant_id, actor.request_id)
        )
        if there is not None:
            identity.work_as(there)
            ended += end_all(actor.id, actor=there, keep=keep)
    identity.work_as(actor)
    return ended


def list_logins(*, actor: Actor) -> list[LoginSession]:
    """The actor's logins in this workspace that still hold, the newest first."""
    return list(
        db.session.scalars(
            select(LoginSession)
            .where(
                LoginSession.tenant_id == actor.tenant_id,
                LoginSession.user_id == actor.id,
                LoginSession.revoked_at.is_(None),
                LoginSession.expires_at > func.now(),
            )
            .order_by(LoginSession.created_at.desc(), LoginSession.id)
            .limit(100)
        )
    )


def link_works(token: str) -> bool:
    """Whether a sign-in link is still valid. Checking does not use it up."""
    return _find_link(token) is not None


def use_link(token: str, *, user_agent: str | None = None, request_id: str | None = None) -> tuple[Actor, str]:
    """Sign in with a one-time link. Of two at the same moment one gets in."""
    link = _find_link(token)
    used = (
        link is not None
        and db.session.execute(
            update(OneTimeLink)
            .where(OneTimeLink.id == link.id, OneTimeLink.used_at.is_(None), OneTimeLink.expires_at > func.now())
            .values(used_at=func.now())
            .returning(OneTimeLink.id)
        ).scalar()
    )
    if link is None or not used or link.user_id is None:
        raise NotFound(SPENT_LINK)
    actor = identity.enter_workspace(link.user_id, link.tenant_id, request_id)
    if actor is None:
        raise NotFound(SPENT_LINK)
    return actor, begin_login(actor=actor, user_agent=user_agent)


def enter_demo(*, user_agent: str | None, request_id: str | None = None) -> tuple[Actor, str]:
    """Sign in as the demo's admin without a password. Only a server that nobody else can reach may offer this."""
    user_id = identity.find_user(DEMO_ADMIN)
    actor = identity.enter_workspace(user_id, store.find_workspace(DEMO_SLUG), request_id) if user_id else None
    if actor is None:
        raise NotFound("There is no demo workspace; make it with `upshot demo seed`.")
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


def _find_link(token: str) -> OneTimeLink | None:
    token_hash = tokens.digest(token)
    tenant_id = identity.tenant_of_link(token_hash)
    if tenant_id is None:
        return None
    identity.work_as(identity.product_in(tenant_id))
    return db.session.scalars(
        select(OneTimeLink).where(
            OneTimeLink.token_hash == token_hash,
            OneTimeLink.kind == "sign_in",
            OneTimeLink.used_at.is_(None),
            OneTimeLink.expires_at > func.now(),
        )
    ).one_or_none()


def _printable(user_agent: str | None) -> str | None:
    text = "".join(char for char in user_agent or "" if char.isprintable())[:300]
    return text.encode("utf-8", "replace").decode() or None


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
    answer takes does not say whether somebody has an account."""
    from argon2.exceptions import Argon2Error, InvalidHashError

    nobody = _nobodys()
    try:
        hasher().verify(stored or nobody, _same_form(password[: MAX_PASSWORD * 2]))
    except (Argon2Error, InvalidHashError):
        return False
    return stored is not None


def check_password(password: str, email: str | None, field: str = "password") -> None:
    """Refuse a password that is too short, too long or the e-mail address itself."""
    sentence = None
    if len(password) < MIN_PASSWORD:
        sentence = f"Use at least {MIN_PASSWORD} characters."
    elif len(password) > MAX_PASSWORD:
        sentence = f"Use at most {MAX_PASSWORD} characters."
    elif email and password.strip().lower() == email.lower():
        sentence = "Use something other than the e-mail address."
    if sentence:
        raise Invalid(sentence, {field: sentence})


@lru_cache(maxsize=1)
def _nobodys() -> str:
    import secrets

    return hash_password(secrets.token_urlsafe(32))


def _same_form(password: str) -> bytes:
    """Two keyboards may write the same letter in two ways."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
