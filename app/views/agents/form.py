"""The form of an agent: what was typed, in rows that are added and removed without a script too, and what is wrong.

Fields are named by their place in the configuration, such as `http_tools.0.url`, so that a sentence about a place finds
its field. Which row a button adds or removes is its value: `add:skills`, `remove:http_tools.0.headers.1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.errors import Invalid, Problem
from app.formats.agent_config import ENV_NAME, AgentConfig, read_config
from app.formats.agent_config import HEADER as HEADER_NAME
from app.formats.agent_diff import LIMITS, Change
from app.services.agents.edit import NAMED
from app.tools.describe import describe_groups
from app.views.forms import parse_count

Row = dict[str, Any]
KINDS = {
    "builtin": "Runs in Upshot with instructions, a model and tools.",
    "endpoint": "Runs behind your own HTTP endpoint.",
    "external": "Runs outside Upshot and reports its sessions.",
}
TYPES = ("string", "number", "integer", "boolean", "array", "object")
# The rows of the form, empty. A row within a row is another list of rows.
HEADER: Row = {"header": "", "variable": ""}
PARAMETER: Row = {"name": "", "type": "", "description": "", "required": ""}
TOOL: Row = {"name": "", "description": "", "url": "", "method": "", "writes": ""}
SHAPES: Row = {
    "skills": {"name": "", "text": ""},
    "http_tools": TOOL | {"headers": HEADER, "parameters": PARAMETER},
    "mcp_servers": {"name": "", "url": "", "headers": HEADER},
    "endpoint_headers": HEADER,
}
# What is chosen from a list always has a value, so it does not make a row a written one.
CHOSEN = {"method", "writes", "type", "required"}
MAX_ROWS = 40


@dataclass(frozen=True)
class AgentForm:
    """`theirs` is what someone else saved meanwhile, as the changes that saving this would make to it. `fresh` names
    the row that was just added."""

    kind: str = "builtin"
    slug: str = ""
    name: str = ""
    description: str = ""
    instructions: str = ""
    model: str = ""
    endpoint_url: str = ""
    groups: list[str] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    note: str = ""
    version: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    theirs: list[Change] = field(default_factory=list)
    stale: str = ""
    fresh: str = ""

    @classmethod
    def new(cls, kind: str) -> AgentForm:
        """An empty form: an agent that reads records and knowledge, which is what most begin as."""
        config = AgentConfig(tool_groups=["context", "entities-read"]).stored()
        return cls.from_version({**config, "kind": kind if kind in KINDS else "builtin"}, 0)

    @classmethod
    def from_version(cls, content: Mapping[str, Any], version: int) -> AgentForm:
        """What a version holds, to be changed."""
        config = read_config(dict(content)).stored()
        texts: dict[str, Any] = {name: content.get(name) or "" for name in ("slug", "name", "description")}
        texts |= {name: config[name] for name in ("instructions", "model", "endpoint_url")}
        return cls(
            **texts,
            kind=content.get("kind") or "external",
            groups=config["tool_groups"],
            rows={
                "skills": config["skills"],
                "http_tools": [_tool_row(tool) for tool in config["http_tools"]],
                "mcp_servers": [_with_headers(server) for server in config["mcp_servers"]],
                "endpoint_headers": _header_rows(config["endpoint_headers_env"]),
            },
            limits={name: str(config["limits"][name]) for name in LIMITS},
            version=version,
        )

    @classmethod
    def from_form(cls, form: Any) -> AgentForm:
        """What was sent."""
        texts: dict[str, Any] = {name: form.get(name, "") for name in ("kind", "slug", "name", "description", "note")}
        texts |= {name: _text(form, name) for name in ("instructions", "model", "endpoint_url")}
        return cls(
            **texts,
            groups=form.getlist("tool_groups"),
            rows={part: _read_rows(form, part, shape) for part, shape in SHAPES.items()},
            limits={name: form.get(f"limits.{name}", "") for name in LIMITS},
            version=parse_count(form.get("version")) or 0,
        )

    def as_content(self) -> dict[str, Any]:
        """What a version would hold."""
        return {
            **{name: getattr(self, name) for name in NAMED},
            "instructions": self.instructions,
            "skills": self.rows["skills"],
            "model": self.model,
            "tool_groups": self.groups,
            "http_tools": [_tool(row, place) for place, row in enumerate(self.rows["http_tools"])],
            "mcp_servers": [
                {"name": row["name"], "url": row["url"], "headers_env": _headers(row["headers"])}
                for row in self.rows["mcp_servers"]
            ],
            "endpoint_url": self.endpoint_url,
            "endpoint_headers_env": _headers(self.rows["endpoint_headers"]),
            "limits": {name: _number(self.limits[name]) for name in LIMITS if self.limits.get(name)},
        }

    def without_blanks(self) -> AgentForm:
        """The form without the rows in which nothing was written."""
        return replace(self, rows={part: _written(rows) for part, rows in self.rows.items()})

    def pressed(self, button: str) -> AgentForm | None:
        """The form with a row more or less, or None when the button is no such button."""
        action, _, path = button.partition(":")
        rows, shape, place = _find(self.rows, path)
        if action not in {"add", "remove"} or rows is None:
            return None
        if action == "add" and place is None and len(rows) < MAX_ROWS:
            rows.append({name: [] if isinstance(part, dict) else "" for name, part in shape.items()})
            return replace(self, fresh=f"{path}.{len(rows) - 1}")
        if action == "remove" and place is not None and place < len(rows):
            del rows[place]
        return self

    def refused(self, refusal: Problem) -> AgentForm:
        """The same form with a sentence under what does not fit; an error without a field goes to the top."""
        fields = refusal.fields if isinstance(refusal, Invalid) else {}
        placed = {self._field(place): sentence for place, sentence in fields.items()}
        return replace(self, errors=placed or {"form": refusal.detail})

    def _field(self, place: str) -> str:
        """The field for a place of the configuration. Headers are rows here: the first that is wrong is."""
        path, _, last = place.rpartition(".")
        if not last.endswith("headers_env"):
            return place
        within = place.removesuffix("_env")
        for at, row in enumerate(_find(self.rows, within)[0] or []):
            if not HEADER_NAME.fullmatch(row["header"]):
                return f"{within}.{at}.header"
            if not ENV_NAME.fullmatch(row["variable"]):
                return f"{within}.{at}.variable"
        return f"{path}.name" if path else "endpoint_url"

    def overtaken(self, sentence: str, theirs: list[Change], version: int) -> AgentForm:
        """The same form over the version that was saved meanwhile, so that saving again is a decision."""
        return replace(self, stale=sentence, theirs=theirs, version=version)


def _text(form: Mapping[str, str], name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n").strip()


def _number(text: str) -> Any:
    """A number, or the text that is none, which is refused under its field."""
    number = parse_count(text.strip())
    return text if number is None else number


def _read_rows(form: Mapping[str, str], path: str, shape: Row) -> list[Row]:
    """The rows that were sent, in order; their numbers may have gaps."""
    begin = f"{path}."
    sent = {parse_count(name[len(begin) :].partition(".")[0]) for name in form if name.startswith(begin)}
    places = sorted(place for place in sent if place is not None)[:MAX_ROWS]
    return [
        {
            name: _read_rows(form, f"{path}.{place}.{name}", part)
            if isinstance(part, dict)
            else _text(form, f"{path}.{place}.{name}")
            for name, part in shape.items()
        }
        for place in places
    ]


def _find(rows: Row, path: str) -> tuple[list[Row] | None, Row, int | None]:
    """The rows that a path such as `http_tools.0.headers.1` is about, their shape, and which of them is meant."""
    found, shape, place = None, SHAPES, None
    for name, number in re.findall(r"(\w+)(?:\.(\d{1,3})\b)?", path):
        found, shape, place = rows.get(name), shape.get(name, {}), int(number) if number else None
        if found is None:
            break
        rows = found[place] if place is not None and place < len(found) else {}
    return found, shape, place


def _is_blank(value: Any) -> bool:
    """Whether nothing was typed."""
    if isinstance(value, dict):
        return all(_is_blank(part) for name, part in value.items() if name not in CHOSEN)
    return all(map(_is_blank, value)) if isinstance(value, list) else not value


def _written(rows: list[Row]) -> list[Row]:
    return [
        {name: _written(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in rows
        if not _is_blank(row)
    ]


def _header_rows(headers: Mapping[str, str]) -> list[Row]:
    return [{"header": header, "variable": name} for header, name in headers.items()]


def _with_headers(part: Row) -> Row:
    return {**part, "headers": _header_rows(part["headers_env"])}


def _tool_row(tool: Row) -> Row:
    needed = tool["parameters"].get("required") or []
    parameters = [
        {
            "name": name,
            "type": str(schema.get("type") or "string"),
            "description": str(schema.get("description") or ""),
            "required": "1" if name in needed else "",
        }
        for name, schema in (tool["parameters"].get("properties") or {}).items()
    ]
    return {**_with_headers(tool), "writes": "1" if tool["writes"] else "", "parameters": parameters}


def _tool(row: Row, place: int) -> dict[str, Any]:
    if any(row["name"] == tool.name for group in describe_groups() for tool in group.tools):
        raise Invalid.at(f"http_tools.{place}.name", f"{row['name']} is a built-in tool. Use another name.")
    return {name: row[name] for name in ("name", "description", "url")} | {
        "method": row["method"] or "GET",
        "parameters": _schema(row["parameters"], f"http_tools.{place}.parameters"),
        "writes": row["writes"] == "1",
        "headers_env": _headers(row["headers"]),
    }


def _headers(rows: list[Row]) -> dict[str, str]:
    return {row["header"]: row["variable"] for row in rows}


def _schema(rows: list[Row], path: str) -> dict[str, Any]:
    """What a tool takes, as the JSON schema that models read."""
    properties: dict[str, dict[str, str]] = {}
    for place, row in enumerate(rows):
        name = row["name"]
        if not name or name in properties:
            raise Invalid.at(f"{path}.{place}.name", f"Two are named {name}. Rename one." if name else "Enter a name.")
        properties[name] = {"type": row["type"] if row["type"] in TYPES else "string"}
        if row["description"]:
            properties[name]["description"] = row["description"]
    required = [row["name"] for row in rows if row["required"] == "1"]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema if properties else {}
