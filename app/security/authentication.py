"""The gate in front of every view: who is it, may they, and did they mean it.

In this order: the route's declared access, the credential (one statement, which also binds the transaction), the role
or scope, and for changes made with a cookie the origin and the CSRF token.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from flask import Flask, current_app, g, request
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import NotFound as UnknownRoute

from app import tokens
from app.actor import RANK, Actor
from app.db import db, run
from app.errors import Forbidden, Invalid, SignInNeeded
from app.security import access, feedback_tokens

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
BIND = "select * from bind_credential(%(hash)s)"


class Credential(NamedTuple):
    """What `bind_credential` says about a key or a login."""

    kind: str
    credential_id: UUID
    user_id: UUID
    tenant_id: UUID
    role: str
    scopes: list[str]
    name: str
    email: str | None
    tenant_name: str
    tenant_slug: str
    seen_at: datetime | None


@dataclass(frozen=True)
class Person:
    """The person in front of the page, and the workspace they are in."""

    id: UUID
    email: str | None
    name: str
    workspace: str
    workspace_slug: str
    role: str


def install(app: Flask) -> None:
    app.before_request(check)


def cookie_name(kind: str = "upshot") -> str:
    """Over TLS the browser itself guarantees that the cookie is ours alone (`__Host-`)."""
    return f"__Host-{kind}" if current_app.config["SECURE"] else kind


def check() -> None:
    """Let the request pass or raise what is wrong with it."""
    known = g._get_current_object()
    known.request_id = secrets.token_hex(8)
    known.actor = known.person = known.login_id = known.allowed_origin = None
    known.origin_refused = known.operator = False
    endpoint = request.endpoint
    if endpoint is None:
        return
    declared = access.access_of(current_app, endpoint)
    if declared is None:
        raise UnknownRoute()
    check_path()
    if endpoint == "static":
        return
    by_key = identify(declared)
    if request.method not in SAFE and not by_key:
        check_origin()
        check_csrf(declared)
    permit(declared, by_key)
    if declared.scope is None:
        check_texts()


def check_path() -> None:
    """A path is text like any other: UTF-8, and without NUL, which PostgreSQL stores nowhere."""
    path = request.environ.get("PATH_INFO", "").encode("latin-1")
    try:
        if "\x00" not in path.decode():
            return
    except UnicodeDecodeError:
        raise Invalid("This address is not valid UTF-8.") from None
    raise Invalid("This address has a NUL character. Send it without.")


def check_texts() -> None:
    """PostgreSQL stores no NUL, and nobody types one. Routes of the API read their own bodies, and check them."""
    values = [*request.args.items(multi=True), *request.form.items(multi=True)]
    if any("\x00" in name or "\x00" in value for name, value in values):
        raise Invalid("A text in this request has a NUL character; send it without.")


def identify(declared: access.Access) -> bool:
    """Find out who it is; true when by a key. A public route takes no key and does not need the database."""
    header = request.headers.get("Authorization")
    if header is not None and declared.scope is not None:
        scheme, _, key = header.partition(" ")
        if scheme.lower() == "bearer" and declared.also == "operator" and is_operators(key.strip()):
            g.operator = True
            return True
        if scheme.lower() == "bearer" and key.strip().startswith(feedback_tokens.PREFIX):
            _enter_visitor(key.strip(), declared)
            return True
        if scheme.lower() != "bearer" or not _enter(key.strip()):
            raise SignInNeeded(
                "This key is not valid: it is unknown, revoked or expired. Send `Authorization: Bearer KEY`."
            )
        if g.actor.scopes is None:
            raise SignInNeeded("Send an API key; this is no key.")
        return True
    cookie = request.cookies.get(cookie_name())
    if cookie and (declared.level != "public" or declared.also == "person"):
        _enter(cookie, login=True)
    return False


def is_operators(token: str) -> bool:
    """Whether this is the operator's token."""
    wanted = current_app.config["SETTINGS"].metrics_token
    return bool(wanted) and tokens.same(token, wanted)


def _enter(token: str, login: bool = False) -> bool:
    found = bind(token)
    if found is None or (found.kind == "login") != login:
        db.session.rollback()
        return False
    known = g._get_current_object()
    known.login_id = found.credential_id if login else None
    known.actor = Actor(
        id=found.user_id,
        tenant_id=found.tenant_id,
        role=found.role,
        name=found.name,
        scopes=None if login else frozenset(found.scopes),
        key_id=None if login else found.credential_id,
        request_id=known.request_id,
    )
    known.person = Person(found.user_id, found.email, found.name, found.tenant_name, found.tenant_slug, found.role)
    db.session().info["actor"] = known.actor
    return True


def _enter_visitor(token: str, declared: access.Access) -> None:
    """Let somebody in whom a team's own server sent, to the few addresses that take them and from the team's own sites
    alone. Whatever is wrong with the token is refused in the same words."""
    if declared.also != "visitor":
        raise Forbidden("A feedback token is for /api/v1/feedback alone; send an API key here.")
    visitor = feedback_tokens.read_token(current_app.config["SECRET_KEY"], token)
    found = feedback_tokens.find(visitor, g.request_id) if visitor is not None else None
    if visitor is None or found is None:
        raise SignInNeeded("This feedback token is not valid or has run out; ask your own server for a new one.")
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower() not in found.origins:
        g.origin_refused = True
        raise Forbidden("Feedback from this site is not allowed; an admin can add its origin in Settings.")
    g.allowed_origin = origin
    g.actor = found.actor
    g.person = Person(found.actor.id, None, found.actor.name, found.workspace, found.workspace_slug, found.actor.role)


def bind(token: str) -> Credential | None:
    """Sign in and bind the transaction in one round trip; once more when the pooled connection had died meanwhile."""
    given = {"hash": tokens.digest(token)}
    try:
        found = run(BIND, given, first=True)
    except OperationalError:
        db.session.rollback()
        found = run(BIND, given, first=True)
    return Credential(*found[0]) if found else None


def permit(declared: access.Access, by_key: bool) -> None:
    """Raise unless the actor may."""
    if declared.level == "public":
        return
    actor: Actor | None = g.actor
    if actor is None:
        raise SignInNeeded("Sign in first." if declared.scope is None else "Send `Authorization: Bearer KEY`.")
    if by_key and not any(map(actor.has_scope, declared.scopes or ("admin",))):
        raise Forbidden(f"This key lacks the scope `{'` or `'.join(declared.scopes)}`.")
    if declared.level != "signed_in" and RANK[actor.role] < RANK[declared.level]:
        raise Forbidden(f"This needs the role {declared.level}; you are {actor.role}.")
    if by_key and declared.level in {"admin", "owner"} and not actor.is_admin:
        raise Forbidden("This key lacks the scope `admin`.")


def check_origin() -> None:
    """A browser names where a form came from; another site's form is refused.

    Our pages send no referrer, and then browsers write `Origin: null` for our own forms as well. It counts as ours only
    when the browser says so itself, in a header that no page can set.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site not in {None, "same-origin", "none"}:
        raise Forbidden("This request came from another site.")
    origin = request.headers.get("Origin")
    if origin == "null" and site == "same-origin":
        return
    if origin and urlsplit(origin).netloc != request.host:
        raise Forbidden("This request came from another site.")


def csrf_token() -> str:
    """Bound to the cookie it protects: the login's, or before sign-in the visit's."""
    cookie = request.cookies.get(cookie_name()) if g.get("actor") else None
    if cookie is None:
        cookie = request.cookies.get(cookie_name("upshot_visit")) or g.get("new_visit")
    if cookie is None:
        cookie = g.new_visit = tokens.new_token()
    return tokens.sign(current_app.config["SECRET_KEY"], "csrf", cookie)


def check_csrf(declared: access.Access) -> None:
    if g.actor is None and declared.level != "public":
        return  # Nobody is signed in: `permit` refuses it.
    if g.actor is None and not request.cookies.get(cookie_name("upshot_visit")):
        raise Forbidden("This form is too old. Load the page again and send it once more.")
    given = request.headers.get("X-CSRFToken") or request.form.get("csrf_token", "")
    if not tokens.same(given, csrf_token()):
        raise Forbidden("This form is too old. Load the page again and send it once more.")
