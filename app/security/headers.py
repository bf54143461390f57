"""Headers of every answer: the browser's own defences, the request id, and no caching of private pages."""

from flask import Response, current_app, g, request

from app.security.cookies import cookie_name

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'"
)
DEFAULT_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def add_default_headers(response: Response) -> Response:
    """Add what the view did not set itself."""
    for name, value in DEFAULT_HEADERS.items():
        response.headers.setdefault(name, value)
    if request.is_secure:
        response.headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    if request.endpoint != "static":
        response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Request-Id"] = g.get("request_id", "")
    visit = g.get("new_visit")
    if visit:
        secure: bool = current_app.config["SECURE"]
        response.set_cookie(cookie_name("upshot_visit"), visit, httponly=True, samesite="Lax", secure=secure)
    return response
