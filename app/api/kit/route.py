"""One decorator for every JSON route: who may, what comes in, what goes out, and one transaction around it,
how often a key may ask, and `Idempotency-Key`: the same request may come twice and happens once.

`/api/openapi.json` and `/api/docs` are made from the same declarations.
"""

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from flask import Blueprint, Flask, Response, current_app, g, request
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from werkzeug.exceptions import UnsupportedMediaType

from app.api.kit.fields import Body, Query, invalid
from app.db import transaction
from app.errors import Invalid, Throttled
from app.formats.strict_json import check_text, parse
from app.security import access as gatekeeping
from app.services import idempotency

Handler = Callable[..., Any]


@dataclass(frozen=True)
class Declared:
    """What a route promises. `access` is the least role and the scope that a key needs, `also_takes` one more
    credential (see `Access`). `reads` is the media type of a body that is not JSON and that the view reads itself."""

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
        raise Invalid("A value is outside what can be stored.") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise OperationalError(error.statement, error.params, error.orig or error) from error
        raise


def read_body() -> Any:
    """The JSON of the request, read strictly. Its size was limited by the server's settings before this."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is; compressed bodies are not read here.")
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("Send JSON with `Content-Type: application/json`.")
    return parse(request.get_data(cache=False))


def read_query(model: type[Query]) -> Query:
    """What follows the `?`. An empty value mostly is none. A name that comes twice is refused: which one was meant?"""
    given: dict[str, str] = {}
    for name, values in request.args.lists():
        check_text("".join(values))
        if len(values) > 1:
            raise Invalid("A name in the query comes twice; send each once.")
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


# `Idempotency-Key`

MAX_KEY_LENGTH = 255


def is_last() -> bool:
    """Nothing is kept about this request: what its view writes is the last of the transaction."""
    return "Idempotency-Key" not in request.headers


def answer_once(sent: Any, work: Callable[[], Response]) -> Response:
    """Do the work and remember its answer, or give the answer that the first request got. Runs inside the transaction
    of the work, so the two are kept together or not at all."""
    key = request.headers["Idempotency-Key"]
    if not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise Invalid(f"`Idempotency-Key` must have 1 to {MAX_KEY_LENGTH} plain characters.")
    # An answer to an admin is not replayed to the same person without the role: they may see less by then.
    place = f"{request.method} {request.path}" + (" as admin" if g.actor.is_admin else "")
    # The same for bodies that say the same, however they are spaced and ordered.
    same = json.dumps(sent, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    body_hash = hashlib.sha256(same.encode()).hexdigest()
    claim_id, status, answer = idempotency.claim_key(key, route=place, body_hash=body_hash, actor=g.actor)
    if status is not None:
        text = "" if answer is None else json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return Response(text, status, {"Idempotent-Replay": "true"}, mimetype="application/json")
    response = work()
    body = response.get_data()
    idempotency.save_answer(claim_id, status=response.status_code, answer=json.loads(body) if body else None)
    return response


# How many requests a key may make: a bucket that fills steadily and holds one minute's worth

PER_MINUTE = 60_000  # A thousand a second: one key alone cannot keep everyone else waiting, and no honest one notices.


class Buckets:
    """One bucket for each key, in memory. Only keys that signed in get one, so their number is that of the keys."""

    def __init__(self, per_minute: int = PER_MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = float(per_minute)
        self.rate = per_minute / 60
        self.clock = clock
        self._lock = threading.Lock()
        self._left: dict[UUID, tuple[float, float]] = {}

    def take(self, key: UUID) -> None:
        """Take one request out, or say how long to wait for the next."""
        now = self.clock()
        with self._lock:
            left, since = self._left.get(key, (self.size, now))
            left = min(self.size, left + (now - since) * self.rate)
            taken = left >= 1
            self._left[key] = (left - 1 if taken else left, now)
        if not taken:
            wait = max(1, math.ceil((1 - left) / self.rate))
            raise Throttled(f"This key made more than {int(self.size)} requests in a minute; wait {wait} s.", wait)


def register(app: Flask) -> None:
    app.extensions["upshot.buckets"] = Buckets()


def take_request(key: UUID) -> None:
    buckets: Buckets = current_app.extensions["upshot.buckets"]
    buckets.take(key)
