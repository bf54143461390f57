"""Keys stay in the environment: whatever a model, a tool or an error repeats of them is taken out."""

from __future__ import annotations

from typing import Any

from app.config import secret_values

HIDDEN = "[hidden]"
# Half characters and NUL cannot be stored; a replacement character shows that something stood there.
UNSTORABLE = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")


def hide(value: Any, secrets: list[str] | None = None) -> Any:
    """The same value without the operator's secrets and without what cannot be stored."""
    found = secret_values() if secrets is None else secrets
    if isinstance(value, str):
        return hide_in(value, found)
    if isinstance(value, dict):
        return {hide(str(name), found): hide(inner, found) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hide(inner, found) for inner in value]
    return value


def hide_in(text: str, secrets: list[str] | None = None) -> str:
    text = text.translate(UNSTORABLE)
    for secret in secret_values() if secrets is None else secrets:
        text = text.replace(secret, HIDDEN)
    return text
