"""The API for people: one page from the same data as `/api/openapi.json`."""

import json
from typing import Any

from flask import render_template

from app.api.kit import problems
from app.api.ops import bp
from app.api.ops.openapi import described
from app.security.access import access

SERVICE = "Service"
Schema = dict[str, Any]


@bp.get("/api/docs")
@access("public", also="person")
def page() -> str:
    document = json.loads(described())
    return render_template(
        "api/docs.html", groups=group_operations(document), problems=problems.ABOUT, info=document["info"]
    )


def group_operations(document: Schema) -> dict[str, list[Schema]]:
    """Operations under the noun of their path; what only watchers ask comes last."""
    groups: dict[str, list[Schema]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = read_operation(document["components"]["schemas"], operation)
            groups.setdefault(group_of(path), []).append({"method": method.upper(), "path": path, **shown})
    return dict(sorted(groups.items(), key=lambda group: (group[0] == SERVICE, group[0])))


def group_of(path: str) -> str:
    words = [word for word in path.strip("/").split("/") if word not in {"api", "admin", "v1"} and "{" not in word]
    return words[0].capitalize() if path.startswith("/api/") and "." not in path else SERVICE


def read_operation(models: Schema, operation: Schema) -> Schema:
    """One operation as the page shows it; its fields are rows of name, type, required and about."""
    answer = model_of(models, next(iter(operation["responses"].values())))
    items = answer.get("properties", {}).get("items", {}).get("items")
    return {
        "id": operation["operationId"],
        "summary": operation["summary"],
        "about": operation["description"],
        "parameters": [
            field(one["name"], type_of(one["schema"]).removesuffix(" | null"), one["required"], one)
            for one in operation.get("parameters", [])
        ],
        "body": fields_in(model_of(models, operation.get("requestBody", {}))),
        "answers": [(status, response["description"]) for status, response in operation["responses"].items()],
        "answer": fields_in(answer),
        "item": fields_in(models[name_of(items)]) if items else [],
    }


def model_of(models: Schema, holder: Schema) -> Schema:
    """The model that a body or a response refers to; empty without one."""
    for content in holder.get("content", {}).values():
        if "$ref" in content.get("schema", {}):
            found: Schema = models[name_of(content["schema"])]
            return found
    return {}


def name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[1]


def fields_in(model: Schema) -> list[Schema]:
    required = set(model.get("required", []))
    return [
        field(name, type_of(schema), name in required, schema) for name, schema in model.get("properties", {}).items()
    ]


def field(name: str, kind: str, required: bool, described: Schema) -> Schema:
    return {"name": name, "type": kind, "required": required, "about": described.get("description", "")}


def type_of(schema: Schema) -> str:
    """A type in a few words."""
    if "$ref" in schema:
        return name_of(schema)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " | ".join(type_of(inner) for inner in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    kind = str(schema.get("format") or schema.get("type") or "any")
    if "maxLength" in schema:
        return f"{kind} up to {schema['maxLength']}"
    if "minimum" in schema and "maximum" in schema:
        return f"{kind} {schema['minimum']} to {schema['maximum']}"
    return kind
