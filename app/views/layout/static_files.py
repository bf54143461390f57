"""Static files: each address has a stamp of its content, and large files are sent compressed."""

import hashlib
from functools import cache
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, request, send_from_directory

A_YEAR = 365 * 24 * 3600
PACKED = ".gz"


def stamp(endpoint: str, values: dict[str, Any]) -> None:
    """Put the stamp into the address of a static file, so that a new release is seen at once."""
    if endpoint == "static" and "filename" in values and current_app.static_folder:
        values.setdefault("v", fingerprint(Path(current_app.static_folder) / values["filename"]))


@cache
def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8] if path.is_file() else "0"


@cache
def packed_names(folder: Path) -> frozenset[str]:
    """The files that scripts/build_assets.py has compressed, by their names without the ending."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob(f"*{PACKED}"))
    return frozenset(name.removesuffix(PACKED) for name in found)


def send_static(filename: str) -> Response:
    """Send a static file, compressed where there is a compressed copy and the client takes it. What is asked for by its
    stamp is kept for a year, because another content has another stamp."""
    folder = Path(str(current_app.static_folder))
    packable = filename in packed_names(folder)
    packed = packable and request.accept_encodings.quality("gzip") > 0
    name = filename + PACKED if packed else filename
    answer = send_from_directory(folder, name, mimetype=guess_type(filename)[0])
    # A page of a newer release may ask a process that still has the older files.
    if "v" in request.args and request.args["v"] == fingerprint(folder / filename):
        answer.cache_control.max_age = A_YEAR
    if packable:
        answer.vary.add("Accept-Encoding")
    if packed:
        answer.content_encoding = "gzip"
    return answer


def register(app: Flask) -> None:
    """Serve static files this way."""
    app.view_functions["static"] = send_static
    app.url_defaults(stamp)
