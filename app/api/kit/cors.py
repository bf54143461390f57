"""Other sites: which of them a browser may send feedback from, and which files it may load there.

No cookie ever goes along, since `Access-Control-Allow-Credentials` is never sent.
"""

from flask import Blueprint, Flask, Response, g, request
from sqlalchemy.exc import SQLAlchemyError

from app.db import db
from app.security.access import access
from app.services.workspaces import people

PATH = "/api/v1/feedback"
FILES = frozenset({"/static/feedback.js", "/static/feedback.css"})
METHODS = "GET, POST, DELETE"
PERMITS = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
    "Access-Control-Max-Age": "600",
}

bp = Blueprint("cors", __name__)


@bp.route(PATH, methods=["OPTIONS"])
@access("public")
def preflight() -> Response:
    """A browser's question before it sends anything. It names no workspace, so any that allows the origin will do; the
    request itself is then held to its own workspace."""
    response = Response(status=204, headers={"Allow": f"{METHODS}, OPTIONS"})
    origin = request.headers.get("Origin")
    if origin and allowed_somewhere(origin):
        response.headers.update(PERMITS)
        response.headers["Access-Control-Allow-Origin"] = origin
    return response


def add_headers(response: Response) -> Response:
    """Let the page that asked read the answer, if it is one of the workspace's own."""
    path = request.path
    if path in FILES:
        response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    if path != PATH:
        return response
    response.vary.add("Origin")
    origin = request.headers.get("Origin")
    ours = origin and origin.partition("//")[2] == request.host
    if not origin or ours or request.method == "OPTIONS" or g.get("origin_refused"):
        return response
    # A token that ran out names nobody any more; the page must still be able to read that it did.
    if g.get("allowed_origin") == origin or allowed_somewhere(origin):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = "Retry-After, X-Request-Id"
    return response


def allowed_somewhere(origin: str) -> bool:
    try:
        return people.is_allowed_origin(origin)
    except SQLAlchemyError:
        return False
    finally:
        db.session.rollback()


def register(app: Flask) -> None:
    """Registered before the route itself: of two rules that take OPTIONS, the first answers."""
    app.register_blueprint(bp)
    app.after_request(add_headers)
