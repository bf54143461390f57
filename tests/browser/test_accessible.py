"""Every page can be used by everybody: axe finds nothing, in both themes, on a wide screen and on a phone, and no page
scrolls sideways."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from app.security import access
from tests.browser.conftest import ROOT
from tests.conftest import Workspace
from tests.lists.filling import fill

BASE = "/admin/agent-review"
AXE = (ROOT / "node_modules/axe-core/axe.min.js").read_text("utf-8")
# No frames, no audio and no selector of each node: only the rules cost time.
RUN = """async () => {
  const options = { resultTypes: ["violations"], preload: false, selectors: false, iframes: false };
  const found = await axe.run(document, options);
  return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3).join(" | ")}`);
}"""
# What a browser shows that is not a page of its own: files, JSON, and what only makes sense with a token.
NOT_PAGES = ("/static/", "/api/", "/healthz", "/readyz", "/metrics")
# The pages of an admin are many, so several test processes share them.
PARTS = 4


def check(page: Page, where: str, first: str = "light") -> None:
    """The same page twice: on a wide screen in one theme and on a phone in the other. Which theme is on which screen
    differs from test to test, so that the parts of a page meet both."""
    page.evaluate(AXE)
    _find(page, where, first, 1440)
    _find(page, where, "dark" if first == "light" else "light", 390)
    page.set_viewport_size({"width": 1440, "height": 900})


def _find(page: Page, where: str, theme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
    found = page.evaluate(RUN)
    assert not found, f"{where}, {theme}, {width} px: {found}"
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{where} scrolls sideways at {width} px: {wide}"


def plain_pages(app: Flask, *, public: bool) -> list[str]:
    """Every address without a variable that answers a GET with a page."""
    found = []
    for rule in app.url_map.iter_rules():
        declared = access.access_of(app, rule.endpoint)
        wanted = "GET" in (rule.methods or ()) and not rule.arguments and not rule.rule.startswith(NOT_PAGES)
        if wanted and declared is not None and (declared.level == "public") == public:
            found.append(rule.rule)
    return sorted(found)


def read_page(visitor: Any, path: str) -> str | None:
    """Redirects lead to pages that are on the list themselves; files and parts of pages are not looked at."""
    answer = visitor.page.request.get(visitor.base + path, max_redirects=0)
    return answer.text() if answer.status == 200 and "<html" in answer.text()[:500] else None


def linked_pages(app: Flask, visitor: Any, starts: list[str]) -> list[str]:
    """One address of every page that links lead to, from these on."""
    routes = app.url_map.bind("localhost")
    found: dict[str, str | None] = {}
    waiting = list(starts)
    for path in waiting:
        if path.startswith(NOT_PAGES) or not routes.test(path.partition("?")[0], "GET"):
            continue
        endpoint = str(routes.match(path.partition("?")[0], "GET")[0])
        if found.get(endpoint):
            continue
        text = read_page(visitor, path)
        found[endpoint] = path if text else None
        links = re.findall(r'(?:href|hx-get)="(/[^"#]*)', text or "")
        waiting.extend(html.unescape(link) for link in links)
    return sorted(path for path in found.values() if path)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_of_an_admin(app: Flask, workspace: Workspace, visit: Callable[..., Any], part: int) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor("owner"))
    details = [
        f"{BASE}/conversations/{filled.chat}?flag=m-1",
        f"{BASE}/sessions/{filled.session}?flag=whole",
        f"{BASE}/sessions/{filled.failed}",
        f"{BASE}/feedback/{filled.ids['edit']}",
        f"{BASE}/knowledge/{filled.ids['proposed']}",
        f"{BASE}/feedback?status=pending&rating=negative&q=ebitda",
        f"{BASE}/sessions?q=zanzibar",
    ]
    paths = linked_pages(app, visitor, plain_pages(app, public=False))
    assert len(paths) > 50
    for path in [*paths, *details][part::PARTS]:
        visitor.go(path)
        check(visitor.page, path)


def test_every_panel(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    for tab in ("conversations", "sessions", "feedback", "knowledge"):
        visitor.go(f"{BASE}/{tab}")
        page.locator("[data-row] [data-open]").first.click()
        expect(page.locator("#panel header")).to_be_visible()
        for tool in page.locator("#panel details.u-tool summary").all():
            tool.click()
        check(page, f"panel of {tab}", first="dark")


def test_an_empty_workspace(workspace: Workspace, visit: Callable[..., Any]) -> None:
    visitor = visit(workspace.actor())
    for tab in ("conversations", "sessions", "feedback", "knowledge", "evals"):
        visitor.go(f"{BASE}/{tab}")
        check(visitor.page, f"empty {tab}", first="dark")


def test_a_member_and_what_is_closed_to_them(app: Flask, workspace: Workspace, visit: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor("member"))
    visitor.expected = ("403", "404")
    for path in ("/", f"/sessions/{filled.session}", f"{BASE}/feedback", "/nowhere"):
        visitor.go(path)
        check(visitor.page, f"a member at {path}")


def test_what_a_stranger_sees(app: Flask, visit: Callable[..., Any]) -> None:
    visitor = visit()
    visitor.expected = ("404", "410", "400")
    paths = [path for path in plain_pages(app, public=True) if read_page(visitor, path)]
    for path in [*paths, "/nowhere"]:
        visitor.go(path)
        check(visitor.page, f"a stranger at {path}", first="dark")
