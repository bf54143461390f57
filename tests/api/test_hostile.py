"""Whatever is sent, the answer is never a fault of ours, and what is accepted is stored."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from flask import Flask
from sqlalchemy import func, select

from app.db import acting_as, db
from app.models.feedback import Feedback
from tests.conftest import Api, Workspace

PATH = "/api/feedback"
NASTY: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    10**299,
    1e308,
    "",
    " ",
    "x" * 5000,
    "\x00",
    "\ud800",
    "\u202e",
    "😀",
    "' or 1=1 --",
    "{{7*7}}",
    "<script>",
    "%s%n",
    "../../etc/passwd",
    "now",
    "infinity",
    "2026-01-01T00:00:00Z",
    "00000000-0000-0000-0000-000000000000",
    [],
    {},
    [[]],
    {"": ""},
    {"a": None},
    ["x"] * 50,
    {"message_index": 10**20},
    {"chat_id": "x"},
    {"tool_slug": "x"},
    "positive",
    "chat",
]
FIELDS = [
    "source_type",
    "rating",
    "comment",
    "session_id",
    "entity_id",
    "agent_id",
    "agent",
    "context",
    "details",
    "occurred_at",
    "ts",
    "trace_id",
    "chat_id",
    "message_id",
    "turn_id",
    "project",
    "action",
    "notes",
    "status",
    "tenant_id",
    "__proto__",
    "",
]
RAW = [
    b"",
    b"{",
    b"[" * 5000,
    b"\xff\xfe",
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a": 1, "a": 2}',
    b"9" * 6000,
    b'{"\\u0000": 1}',
    b'"\\ud800"',
    b'{"rating": "positive", "source_type": "chat", "comment": "\\udfff"}',
    b'{"comment":' + b"[" * 100 + b"]" * 100 + b"}",
]
QUERIES = [
    "limit=%F0%9F%98%80",
    "limit=" + "9" * 400,
    "cursor=YXw",
    "cursor=" + "A" * 300,
    "status=%00",
    "agent_id=%ff",
    "rating[]=x",
    "a=b",
    "cursor=YXwwMDAxLTAxLTAxVDAwOjAwOjAwKzE0OjAwfDAwMDAwMDAwLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwMA",
    "limit=1&limit=2",
    "%00=%00",
    "&&==&",
]


def test_three_hundred_hostile_requests(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    chance = random.Random(20260302)
    admin = api(workspace.actor("admin"), "admin")
    headers = {"Authorization": f"Bearer {admin.key}", "Content-Type": "application/json"}
    accepted = 0
    for _ in range(300):
        method, path, body = sent = any_request(chance)
        response = admin.client.open(path, method=method, data=body, headers=headers)
        assert response.status_code < 500, (sent, response.get_data(as_text=True))
        assert response.is_json or response.mimetype == "application/problem+json", sent
        assert response.status_code < 400 or "Traceback" not in response.get_data(as_text=True)
        accepted += method == "POST" and response.status_code == 201
    with app.app_context(), acting_as(workspace.actor("admin")):
        assert db.session.scalar(select(func.count()).select_from(Feedback)) == accepted > 0


def any_request(chance: random.Random) -> tuple[str, str, bytes]:
    kind = chance.random()
    if kind < 0.1:
        return "POST", PATH, chance.choice(RAW)
    if kind < 0.25:
        return "GET", f"{PATH}?{'&'.join(chance.sample(QUERIES, chance.randint(1, 2)))}", b""
    if kind < 0.35:
        return (
            "PATCH",
            f"{PATH}/{chance.choice(['x', '%00', '00000000-0000-0000-0000-000000000000'])}",
            any_body(chance),
        )
    if kind < 0.45:
        return "PATCH", "/api/admin/settings", any_body(chance)
    return "POST", PATH, any_body(chance)


def any_body(chance: random.Random) -> bytes:
    """A good body with one or two things wrong, or right by accident."""
    body: dict[str, Any] = {"source_type": "chat", "rating": "negative", "comment": "It says so in the report."}
    for _ in range(chance.randint(0, 2)):
        body[chance.choice(FIELDS)] = chance.choice(NASTY)
    return json.dumps(body).encode()
