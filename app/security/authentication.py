"""Authentication before every view: who sends the request, and whether they may.

In this order: the route's declared access, the credential (one statement, which also binds the transaction), the origin
and CSRF token of changes made with a cookie, and the role or scope.
"""

import secrets

from flask import current_app, g, request
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import NotFound as UnknownRoute

from app import tokens
from app.actor import RANK, Actor
from app.db import db, run
from app.errors import Forbidden, Invalid, SignInNeeded
from app.security import feedback_tokens
from app.security.access import Access, access_of
from app.security.cookies import cookie_name
from app.security.csrf import check_csrf, check_origin
from app.services.workspaces.credentials import BIND_CREDENTIAL, Credential

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def check() -> None:
    """Raise unless the request may reach its view, and remember in `g` who sent it."""
    known = g._get_current_object()
    known.request_id = secrets.token_hex(8)
    known.actor = known.person = known.login_id = known.allowed_origin = None
    known.origin_refused = known.operator = False
    endpoint = request.endpoint
    if endpoint is None:
        return
    declared = access_of(current_app, endpoint)
    if declared is None:
        raise UnknownRoute()
    check_path()
    if endpoint == "static":
        return
    by_key = identify(declared)
    if request.method not in SAFE and not by_key:
        check_origin()
        check_csrf(public=declared.level == "public")
    permit(declared, by_key)
    if declared.scope is None:
        check_texts()


def check_path() -> None:
    """Refuse paths that are not UTF-8 or contain NUL, which PostgreSQL cannot store."""
    path = request.environ.get("PATH_INFO", "").encode("latin-1")
    try:
        readable = "\x00" not in path.decode()
    except UnicodeDecodeError:
        readable = False
    if not readable:
        raise Invalid("This address is not valid UTF-8, or has a NUL character in it.")


def check_texts() -> None:
    """Refuse NUL in forms and query strings, because PostgreSQL cannot store it. API routes check their own bodies."""
    values = [*request.args.items(multi=True), *request.form.items(multi=True)]
    if any("\x00" in name or "\x00" in value for name, value in values):
        raise Invalid("A text in this request has a NUL character. Send it without.")


def identify(declared: Access) -> bool:
    """Find out who sends the request; true when a key says so. Public routes take no key and need no database."""
    header = request.headers.get("Authorization")
    if header is not None and declared.scope is not None:
        scheme, _, key = header.partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        operators = current_app.config["SETTINGS"].metrics_token
        if declared.also == "operator" and operators and tokens.same(key, operators):
            g.operator = True
            return True
        if key.startswith(feedback_tokens.PREFIX):
            _enter_visitor(key, declared)
            return True
        if not key or not _enter(key):
            raise SignInNeeded(
                "This key is not valid: it is unknown, revoked or expired. Send `Authorization: Bearer KEY`."
            )
        return True
    cookie = request.cookies.get(cookie_name())
    if cookie and (declared.level != "public" or declared.also == "person"):
        _enter(cookie, login=True)
    return False


def _enter(token: str, login: bool = False) -> bool:
    found = bind(token)
    if found is None or (found.kind == "login") != login:
        db.session.rollback()
        return False
    known = g._get_current_object()
    known.login_id = found.credential_id if login else None
    known.actor, known.person = found.actor(known.request_id), found
    db.session().info["actor"] = known.actor
    return True


def _enter_visitor(token: str, declared: Access) -> None:
    """Sign in a visitor with a feedback token, on the few routes that take one and from the workspace's own sites only.
    Every invalid token gets the same answer."""
    if declared.also != "visitor":
        raise Forbidden("A feedback token is for /api/v1/feedback alone. Send an API key here.")
    visitor = feedback_tokens.read_token(current_app.config["SECRET_KEY"], token)
    found = feedback_tokens.find(visitor, g.request_id) if visitor is not None else None
    if visitor is None or found is None:
        raise SignInNeeded("This feedback token is not valid or has run out. Ask your own server for a new one.")
    origin = request.headers.get("Origin")
    actor, workspace = found
    if origin is not None and origin.lower() not in workspace.origins:
        g.origin_refused = True
        raise Forbidden("Feedback from this site is not allowed. An admin can add its origin in Settings.")
    g.allowed_origin, g.actor = origin, actor
    g.person = Credential(
        "visitor", visitor.key_id, actor.id, actor.tenant_id, actor.role, ["feedback"], actor.name, None,
        workspace.name, workspace.slug, None,
    )  # fmt: skip


def bind(token: str) -> Credential | None:
    """Look the credential up and bind the transaction, once more if the pooled connection turns out to be dead."""
    given = {"hash": tokens.digest(token)}
    try:
        found = run(BIND_CREDENTIAL, given, first=True)
    except OperationalError:
        db.session.rollback()
        found = run(BIND_CREDENTIAL, given, first=True)
    return Credential(*found[0]) if found else None


def permit(declared: Access, by_key: bool) -> None:
    """Raise unless the actor has the role, and the key the scope, that the route declares."""
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
