"""What every answer carries: the browser's own defences, the request id, and no caching of private pages."""

from __future__ import annotations

from flask import Flask, Response, g, request

from app.gate import cookie_name

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
HEADERS = (
    ("Content-Security-Policy", CSP),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
)
SECURE_HEADERS = (*HEADERS, ("Strict-Transport-Security", "max-age=31536000"))


def install(app: Flask) -> None:
    app.after_request(dress)


def dress(response: Response) -> Response:
    # Asked for once: on every answer `setdefault` would look through all headers for each of ours.
    there = {name.lower() for name, _ in response.headers}
    wanted = SECURE_HEADERS if request.is_secure else HEADERS
    response.headers.extend([(name, value) for name, value in wanted if name.lower() not in there])
    response.headers["X-Request-Id"] = g.get("request_id", "")
    if request.endpoint != "static" and "cache-control" not in there:
        response.headers.add("Cache-Control", "no-store")
    visit = g.get("new_visit")
    if visit:
        secure = cookie_name().startswith("__Host-")
        response.set_cookie(cookie_name("upshot_visit"), visit, httponly=True, samesite="Lax", secure=secure, path="/")
    return response
