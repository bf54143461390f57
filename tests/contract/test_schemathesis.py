"""Every JSON route answers what its description says, to what fits the description and to what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conftest import Api, Workspace

pytestmark = pytest.mark.exhaustive

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
# The same examples every time, and few of them: whoever wants more raises the number for an afternoon.
FEW = settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.serializer("application/x-ndjson")
def lines(_context: Any, value: Any) -> bytes:
    """A file of lines is sent as the text it is."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


def test_answers_are_as_described(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    key = api(workspace.actor("owner"), "admin").key
    schema = schemathesis.openapi.from_dict(described(app))
    schema.app = app
    answers: list[int] = []
    troubles: list[str] = []
    for found in schema.get_all_operations():
        for mode in GenerationMode:
            troubles += try_out(found.ok(), mode, key, answers)
    assert not troubles, "\n\n".join(troubles)
    assert {200, 201, 204, 400, 404} <= set(answers)


def described(app: Flask) -> dict[str, Any]:
    """The public description. Every request carries the key, so that none is spent on being refused at the gate."""
    document: dict[str, Any] = json.loads(app.test_client().get("/api/openapi.json").data)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return document


def try_out(operation: Any, mode: GenerationMode, key: str, answers: list[int]) -> list[str]:
    """Send a few requests that fit, or do not; note how they were answered and give back what is wrong with that."""

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {key}"})
        answers.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    try:
        send()
    except Unsatisfiable:
        return []  # A route that takes nothing can be sent nothing wrong.
    except (Failure, FailureGroup) as trouble:
        parts = getattr(trouble, "exceptions", (trouble,))
        return [f"{operation.label} ({mode.value}): {part}" for part in parts]
    return []
