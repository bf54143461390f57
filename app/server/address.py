"""The address file of a data directory, from which commands learn where its server answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from app.config import Settings


@contextmanager
def publish_address(settings: Settings) -> Iterator[None]:
    """Keep the address in a file while the server runs, for commands; none where the data directory is read-only."""
    file = settings.data_dir / "address"
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(settings.url, encoding="utf-8")
    try:
        yield
    finally:
        if _read_address(file) == settings.url:
            with suppress(OSError):
                file.unlink()


def find_address(settings: Settings) -> str:
    """The address to print: the base URL, else where the server runs, else where it would. A killed server leaves its
    file behind, so the address counts only while it answers."""
    found = "" if settings.base_url else _read_address(settings.data_dir / "address")
    return found if found and _answers(found) else settings.url


def _read_address(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8").strip()
    return ""


def _answers(url: str) -> bool:
    try:
        place = urlsplit(url)
        with socket.create_connection((place.hostname or "", place.port or 80), timeout=1):
            return place.scheme == "http"
    except (OSError, ValueError):
        return False
