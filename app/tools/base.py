"""What a tool is: its name, arguments and permissions, and the function behind it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from app.actor import Actor
from app.services.sessions.events import NewEvent

# The groups in the order in which agents get their tools, with what pages say about them.
GROUPS = {
    "context": "Read and add knowledge of the workspace, and remember things about a person.",
    "feedback-review": "Read feedback and say what became of it.",
    "entities-read": "Find and read records.",
    "entities-write": "Make and change records, and submit responses about them.",
    "agents-admin": "Read other agents, and draft changes of them and of entity types.",
}


Limit = Annotated[int, Field(ge=1, le=100)]
Cursor = Annotated[str, Field(max_length=500, description="nextCursor of the page before.")]


class Arguments(BaseModel):
    """The arguments of a tool: exactly these names, in camelCase."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


class NoArguments(Arguments):
    pass


@dataclass(frozen=True)
class ToolScope:
    """Who a tool runs for, and in which session and call, if any."""

    actor: Actor
    session_id: UUID | None = None
    agent_id: UUID | None = None
    call_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The output of a tool as JSON, and the events for the session. `replay` says how a recording answered instead."""

    output: Any
    is_error: bool = False
    events: list[NewEvent] = field(default_factory=list)
    replay: dict[str, Any] | None = None


Call = Callable[[Any, ToolScope], Outcome]


@dataclass(frozen=True)
class Tool:
    """`role` is the lowest role that may use it, `scope` what a key must have that calls it or started the run; None
    needs nothing more. Only our tools have `arguments` to be checked against."""

    name: str
    group: str
    description: str
    parameters: dict[str, Any]
    writes: bool
    call: Call
    role: str = "member"
    scope: str | None = None
    arguments: type[Arguments] | None = None

    @property
    def transactional(self) -> bool:
        """Whether it runs in one transaction of ours. Tools of other programs do not."""
        return self.arguments is not None


# Every tool of ours, in the order in which they are declared.
DECLARED: list[Tool] = []


def tool(group: str, *, writes: bool = False, scope: str | None) -> Callable[[Call], Tool]:
    """Declare a function as a tool of its name. Models read its docstring as the description. Only admins use a tool
    that needs the scope `admin`."""

    def declare(call: Any) -> Tool:
        arguments: type[Arguments] = call.__annotations__["arguments"]
        about = " ".join(cleandoc(call.__doc__).split())
        role = "admin" if scope == "admin" else "member"
        name = to_camel(call.__name__)
        DECLARED.append(Tool(name, group, about, build_schema(arguments), writes, call, role, scope, arguments))
        return DECLARED[-1]

    return declare


def build_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Build a short JSON schema: no titles, no references, and optional arguments are not nullable. No argument of ours
    takes values of two types."""
    found = arguments.model_json_schema(by_alias=True)
    known = found.get("$defs", {})
    return {
        "type": "object",
        "properties": {name: _simplify(inner, known) for name, inner in found.get("properties", {}).items()},
        "required": found.get("required", []),
        "additionalProperties": False,
    }


def _simplify(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _simplify(known[schema["$ref"].rsplit("/", 1)[1]], known)
    shown = {name: value for name, value in schema.items() if name != "title"}
    if shown.get("default", 0) is None:
        del shown["default"]
    if "properties" in shown:
        shown["properties"] = {name: _simplify(inner, known) for name, inner in shown["properties"].items()}
    if isinstance(shown.get("items"), dict):
        shown["items"] = _simplify(shown["items"], known)
    kinds = [kind for kind in shown.pop("anyOf", []) if kind != {"type": "null"}]
    return _simplify(kinds[0], known) | shown if kinds else shown


def pick(row: object, *names: str) -> dict[str, Any]:
    """These attributes of a row, named in camelCase."""
    return {to_camel(name): getattr(row, name) for name in names}


def answer(*events: NewEvent, **output: Any) -> Outcome:
    """An outcome, with the events that say what was done."""
    stored = [NewEvent(event.event_type, to_jsonable_python(event.payload)) for event in events]
    return Outcome(to_jsonable_python(output), events=stored)
