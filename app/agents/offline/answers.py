"""How the offline model phrases its answer: one line per step."""

from collections.abc import Collection, Sequence
from typing import Any

from app.agents.offline.conversation import Call, OfflineTool, is_id, record_name, records_in
from app.learning.prompt import ParsedRow
from app.learning.rules import Rules
from app.text.values import from_json
from app.text.words import sentences, split_name, words

MAX_RECORDS = 3
MAX_FIELDS = 3
MAX_TOOLS = 5
MAX_VALUE = 300
NAMING_KEYS = ("id", "name", "title")
ERROR_KEYS = ("error", "detail", "message", "reason")
NOTHING_LEFT = "There is nothing that I may say about this."


def describe_read(tool: OfflineTool, call: Call) -> str:
    """`search deals: 2 found: Halden (stage: won, …); …`, or the result itself if it is a single value."""
    result = from_json(call.result)
    items = records_in(result)
    if items is None and not isinstance(result, list):
        shown = _describe_record(result) if isinstance(result, dict) else "" if result is None else _shorten(result)
        return f"{tool.label}: {shown or 'nothing'}"
    found = items if items is not None else result
    total = result.get("total") if isinstance(result, dict) else None
    count = total if type(total) is int and total >= len(found) else len(found)
    shown = "; ".join(_describe_record(item) if items is not None else _shorten(item) for item in found[:MAX_RECORDS])
    return f"{tool.label}: {count} found" + (f": {shown}" if shown else "")


def describe_write(tool: OfflineTool, call: Call, names: dict[str, str]) -> str:
    """`Done: update entity Halden: stage = won`. `names` are of the records read so far, by id; ids are left out."""
    target, used = _target_of(call, names)
    pairs: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if isinstance(value, dict):
            pairs |= {
                key: inner.get("value", inner) if isinstance(inner, dict) else inner for key, inner in value.items()
            }
        elif name not in used and not (is_id(name) and isinstance(value, str)):
            pairs[name] = value
    changed = ", ".join(f"{name} = {_shorten(value)}" for name, value in pairs.items())
    return f"Done: {tool.label}" + (f" {target}" if target else "") + (f": {changed}" if changed else "")


def _target_of(call: Call, names: dict[str, str]) -> tuple[str, list[str]]:
    """What a call changed, and the arguments that name it."""
    result = from_json(call.result)
    returned = record_name(result) if isinstance(result, dict) else None
    titles = [name for name in ("name", "title") if isinstance(call.arguments.get(name), str)]
    ids = [name for name in call.arguments if is_id(name)]
    used = [*titles, *ids[:1]] if returned or not titles else titles
    known = returned or next((names[value] for name in ids if (value := str(call.arguments[name])) in names), None)
    by_argument = next((str(call.arguments[name]) for name in [*titles, *ids]), "")
    return _shorten(known or by_argument), used


def describe_error(tool: OfflineTool, call: Call) -> str:
    result = from_json(call.result)
    if isinstance(result, dict):
        result = next((result[key] for key in ERROR_KEYS if isinstance(result.get(key), str) and result[key]), result)
    return f"Could not {tool.label}: {_shorten(result or 'no result')}"


def ask_for(argument: str) -> str:
    return f"Which {' '.join(split_name(argument)) or argument}?"


def describe_unmatched(step: str, rows: Sequence[ParsedRow], tools: Sequence[OfflineTool]) -> str:
    """Quote the knowledge row that has at least half of the step's words, else list the tools."""
    asked = words(step)

    def shared(row: ParsedRow) -> int:
        known = words(f"{row.content} {row.context or ''}")
        return sum(word in known for word in asked)

    best = max(rows, key=shared, default=None)
    if best is not None and shared(best) and 2 * shared(best) >= len(asked):
        return f'From workspace knowledge: "{best.content}"'
    offer = ", ".join(tool.label for tool in tools[:MAX_TOOLS])
    return "I have no tool for this." + (f" I can: {offer}." if offer else "")


def compose_answer(lines: Sequence[str], rules: Sequence[Rules]) -> str:
    """Join the lines and the `say` texts, without sentences that contain a `never say` text."""
    texts = dict.fromkeys(text for step in rules for text in step.contents("says"))
    banned = {text.casefold() for step in rules for text in step.contents("never_says")}
    kept = [_remove_banned(line, banned) for line in [*lines, *texts]]
    return "\n".join(line for line in kept if line) or NOTHING_LEFT


def _remove_banned(line: str, banned: Collection[str]) -> str:
    def is_banned(text: str) -> bool:
        return any(one in text.casefold() for one in banned)

    if not is_banned(line):
        return line
    rest = " ".join(part for part in sentences(line) if not is_banned(part))
    return "" if is_banned(rest) else rest


def _describe_record(item: dict[str, Any]) -> str:
    label = _shorten(record_name(item) or item.get("id", ""))
    scalars = {key: value for key, value in item.items() if isinstance(value, str | int | float) and value != ""}
    fields = [f"{key}: {_shorten(value)}" for key, value in scalars.items() if key not in NAMING_KEYS]
    shown = ", ".join(fields[:MAX_FIELDS])
    return f"{label} ({shown})" if label and shown else label or shown


def _shorten(value: Any) -> str:
    text = " ".join(_format_value(value).split())
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1].rstrip() + "…"


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_format_value, value[:20]))
    return str(value)
