"""Every address says who may reach it, and the gate holds it to that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from app.actor import SCOPES
from app.security import access
from tests.conftest import Api, Workspace

pytestmark = pytest.mark.exhaustive

# Whoever adds to this list opens an address to the whole world.
PUBLIC = {
    "static",
    "layout.theme",
    "auth.sign_in",
    "auth.sign_in_with_password",
    "auth.enter_demo",
    "auth.link",
    "auth.use_link",
    "auth.invitation",
    "auth.accept_invitation",
    "api_ops.healthz",
    "api_ops.readyz",
    "api_ops.document",
    "api_ops.page",
    "api_ops.group_page",
    "api_ops.metrics",
    "cors.preflight",
}
# These check for themselves: figures are for the machine itself, its operator and admin keys.
CHECKED_INSIDE = {"api_ops.metrics"}
SAFE = {"GET", "HEAD", "OPTIONS"}
ELSEWHERE = {"REMOTE_ADDR": "203.0.113.9"}


def rules(app: Flask) -> Iterator[tuple[Rule, str]]:
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"OPTIONS", "HEAD"}):
            yield rule, method


def declared(app: Flask, rule: Rule) -> access.Access:
    found = access.access_of(app, rule.endpoint)
    assert found is not None, f"{rule.endpoint} does not declare who may reach it"
    return found


def address(app: Flask, rule: Rule) -> str:
    """The rule's address with made-up values in it."""
    values = {name: uuid4() if "UUID" in type(rule._converters[name]).__name__ else 7 for name in rule.arguments}
    for name in rule.arguments:
        if type(rule._converters[name]).__name__ in {"UnicodeConverter", "PathConverter", "AnyConverter"}:
            values[name] = uuid4().hex  # type: ignore[assignment]
    with app.test_request_context():
        path = app.url_map.bind("localhost").build(rule.endpoint, values, append_unknown=False)
    return str(path)


def test_every_route_declares_its_access(app: Flask) -> None:
    for rule, _ in rules(app):
        declared(app, rule)


def test_what_is_public_is_what_is_listed(app: Flask) -> None:
    public = {rule.endpoint for rule in app.url_map.iter_rules() if declared(app, rule).level == "public"}
    assert public == PUBLIC


def test_nobody_gets_past_the_gate_without_signing_in(app: Flask) -> None:
    client = app.test_client()
    for rule, method in rules(app):
        if rule.endpoint in PUBLIC - CHECKED_INSIDE:
            continue
        response = client.open(address(app, rule), method=method, environ_overrides=ELSEWHERE)
        to_sign_in = response.status_code == 303 and response.location.startswith("/sign-in")
        assert response.status_code in {401, 403} or to_sign_in, (method, rule.rule, response.status)


def test_a_route_without_a_declaration_answers_nobody(app: Flask) -> None:
    other = Flask("other")
    other.add_url_rule("/open", "open", lambda: "open")
    assert access.access_of(other, "open") is None
    assert access.access_of(other, None) is None


def test_members_get_403_wherever_admins_are_wanted(
    app: Flask, workspace: Workspace, sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    browser = sign_in(workspace.actor("member"))
    every_scope = api(workspace.actor("member"), *SCOPES)
    admin_without_scope = api(workspace.actor("admin"), *(scope for scope in SCOPES if scope != "admin"))
    checked = 0
    for rule, method in rules(app):
        found = declared(app, rule)
        if found.level not in {"admin", "owner"}:
            continue
        checked += 1
        path = address(app, rule)
        headers = {"X-CSRFToken": browser.csrf}
        assert browser.open(path, method=method, headers=headers).status_code == 403, (method, path)
        if found.scope is not None:
            for key in (every_scope, admin_without_scope):
                assert key.request(method, path).status_code == 403, (method, path)
    assert checked


def test_keys_open_nothing_but_the_api(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    key = api(workspace.actor("owner"), "admin")
    for rule, method in rules(app):
        found = declared(app, rule)
        if found.level != "public" and found.scope is None:
            response = key.request(method, address(app, rule))
            assert response.status_code in {303, 401, 403}, (method, rule.rule, response.status)


def test_a_change_needs_our_own_token_and_our_own_page(
    app: Flask, workspace: Workspace, sign_in: Callable[..., Any]
) -> None:
    owner = sign_in(workspace.actor("owner"))
    other = sign_in(workspace.actor("admin"))
    forged: list[dict[str, str]] = [
        {},
        {"X-CSRFToken": other.csrf},
        {"X-CSRFToken": owner.csrf, "Sec-Fetch-Site": "cross-site"},
        {"X-CSRFToken": owner.csrf, "Origin": "https://elsewhere.example"},
        {"X-CSRFToken": owner.csrf, "Origin": "http://localhost.elsewhere.example"},
    ]
    for rule, method in rules(app):
        if method in SAFE or rule.endpoint == "static":
            continue
        for headers in forged:
            response = send_plainly(owner, method, address(app, rule), headers)
            assert response.status_code == 403, (method, rule.rule, headers, response.status)


def send_plainly(client: FlaskClient, method: str, path: str, headers: dict[str, str]) -> Any:
    """What another site's form could send without asking first."""
    return client.open(path, method=method, data="{}", content_type="text/plain", headers=headers)


def test_an_unknown_host_is_refused_everywhere(app: Flask) -> None:
    client = app.test_client()
    for rule, method in rules(app):
        response = client.open(address(app, rule), method=method, headers={"Host": "rebound.example"})
        assert response.status_code == 400, (method, rule.rule, response.status)
