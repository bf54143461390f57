"""`Idempotency-Key`: the same request may come twice and happens once."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from flask import Response, g, request

from app.errors import Invalid
from app.services import idempotency

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
