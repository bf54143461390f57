"""Random tokens, their hashes, signatures with the secret key, and secrets in files that all processes share."""

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.errors import Unusable

KEY_PREFIX = "up_"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What is stored of a token. Tokens have 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def sign(secret: str, purpose: str, message: str) -> str:
    """A signature that is good for one purpose only."""
    return hmac.new(
        secret.encode(), f"{purpose}:{message}".encode("utf-8", "surrogatepass"), hashlib.sha256
    ).hexdigest()


def same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass"))


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
