"""How the offline model phrases its answer: one line per step."""

from collections.abc import Sequence
from typing import Any

from app.agents.offline.conversation import Call, OfflineTool, is_scalar, parse_result, record_name, records_in
from app.agents.offline.rules import StepRules
from app.learning.prompt import ParsedRow
from app.text.words import sentences, split_name, words

MAX_RECORDS = 3
MAX_FIELDS = 3
MAX_TOOLS = 5
MAX_VALUE = 300
NAMING_KEYS = ("id", "name", "title")
NOTHING_LEFT = "There is nothing that I may say about this."


def describe_read(tool: OfflineTool, call: Call) -> str:
    """`search deals: 2 found: Halden (stage: won, …); …`, or the result itself if it is a single value."""
    result = parse_result(call.result)
    items = records_in(result)
    if items is None and isinstance(result, list):
        return _list_found(tool, len(result), [_shorten(value) for value in result[:MAX_RECORDS]])
    if items is not None:
        return _list_found(tool, _total(result, items), [_describe_record(item) for item in items[:MAX_RECORDS]])
    if isinstance(result, dict):
        shown = _describe_record(result) if record_name(result) else _describe_fields(result)
        return f"{tool.label}: {shown or 'nothing'}"
    return f"{tool.label}: {'nothing' if result is None or result == '' else _shorten(result)}"


def describe_write(tool: OfflineTool, call: Call, names: dict[str, str]) -> str:
    """`Done: update entity Halden: stage = won`. `names` are of the records read so far, by id."""
    target, used = _target_of(call, names)
    changes = {name: value for name, value in call.arguments.items() if name not in used and not _is_id(name, value)}
    pairs = [pair for name, value in changes.items() for pair in _pairs(name, value)]
    changed = ", ".join(f"{name} = {_shorten(value)}" for name, value in pairs)
    return f"Done: {tool.label}" + (f" {target}" if target else "") + (f": {changed}" if changed else "")


def describe_error(tool: OfflineTool, call: Call) -> str:
    return f"Could not {tool.label}: {_error_text(call.result)}"


def ask_for(argument: str) -> str:
    return f"Which {' '.join(split_name(argument)) or argument}?"


def describe_unmatched(step: str, rows: Sequence[ParsedRow], tools: Sequence[OfflineTool]) -> str:
    """Quote the knowledge row that has at least half of the step's words, else list the tools."""
    asked = words(step)
    best, most = None, 0
    for row in rows:
        known = set(words(f"{row.content} {row.context or ''}"))
        shared = sum(word in known for word in asked)
        if shared > most and 2 * shared >= len(asked):
            best, most = row, shared
    if best is not None:
        return f'From workspace knowledge: "{best.content}"'
    offer = ", ".join(tool.label for tool in tools[:MAX_TOOLS])
    return "I have no tool for this." + (f" I can: {offer}." if offer else "")


def compose_answer(lines: Sequence[str], rules: Sequence[StepRules]) -> str:
    """Join the lines and the `say` texts, without sentences that contain a `never say` text."""
    forms = [rule.forms for step in rules for rule in step.rules]
    said = list(dict.fromkeys(text for found in forms for text in found.says))
    banned = [text.casefold() for text in dict.fromkeys(text for found in forms for text in found.never_says)]
    kept = [_remove_banned(line, banned) for line in [*lines, *said]]
    return "\n".join(line for line in kept if line) or NOTHING_LEFT


def _remove_banned(line: str, banned: Sequence[str]) -> str:
    if not any(text in line.casefold() for text in banned):
        return line
    kept = [part for part in sentences(line) if not any(text in part.casefold() for text in banned)]
    whole = " ".join(kept)
    return "" if any(text in whole.casefold() for text in banned) else whole


def _list_found(tool: OfflineTool, count: int, shown: list[str]) -> str:
    return f"{tool.label}: {count} found" + (f": {'; '.join(shown)}" if shown else "")


def _total(result: Any, items: list[dict[str, Any]]) -> int:
    total = result.get("total") if isinstance(result, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and total >= len(items) else len(items)


def _describe_record(item: dict[str, Any]) -> str:
    name, fields = record_name(item), _describe_fields(item)
    label = _shorten(name if name is not None else item.get("id", "")) if name or "id" in item else ""
    return f"{label} ({fields})" if label and fields else label or fields


def _describe_fields(item: dict[str, Any]) -> str:
    scalars = [
        (key, value) for key, value in item.items() if key not in NAMING_KEYS and is_scalar(value) and value != ""
    ]
    return ", ".join(f"{key}: {_shorten(value)}" for key, value in scalars[:MAX_FIELDS])


def _target_of(call: Call, names: dict[str, str]) -> tuple[str, list[str]]:
    """What a call changed, and the arguments that name it."""
    result = parse_result(call.result)
    returned = record_name(result) if isinstance(result, dict) else None
    titles = [name for name in ("name", "title") if isinstance(call.arguments.get(name), str)]
    ids = [name for name in call.arguments if split_name(name)[-1:] == ["id"]]
    used = [*titles, *ids[:1]] if returned or not titles else titles
    known = returned or next((names[value] for name in ids if (value := str(call.arguments[name])) in names), None)
    by_argument = next((str(call.arguments[name]) for name in [*titles, *ids]), "")
    return _shorten(known or by_argument), used


def _is_id(name: str, value: Any) -> bool:
    """Ids are left out of answers."""
    return split_name(name)[-1:] == ["id"] and isinstance(value, str)


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(key, inner.get("value", inner) if isinstance(inner, dict) else inner) for key, inner in value.items()]
    return [(name, value)]


def _error_text(result: Any) -> str:
    result = parse_result(result)
    if isinstance(result, dict):
        keys = ("error", "detail", "message", "reason")
        result = next((result[key] for key in keys if isinstance(result.get(key), str) and result[key]), result)
    if isinstance(result, list):
        texts = [str(one.get("msg", one)) if isinstance(one, dict) else str(one) for one in result[:MAX_RECORDS]]
        result = "; ".join(texts)
    return _shorten(result) if result not in (None, "", {}) else "no result"


def _shorten(value: Any) -> str:
    text = " ".join(_format_value(value).split())
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1].rstrip() + "…"


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_format_value, value[:20]))
    return str(value)
