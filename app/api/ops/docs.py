"""The API's documentation for people: an index with a search, and a page for each group of operations."""

import json
from typing import Any

from flask import abort, current_app, render_template, request

from app.api.kit import problems
from app.api.ops import bp
from app.api.ops.openapi import described
from app.security.access import access

MAX_QUERY = 100
Schema = dict[str, Any]


@bp.get("/api/docs")
@access("public", also="person")
def page() -> str:
    query = request.args.get("q", "")[:MAX_QUERY].strip()
    document = read_document()
    found = search_operations(document["groups"], query)
    return render_template("api/docs.html", groups=found, query=query, problems=problems.ABOUT, info=document["info"])


@bp.get("/api/docs/<name>")
@access("public", also="person")
def group_page(name: str) -> str:
    document = read_document()
    group = next((group for group in document["groups"] if group.lower().replace(" ", "-") == name), None)
    if group is None:
        abort(404)
    return render_template("api/group.html", group=group, operations=document["groups"][group], info=document["info"])


def read_document() -> Schema:
    """What the pages show. Routes never change while the process lives, so it is read once."""
    if "upshot.api_docs" not in current_app.extensions:
        document = json.loads(described())
        current_app.extensions["upshot.api_docs"] = {"info": document["info"], "groups": group_operations(document)}
    found: Schema = current_app.extensions["upshot.api_docs"]
    return found


def search_operations(groups: dict[str, list[Schema]], query: str) -> dict[str, list[Schema]]:
    """The operations that have every word of the query in their address, their texts or the names of their fields."""
    words = query.lower().split()
    found = {
        name: [one for one in group if all(word in one["text"] for word in words)] for name, group in groups.items()
    }
    return {name: group for name, group in found.items() if group}


def group_operations(document: Schema) -> dict[str, list[Schema]]:
    """Operations by their tag; the service's own come last."""
    groups: dict[str, list[Schema]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {"method": method.upper(), "path": path}
            shown |= read_operation(document["components"]["schemas"], operation)
            groups[operation["tags"][0]].append(shown | {"text": text_of(shown)})
    return groups


def text_of(operation: Schema) -> str:
    """Everything that a search looks at, in lower case."""
    names = [row["name"] for kind in ("parameters", "body", "answer", "item") for row in operation[kind]]
    parts = [operation["method"], operation["path"], operation["summary"], operation["about"], *names]
    return " ".join(parts).lower()


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
        "item": fields_in(models[referred_name(items)]) if items else [],
    }


def model_of(models: Schema, holder: Schema) -> Schema:
    """The model that a body or a response refers to; empty without one."""
    for content in holder.get("content", {}).values():
        if "$ref" in content.get("schema", {}):
            found: Schema = models[referred_name(content["schema"])]
            return found
    return {}


def referred_name(schema: Schema) -> str:
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
        return referred_name(schema)
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
