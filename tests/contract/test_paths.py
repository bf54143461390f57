"""No address breaks on characters that no text can hold, whoever sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.routing import Rule

from app.views.layout.errors import JSON_PATHS

MARK = "texthere"
# A NUL, half a character of two, and bytes that are no UTF-8.
UNFIT = ("%00", "x%00y", "%ED%A0%80", "a%FFb", "%C3")
TEXTS = {"UnicodeConverter", "PathConverter", "AnyConverter"}


def with_texts(app: Flask) -> Iterator[tuple[Rule, str]]:
    for rule in app.url_map.iter_rules():
        if any(type(rule._converters[name]).__name__ in TEXTS for name in rule.arguments):
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield rule, method


def addresses(app: Flask, rule: Rule, unfit: str) -> Iterator[str]:
    """The address with each of its texts replaced in turn."""
    names = [name for name in rule.arguments if type(rule._converters[name]).__name__ in TEXTS]
    for unfit_name in names:
        values: dict[str, Any] = {name: 7 if "index" in name else uuid4() for name in rule.arguments}
        values |= dict.fromkeys(names, "other") | {unfit_name: MARK}
        with app.test_request_context():
            yield rule.build(values)[1].replace(MARK, unfit)  # type: ignore[index]


def as_sent(path: str) -> dict[str, str]:
    """The path as a server hands it over; the client of the tests would replace what is no UTF-8."""
    return {"PATH_INFO": unquote_to_bytes(path).decode("latin-1")}


@pytest.mark.parametrize("unfit", UNFIT)
def test_no_text_in_a_path_breaks_a_route(
    app: Flask, workspace: Any, sign_in: Callable[..., Any], api: Callable[..., Any], unfit: str
) -> None:
    browser, key = sign_in(workspace.actor("admin")), api(workspace.actor("admin"))
    walked = 0
    for rule, method in with_texts(app):
        for path in addresses(app, rule, unfit):
            sent = {"method": method, "environ_overrides": as_sent(path)}
            form = {"csrf_token": browser.csrf, "name": "new-name"}
            bearer = {"Authorization": f"Bearer {key.key}"}
            seen = [
                browser.open(path, data=form, **sent),
                key.client.open(path, json={}, headers=bearer, **sent),
            ]
            if path.startswith(JSON_PATHS):
                assert seen[1].mimetype == "application/problem+json", path
            assert {one.status_code for one in seen} <= {400, 401, 403, 404, 405}, (method, path)
            walked += 1
    assert walked > 12
    path = f"/admin/agent-review/evals/sets/x{unfit}"
    assert browser.get(path, environ_overrides=as_sent(path)).status_code == 400
    path = f"/static/{unfit}"
    assert browser.get(path, environ_overrides=as_sent(path)).status_code == 400
