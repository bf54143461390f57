"""How often knowledge was used. Counted in batches, off the rows that prompts read.

Whoever asks for a prompt over the API writes nothing: it is noted in memory and written with the uses of keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.models import SharedContext, SharedContextUsage

Counts = dict[UUID, tuple[int, datetime]]
_lock = threading.Lock()
_noted: dict[UUID, Counts] = {}


def note(tenant_id: UUID, row_ids: Iterable[UUID]) -> None:
    """Remember that these rows went into a prompt now."""
    at = datetime.now(UTC)
    with _lock:
        counts = _noted.setdefault(tenant_id, {})
        for row_id in row_ids:
            counts[row_id] = (counts.get(row_id, (0, at))[0] + 1, at)


def take() -> dict[UUID, Counts]:
    """What was noted since, by workspace. It is forgotten here: whoever takes it writes it or puts it back."""
    with _lock:
        taken = {tenant: counts for tenant, counts in _noted.items() if counts}
        _noted.clear()
    return taken


def put_back(tenant_id: UUID, counts: Counts) -> None:
    """It could not be written; the next batch has it too."""
    with _lock:
        noted = _noted.setdefault(tenant_id, {})
        for row_id, (number, at) in counts.items():
            before = noted.get(row_id, (0, at))
            noted[row_id] = (before[0] + number, max(before[1], at))


def write(counts: Counts, *, actor: Actor) -> None:
    """Write what was noted of the actor's workspace, but of rows that are gone."""
    wanted = SharedContext.id.in_(list(counts))
    known = db.session.scalars(select(SharedContext.id).where(SharedContext.tenant_id == actor.tenant_id, wanted))
    note_injections({row_id: counts[row_id] for row_id in known}, actor=actor)


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
