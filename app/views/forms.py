"""Read the fields of a form."""

from uuid import UUID

from flask import request

from app.errors import Invalid
from app.formats.ids import parse_id


def form_text(name: str) -> str:
    """Return a text field with plain line ends; browsers send CRLF."""
    return request.form.get(name, "").replace("\r\n", "\n").strip()


def parse_count(text: str | None) -> int | None:
    """Return a whole number, or None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else None


def selected_ids(refusal: str, most: int | None = None) -> list[UUID]:
    """The ids that were ticked in a list, once each. They come in one field or several, joined by commas."""
    texts = [part for value in request.form.getlist("ids") for part in value.split(",") if part]
    found = [row_id for text in texts if (row_id := parse_id(text)) is not None]
    if not found or len(found) < len(texts) or (most is not None and len(found) > most):
        raise Invalid(refusal)
    return list(dict.fromkeys(found))
