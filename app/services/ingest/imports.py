"""Recorded work from a file: taken in line by line, known as one import, undone as a whole."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO
from uuid import UUID, uuid4

from sqlalchemy import delete, func, select
from sqlalchemy.exc import DBAPIError

from app.actor import Actor
from app.db import db, get_own
from app.db.paging import Page, Slice, read_page
from app.errors import Invalid, Problem, Refused
from app.formats.session_limits import LINE_BYTES
from app.ingest.messages import ImportedSession, read_line
from app.models import AgentSession, Feedback, Import, User
from app.services import audit
from app.services.sessions.events import NewEvent
from app.services.sessions.lists import remove_sessions
from app.services.sessions.store import NewSession, create_sessions

BATCH = 200
BATCH_BYTES = 8 * LINE_BYTES
MAX_ERRORS = 1000
DELETE_BATCH = 500

Within = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class LineError:
    line: int
    message: str


@dataclass
class Result:
    """What came of a file so far. `failed` counts all bad lines; `errors` holds the first thousand."""

    import_id: UUID
    created: int = 0
    existing: int = 0
    failed: int = 0
    lines: int = 0
    errors: list[LineError] = field(default_factory=list)

    def refuse(self, line: int, message: str) -> None:
        self.failed += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(LineError(line, message))


Batch = list[tuple[int, ImportedSession]]


def import_messages(
    stream: BinaryIO,
    *,
    within: Within,
    actor: Actor,
    filename: str | None = None,
    progress: Callable[[Result], None] | None = None,
) -> Result:
    """Take a file in, one session a line. A bad line is noted with its number and the rest goes in.

    `within` opens a transaction for each batch. The same file again adds only what is missing.
    """
    with within():
        result = Result(_begin(filename, actor))
    for batch in _batches(stream, result):
        _store(batch, result, within, actor)
        if progress:
            progress(result)
    with within():
        _finish(result, actor)
    return result


def _batches(stream: BinaryIO, result: Result) -> Iterator[Batch]:
    """The sessions of the good lines, so many at once as one transaction should store."""
    batch: Batch = []
    size = 0
    for number, raw in read_lines(stream):
        result.lines = number
        try:
            if raw is None:
                raise Invalid(f"The line is longer than {LINE_BYTES:,} bytes.")
            batch.append((number, read_line(raw)))
        except Invalid as wrong:
            result.refuse(number, wrong.detail)
            continue
        size += len(raw)
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def read_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, without empty ones. A line that is too long comes as None."""
    number = 0
    while raw := stream.readline(LINE_BYTES + 2):
        number += 1
        line = raw.rstrip(b"\r\n")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        too_long = len(line) > LINE_BYTES
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(LINE_BYTES)
            too_long = too_long or bool(raw.strip(b"\r\n"))
        if too_long:
            yield number, None
        elif line.strip():
            yield number, line


class _Undone(Refused):
    """The import was undone while it ran."""


def _store(batch: Batch, result: Result, within: Within, actor: Actor) -> None:
    """All of them in one transaction. If one of them does not go in, each gets a transaction of its own."""
    if not batch:
        return
    try:
        with within():
            row = _lock_running(result.import_id, actor)
            created = create_sessions([_session(line, row.id) for _, line in batch], actor=actor)
            existing = len(batch) - created
            row.created, row.existing, row.failed = row.created + created, row.existing + existing, result.failed
    except _Undone:
        raise
    except (Problem, DBAPIError) as wrong:
        if isinstance(wrong, DBAPIError) and wrong.connection_invalidated:
            raise
        if len(batch) == 1:
            broken = wrong.detail if isinstance(wrong, Problem) else "The database refuses a value of this line."
            result.refuse(batch[0][0], broken)
        else:
            for line in batch:
                _store([line], result, within, actor)
    else:
        result.created += created
        result.existing += existing


def _session(line: ImportedSession, import_id: UUID) -> NewSession:
    """The clock keeps sessions without a time in the order of the file: the time of the transaction is one for all."""
    fields = {"created_at": datetime.now(UTC), **line.fields}
    return NewSession(**fields, import_id=import_id, events=[NewEvent(*event) for event in line.events])


def _begin(filename: str | None, actor: Actor) -> UUID:
    row = Import(id=uuid4(), tenant_id=actor.tenant_id, kind="messages", filename=filename, created_by=actor.id)
    db.session.add(row)
    db.session.flush()
    audit.record(actor, "import.began", "import", row.id, filename=filename)
    return row.id


def _finish(result: Result, actor: Actor) -> None:
    row = _lock_running(result.import_id, actor)
    row.failed, row.finished_at = result.failed, datetime.now(UTC)
    audit.record(
        actor, "import.finished", "import", row.id, created=result.created, existing=result.existing, failed=row.failed
    )


def _lock_running(import_id: UUID, actor: Actor) -> Import:
    row = get_own(Import, import_id, "import", actor=actor, lock=True)
    if row.undone_at is not None:
        raise _Undone("This import was undone while it ran. Nothing more was taken in.")
    return row


def undo_import(import_id: UUID, *, actor: Actor) -> int:
    """Remove the sessions that the import brought, with their events and reports of failure; how many there were."""
    actor.check_admin("Only admins can undo imports.")
    row = get_own(Import, import_id, "import", actor=actor, lock=True)
    if row.undone_at is not None:
        return 0
    brought = [AgentSession.tenant_id == actor.tenant_id, AgentSession.import_id == import_id]
    golden = db.session.scalar(select(func.count()).where(*brought, AgentSession.golden_set.is_not(None))) or 0
    if golden:
        what = "One session of this import is" if golden == 1 else f"{golden:,} sessions of this import are"
        raise Refused(f"{what} golden. Revoke the golden first, then undo the import.")
    removed = 0
    while ids := list(db.session.scalars(select(AgentSession.id).where(*brought).limit(DELETE_BATCH))):
        reports = [Feedback.tenant_id == actor.tenant_id, Feedback.session_id.in_(ids)]
        db.session.execute(
            delete(Feedback).where(*reports, Feedback.kind == "session_failure"),
            execution_options={"synchronize_session": False},
        )
        remove_sessions(ids, actor=actor)
        removed += len(ids)
    row.undone_at, row.undone_by = datetime.now(UTC), actor.id
    db.session.flush()
    audit.record(actor, "import.undone", "import", import_id, filename=row.filename, sessions=removed)
    return removed


def list_imports(page: Page, *, actor: Actor) -> Slice[tuple[Any, ...]]:
    """The workspace's imports with who began each, newest first. A file in which there was no session is left out."""
    statement = select(Import, User.name).outerjoin(User, (User.id == Import.created_by) & User.is_system.is_(False))
    brought = (Import.created + Import.existing > 0) | Import.finished_at.is_(None)
    where = [Import.tenant_id == actor.tenant_id, brought]
    return read_page(statement, page, at=Import.created_at, id=Import.id, where=where)


def get_import(import_id: UUID, *, actor: Actor) -> Import:
    return get_own(Import, import_id, "import", actor=actor)
