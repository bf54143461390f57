"""Imports over the API: stream a file in, undo the whole import."""

import io
from typing import Any, BinaryIO, cast
from uuid import UUID

from flask import g, request
from pydantic import Field
from werkzeug.exceptions import UnsupportedMediaType

from app.api.agents import bp
from app.api.kit.fields import Answer, Moment, Page, Query
from app.api.kit.route import route
from app.db import paging, transaction
from app.services.ingest import imports as ingest_imports

NDJSON = "application/x-ndjson"
TAKEN = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/json", "application/octet-stream"})
LARGEST = 1024**3
INGEST = ("member", "ingest")


class ImportQuery(Query):
    filename: str | None = Field(None, max_length=255, description="Name of the import in Settings.")


class LineProblem(Answer):
    """A line that was not imported."""

    line: int
    message: str


class ImportAnswer(Answer):
    """The result of the import."""

    import_id: UUID
    created: int
    existing: int
    failed: int
    errors: list[LineProblem] = Field(description="The first thousand bad lines.")


class ImportItem(Answer):
    """An import."""

    id: UUID
    kind: str
    filename: str | None
    created: int
    existing: int
    failed: int
    created_at: Moment
    finished_at: Moment | None
    undone_at: Moment | None


class ImportPage(Answer):
    """One page, newest first."""

    items: list[ImportItem]
    next_cursor: str | None


@route(
    bp,
    "POST",
    "/api/v1/import/messages",
    access=INGEST,
    transactional=False,
    reads=NDJSON,
    also={
        409: "The import was undone while it was running.",
        413: "The file is larger than 1 GiB.",
        415: "The body is not newline-delimited JSON, or is compressed.",
    },
)
def import_messages(query: ImportQuery) -> ImportAnswer:
    """Import recorded sessions. Send NDJSON with one session per line, up to 1 MiB each. Bad lines are reported by
    number, and the rest is imported. Importing the same file again adds nothing."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Send the file uncompressed.")
    if request.mimetype not in TAKEN:
        raise UnsupportedMediaType(f"Send newline-delimited JSON with `Content-Type: {NDJSON}`.")
    request.max_content_length = LARGEST
    stream = cast(BinaryIO, io.BufferedReader(cast(Any, request.stream), 65536))
    result = ingest_imports.import_messages(stream, within=transaction, actor=g.actor, filename=query.filename)
    return ImportAnswer.model_validate(result)


@route(bp, "GET", "/api/v1/imports", access=INGEST)
def list_imports(query: Page) -> ImportPage:
    """List imports. Newest first."""
    found = ingest_imports.list_imports(paging.Page(query.limit, query.cursor), actor=g.actor)
    items = [ImportItem.model_validate(row) for row, _ in found.items]
    return ImportPage(items=items, next_cursor=found.next_cursor)


@route(bp, "GET", "/api/v1/imports/<uuid:import_id>", access=INGEST)
def read_import(import_id: UUID) -> ImportItem:
    """Get an import. Counts grow while it runs. `finished_at` is set when it ends."""
    return ImportItem.model_validate(ingest_imports.get_import(import_id, actor=g.actor))


@route(
    bp,
    "DELETE",
    "/api/v1/imports/<uuid:import_id>",
    access=("admin", "admin"),
    status=204,
    also={409: "A session from this import is golden."},
)
def undo_import(import_id: UUID) -> None:
    """Undo an import. Deletes every session it added, with events and failure reports. Feedback from people stays,
    without its link. Undoing twice is safe."""
    ingest_imports.undo_import(import_id, actor=g.actor)
