"""What the payload of an event says: whether a tool call failed, decided once when its result arrives, and whether an
answer was cut off."""

import json
import re
from collections.abc import Mapping
from typing import Any

_FIRST_WORD = re.compile(r"\s*(error|exception|traceback)\b", re.IGNORECASE)
_MAX_PARSED = 262_144


def with_error_mark(payload: dict[str, Any]) -> dict[str, Any]:
    """A `tool.result` payload that says whether it is an error, marked as inferred when we had to find out."""
    if payload.get("is_error") is not None:
        return payload
    return {**payload, "is_error": looks_failed(payload.get("output")), "is_error_inferred": True}


def looks_failed(output: Any) -> bool:
    """No result; text that opens with error, exception or traceback; an object that says so."""
    if output is None:
        return True
    if isinstance(output, str):
        parsed = _as_object(output)
        return _object_failed(parsed) if parsed is not None else bool(_FIRST_WORD.match(output))
    return isinstance(output, dict) and _object_failed(output)


def _as_object(text: str) -> dict[str, Any] | None:
    if text.lstrip()[:1] != "{" or len(text) > _MAX_PARSED:
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _object_failed(found: dict[str, Any]) -> bool:
    if found.get("error") or found.get("ok") is False or found.get("success") is False:
        return True
    status = found.get("status")
    if isinstance(status, str):
        return status.lower() in ("error", "failed") or re.fullmatch("[4-9][0-9]{2}", status, re.ASCII) is not None
    return isinstance(status, int | float) and not isinstance(status, bool) and status >= 400


# What providers call an answer that reached the limit on its length.
LENGTH_REASONS = ("length", "max_tokens")


def is_truncated(event_type: str, payload: Mapping[str, Any]) -> bool:
    """Whether an event is an answer that was cut off by a length limit, ours or the model's."""
    if event_type != "agent.message":
        return False
    return payload.get("truncated") is True or payload.get("finish_reason") in LENGTH_REASONS
