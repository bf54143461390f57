"""Whether an answer ends where its writer meant it to end."""

from collections.abc import Mapping
from typing import Any

# What providers call an answer that reached the limit on its length.
LENGTH_REASONS = ("length", "max_tokens")


def is_truncated(event_type: str, payload: Mapping[str, Any]) -> bool:
    """Whether an event is an answer that was cut off by a length limit, ours or the model's."""
    if event_type != "agent.message":
        return False
    return payload.get("truncated") is True or payload.get("finish_reason") in LENGTH_REASONS
