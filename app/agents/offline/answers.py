"""What the offline model says: one line a step, in fixed words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.agents.offline.conversation import Call, OfferedTool
from app.agents.offline.rules import Rulebook
from app.agents.offline.values import is_scalar, items_of, name_of, parsed
from app.learning.prompt import ParsedRow
from app.text.words import sentences, split_name, words

MOST_ITEMS = 3
MOST_FIELDS = 3
MOST_TOOLS = 5
LONGEST_VALUE = 300
NAMELESS = ("id", "name", "title")
OBJECTS = ("fields", "changes", "values")
NOTHING_LEFT = "There is nothing that I may say about this."


def read_line(tool: OfferedTool, call: Call) -> str:
    """`search deals: 2 found: Halden (stage: won, …); …`, or the result itself when it is one value."""
    result = parsed(call.result)
    items = items_of(result)
    if items is None and isinstance(result, list):
        return _found(tool, len(result), [_short(value) for value in result[:MOST_ITEMS]])
    if items is not None:
        return _found(tool, _count(result, items), [_item(item) for item in items[:MOST_ITEMS]])
    if isinstance(result, dict):
        shown = _item(result) if name_of(result) else _fields(result)
        return f"{tool.spoken}: {shown or 'nothing'}"
    return f"{tool.spoken}: {'nothing' if result is None or result == '' else _short(result)}"


def write_line(tool: OfferedTool, call: Call, names: dict[str, str]) -> str:
    """`Done: update entity Halden: stage = won`. `names` are those of records that were read, by id."""
    target, used = _target(call, names)
    told = {name: value for name, value in call.arguments.items() if name not in used and not _is_id(name, value)}
    pairs = [pair for name, value in told.items() for pair in _pairs(name, value)]
    changed = ", ".join(f"{name} = {_short(value)}" for name, value in pairs)
    return f"Done: {tool.spoken}" + (f" {target}" if target else "") + (f": {changed}" if changed else "")


def error_line(tool: OfferedTool, call: Call) -> str:
    return f"Could not {tool.spoken}: {_error(call.result)}"


def question(argument: str) -> str:
    return f"Which {' '.join(split_name(argument)) or argument}?"


def unanswered(step: str, rows: Sequence[ParsedRow], tools: Sequence[OfferedTool]) -> str:
    """The knowledge that shares at least half of the step's words, else what there are tools for."""
    asked = words(step)
    best, most = None, 0
    for row in rows:
        told = set(words(f"{row.content} {row.context or ''}"))
        shared = sum(word in told for word in asked)
        if shared > most and 2 * shared >= len(asked):
            best, most = row, shared
    if best is not None:
        return f'From workspace knowledge: "{best.content}"'
    offer = ", ".join(tool.spoken for tool in tools[:MOST_TOOLS])
    return "I have no tool for this." + (f" I can: {offer}." if offer else "")


def finished(lines: Sequence[str], books: Sequence[Rulebook]) -> str:
    """The lines with what rules want said, without the sentences that rules do not want said."""
    forms = [rule.forms for book in books for rule in book.rules]
    said = list(dict.fromkeys(text for found in forms for text in found.says))
    banned = [text.casefold() for text in dict.fromkeys(text for found in forms for text in found.never_says)]
    kept = [_without(line, banned) for line in [*lines, *said]]
    return "\n".join(line for line in kept if line) or NOTHING_LEFT


def _without(line: str, banned: Sequence[str]) -> str:
    if not any(text in line.casefold() for text in banned):
        return line
    kept = [part for part in sentences(line) if not any(text in part.casefold() for text in banned)]
    whole = " ".join(kept)
    return "" if any(text in whole.casefold() for text in banned) else whole


def _found(tool: OfferedTool, count: int, shown: list[str]) -> str:
    return f"{tool.spoken}: {count} found" + (f": {'; '.join(shown)}" if shown else "")


def _count(result: Any, items: list[dict[str, Any]]) -> int:
    total = result.get("total") if isinstance(result, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and total >= len(items) else len(items)


def _item(item: dict[str, Any]) -> str:
    name, fields = name_of(item), _fields(item)
    label = _short(name if name is not None else item.get("id", "")) if name or "id" in item else ""
    return f"{label} ({fields})" if label and fields else label or fields


def _fields(item: dict[str, Any]) -> str:
    scalars = [(key, value) for key, value in item.items() if key not in NAMELESS and is_scalar(value) and value != ""]
    return ", ".join(f"{key}: {_short(value)}" for key, value in scalars[:MOST_FIELDS])


def _target(call: Call, names: dict[str, str]) -> tuple[str, list[str]]:
    """What a call changed, and the arguments that say so."""
    result = parsed(call.result)
    told = name_of(result) if isinstance(result, dict) else None
    titles = [name for name in ("name", "title") if isinstance(call.arguments.get(name), str)]
    ids = [name for name in call.arguments if split_name(name)[-1:] == ["id"]]
    used = [*titles, *ids[:1]] if told or not titles else titles
    known = told or next((names[value] for name in ids if (value := str(call.arguments[name])) in names), None)
    by_argument = next((str(call.arguments[name]) for name in [*titles, *ids]), "")
    return _short(known or by_argument), used


def _is_id(name: str, value: Any) -> bool:
    """What belongs to what is for machines; people are told what was changed."""
    return split_name(name)[-1:] == ["id"] and isinstance(value, str)


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(key, inner.get("value", inner) if isinstance(inner, dict) else inner) for key, inner in value.items()]
    return [(name, value)]


def _error(result: Any) -> str:
    result = parsed(result)
    if isinstance(result, dict):
        keys = ("error", "detail", "message", "reason")
        result = next((result[key] for key in keys if isinstance(result.get(key), str) and result[key]), result)
    if isinstance(result, list):
        told = [str(one.get("msg", one)) if isinstance(one, dict) else str(one) for one in result[:MOST_ITEMS]]
        result = "; ".join(told)
    return _short(result) if result not in (None, "", {}) else "no result"


def _short(value: Any) -> str:
    text = " ".join(_spelled(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1].rstrip() + "…"


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_spelled, value[:20]))
    return str(value)
