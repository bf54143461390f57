"""The form of an agent: what was typed, in rows that are added and removed without a script too, and what is wrong.

Fields are named by their place in the configuration, such as `http_tools.0.url`, so that a sentence about a place finds
its field. Which row a button adds or removes is its value: `add:skills`, `remove:http_tools.0.headers.1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.errors import Invalid, Problem
from app.formats.agent_config import ENV_NAME, AgentConfig, HttpTool, McpServer, read_config
from app.formats.agent_config import HEADER as HEADER_NAME
from app.formats.agent_diff import LIMITS, Change
from app.services.agents.edit import Draft
from app.tools.describe import describe_groups
from app.views.forms import parse_count

KINDS = {
    "builtin": "Runs here: instructions, a model and tools.",
    "endpoint": "Runs behind an address of yours that takes a run and answers with events.",
    "external": "Runs elsewhere and reports its own sessions.",
}
TYPES = ("string", "number", "integer", "boolean", "array", "object")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SKILL = ("name", "text")
HEADER = ("header", "variable")
PARAMETER = ("name", "type", "description", "required")
HTTP_TOOL = ("name", "description", "url", "method", "writes")
MCP_SERVER = ("name", "url")
PARTS = {"skills": SKILL, "http_tools": HTTP_TOOL, "mcp_servers": MCP_SERVER, "endpoint_headers": HEADER}
WITHIN = {"headers": HEADER, "parameters": PARAMETER}
HAS = {"skills": (), "http_tools": ("headers", "parameters"), "mcp_servers": ("headers",), "endpoint_headers": ()}
MAX_ROWS = 40

Row = dict[str, Any]
Form = Mapping[str, str]


@dataclass(frozen=True)
class AgentForm:
    """`theirs` is what somebody else saved meanwhile, as the changes that saving this would make to it. `fresh` names
    the row that was just added."""

    kind: str = "builtin"
    slug: str = ""
    name: str = ""
    description: str = ""
    instructions: str = ""
    model: str = ""
    endpoint_url: str = ""
    groups: list[str] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {part: [] for part in PARTS})
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
        config = AgentConfig(tool_groups=["context", "entities-read"])
        return replace(cls.of_config(config), kind=kind if kind in KINDS else "builtin")

    @classmethod
    def of_config(cls, config: AgentConfig) -> AgentForm:
        return cls(
            instructions=config.instructions,
            model=config.model,
            endpoint_url=config.endpoint_url,
            groups=list(config.tool_groups),
            rows={
                "skills": [{"name": skill.name, "text": skill.text} for skill in config.skills],
                "http_tools": [_tool_row(tool) for tool in config.http_tools],
                "mcp_servers": [_server_row(server) for server in config.mcp_servers],
                "endpoint_headers": _header_rows(config.endpoint_headers_env),
            },
            limits={name: str(getattr(config.limits, name)) for name in LIMITS},
        )

    @classmethod
    def of(cls, content: Mapping[str, Any], version: int) -> AgentForm:
        """What a version holds, to be changed."""
        return replace(
            cls.of_config(read_config(dict(content))),
            kind=str(content.get("kind") or "external"),
            slug=str(content.get("slug") or ""),
            name=str(content.get("name") or ""),
            description=str(content.get("description") or ""),
            version=version,
        )

    @classmethod
    def read(cls, form: Any) -> AgentForm:
        """What was sent."""
        return cls(
            kind=form.get("kind", ""),
            slug=form.get("slug", ""),
            name=form.get("name", ""),
            description=form.get("description", ""),
            instructions=_text(form, "instructions"),
            model=form.get("model", "").strip(),
            endpoint_url=form.get("endpoint_url", "").strip(),
            groups=[str(name) for name in form.getlist("tool_groups")],
            rows={part: _read_rows(form, part) for part in PARTS},
            limits={name: form.get(f"limits.{name}", "") for name in LIMITS},
            note=form.get("note", ""),
            version=parse_count(form.get("version")) or 0,
        )

    def as_draft(self) -> Draft:
        """What was written, without the rows in which nothing was."""
        config: dict[str, Any] = {
            "instructions": self.instructions,
            "skills": [{"name": row["name"].strip(), "text": row["text"]} for row in self.rows["skills"]],
            "model": self.model,
            "tool_groups": self.groups,
            "http_tools": [_tool(row, place) for place, row in enumerate(self.rows["http_tools"])],
            "mcp_servers": [_server(row, place) for place, row in enumerate(self.rows["mcp_servers"])],
            "endpoint_url": self.endpoint_url,
            "endpoint_headers_env": _headers(self.rows["endpoint_headers"]),
            "limits": {name: _number(self.limits[name]) for name in LIMITS if self.limits.get(name)},
        }
        return Draft(self.kind, self.slug, self.name, self.description, config)

    def without_blanks(self) -> AgentForm:
        return replace(self, rows={part: _written(rows) for part, rows in self.rows.items()})

    def pressed(self, button: str) -> AgentForm | None:
        """The form with a row more or less, or None when the button is no such button."""
        action, colon, path = button.partition(":")
        if action not in {"add", "remove"} or not colon:
            return None
        rows, part, place = _find(self.rows, path)
        if rows is None:
            return None
        if action == "add" and place is None and len(rows) < MAX_ROWS:
            rows.append(_empty(part))
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
        rows = _find(self.rows, within)[0] or []
        for at, row in enumerate(rows):
            if not HEADER_NAME.fullmatch(row["header"]):
                return f"{within}.{at}.header"
            if not ENV_NAME.fullmatch(row["variable"]):
                return f"{within}.{at}.variable"
        return f"{path}.name" if path else "endpoint_url"

    def overtaken(self, sentence: str, theirs: list[Change], version: int) -> AgentForm:
        """The same form over the version that was saved meanwhile, so that saving again is a decision."""
        return replace(self, stale=sentence, theirs=theirs, version=version)


def _text(form: Form, name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n").strip()


def _number(text: str) -> Any:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


def _read_rows(form: Form, part: str) -> list[Row]:
    rows = []
    for place in _places(form, part):
        row: Row = {name: _text(form, f"{part}.{place}.{name}") for name in PARTS[part]}
        for inner in HAS[part]:
            path = f"{part}.{place}.{inner}"
            row[inner] = [
                {name: form.get(f"{path}.{one}.{name}", "").strip() for name in WITHIN[inner]}
                for one in _places(form, path)
            ]
        rows.append(row)
    return rows


def _places(form: Form, path: str) -> list[int]:
    """The numbers of the rows that were sent, in order; they may have gaps."""
    begin = f"{path}."
    found = {name[len(begin) :].partition(".")[0] for name in form if name.startswith(begin)}
    return sorted(int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 4)[:MAX_ROWS]


def _find(rows: dict[str, list[Row]], path: str) -> tuple[list[Row] | None, str, int | None]:
    """The rows that a path such as `http_tools.0.headers.1` is about, what they are, and which of them is meant."""
    part, _, rest = path.partition(".")
    found: Any = rows.get(part)
    numbers = rest.split(".") if rest else []
    if found is not None and len(numbers) >= 2:
        outer, inner = _place(numbers[0]), numbers[1]
        if outer is None or outer >= len(found) or inner not in HAS[part]:
            return None, "", None
        found, part, numbers = found[outer][inner], inner, numbers[2:]
    if found is None or len(numbers) > 1:
        return None, "", None
    return found, part, _place(numbers[0]) if numbers else None


def _place(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None


def _empty(part: str) -> Row:
    row: Row = dict.fromkeys(PARTS.get(part) or WITHIN[part], "")
    return row | {inner: [] for inner in HAS.get(part, ())}


def _blank(row: Row) -> bool:
    """Nothing was typed. What is chosen from a list is always there and counts for nothing."""
    chosen = {"method", "writes", "type", "required"}
    return not any(
        any(not _blank(inner) for inner in value) if isinstance(value, list) else value
        for name, value in row.items()
        if name not in chosen
    )


def _written(rows: Sequence[Row]) -> list[Row]:
    return [
        {name: _written(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in rows
        if not _blank(row)
    ]


def _tool_row(tool: HttpTool) -> Row:
    needed = tool.parameters.get("required") or []
    known: dict[str, Any] = tool.parameters.get("properties") or {}
    return {
        "name": tool.name,
        "description": tool.description,
        "url": tool.url,
        "method": tool.method,
        "writes": "1" if tool.writes else "",
        "headers": _header_rows(tool.headers_env),
        "parameters": [
            {
                "name": name,
                "type": str(schema.get("type") or "string"),
                "description": str(schema.get("description") or ""),
                "required": "1" if name in needed else "",
            }
            for name, schema in known.items()
        ],
    }


def _server_row(server: McpServer) -> Row:
    return {"name": server.name, "url": server.url, "headers": _header_rows(server.headers_env)}


def _header_rows(headers: Mapping[str, str]) -> list[Row]:
    return [{"header": header, "variable": name} for header, name in headers.items()]


def _tool(row: Row, place: int) -> dict[str, Any]:
    if any(row["name"] == tool.name for group in describe_groups() for tool in group.tools):
        sentence = f"{row['name']} is a tool of ours; give yours another name."
        raise Invalid(sentence, {f"http_tools.{place}.name": sentence})
    return {
        "name": row["name"],
        "description": row["description"],
        "url": row["url"],
        "method": row["method"] or "GET",
        "parameters": _schema(row["parameters"], f"http_tools.{place}.parameters"),
        "writes": row["writes"] == "1",
        "headers_env": _headers(row["headers"]),
    }


def _server(row: Row, place: int) -> dict[str, Any]:
    return {"name": row["name"], "url": row["url"], "headers_env": _headers(row["headers"])}


def _headers(rows: Sequence[Row]) -> dict[str, str]:
    return {row["header"]: row["variable"] for row in rows if not _blank(row)}


def _schema(rows: Sequence[Row], path: str) -> dict[str, Any]:
    """What a tool takes, as the JSON schema that models read."""
    kept = [row for row in rows if not _blank(row)]
    names = [row["name"] for row in kept]
    for place, name in enumerate(names):
        if not name or name in names[:place]:
            sentence = f"There are two called {name}." if name else "Give it a name."
            raise Invalid(sentence, {f"{path}.{place}.name": sentence})
    if not kept:
        return {}
    properties = {
        row["name"]: {"type": row["type"] if row["type"] in TYPES else "string"}
        | ({"description": row["description"]} if row["description"] else {})
        for row in kept
    }
    required = [row["name"] for row in kept if row["required"] == "1"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
