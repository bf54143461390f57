"""The API for people: one page from the same data as `/api/openapi.json`."""

import json
from dataclasses import dataclass, field
from typing import Any

from flask import render_template

from app.api.kit import problems
from app.api.ops import bp
from app.api.ops.openapi import described
from app.security.access import access

SERVICE = "Service"


@dataclass(frozen=True)
class Field:
    """One row of a table: a field of a body or an answer, or a parameter."""

    name: str
    type: str
    required: bool
    about: str


@dataclass(frozen=True)
class Operation:
    """One route as the page shows it."""

    id: str
    method: str
    path: str
    summary: str
    about: str
    parameters: list[Field] = field(default_factory=list)
    body: list[Field] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    answer: list[Field] = field(default_factory=list)
    item: list[Field] = field(default_factory=list)


@bp.get("/api/docs")
@access("public", also="person")
def page() -> str:
    document = json.loads(described())
    return render_template(
        "api/docs.html", groups=group_operations(document), problems=problems.ABOUT, info=document["info"]
    )


def group_operations(document: dict[str, Any]) -> dict[str, list[Operation]]:
    """Operations under the noun of their path; what only watchers ask comes last."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(group_of(path), []).append(read_operation(document, method.upper(), path, operation))
    return dict(sorted(groups.items(), key=lambda group: (group[0] == SERVICE, group[0])))


def group_of(path: str) -> str:
    words = [word for word in path.strip("/").split("/") if word not in {"api", "admin", "v1"} and "{" not in word]
    return words[0].capitalize() if path.startswith("/api/") and "." not in path else SERVICE


def read_operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> Operation:
    answers = [(status, response["description"]) for status, response in operation["responses"].items()]
    good = next(iter(operation["responses"].values()))
    return Operation(
        id=operation["operationId"],
        method=method,
        path=path,
        summary=operation["summary"],
        about=operation["description"],
        parameters=[
            Field(
                one["name"], type_of(one["schema"]).removesuffix(" | null"), one["required"], one.get("description", "")
            )
            for one in operation.get("parameters", [])
        ],
        body=fields_of(document, operation.get("requestBody", {})),
        answers=answers,
        answer=fields_of(document, good),
        item=fields_of_items(document, good),
    )


def fields_of(document: dict[str, Any], holder: dict[str, Any]) -> list[Field]:
    """The fields of the model that a body or a response refers to."""
    for content in holder.get("content", {}).values():
        if "$ref" in content.get("schema", {}):
            return fields_in(model_of(document, content["schema"]))
    return []


def fields_of_items(document: dict[str, Any], holder: dict[str, Any]) -> list[Field]:
    """The fields of what a list holds."""
    for content in holder.get("content", {}).values():
        if "schema" in content:
            items = model_of(document, content["schema"]).get("properties", {}).get("items", {}).get("items")
            return fields_in(model_of(document, items)) if items else []
    return []


def model_of(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def fields_in(model: dict[str, Any]) -> list[Field]:
    required = set(model.get("required", []))
    return [
        Field(name, type_of(schema), name in required, schema.get("description", ""))
        for name, schema in model.get("properties", {}).items()
    ]


def type_of(schema: dict[str, Any]) -> str:
    """A type in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " | ".join(type_of(inner) for inner in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    bounds = limits_of(schema)
    return " ".join(filter(None, [schema.get("format") or schema.get("type") or "any", bounds]))


def limits_of(schema: dict[str, Any]) -> str:
    if "maxLength" in schema:
        return f"up to {schema['maxLength']}"
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    return ""
