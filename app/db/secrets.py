"""Secrets in files: made by the first process that needs one, and the same for every process after that."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.errors import Unusable


def read_or_make(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`, made if there is none. Several processes may ask at once: all get the same text."""
    with suppress(FileNotFoundError):
        return _read_secret(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _publish(path, make())
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip()
    if not text:
        raise Unusable(f"The secret file {path} is empty: restore it from a backup, or delete it to get a new secret.")
    return text


def _publish(path: Path, text: str) -> None:
    """Give the name to a file that is already complete and on disk, so that no process reads a half-written one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make a new name in `directory` survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
