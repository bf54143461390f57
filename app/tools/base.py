"""What a tool is: a name, what it takes, whether it changes anything, who may use it, and the verb behind it."""

from __future__ import annotations

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
    """What a tool takes: exactly these names, in camelCase."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


@dataclass(frozen=True)
class ToolScope:
    """For whom a tool runs and where: the session and its record if there are any, and the call that it answers."""

    actor: Actor
    session_id: UUID | None = None
    agent_id: UUID | None = None
    entity_id: UUID | None = None
    call_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a tool answers, in JSON's types, and what it did, for the session's events. `replay` says how a recording
    answered in its place."""

    output: Any
    is_error: bool = False
    events: list[NewEvent] = field(default_factory=list)
    replay: dict[str, Any] | None = None


Call = Callable[[Any, ToolScope], Outcome]


@dataclass(frozen=True)
class Tool:
    """`role` is the least role that may use it, `scope` what a key must have, also a key that started the run in which
    an agent uses it; None asks for nothing beyond having started the run. Tools of ours are checked against
    `arguments` and work in one transaction; one that calls somebody else's program has neither."""

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
    """Declare a function as a tool. Its docstring is what models read."""

    def declare(call: Call) -> Tool:
        about = " ".join(cleandoc(call.__doc__ or "").split())
        return Tool(name, group, about, schema_of(arguments), writes, role, call, scope, arguments)

    return declare


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema, as short as it can be: no titles or references; what may be left out is not also nullable."""
    found = arguments.model_json_schema(by_alias=True)
    known = found.get("$defs", {})
    return {
        "type": "object",
        "properties": {name: _short(inner, known) for name, inner in found.get("properties", {}).items()},
        "required": found.get("required", []),
        "additionalProperties": False,
    }


def _short(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _short(known[schema["$ref"].rsplit("/", 1)[1]], known)
    shown = {name: value for name, value in schema.items() if name != "title"}
    if shown.get("default", 0) is None:
        del shown["default"]
    if "properties" in shown:
        shown["properties"] = {name: _short(inner, known) for name, inner in shown["properties"].items()}
    if isinstance(shown.get("items"), dict):
        shown["items"] = _short(shown["items"], known)
    kinds = [kind for kind in shown.pop("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return _short(kinds[0], known) | shown
    return shown | ({"anyOf": [_short(kind, known) for kind in kinds]} if kinds else {})


def plain(value: Any) -> Any:
    """The same in JSON's types."""
    return to_jsonable_python(value)


def answer(**output: Any) -> Outcome:
    """An answer that changed nothing."""
    return Outcome(plain(output))


def did(event_type: str, payload: dict[str, Any], **output: Any) -> Outcome:
    """An answer and the event that says what was done."""
    return Outcome(plain(output), events=[NewEvent(event_type, plain(payload))])
