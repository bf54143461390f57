"""What goes wrong, as `application/problem+json` (RFC 9457): a sentence that says what to change, and the request id.

The error pages hand over to `answer` for every address that speaks JSON.
"""

import json
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from app.db.watch import NO_SPACE, is_out_of_space
from app.errors import Invalid, Problem, Throttled

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
ABOUT = {
    400: "The request does not fit: a field, a query value or the JSON itself. `errors` names the fields.",
    401: "No key was sent, or it is unknown, revoked or expired.",
    403: "The key lacks a scope, or its person the role. In a browser: the form is too old or from another site.",
    404: "Unknown, or another workspace's; the two look the same.",
    405: "This address does not take this method; `Allow` lists those it takes.",
    409: "Well-formed, but not possible in the state things are in; or an idempotency key came with another body.",
    413: "The body is larger than 1 MiB, or a file to import larger than 1 GiB.",
    415: "The body is not plain `application/json`.",
    422: "Well-formed, but there is nothing in it to work with, such as a session in which nobody said anything.",
    429: "Too many requests with one key; `Retry-After` says how many seconds to wait.",
    500: "A fault of ours. Nothing was saved. Tell whoever runs Upshot the request id.",
    503: "The database does not answer. Nothing was saved; try again after `Retry-After` seconds.",
}
_DETAILS = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    500: "Something broke on our side and nothing was saved. Tell whoever runs Upshot the request id.",
    503: "The database does not answer. Try again in a few seconds.",
}
_OWN_WORDS = frozenset({415})


def register(app: Flask) -> None:
    app.extensions["json_problem"] = answer


def answer(error: Exception) -> Response:
    """Any error as a problem document."""
    headers: dict[str, str] = {}
    if isinstance(error, Problem):
        status, title, detail = error.status, error.title, error.detail
    else:
        status, title, detail = _foreign(error)
    document = problem(status, title, detail)
    if isinstance(error, Invalid) and error.fields:
        document["errors"] = [{"field": name, "message": text} for name, text in error.fields.items()]
    if isinstance(error, Problem):
        document |= {name: value for name, value in error.extra.items() if value is not None and name not in document}
    if isinstance(error, Throttled):
        headers["Retry-After"] = str(error.retry_after)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_SECONDS)
    text = json.dumps(document, default=str, ensure_ascii=False, allow_nan=False)
    return Response(text, status, headers, mimetype=MEDIA_TYPE)


def problem(status: int, title: str, detail: str) -> dict[str, Any]:
    return {
        "type": f"/api/docs#problem-{status}" if status in ABOUT else "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "request_id": g.get("request_id", ""),
    }


def _foreign(error: Exception) -> tuple[int, str, str]:
    """Status, title and sentence of what routing, parsing and the database raise. Their own texts can quote the request
    or a statement, so only the few that we wrote are passed on."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        status = 503
    elif isinstance(error, HTTPException) and error.code is not None:
        status = error.code
    else:
        status = 500
    title = HTTPStatus(status).phrase
    if is_out_of_space(error):
        return status, title, f"{NO_SPACE} Nothing was saved."
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return status, title, f"The body is too large; send at most {_size(request.max_content_length)}."
    if status in _OWN_WORDS and isinstance(error, HTTPException) and error.description:
        return status, title, error.description
    return status, title, _DETAILS.get(status, "This request cannot be read; check its address, headers and form.")


def _size(most: int | None) -> str:
    """What a route takes at most: `1 MiB`, `1 GiB`."""
    mebibytes = (most or 0) // 1024**2
    return f"{mebibytes // 1024} GiB" if mebibytes >= 1024 else f"{mebibytes} MiB"
