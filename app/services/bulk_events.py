"""Many events in one statement: one round trip and one plan, however many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.db import db

ADD = text("""
    INSERT INTO session_events (id, tenant_id, session_id, sequence, event_type, payload, occurred_at)
    SELECT e.id, :tenant, :session, :before + e.place, e.event_type, CAST(e.payload AS jsonb), e.occurred_at
      FROM unnest(CAST(:ids AS uuid[]), CAST(:types AS text[]), CAST(:payloads AS text[]),
                  CAST(:moments AS timestamptz[]))
           WITH ORDINALITY AS e (id, event_type, payload, occurred_at, place)
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


def add_rows(rows: Sequence[EventRow], *, tenant_id: UUID, session_id: UUID, before: int) -> None:
    """Store the rows of a session that is locked, numbered from `before` + 1 on."""
    db.session.execute(
        ADD,
        {
            "tenant": tenant_id,
            "session": session_id,
            "before": before,
            "ids": [row.id for row in rows],
            "types": [row.event_type for row in rows],
            "payloads": [row.payload for row in rows],
            "moments": [row.occurred_at for row in rows],
        },
    )
