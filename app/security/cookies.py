"""The names of our cookies, and the signed cookie that carries a message to the next page."""

from flask import Flask, Request, current_app
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface


def cookie_name(kind: str = "upshot") -> str:
    """Over TLS the `__Host-` prefix makes the browser guarantee that the cookie is ours alone."""
    return f"__Host-{kind}" if current_app.config["SECURE"] else kind


class LazyCookieSession(SecureCookieSessionInterface):
    """Flask's cookie session, for flashed messages. Most requests send no such cookie and need no signature checked."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()
        return super().open_session(app, request)
