"""What somebody typed into a form."""

from __future__ import annotations

from flask import request


def typed(name: str) -> str:
    """A text field as it is stored: browsers send line ends in pairs."""
    return request.form.get(name, "").replace("\r\n", "\n").strip()
