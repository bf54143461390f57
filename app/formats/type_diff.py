"""What differs between two definitions of an entity type."""

import json
from collections.abc import Iterator
from typing import Any

from app.formats.agent_diff import Change

# What a person reads first of a field; the rest of its schema is shown as it is.
KNOWN = ("type", "description", "enum")


def diff_types(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """All differences between two definitions, each with a name and fields; none when they say the same."""
    found = [] if before["name"] == after["name"] else [Change("Name", "value", before["name"], after["name"])]
    for name, schema in after["fields"].items():
        if name not in before["fields"]:
            found.append(Change(f"Field {name}", "added", after="\n".join(_lines(schema))))
        else:
            found += _diff_field(name, before["fields"][name], schema)
    gone = [name for name in before["fields"] if name not in after["fields"]]
    found += [Change(f"Field {name}", "removed", "\n".join(_lines(before["fields"][name]))) for name in gone]
    return found


def _diff_field(name: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for key in dict.fromkeys((*KNOWN, *before, *after)):
        old, new = before.get(key), after.get(key)
        if old != new:
            shape = "text" if key == "description" else "value"
            yield Change(f"Field {name}, {key}", shape, _show(old), _show(new))


def _lines(schema: dict[str, Any]) -> list[str]:
    return [f"{key}: {_show(value)}" for key, value in schema.items()]


def _show(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
