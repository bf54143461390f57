"""Our cookies: their names, the signed one that carries a message to the next page, and the marks of known browsers.

The cookie of a known browser names up to five people who signed in with it within a year. A mark does not sign in. It
exempts its person from the wait that others cause by guessing their password elsewhere.
"""

import secrets
import time
from uuid import UUID

from flask import Flask, Request, current_app
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface

from app import tokens

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
