"""Our cookies, and protection against requests forged by other sites: the origin, and a token in every form.

The cookie of a known browser names up to five people who signed in with it within a year. A mark does not sign in. It
exempts its person from the wait that others cause by guessing their password elsewhere.
"""

import secrets
import time
from urllib.parse import urlsplit
from uuid import UUID

from flask import Flask, Request, current_app, g, request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface

from app import tokens
from app.errors import Forbidden

PURPOSE = "device"
MARK_LIFETIME = 365 * 24 * 3600
MAX_MARKS = 5


def cookie_name(kind: str = "upshot") -> str:
    """Over TLS the `__Host-` prefix makes the browser guarantee that the cookie is ours alone."""
    return f"__Host-{kind}" if current_app.config["SECURE"] else kind


class LazyCookieSession(SecureCookieSessionInterface):
    """Flask's cookie session, for flashed messages. Most requests send no such cookie and need no signature checked."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()
        return super().open_session(app, request)


def find_mark(secret: str, cookie: str, user_id: UUID) -> str | None:
    """The mark of this person in the cookie, or None. Anything that we did not write is passed over."""
    for mark in cookie.split("|")[:MAX_MARKS]:
        payload, _, signature = mark.rpartition(".")
        if tokens.same(signature, tokens.sign(secret, PURPOSE, f"{payload}.{user_id}")):
            made_at, _, name = payload.partition(".")
            return name if int(made_at) > time.time() - MARK_LIFETIME else None
    return None


def add_mark(secret: str, cookie: str, user_id: UUID) -> str:
    """The cookie with a fresh mark of this person in front."""
    payload = f"{int(time.time())}.{secrets.token_urlsafe(12)}"
    mark = f"{payload}.{tokens.sign(secret, PURPOSE, f'{payload}.{user_id}')}"
    others = [one for one in cookie.split("|") if one and find_mark(secret, one, user_id) is None]
    return "|".join([mark, *others][:MAX_MARKS])


def check_origin() -> None:
    """Refuse requests that a browser sent from another site.

    Our pages send no referrer, so browsers write `Origin: null` for our own forms too. That counts as ours only when
    `Sec-Fetch-Site`, which no page can set, says so.
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
    """The token for this browser, bound to its login cookie, or to its visit cookie before sign-in."""
    cookie = request.cookies.get(cookie_name()) if g.get("actor") else None
    if cookie is None:
        cookie = request.cookies.get(cookie_name("upshot_visit")) or g.get("new_visit")
    if cookie is None:
        cookie = g.new_visit = tokens.new_token()
    return tokens.sign(current_app.config["SECRET_KEY"], "csrf", cookie)


def check_csrf(*, public: bool) -> None:
    """Refuse changes without the token of the page that they come from."""
    if g.actor is None and not public:
        return  # Nobody is signed in, and the role check refuses that with a better message.
    unknown_visit = g.actor is None and not request.cookies.get(cookie_name("upshot_visit"))
    given = request.headers.get("X-CSRFToken") or request.form.get("csrf_token", "")
    if unknown_visit or not tokens.same(given, csrf_token()):
        raise Forbidden("This form is too old. Load the page again and send it once more.")
