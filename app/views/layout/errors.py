"""Pages for what went wrong: what happened, what to do next, in the product's own frame.

Addresses that speak JSON answer `application/problem+json` instead; the API installs that under `JSON_ANSWER`.
"""

from flask import Flask, Response, current_app, g, make_response, redirect, request, url_for
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException, InternalServerError, SecurityError

from app.db import db
from app.db.watch import NO_SPACE, database_watch, is_out_of_space
from app.errors import Problem, SignInNeeded, Throttled
from app.security import authentication
from app.security.access import Access
from app.views.htmx import Toast, render, toast_only, vary_by_htmx, wants_fragment

JSON_ANSWER = "json_problem"
JSON_PATHS = ("/api/", "/v1/", "/mcp", "/conversations/", "/healthz", "/readyz", "/metrics")
RETRY_SECONDS = 5


# What happened, and what to do; the sentence of the error itself goes between them.
WORDS = {
    400: ("That link isn’t valid", "Go back, reload the page and try again."),
    403: ("You don’t have access", "Ask an admin of your workspace if you need it."),
    404: ("Page not found", "The page was removed or belongs to another workspace."),
    405: ("That link can’t be opened directly", "Go back and use the buttons on the page."),
    409: ("Not possible right now", "Reload the page to see what changed, then try again."),
    413: ("Too much data", "Send less or split it into parts."),
    422: ("Not saved", "Go back and fix the marked fields."),
    429: ("Too many attempts", "Wait a moment, then try again."),
    500: ("Something went wrong", "Nothing was saved. Try again, or send your operator this request ID."),
    503: ("The database isn’t responding", "Nothing was saved. Try again in a minute."),
}


def register(app: Flask) -> None:
    app.register_error_handler(Problem, problem)
    app.register_error_handler(HTTPException, http_error)
    for error in (OperationalError, InterfaceError, PoolTimeout):
        app.register_error_handler(error, database_down)
    app.register_error_handler(InternalServerError, broken)


def problem(error: Problem) -> Response:
    """A product error that no view turned into a form or a toast."""
    if isinstance(error, SignInNeeded) and not _speaks_json():
        return to_sign_in()
    answer = answer_with(error, error.status, error.detail)
    if isinstance(error, Throttled):
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer


def http_error(error: HTTPException) -> Response:
    """What routing and parsing refuse. A redirect that routing raises is passed on as it is."""
    if error.code is None or error.code < 400:
        return make_response(error.get_response())
    if isinstance(error, SecurityError):
        # The request came under a name that is not ours. No address can be built for it, so this is plain text.
        text = "Upshot does not answer under this name. Use its own address, or add the name to UPSHOT_TRUSTED_HOSTS.\n"
        return Response(text, 400, mimetype="text/plain")
    answer = answer_with(error, error.code)
    for name, value in error.get_headers():
        if name.lower() in {"allow", "retry-after"}:
            answer.headers[name] = value
    return answer


def database_down(error: Exception) -> Response:
    """No connection, or it died under us. The page asks nothing of the database."""
    database_watch(current_app).note_error(error)
    current_app.logger.warning("the database is not answering: %s", error)
    answer = answer_with(error, 503, NO_SPACE if is_out_of_space(error) else "", frame=False)
    answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def broken(error: InternalServerError) -> Response:
    """A fault of ours: its trace is in the log already, and the number to find it by is on the page."""
    current_app.logger.error("request %s failed", g.get("request_id"))
    return answer_with(error, 500, frame=False)


def to_sign_in() -> Response:
    """To the sign-in page, and back to this one afterwards."""
    wanted = request.full_path.rstrip("?") if request.method == "GET" else None
    if wants_fragment():
        return vary_by_htmx(Response(status=401, headers={"HX-Redirect": url_for("auth.sign_in")}))
    return vary_by_htmx(redirect(url_for("auth.sign_in", next=wanted if wanted != "/" else None), 303))


def answer_with(error: Exception, status: int, detail: str = "", *, frame: bool = True) -> Response:
    """The error as JSON, as a toast over the page that htmx is on, or as a page. `frame` is False where reading who
    is here or what is waiting could fail again."""
    if _speaks_json():
        return make_response(current_app.extensions[JSON_ANSWER](error))
    title, advice = WORDS.get(status) or WORDS[400 if status < 500 else 500]
    if wants_fragment():
        answer = toast_only(Toast(detail or f"{title}. {advice}", "error"), status=status)
        answer.headers["HX-Reswap"] = "none"
        return answer
    plain = not (frame and _recognised())
    shown = {"words": {"title": title, "advice": advice}, "code": status, "detail": detail, "plain": plain}
    return vary_by_htmx(render("layout/error.html", status=status, **shown))


def _recognised() -> bool:
    """Whether someone is signed in. An address that leads nowhere never asked who it is, so it is asked here."""
    try:
        if g.get("actor") is None and request.endpoint is None:
            authentication.identify(Access("signed_in"))
        db.session.rollback()
        return g.get("actor") is not None
    except (OperationalError, InterfaceError, PoolTimeout, Problem):
        return False


def _speaks_json() -> bool:
    return request.path.startswith(JSON_PATHS) and JSON_ANSWER in current_app.extensions
