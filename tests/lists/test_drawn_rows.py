"""Rows of lists are drawn once for the same values, and know all that they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from jinja2 import meta

from app.views import format
from app.views.layout import rendering

TEMPLATES = Path(rendering.__file__).parents[2] / "templates"
# What every template has, whoever asks.
GLOBALS = {"url_for", "g"}
DRAWN = re.compile(r'draw\("([^"]+)", (.*?)\) \}\}')
ONLY = {"person_id": "?person_id=", "agent": "?agent=", "rating": "?rating="}


@pytest.fixture(autouse=True)
def in_request(app: Flask) -> Iterator[None]:
    with app.test_request_context("/"):
        yield


def chat(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "id": uuid4(), "title": "Compare the deals", "person": "Sam", "person_id": None, "agent": "pe-analyst",
            "agent_version": 2, "turns": 3, "golden_set": None, "positive": 1, "negative": 0, "neutral": 0,
            "last_message_at": datetime.now(UTC) - timedelta(minutes=5),
        }
        | more
    )  # fmt: skip


def draw(row: SimpleNamespace, only: dict[str, str] = ONLY) -> Any:
    return rendering.draw("conversations/_row.html", row=row, only=only)


def test_a_row_is_drawn_again_only_when_something_differs() -> None:
    row = chat()
    first = draw(row)
    assert draw(SimpleNamespace(**vars(row))) is first
    assert "Compare the deals" in first
    for name, value in {"title": "<b>Other</b>", "positive": 2, "golden_set": "base"}.items():
        assert draw(SimpleNamespace(**vars(row) | {name: value})) != first
    assert draw(row, {**ONLY, "agent": "?q=x&agent="}) != first
    assert "<b>" not in draw(chat(title="<b>Other</b>"))


def test_a_row_grows_older(monkeypatch: pytest.MonkeyPatch) -> None:
    row = chat()
    assert ">5 min<" in draw(row)
    later = format.now() + timedelta(hours=2)
    monkeypatch.setattr(format, "now", lambda: later)
    assert ">2 h<" in draw(row)


def test_templates_share_their_globals(app: Flask) -> None:
    """Else every import in a template walks all of them."""
    assert app.jinja_env.get_template("conversations/_row.html").globals is app.jinja_env.globals


def test_a_drawn_partial_reads_nothing_but_its_values(app: Flask) -> None:
    """What it read besides would be what the first reader saw."""
    found = 0
    for path in TEMPLATES.rglob("*.html"):
        for template, values in DRAWN.findall(path.read_text()):
            found += 1
            given = set(re.findall(r"(\w+)=", re.sub(r"\{[^{}]*\}", "", values)))
            source = (TEMPLATES / template).read_text()
            read = meta.find_undeclared_variables(app.jinja_env.parse(source))
            own = set(re.findall(r"set (\w+) =", source))
            assert read <= given | own | GLOBALS, (path.name, template)
            if "csrf()" in source:
                assert "csrf_token=g.csrf" in values
    assert found >= 5
