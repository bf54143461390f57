"""Something moves soon after every click, however slow the server is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page, Route, expect

from tests.browser.test_accessible import plain_pages, read_page
from tests.conftest import Workspace
from tests.lists.filling import fill

BASE = "/admin/agent-review"
AT_MOST = 150
PARTS = 3
# Clicks each kind of control of the page while no request is answered, and says which of them showed nothing in time:
# the bar, what was pressed, or a change of the page.
CLICK_ALL = """async ([most, skip]) => {
  const seen = new Set();
  const plain = (address) => address?.replace(/[0-9a-f-]{36}/g, '').split('?')[0];
  const kind = (one) => [one.tagName, one.className, plain(one.closest('form')?.getAttribute('action')),
    plain(one.getAttribute('href'))].join(' ');
  const visible = (one) => one.checkVisibility() && !one.disabled && one.getClientRects().length;
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const place = () => [scrollX, scrollY, document.activeElement?.id, location.hash,
    document.querySelectorAll(':popover-open').length].join();
  const still = [];
  let clicks = 0;
  for (const one of [...document.querySelectorAll('a[href], button, summary')]) {
    if (!one.isConnected || !visible(one) || seen.has(kind(one)) || one.matches(skip)) continue;
    seen.add(kind(one));
    let moved = false;
    const shows = (found) => found.type !== 'attributes' || found.target.matches('.is-waiting, .is-decided')
      || ['hidden', 'open', 'disabled', 'aria-expanded', 'aria-pressed', 'aria-current'].includes(found.attributeName);
    const look = new MutationObserver((all) => { moved ||= all.some(shows); });
    look.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    const before = place();
    const begin = performance.now();
    one.click();
    clicks += 1;
    while (!moved && performance.now() - begin < most) {
      await pause(10);
      moved ||= place() !== before;
    }
    moved ||= look.takeRecords().some(shows);
    look.disconnect();
    if (!moved) still.push(one.outerHTML.slice(0, 160));
    upshot.closeMenus();
    for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
    await pause(20);
  }
  return { clicks, still };
}"""
# Leads out of the page for good, or to where one already is.
SKIP = "[data-close-toast], [aria-current], [download], .u-skip, [href^='#'], [data-copy]"


def hold_everything(page: Page) -> None:
    """From now on nothing is answered, and no click leads away: what shows then is what shows before any answer."""
    page.evaluate(
        """() => {
          window.fetch = () => new Promise(() => {});
          addEventListener('click', (event) => { if (event.target.closest('a[href]')) event.preventDefault(); });
          addEventListener('submit', (event) => event.preventDefault());
        }"""
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_something_moves_soon_after_every_click(
    app: Flask, workspace: Workspace, visit: Callable[..., Any], part: int
) -> None:
    filled = fill(app, workspace)
    visitor = visit(workspace.actor("owner"))
    details = [
        f"{BASE}/conversations/{filled.chat}",
        f"{BASE}/sessions/{filled.session}",
        f"{BASE}/feedback/{filled.ids['edit']}",
        f"{BASE}/knowledge/{filled.ids['proposed']}",
        f"{BASE}/feedback?status=pending",
    ]
    paths = [*plain_pages(app, public=False), *details][part::PARTS]
    clicks, still = 0, []
    for path in paths:
        if read_page(visitor, path) is None:
            continue
        visitor.go(path)
        hold_everything(visitor.page)
        found = visitor.page.evaluate(CLICK_ALL, [AT_MOST, SKIP])
        clicks += found["clicks"]
        still += [(path, one) for one in found["still"]]
    assert clicks > 100 // PARTS
    assert not still


def test_a_bar_runs_while_another_page_is_on_its_way(
    app: Flask, workspace: Workspace, visit: Callable[..., Any]
) -> None:
    fill(app, workspace)
    visitor = visit(workspace.actor())
    page = visitor.page
    visitor.go(f"{BASE}/feedback")
    bar = page.locator(".u-progress")
    expect(bar).to_be_hidden()
    held: list[Route] = []
    page.route("**/agent-review/sessions", lambda route: held.append(route))
    # A locator would wait for the other page.
    shown = page.evaluate(
        """async () => {
          const link = document.querySelector('.u-tabs a[href$="/sessions"]');
          link.click();
          const bar = document.querySelector('.u-progress');
          for (let wait = 0; bar.hidden && wait < 200; wait += 1) await new Promise((done) => setTimeout(done, 25));
          return [!bar.hidden && bar.checkVisibility(), link.matches('.is-waiting')];
        }"""
    )
    assert shown == [True, True]
    held[0].continue_()
    expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    expect(bar).to_be_hidden()
