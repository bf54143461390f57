"""One letter, one meaning: every mark of a key on every page is in the one table, and means what the table says."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.views.layout.key_table import read_key_table
from tests.browser.test_accessible import plain_pages
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
TEMPLATES = Path(__file__).resolve().parents[2] / "app/templates"
PANEL = {"HX-Request": "true", "HX-Request-Type": "partial"}
TAG = r"(?P<tag>(?:\{%.*?%\}|\{\{.*?\}\}|[^>{])*)"
MARK = re.compile(rf'data-key="(?P<key>[^"]+)"{TAG}>(?P<inside>.*?)</(?:button|a|summary)>', re.S)
ASKED = {
    "R": "reviewed", "D": "dismiss", "A": "appl", "G": "golden", "P": "prove", "F": "flag", "E": "edit", "X": "select",
    "M": "merge", "Z": "undo",
}  # fmt: skip


def entries() -> list[dict[str, Any]]:
    return [one for group in read_key_table() for one in group["keys"]]


def words_of(key: str) -> list[str]:
    """The words with which a button begins that the key may press; none for a key that presses no button."""
    found = [one.get("on", []) for one in entries() if one["keys"] == [key.upper()]]
    return list(found[0]) if found else []


def test_no_letter_has_two_meanings() -> None:
    singles = Counter(one["keys"][0] for one in entries() if one["keys"][0] in string.ascii_uppercase)
    assert max(singles.values()) == 1, singles.most_common(2)
    meanings = {one["keys"][0]: one["does"].lower() for one in entries() if len(one["keys"]) == 1}
    assert not {key: word for key, word in ASKED.items() if word not in meanings[key]}


def test_every_mark_of_every_template_is_in_the_table() -> None:
    wrong, seen = [], set()
    for path in sorted(TEMPLATES.rglob("*.html")):
        text = path.read_text()
        if path.name in ("form.html", "panel.html") and path.parent.name == "macros":
            continue
        for mark in MARK.finditer(text):
            key = mark["key"]
            # A macro gives its letter as a variable; a box one writes into has its word as its label. Pages show both.
            if "{{" in key or key == "c":
                continue
            seen.add(key)
            shown = re.findall(r"<kbd[^>]*>(.*?)</kbd>", mark["inside"]) + re.findall(r"\((\w)\)\"", mark["tag"])
            words = re.sub(r"<kbd.*?</kbd>", "", mark["inside"])
            literals = [word for word in re.findall(r'"([A-Z][^"]*)"', words) if "{{" in words] or [words]
            fits = [word.strip().startswith(tuple(words_of(key))) for word in literals if "{{ word" not in word]
            if not all(fits) or any(one != key.upper() for one in shown if "{{" not in one):
                wrong.append((str(path.relative_to(TEMPLATES)), key, shown, literals))
    assert not wrong
    assert seen >= set("rdaemfgptqsz12")


def test_every_mark_of_every_page_means_what_the_table_says(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    seen: set[str] = set()
    for path in plain_pages(app, public=False):
        answer = client.get(path)
        if answer.status_code != 200 or "<html" not in answer.text[:500]:
            continue
        html = soup(answer)
        panels = [soup(client.get(f"{row['data-href']}?panel=1", headers=PANEL)) for row in html.select("[data-href]")]
        for part in (html, *panels):
            for mark in part.select("[data-key]"):
                seen.add(str(mark["data-key"]))
                check_mark(mark, path)
    assert seen >= set("rdaempgft")


def check_mark(mark: Any, path: str) -> None:
    key, shown = mark["data-key"], [kbd.get_text() for kbd in mark.select("kbd")]
    assert all(one in (key.upper(), "↵") for one in shown), (path, str(mark))
    for kbd in mark.select("kbd"):
        kbd.extract()
    label = mark.get("aria-label") or mark.get_text(" ", strip=True)
    assert label.startswith(tuple(words_of(key))), f"{path}: {key} on “{label}”"


@pytest.mark.parametrize("address", ["/keys", "/admin/agent-review/feedback"])
def test_the_list_of_keys_is_the_table(workspace: Workspace, sign_in: SignIn, address: str) -> None:
    html = soup(sign_in(workspace.actor()).get(address))
    rows = html.select("#keys-list dl div")
    shown = [([kbd.get_text() for kbd in row.select("kbd")], row.dd.get_text()) for row in rows]
    assert shown == [(one["keys"], one["does"]) for one in entries()]
