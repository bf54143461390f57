"""Addresses that come in with a request and go out as a redirect."""

from __future__ import annotations

from urllib.parse import urlsplit


def local_path(text: str | None, otherwise: str = "/") -> str:
    """The path if it is one of ours. Browsers read `//host`, `/\\host` and paths with a tab in them as other sites."""
    if not text or not text.startswith("/") or not text.isprintable() or "\\" in text or len(text) > 2000:
        return otherwise
    try:
        parts = urlsplit(text)
    except ValueError:
        return otherwise
    return otherwise if text.startswith("//") or parts.scheme or parts.netloc else text
