"""What every answer carries: the browser's own defences, the request id, and no caching of private pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flask import Flask, g, request
from werkzeug.http import dump_cookie

from app.security.authentication import cookie_name

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

CSP = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "object-src 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = (
    ("Content-Security-Policy", CSP),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
)
# Each with its name in small letters, under which it is looked for.
HEADERS = tuple((name, name.lower(), value) for name, value in _HEADERS)
SECURE_HEADERS = (*HEADERS, ("Strict-Transport-Security", "strict-transport-security", "max-age=31536000"))


def install(app: Flask) -> None:
    inner = app.wsgi_app
    app.wsgi_app = lambda environ, start_response: inner(environ, with_default_headers(start_response))  # type: ignore[method-assign]


def with_default_headers(start_response: StartResponse) -> StartResponse:
    """The same with our headers. They go to the server as they are: a response would look at each, several times."""

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        return start_response(status, headers + list(default_headers(headers)), *more)

    return start


def default_headers(headers: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """What an answer has to carry beside these."""
    there = {name.lower() for name, _ in headers}
    for name, lower, value in SECURE_HEADERS if request.is_secure else HEADERS:
        if lower not in there:
            yield name, value
    yield "X-Request-Id", g.get("request_id", "")
    if "cache-control" not in there and request.endpoint != "static":
        yield "Cache-Control", "no-store"
    visit = g.get("new_visit")
    if visit:
        secure = cookie_name().startswith("__Host-")
        cookie = dump_cookie(cookie_name("upshot_visit"), visit, httponly=True, samesite="Lax", secure=secure, path="/")
        yield "Set-Cookie", cookie
