"""Redacts the operator's secrets from what a model, a tool or an error repeats."""

from typing import Any

from app.config import secret_values

HIDDEN = "[hidden]"
# Lone surrogates and NUL cannot be stored; they become replacement characters.
UNSTORABLE = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")


def redact(value: Any, secrets: list[str] | None = None) -> Any:
    """Return the value without secrets and without characters that cannot be stored."""
    found = secret_values() if secrets is None else secrets
    if isinstance(value, str):
        return redact_text(value, found)
    if isinstance(value, dict):
        return {redact(str(name), found): redact(inner, found) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner, found) for inner in value]
    return value


def redact_text(text: str, secrets: list[str] | None = None) -> str:
    text = text.translate(UNSTORABLE)
    for secret in secret_values() if secrets is None else secrets:
        text = text.replace(secret, HIDDEN)
    return text
