"""OpenAPI 3.1, made from what the routes declare."""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, current_app
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from app.api.kit import problems
from app.api.kit.fields import Answer
from app.api.kit.route import Declared, route
from app.api.ops import bp

ROLES = {
    "public": "No key needed.",
    "signed_in": "For everyone in the workspace.",
    "member": "Needs a key with the scope `{scope}`.",
    "admin": "Needs an admin's key with the scope `{scope}`.",
    "owner": "Needs an owner's key with the scope `{scope}`.",
}
VARIABLE = re.compile(r"<(?:(\w+)(?:\([^)]*\))?:)?(\w+)>")
SERVICE = "Service"
# The tag of an operation is the noun of its path, or another word where people say it otherwise.
TAGS = {"shared-context": "Knowledge", "import": "Imports", "hooks": "Evals", "conversations": "Reactions"}
REFERENCE = "#/components/schemas/{model}"
ABOUT = (
    "Send feedback and sessions, get knowledge. Authenticate with `Authorization: Bearer KEY` and a key from "
    "Settings. Bodies are JSON up to 1 MiB. Unknown fields are refused. Times are RFC 3339 with an offset. "
    "Errors are `application/problem+json`."
)


class FieldError(Answer):
    field: str
    message: str


class ProblemDocument(Answer):
    """What went wrong and what to change (RFC 9457). `errors` lists invalid fields."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FieldError] = []


@route(bp, "GET", "/api/openapi.json", access=("public", None), transactional=False)
def document() -> Response:
    """Get the OpenAPI document. OpenAPI 3.1 for every JSON route."""
    return Response(described(), mimetype="application/json", headers={"Cache-Control": "no-cache"})


def described() -> str:
    """The document as text. Routes never change while the process lives, so it is made once."""
    if "upshot.openapi" not in current_app.extensions:
        current_app.extensions["upshot.openapi"] = json.dumps(describe(current_app), ensure_ascii=False)
    return str(current_app.extensions["upshot.openapi"])


def declared_routes(app: Flask) -> list[Declared]:
    """Every JSON route, in order of path and method."""
    views = [app.view_functions[rule.endpoint] for rule in app.url_map.iter_rules()]
    found = [view.declared for view in views if hasattr(view, "declared")]
    return sorted(found, key=lambda declared: (declared.path, declared.method))


def describe(app: Flask) -> dict[str, Any]:
    routes = declared_routes(app)
    paths: dict[str, Any] = {}
    for declared in routes:
        paths.setdefault(VARIABLE.sub(r"{\2}", declared.path), {})[declared.method.lower()] = operation(declared)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Upshot", "version": app.config["VERSION"], "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags_of(routes)],
        "paths": paths,
        "components": {
            "schemas": schemas(routes),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def operation(declared: Declared) -> dict[str, Any]:
    level, scope = declared.access
    # A public route that takes a key says for itself what for.
    role = "" if level == "public" and scope else ROLES[level].format(scope=scope)
    found: dict[str, Any] = {
        "operationId": name_of(declared),
        "tags": [tag_of(declared.path)],
        "summary": declared.summary,
        "description": f"{declared.about} {role}".strip(),
        "responses": {str(status): body for status, body in responses(declared)},
    }
    parameters = list(parameters_of(declared))
    if parameters:
        found["parameters"] = parameters
    if declared.body is not None:
        found["requestBody"] = {"required": True, "content": content("application/json", declared.body)}
    elif declared.reads is not None:
        found["requestBody"] = {"required": True, "content": {declared.reads: {"schema": {"type": "string"}}}}
    if scope is not None:
        found["security"] = [{"key": []}, *([{}] if level == "public" else [])]
    return found


def tags_of(routes: list[Declared]) -> list[str]:
    """Every tag, in order; the service's own operations come last."""
    return sorted({tag_of(declared.path) for declared in routes}, key=lambda tag: (tag == SERVICE, tag))


def tag_of(path: str) -> str:
    words = [word for word in path.strip("/").split("/") if word not in {"api", "admin", "v1"}]
    if words[0] in TAGS:
        return TAGS[words[0]]
    return words[0].capitalize().replace("-", " ") if path.startswith("/api/") and "." not in path else SERVICE


def name_of(declared: Declared) -> str:
    words = re.findall(r"[A-Za-z0-9]+", VARIABLE.sub("one", declared.path))
    return "_".join([declared.method.lower(), *words])


def parameters_of(declared: Declared) -> Iterator[dict[str, Any]]:
    for kind, name in VARIABLE.findall(declared.path):
        schema = {"type": "string", "format": "uuid"} if kind == "uuid" else {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if declared.query is not None:
        model = declared.query.model_json_schema(mode="validation")
        for name, inner in model["properties"].items():
            about = inner.pop("description", None)
            shown = {"name": name, "in": "query", "required": name in model.get("required", []), "schema": inner}
            yield shown | ({"description": about} if about else {})
    if declared.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "Repeating a request with the same key and body within 24 hours returns the first answer.",
        }


def responses(declared: Declared) -> Iterator[tuple[int | str, dict[str, Any]]]:
    """What may come back: the answer, what the declaration adds, and what any such route can refuse."""
    good: dict[str, Any] = {"description": HTTPStatus(declared.status).phrase}
    if declared.answer is not None:
        good["content"] = content(declared.media_type, declared.answer)
    elif declared.status != HTTPStatus.NO_CONTENT:
        good["content"] = {one: {} for one in declared.media_type.split(", ")}
    yield declared.status, good
    refusals = dict.fromkeys(refusals_of(declared)) | declared.also
    for status in sorted(refusals):
        about = refusals[status] or problems.ABOUT[status]
        if status < HTTPStatus.BAD_REQUEST:
            yield status, good | {"description": about}
        else:
            yield status, {"description": about, "content": content(problems.MEDIA_TYPE, ProblemDocument)}


def refusals_of(declared: Declared) -> Iterator[int]:
    if declared.body is not None or declared.query is not None:
        yield 400
    if declared.body is not None:
        yield from (413, 415)
    if declared.access[0] != "public":
        yield from (401, 403, 429, 503)
    if "<" in declared.path:
        yield 404
    if declared.idempotent:
        yield 409


def content(media_type: str, model: type[BaseModel]) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": REFERENCE.format(model=model.__name__)}}}


def schemas(routes: list[Declared]) -> dict[str, Any]:
    """Every model by its own name; two that share one would hide each other, so the names must differ."""
    bodies: list[Any] = [(route.body, "validation") for route in routes if route.body]
    answers: list[Any] = [(route.answer, "serialization") for route in routes if route.answer]
    _, found = models_json_schema([*bodies, *answers, (ProblemDocument, "serialization")], ref_template=REFERENCE)
    definitions: dict[str, Any] = found["$defs"]
    return dict(sorted(definitions.items()))
