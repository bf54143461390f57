"""Open a real browser on the product's own server, with this test process's database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from tests.http_server import served

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60_000
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "scripts"))
    from tools import find_browser

    found = find_browser()
    if found is None:
        pytest.fail("There is no Chromium; install it, or set UPSHOT_CHROMIUM to the path of one.")
    return {**browser_type_launch_args, "executable_path": found, "args": ARGUMENTS}


@pytest.fixture(scope="session")
def live(app: Flask) -> Iterator[str]:
    """Serve the app and give its address."""
    with served(app, threads=8) as address:
        yield address


class Visitor:
    """A person at a browser. Errors on the console fail the test, violations of the CSP included."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", self._listen)
        # Some violations are only a notice on the console, or none at all.
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (found) => "
            "console.error(`CSP ${found.violatedDirective}: ${found.target?.outerHTML ?? found.blockedURI}`))"
        )
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))

    def _listen(self, message: ConsoleMessage) -> None:
        # htmx reports a search that the next letter replaced as an error.
        if message.type == "error" and "AbortError" not in message.text:
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def go(self, path: str) -> None:
        self.page.goto(self.base + path)

    def check(self) -> None:
        unexpected = [text for text in self.complaints if not any(word in text for word in self.expected)]
        assert not unexpected, unexpected


@pytest.fixture
def visit(browser: Browser, live: str, app: Flask) -> Iterator[Callable[..., Visitor]]:
    """Open a browser page, signed in as the actor if there is one."""
    from app.db import acting_as, transaction
    from app.security import cookies
    from app.services.workspaces import logins

    contexts: list[BrowserContext] = []
    visitors: list[Visitor] = []

    def enter(actor: Any = None, *, theme: str = "light", width: int = 1440, height: int = 900, **more: Any) -> Visitor:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", **more
        )
        context.set_default_timeout(PATIENCE)
        context.set_default_navigation_timeout(PATIENCE)
        contexts.append(context)
        if actor is not None:
            with app.app_context(), acting_as(actor), transaction():
                token = logins.begin_login(actor=actor, user_agent="browser tests")
            with app.test_request_context():
                name = cookies.cookie_name()
            context.add_cookies([{"name": name, "value": token, "url": live}])
        visitor = Visitor(context.new_page(), live)
        visitors.append(visitor)
        return visitor

    yield enter
    for visitor in visitors:
        visitor.check()
    for context in contexts:
        context.close()
