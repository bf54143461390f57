"""What goes wrong, as `application/problem+json` (RFC 9457): a sentence that says what to change, and the request id.

The error pages hand over to `answer` for every address that speaks JSON.
"""

import json
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge, UnsupportedMediaType

from app.db.watch import NO_SPACE, is_out_of_space
from app.errors import Invalid, Problem, Throttled

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
ABOUT = {
    400: "A field, a query value or the JSON itself is invalid. `errors` names the fields.",
    401: "The key is missing, unknown, revoked or expired.",
    403: (
        "The key lacks the scope, or its owner lacks the role. In a browser, the form has expired or came"
        " from another site."
    ),
    404: "Not found in this workspace.",
    405: "This address doesn't take this method. `Allow` lists the methods it takes.",
    409: "Valid, but not possible in the current state, or the idempotency key was used with another body.",
    413: "The body is over 1 MiB, or the import file is over 1 GiB.",
    415: "The body is not uncompressed `application/json`.",
    422: "Valid, but with nothing to work on, such as a session without messages.",
    429: "Too many requests with one key. Wait `Retry-After` seconds.",
    500: "Upshot failed. Nothing was saved. Give your operator the request ID.",
    503: "The database isn't answering. Nothing was saved. Try again after `Retry-After` seconds.",
}
_DETAILS = {
    404: "Nothing was found at this address.",
    405: "This address doesn't take this method.",
    500: "Something went wrong and nothing was saved. Give your operator the request ID.",
    503: "The database isn't answering. Try again in a few seconds.",
}


def register(app: Flask) -> None:
    app.extensions["json_problem"] = answer


def answer(error: Exception) -> Response:
    """Any error as a problem document."""
    if not isinstance(error, Problem):
        error = _as_problem(error)
    status = error.status
    document: dict[str, Any] = {name: value for name, value in error.extra.items() if value is not None} | {
        "type": f"/api/docs#problem-{status}" if status in ABOUT else "about:blank",
        "title": error.title,
        "status": status,
        "detail": error.detail,
        "request_id": g.get("request_id", ""),
    }
    if isinstance(error, Invalid) and error.fields:
        document["errors"] = [{"field": name, "message": text} for name, text in error.fields.items()]
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_SECONDS)}}.get(status, {})
    if isinstance(error, Throttled):
        headers = {"Retry-After": str(error.retry_after)}
    text = json.dumps(document, default=str, ensure_ascii=False, allow_nan=False)
    return Response(text, status, headers, mimetype=MEDIA_TYPE)


def _as_problem(error: Exception) -> Problem:
    """What routing, parsing and the database raise. Their own texts can quote the request or a statement, so only the
    few that we wrote are passed on."""
    found = Problem(_DETAILS[500])
    found.status = 500
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        found.status = 503
    elif isinstance(error, HTTPException) and error.code is not None:
        found.status = error.code
    found.title = HTTPStatus(found.status).phrase
    found.detail = _DETAILS.get(found.status, "This request can't be read. Check its address, headers and body.")
    if is_out_of_space(error):
        found.detail = f"{NO_SPACE} Nothing was saved."
    elif isinstance(error, RequestEntityTooLarge):
        mebibytes = (request.max_content_length or 0) // 1024**2
        size = f"{mebibytes // 1024} GiB" if mebibytes >= 1024 else f"{mebibytes} MiB"
        found.detail = f"The body is too large. Send at most {size}."
    elif isinstance(error, UnsupportedMediaType) and error.description:
        found.detail = error.description
    return found
