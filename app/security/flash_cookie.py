"""What a page says once after a change ("The key was made.") travels in a signed cookie of its own."""

from __future__ import annotations

from flask import Flask, Request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface


class LazyCookieSession(SecureCookieSessionInterface):
    """Agents and most pages send none; then there is nothing to check a signature of."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()
        return super().open_session(app, request)
