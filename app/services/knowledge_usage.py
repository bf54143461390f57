"""How often knowledge was used. Counted in batches, off the rows that prompts read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.models import SharedContextUsage


def note_injections(counts: Mapping[UUID, tuple[int, datetime]], *, actor: Actor) -> None:
    """Add how often each row was in a prompt, and when last. Rows in the order of their ids, so that two batches
    never wait for each other in a circle."""
    if not counts:
        return
    rows = [
        {"tenant_id": actor.tenant_id, "shared_context_id": row_id, "injected": number, "last_injected_at": last}
        for row_id, (number, last) in sorted(counts.items())
    ]
    statement = insert(SharedContextUsage).values(rows)
    db.session.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "shared_context_id"],
            set_={
                "injected": SharedContextUsage.injected + statement.excluded.injected,
                "last_injected_at": func.greatest(
                    SharedContextUsage.last_injected_at, statement.excluded.last_injected_at
                ),
            },
        )
    )
