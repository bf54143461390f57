"""JSON as it comes in: read strictly, once, before anything else sees it."""

from typing import Any

from flask import Request
from werkzeug.exceptions import UnsupportedMediaType

from app.formats.strict_json import MAX_DEPTH, MAX_DIGITS, check_text, parse

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "check_text", "parse", "read_body"]


def read_body(request: Request) -> Any:
    """What the request carries. Its size was limited by the server's settings before this."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is; compressed bodies are not read here.")
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("Send JSON with `Content-Type: application/json`.")
    return parse(request.get_data(cache=False))
