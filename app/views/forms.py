"""What somebody typed into a form."""

from __future__ import annotations

from flask import request


def form_text(name: str) -> str:
    """A text field as it is stored: browsers send line ends in pairs."""
    return request.form.get(name, "").replace("\r\n", "\n").strip()


def parse_count(text: str | None) -> int | None:
    """A number that counts something, or None for whatever else was sent."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else None
