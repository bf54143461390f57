"""The fields of the form that says what should have happened, as a browser sends them."""

from __future__ import annotations

from typing import Any

Row = tuple[Any, ...]


def changes(*rows: Row) -> dict[str, str]:
    """`("update", "Kestrel", {"stage": "won"})`, `("create", "deal", {…})`, `("submit", criteria, record, {…})`,
    `("tool", name, record, {…})`."""
    sent = {}
    for place, (kind, *about, values) in enumerate(rows):
        at = f"change-{place}"
        sent |= {f"{at}-kind": kind, f"{at}-{'record' if kind == 'update' else 'of'}": about[0]}
        if len(about) > 1:
            sent[f"{at}-record"] = about[1]
        sent |= _values(at, "field", values)
    return sent


def calls(*rows: Row) -> dict[str, str]:
    """`("updateEntity", {"changes.stage": "won"})`; the arguments may be left out."""
    sent = {}
    for place, (tool, *values) in enumerate(rows):
        sent |= {f"call-{place}-tool": tool, **_values(f"call-{place}", "name", values[0] if values else {})}
    return sent


def _values(at: str, name: str, values: dict[str, Any]) -> dict[str, str]:
    pairs = enumerate(values.items())
    return {
        field: text
        for place, (key, value) in pairs
        for field, text in ((f"{at}-{name}-{place}", key), (f"{at}-value-{place}", str(value)))
    }
