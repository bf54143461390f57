"""Where the server of a data directory answers, for commands that are run beside it.

The server writes its address down while it runs. The note of one that was killed stays behind, so that it counts only
while somebody answers there.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from app.config import Settings


@contextmanager
def told(settings: Settings) -> Iterator[None]:
    """Say where we answer as long as we do. A data directory that cannot be written only costs the note."""
    note = _note(settings)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(settings.url, encoding="utf-8")
    try:
        yield
    finally:
        if _read(note) == settings.url:
            with suppress(OSError):
                note.unlink()


def address(settings: Settings) -> str:
    """The address to print: what people type, else where the server runs, else where it would."""
    found = "" if settings.base_url else _read(_note(settings))
    return found if found and _answers(found) else settings.url


def _note(settings: Settings) -> Path:
    return settings.data_dir / "address"


def _read(note: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return note.read_text(encoding="utf-8").strip()
    return ""


def _answers(url: str) -> bool:
    try:
        place = urlsplit(url)
        with socket.create_connection((place.hostname or "", place.port or 80), timeout=1):
            return place.scheme == "http"
    except (OSError, ValueError):
        return False
