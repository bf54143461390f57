"""One decorator for every JSON route: who may, what comes in, what goes out, and one transaction around it.

`/api/openapi.json` and `/api/docs` are made from the same declarations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints

from flask import Blueprint, Response, g, request
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from werkzeug.exceptions import UnsupportedMediaType

from app.api.kit.fields import Body, Query, invalid
from app.api.kit.idempotency import answer_once, is_last
from app.api.kit.limits import take_request
from app.db import transaction
from app.errors import Invalid
from app.formats.strict_json import check_text, parse
from app.security import access as gatekeeping

Handler = Callable[..., Any]


@dataclass(frozen=True)
class Declared:
    """What a route promises. `access` is the least role and the scope that a key needs, `also_takes` one more
    credential (see `Access`). `reads` is the media type of a body that is not JSON and that the view reads itself. A
    view that returns a Response of its own may name several in `media_type`, joined by commas."""

    method: str
    path: str
    access: tuple[str, str | None]
    summary: str
    body: type[Body] | None = None
    query: type[Query] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    idempotent: bool = False
    transactional: bool = True
    media_type: str = "application/json"
    reads: str | None = None
    also: dict[int, str] = field(default_factory=dict)
    also_takes: str | None = None
    about: str = ""


def route(
    bp: Blueprint, method: str, path: str, *, access: tuple[str, str | None], **more: Any
) -> Callable[[Handler], Handler]:
    """Declare a view as a JSON route of the blueprint.

    The view gets the variables of the path, `body` and `query` as keyword arguments. It returns an answer, an answer
    and a status, None, or a Response of its own. With `idempotent` a POST may carry an `Idempotency-Key`.

    Unless they are given, the models come from the view's annotations, and its docstring says the rest: the first
    sentence is the summary, what follows the description.
    """

    def declare(view: Handler) -> Handler:
        declared = Declared(method, path, access, **(described_by(view) | more))

        @wraps(view)
        def handle(**arguments: Any) -> Response:
            return respond(declared, view, arguments)

        handle.declared = declared  # type: ignore[attr-defined]
        gatekeeping.access(*access, also=declared.also_takes)(handle)
        bp.add_url_rule(path, view.__name__, handle, methods=[method])
        return handle

    return declare


def described_by(view: Handler) -> dict[str, Any]:
    """Read what a view's signature and docstring say about its route."""
    hints = get_type_hints(view)
    answer = hints.get("return")
    if get_origin(answer) is tuple:
        answer = get_args(answer)[0]
    summary, _, about = " ".join((view.__doc__ or "").split()).partition(". ")
    found: dict[str, Any] = {name: hints[name] for name in ("body", "query") if name in hints}
    if isinstance(answer, type) and issubclass(answer, BaseModel):
        found["answer"] = answer
    return found | {"summary": summary.rstrip("."), "about": about}


def respond(declared: Declared, view: Handler, arguments: dict[str, Any]) -> Response:
    """Limit, read, work, commit, answer; in this order."""
    actor = g.actor
    if actor is not None and actor.key_id is not None:
        take_request(actor.key_id)
    sent: Any = None
    if declared.query is not None:
        arguments["query"] = read_query(declared.query)
    if declared.body is not None:
        sent = read_body()
        arguments["body"] = validate(declared.body, sent, "Field")
    if not declared.transactional:
        return to_response(declared, view(**arguments))
    try:
        with transaction():
            if declared.idempotent and not is_last():
                return answer_once(sent, lambda: to_response(declared, view(**arguments)))
            return to_response(declared, view(**arguments))
    except DataError as error:
        raise Invalid("A value is too large or too small to store.") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise OperationalError(error.statement, error.params, error.orig or error) from error
        raise


def read_body() -> Any:
    """The JSON of the request, read strictly. Its size was limited by the server's settings before this."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Send the body uncompressed.")
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("Send JSON with `Content-Type: application/json`.")
    return parse(request.get_data(cache=False))


def read_query(model: type[Query]) -> Query:
    """What follows the `?`. An empty value mostly is none. A name that comes twice is refused: which one was meant?"""
    given: dict[str, str] = {}
    for name, values in request.args.lists():
        check_text("".join(values))
        if len(values) > 1:
            raise Invalid("A query parameter appears twice. Send each one once.")
        if values[0] or model.keeps_empty:
            given[name] = values[0]
    found: Query = validate(model, given, "Query value")
    return found


def validate(model: type[BaseModel], value: Any, what: str) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid(error, what) from None


def to_response(declared: Declared, result: Any) -> Response:
    """The view's result as a response. It is written out inside the transaction: what cannot be said is not done."""
    if isinstance(result, Response):
        return result
    status = declared.status
    if isinstance(result, tuple):
        result, status = result
    if result is None:
        return Response(status=204 if status == 200 else status)
    return Response(result.model_dump_json(), status, mimetype="application/json")
