"""Machine text for people: tool calls on one line, JSON to read, and addresses with a query."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

A_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
LINE = 120
ITEM = 40


def value_line(value: Any, limit: int = ITEM) -> str:
    """One value on one line, cut where it gets long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def args_line(args: Any) -> str:
    """`(q="Halden", limit=10)`: a tool's arguments as its one quiet line shows them."""
    if args is None or args == {}:
        return "()"
    if not isinstance(args, Mapping):
        return f"({value_line(args, LINE)})"
    return "(" + ", ".join(f"{name}={_argument(value)}" for name, value in args.items()) + ")"


def _argument(value: Any) -> str:
    if isinstance(value, str):
        # An id would fill the line and tell nothing; whoever unfolds the call sees all of it.
        return f'"…{value[-8:]}"' if A_UUID.fullmatch(value) else f'"{value_line(value)}"'
    return value_line(value)


def result_line(result: Any) -> str:
    """What came back, in as few words as do: `12 results`, `empty`, `4 fields`, or the value itself."""
    if result is None or result == "" or result == [] or result == {}:
        return "empty"
    if isinstance(result, list):
        return f"{len(result):,} result{'' if len(result) == 1 else 's'}"
    if isinstance(result, Mapping):
        if len(result) == 1:
            name, value = next(iter(result.items()))
            return result_line(value) if isinstance(value, list) else f"{name}: {value_line(value)}"
        return f"{len(result)} fields"
    return value_line(result, LINE)


def pretty_json(value: Any) -> str:
    """JSON indented for reading; a plain text stays as it is."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def query(url: str, args: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """The address with a query: `args` with `changes` laid over it. Empty values are left out."""
    merged = {**(args or {}), **changes}
    pairs = [(name, str(value)) for name, value in merged.items() if value not in (None, "")]
    return f"{url}?{urlencode(pairs)}" if pairs else url


def without(args: Mapping[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a query that are not named here and not empty: what a form has to carry along."""
    return ((name, value) for name, value in args.items() if name not in names and value not in (None, ""))


def chosen(field: Mapping[str, Any], value: str) -> str:
    """What a filter's value is called in its menu."""
    return str(dict(field.get("options") or []).get(value, value))


TEXT_FILTERS: dict[str, Callable[..., Any]] = {
    "value_line": value_line,
    "args_line": args_line,
    "result_line": result_line,
    "pretty_json": pretty_json,
    "query": query,
    "without": without,
    "chosen": chosen,
}
