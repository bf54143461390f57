"""`feedback.js` on another origin, under a strict policy: press, see it at once, and never see what was not saved."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, Route, expect
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.workspaces import store as workspace_store
from tests.browser.conftest import PATIENCE, Visitor
from tests.browser.test_accessible import AXE, RUN
from tests.conftest import Api, Workspace

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs/feedback-js.md").read_text()
[EXAMPLE_HTML] = re.findall(r"^```html\n(.*?)^```", DOCUMENT, re.M | re.S)
[EXAMPLE_JS] = re.findall(r"^```js\n(.*?)^```", DOCUMENT, re.M | re.S)


class Site:
    """A team's own site with a chat, on a port of its own: the page of the document, and a token for its user."""

    def __init__(self, upshot: str) -> None:
        self.upshot = upshot
        self.token: Callable[[], str] = str
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, text = site.file(self.path)
                self.send_response(200 if kind else 204)
                self.send_header("Content-Type", kind or "text/plain")
                policy = f"script-src 'self' {upshot}; style-src {upshot}; connect-src 'self' {upshot}"
                self.send_header("Content-Security-Policy", f"default-src 'none'; {policy}")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    def file(self, path: str) -> tuple[str, str]:
        if path == "/":
            scripts = EXAMPLE_HTML.replace("https://upshot.example.com", self.upshot)
            answer = '<p data-message-id="msg-7" data-chat-id="chat-3" data-trace-id="trace-1">The fee is 2 %.</p>'
            head = '<!doctype html><html lang="en"><head><title>Chat</title></head>'
            return "text/html", f"{head}<body><main><h1>Chat</h1>{answer}</main>{scripts}</body></html>"
        if path == "/chat.js":
            return "text/javascript", EXAMPLE_JS
        return ("text/plain", self.token()) if path == "/feedback-token" else ("", "")


@pytest.fixture
def site(live: str) -> Iterator[Site]:
    made = Site(live)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(60)


@pytest.fixture
def chat(
    app: Flask, site: Site, workspace: Workspace, api: Callable[..., Api], visit: Callable[..., Visitor]
) -> Visitor:
    """The team's page as its user sees it."""
    team, admin = api(workspace.actor("member"), "feedback-token"), workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        workspace_store.change_settings({"feedback_origins": [site.origin]}, actor=admin)
    site.token = lambda: team.post("/api/v1/feedback/token", {"subject": "user-7"}).get_json()["token"]
    visitor = visit()
    visitor.page.goto(site.origin)
    return visitor


@pytest.fixture
def signals(app: Flask, workspace: Workspace) -> Callable[[], dict[str, str | None]]:
    """What Upshot has: each signal with its reason."""

    def read() -> dict[str, str | None]:
        with app.app_context(), acting_as(workspace.actor("admin")):
            rows = db.session.execute(select(Feedback.signal, Feedback.comment)).all()
            return {str(signal): comment for signal, comment in rows}

    return read


def pressed(page: Page, name: str, on: bool) -> None:
    button = page.get_by_role("button", name=name, exact=True)
    expect(button).to_have_attribute("aria-pressed", "true" if on else "false", timeout=PATIENCE)


def says(page: Page, words: str) -> None:
    expect(page.get_by_role("status")).to_contain_text(words, timeout=PATIENCE)


def test_thumbs_reasons_and_edits_arrive_from_another_origin(
    chat: Visitor, signals: Callable[[], dict[str, str | None]]
) -> None:
    page = chat.page
    page.get_by_role("button", name="Helpful", exact=True).click()
    pressed(page, "Helpful", True)
    says(page, "saved")
    assert signals() == {"helpful": None}
    page.get_by_role("button", name="Not helpful").click()
    pressed(page, "Helpful", False)
    page.get_by_role("button", name="Inaccurate").click()
    page.get_by_label("What was missing?").fill("The year")
    page.get_by_role("button", name="Send").click()
    settle(page, lambda: signals() == {"not_helpful": "The year", "inaccurate": None})
    page.get_by_role("button", name="Edit answer").click()
    box = page.get_by_label("The answer you wanted")
    expect(box).to_be_focused()
    assert "The fee is 2 %." in box.input_value()
    page.evaluate(AXE)
    assert page.evaluate(RUN.replace("{ resultTypes", "{ preload: false, resultTypes")) == []
    box.fill("The fee is 1 %.")
    page.get_by_role("button", name="Save").click()
    settle(page, lambda: signals().get("edit") == "The fee is 1 %.")
    page.reload()
    pressed(page, "Not helpful", True)
    pressed(page, "Inaccurate", True)
    page.get_by_role("button", name="Not helpful").click()
    settle(page, lambda: signals() == {"edit": "The fee is 1 %."})
    pressed(page, "Not helpful", False)


def test_what_was_not_saved_does_not_stay_pressed(chat: Visitor, signals: Callable[[], dict[str, str | None]]) -> None:
    page = chat.page
    chat.expected = ("Failed to load resource",)
    page.get_by_role("button", name="Helpful", exact=True).click()
    says(page, "saved")

    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method == "POST":
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/v1/feedback*", hold)
    page.get_by_role("button", name="Not helpful").click()
    pressed(page, "Not helpful", True)
    pressed(page, "Helpful", False)
    settle(page, lambda: bool(held))
    held[0].abort()
    says(page, "not saved")
    pressed(page, "Not helpful", False)
    pressed(page, "Helpful", True)
    assert signals() == {"helpful": None}
    page.unroute("**/api/v1/feedback*")
    page.get_by_role("button", name="Not helpful").click()
    settle(page, lambda: signals() == {"not_helpful": None})


def test_a_site_that_is_not_allowed_saves_nothing(
    app: Flask, chat: Visitor, workspace: Workspace, signals: Callable[[], dict[str, str | None]]
) -> None:
    page, admin = chat.page, workspace.actor("admin")
    chat.expected = ("CORS", "Failed to load resource")
    expect(page.get_by_role("group", name="Feedback on this answer")).to_be_visible(timeout=PATIENCE)
    with app.app_context(), acting_as(admin), transaction():
        workspace_store.change_settings({"feedback_origins": []}, actor=admin)
    page.get_by_role("button", name="Helpful", exact=True).click()
    says(page, "not saved")
    pressed(page, "Helpful", False)
    assert signals() == {}


def settle(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until it holds; the last look says whether it does."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(100)
    assert holds()
