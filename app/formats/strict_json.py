"""JSON read strictly, once, before anything else sees it.

Python's reader is lenient where it hurts later: it keeps the last of two equal keys, reads `NaN` and `1e999`, and
lets through NUL and half surrogate pairs, which PostgreSQL cannot store. Here each is refused with what to change.
"""

import json
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any

from app.errors import Invalid

MAX_DEPTH = 64
MAX_DIGITS = 300


def parse(raw: bytes, what: str = "body") -> Any:
    """The value of a JSON text, or Invalid with one sentence. Nothing of the text is repeated in it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid(f"The {what} is not UTF-8; encode it so.") from None
    if not text.strip():
        raise Invalid(f"The {what} is empty. Send a JSON object.")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if what == "body" else f"column {error.colno}"
        raise Invalid(f"The {what} is not JSON: {place} cannot be read.") from None
    except RecursionError:
        raise _too_deep() from None
    # Few brackets cannot be deep and text without escapes cannot hold what is refused, so most bodies need no walk.
    escaped = b"\\u" in raw
    if escaped or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _walk(value, texts=escaped)
    return value


def check_text(text: str) -> None:
    """Raise for what PostgreSQL cannot store."""
    if "\x00" in text:
        raise Invalid("Text must not contain the NUL character (\\u0000); leave it out.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid("Text must not contain half of a surrogate pair (\\ud800 to \\udfff); send both.") from None


def _walk(value: Any, *, texts: bool) -> None:
    """Check the depth, and keys and texts if asked. Level by level instead of recursion, so that no depth can exhaust
    the stack."""
    level, depth = [value], 0
    while level:
        if texts:
            for item in level:
                if isinstance(item, str):
                    check_text(item)
        held = [item for item in level if type(item) is dict or type(item) is list]
        depth += 1
        if held and depth > MAX_DEPTH:
            raise _too_deep()
        level = []
        for item in held:
            if type(item) is dict:
                level.extend(item.values())
                if texts:
                    level.extend(item)
            else:
                level.extend(item)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Invalid("An object has the same key twice. Send each key once.")
    return found


def _number(convert: Callable[[str], Any], digits: str) -> Any:
    if len(digits) > MAX_DIGITS:
        raise Invalid(f"A number has more than {MAX_DIGITS} digits. Send it as text.")
    number = convert(digits)
    if not isfinite(number):
        raise Invalid("A number is too large. Send at most 1.7e308.")
    return number


def _constant(_name: str) -> Any:
    raise Invalid("NaN and Infinity are not JSON; leave the value out or send null.")


def _too_deep() -> Invalid:
    return Invalid(f"The body is nested more than {MAX_DEPTH} levels deep. Send it flatter.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=partial(_number, int),
    parse_float=partial(_number, float),
    parse_constant=_constant,
)
