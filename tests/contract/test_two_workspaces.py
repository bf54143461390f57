"""Every route with every id of another workspace answers as for an id that nobody has, and changes nothing there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from flask import Flask
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from tests.db.rows import ROWS, fill

pytestmark = pytest.mark.exhaustive

# What an argument of an address is the id of. One that is not named here is asked with the id of every table.
TABLES = {
    "session_id": "sessions", "golden_id": "sessions", "replay_id": "sessions", "chat_id": "chats",
    "conversation_id": "chats", "row_id": "shared_context", "agent_id": "agents", "run_id": "eval_runs",
    "feedback_id": "feedback", "task_id": "tasks", "entity_id": "entities", "view_id": "saved_views",
    "import_id": "imports", "user_id": "users", "event_id": "session_events", "response_id": "entity_responses",
    "login_id": "login_sessions", "memory_id": "user_memories", "key_id": "api_keys", "invite_id": "one_time_links",
    "comment_id": "feedback_comments", "draft_id": "change_drafts", "pattern_id": "feedback_patterns",
    "webhook_id": "webhooks", "criteria_set_id": "criteria_sets",
}  # fmt: skip
# Not ids of ours, or the same for everyone.
OTHER_ARGUMENTS = {"tenant", "project", "index", "turn_id"}
# One form that fits them all: views read the fields they know.
FORM = {
    "action": "reviewed", "notes": "n", "rating": "negative", "comment": "c", "body": "b", "reason": "r",
    "state": "inactive",
    "content": "New text", "type": "lesson", "version": "1", "status": "accepted", "rejection_reason": "r", "name": "N",
    "slug": "n", "role": "member", "signal": "helpful", "do": "give", "text": "t", "accuracy": "50", "query": "",
}  # fmt: skip
JSON = {
    "/api/admin/shared-context/<uuid:row_id>": {"content": "New text", "version": 1},
    "/api/feedback/<uuid:feedback_id>": {"action": "reviewed", "notes": "n"},
    "/api/v1/chats/<uuid:chat_id>/messages": {"messages": [{"role": "user", "content": "c"}]},
    "/api/v1/responses/<uuid:response_id>": {"status": "accepted"},
    "/api/v1/sessions/<uuid:session_id>": {"status": "cancelled"},
    "/api/v1/sessions/<uuid:session_id>/events": {"events": [{"event_type": "user.message", "payload": {"text": "t"}}]},
    "/conversations/<tenant>/<project>/<conversation_id>/turns-with-feedbacks": {},
    "/conversations/<tenant>/<project>/<conversation_id>/turns/<turn_id>/feedback": {"reaction": "ok"},
}


def with_ids(app: Flask) -> Iterator[tuple[Rule, str]]:
    for rule in app.url_map.iter_rules():
        names = {name for name in rule.arguments if rule._converters[name].__class__.__name__ == "UUIDConverter"}
        if names or "conversation_id" in rule.arguments:
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield rule, method


def address(app: Flask, rule: Rule, slug: str, found: UUID) -> str:
    values: dict[str, Any] = dict.fromkeys(rule.arguments, found)
    values |= {"index": 0, "tenant": slug, "project": "default", "turn_id": "t0"}
    with app.test_request_context():
        return str(rule.build({name: values[name] for name in rule.arguments})[1])  # type: ignore[index]


def comparable(response: TestResponse, asked: UUID) -> tuple[int, str]:
    """The answer without what differs from request to request."""
    text = response.get_data(as_text=True).replace(str(asked), "ID").replace(str(asked)[:8], "ID")
    text = re.sub(r'"request_id": ?"\w+"|<code[^>]*>\w{16}</code>', "", text)
    return response.status_code, re.sub(r"\b[0-9a-f]{16}\b", "", text)


def checksum(superuser_url: str, tenant: UUID) -> dict[str, str]:
    with psycopg.connect(superuser_url) as connection:
        seen = {}
        for table in ROWS:
            rows = connection.execute(
                f"select t::text from {table} t where tenant_id = %s order by 1", (tenant,)
            ).fetchall()  # type: ignore[call-overload]
            seen[table] = hashlib.sha256(repr(rows).encode()).hexdigest()
        return seen


def tables_of(rule: Rule, tables: Iterable[str]) -> set[str]:
    """The tables whose ids a route is asked with: those of its arguments, and two that most things hang on."""
    arguments = rule.arguments - OTHER_ARGUMENTS
    return {TABLES[name] for name in arguments} | {"sessions", "users"} if arguments <= TABLES.keys() else {*tables}


def test_the_ids_of_another_workspace_are_unknown(
    app: Flask, app_url: str, superuser_url: str, workspace: Any, sign_in: Callable[..., Any], api: Callable[..., Any],
) -> None:  # fmt: skip
    theirs = fill(app_url)
    ids = {table: theirs[table] for table in ROWS if table != "feedback_daily"} | {"users": theirs.user}
    before = checksum(superuser_url, theirs.tenant)
    browser, key = sign_in(workspace.actor("admin")), api(workspace.actor("admin"))

    def ask(rule: Rule, method: str, found: UUID) -> tuple[int, str]:
        path = address(app, rule, workspace.slug, found)
        if path.startswith(("/api/", "/conversations/")):
            return comparable(key.request(method, path, JSON.get(rule.rule)), found)
        form = FORM | {"csrf_token": browser.csrf, "response_id": str(found), "into": str(found)}
        if method == "GET":
            return comparable(browser.get(path), found)
        # As pages send it: a refusal is then a toast, without the frame of a page that is the same for every id.
        return comparable(browser.open(path, method=method, data=form, headers={"HX-Request": "true"}), found)

    asked, wrong = 0, []
    for rule, method in with_ids(app):
        unknown = ask(rule, method, uuid4())
        for table in tables_of(rule, ids):
            asked += 1
            if ask(rule, method, ids[table]) != unknown:
                wrong.append(f"{method} {rule.rule} tells {table} apart")
        if unknown[0] < 400 and not rule.rule.startswith("/conversations/"):
            wrong.append(f"{method} {rule.rule} answers {unknown[0]} for an id that nobody has")
    assert not wrong, "\n".join(wrong)
    assert asked > 250
    assert checksum(superuser_url, theirs.tenant) == before


def test_many_ids_at_once_leave_another_workspace_alone(
    app_url: str, superuser_url: str, workspace: Any, sign_in: Callable[..., Any]
) -> None:
    theirs = fill(app_url)
    before = checksum(superuser_url, theirs.tenant)
    browser = sign_in(workspace.actor("admin"))
    for path, found in (
        ("/admin/agent-review/feedback/review", theirs["feedback"]),
        ("/admin/agent-review/sessions/delete/confirmed", theirs["sessions"]),
    ):
        answers = [
            comparable(
                browser.post(path, data=FORM | {"csrf_token": browser.csrf, "ids": str(one), "sure": "yes"}), one
            )
            for one in (found, uuid4())
        ]
        assert answers[0] == answers[1], path
        assert answers[0][0] in {303, 404, 409, 422}, (path, answers[0][0])
    assert checksum(superuser_url, theirs.tenant) == before
