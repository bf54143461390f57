"""Many events in one statement: one round trip and one plan, however many there are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.db import db
from app.services.sessions.budget import check_sizes

ADD = text("""
    WITH added AS (
        INSERT INTO session_events (id, tenant_id, session_id, sequence, event_type, payload, occurred_at)
        SELECT e.id, :tenant, e.session_id, e.sequence, e.event_type, e.payload, e.occurred_at
          FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS e (
               id uuid, session_id uuid, sequence integer, event_type text, payload jsonb, occurred_at timestamptz)
        RETURNING session_id, payload_bytes),
    sized AS (
        SELECT session_id, sum(payload_bytes) AS bytes, max(payload_bytes) AS largest FROM added GROUP BY session_id)
    UPDATE sessions AS s SET event_bytes = s.event_bytes + sized.bytes FROM sized
     WHERE s.tenant_id = :tenant AND s.id = sized.session_id
    RETURNING s.event_bytes, sized.largest
""")


@dataclass(frozen=True)
class EventRow:
    """An event that was checked; its payload is JSON text already."""

    id: UUID
    event_type: str
    payload: str
    occurred_at: datetime


def as_json(payload: dict[str, Any]) -> str:
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def add_rows(rows: Sequence[EventRow], *, tenant_id: UUID, session_id: UUID, before: int) -> int:
    """Store the rows of a session that is locked, numbered from `before` + 1 on; how many bytes it holds then."""
    return add_rows_of({session_id: rows}, tenant_id=tenant_id, before=before)[0]


def add_rows_of(sessions: Mapping[UUID, Sequence[EventRow]], *, tenant_id: UUID, before: int = 0) -> list[int]:
    """The same for several sessions at once. What goes beyond the budget of a session is refused after it was written,
    since only the database knows how large it is; the transaction of the caller then writes nothing."""
    if not any(sessions.values()):
        return []
    sizes = db.session.execute(ADD, {"tenant": tenant_id, "rows": as_rows(sessions, before=before)}).all()
    check_sizes((total, largest) for total, largest in sizes)
    return [total for total, _ in sizes]


def as_rows(sessions: Mapping[UUID, Sequence[EventRow]], *, before: int = 0) -> str:
    """The rows as one JSON text: the driver would write out arrays item by item, which takes longer than the insert."""
    told = [
        _problem(row, session_id, place)
        for session_id, rows in sessions.items()
        for place, row in enumerate(rows, before + 1)
    ]
    return f"[{','.join(told)}]"


def _problem(row: EventRow, session_id: UUID, sequence: int) -> str:
    """A row as JSON. The type was checked against a list of plain words, so nothing here needs escaping."""
    return (
        f'{{"id":"{row.id}","session_id":"{session_id}","sequence":{sequence},"event_type":"{row.event_type}",'
        f'"occurred_at":"{row.occurred_at.isoformat()}","payload":{row.payload}}}'
    )
