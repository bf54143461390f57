"""What a tool is: its name, arguments and permissions, and the function behind it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from app.actor import Actor
from app.services.sessions.events import NewEvent

GROUPS = ("context", "feedback-review", "entities-read", "entities-write", "agents-admin")


def read_id(value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        raise ValueError("Give an id (a UUID).") from None


Id = Annotated[UUID, BeforeValidator(read_id), WithJsonSchema({"type": "string", "format": "uuid"})]


class Arguments(BaseModel):
    """The arguments of a tool: exactly these names, in camelCase."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


class NoArguments(Arguments):
    pass


@dataclass(frozen=True)
class ToolScope:
    """Who a tool runs for, and in which session, record and call, if any."""

    actor: Actor
    session_id: UUID | None = None
    agent_id: UUID | None = None
    entity_id: UUID | None = None
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
    needs nothing more. Our tools are checked against `arguments` and run in one transaction; tools of other programs
    have neither."""

    name: str
    group: str
    description: str
    parameters: dict[str, Any]
    writes: bool
    role: str
    call: Call
    scope: str | None
    arguments: type[Arguments] | None = None
    transactional: bool = True


def tool(
    name: str, group: str, arguments: type[Arguments], *, writes: bool = False, role: str = "member", scope: str | None
) -> Callable[[Call], Tool]:
    """Declare a function as a tool. Models read its docstring as the description."""

    def declare(call: Call) -> Tool:
        about = " ".join(cleandoc(call.__doc__ or "").split())
        return Tool(name, group, about, build_schema(arguments), writes, role, call, scope, arguments)

    return declare


def build_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Build a short JSON schema: no titles, no references, and optional arguments are not nullable."""
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
    if len(kinds) == 1:
        return _simplify(kinds[0], known) | shown
    return shown | ({"anyOf": [_simplify(kind, known) for kind in kinds]} if kinds else {})


def to_json(value: Any) -> Any:
    return to_jsonable_python(value)


def answer(**output: Any) -> Outcome:
    """An outcome without an event."""
    return Outcome(to_json(output))


def answer_with_event(event_type: str, payload: dict[str, Any], **output: Any) -> Outcome:
    """An outcome with the event that says what was done."""
    return Outcome(to_json(output), events=[NewEvent(event_type, to_json(payload))])
