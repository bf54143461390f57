"""What people decide about proposals: approve, with or without an edit, or reject. Merging is a move of the rows."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import get_own
from app.errors import Refused
from app.models import SharedContext
from app.services.knowledge import hygiene
from app.services.knowledge import rows as knowledge_rows


def approve_proposal(
    row_id: UUID,
    *,
    actor: Actor,
    version: int | None = None,
    changes: Mapping[str, Any] | None = None,
    reason: str | None = None,
    override_reason: str | None = None,
    confirm: str | None = None,
) -> SharedContext:
    """Put a proposal into force, after an edit of its words if there are `changes`. A form answers what the checks
    found with `confirm`, a program with an `override_reason`."""
    version = _read_version(row_id, version, actor)
    if changes:
        version = knowledge_rows.edit_row(row_id, changes, version, actor=actor, reason=reason).version
    row = knowledge_rows.set_state(
        row_id, "active", actor=actor, reason=reason, version=version, override_reason=override_reason
    )
    if confirm is not None or not (override_reason or "").strip():
        hygiene.check_answered(row_id, confirm or "", actor=actor)
    return row


def reject_proposal(
    row_id: UUID, *, actor: Actor, version: int | None = None, reason: str | None = None
) -> SharedContext:
    """Turn a proposal down. The feedback behind it is dismissed, and the same is not proposed again."""
    version = _read_version(row_id, version, actor)
    return knowledge_rows.set_state(row_id, "inactive", actor=actor, reason=reason, version=version)


def check_undecided(row: SharedContext, active: bool) -> None:
    """Refuse to decide about a proposal once more what was decided already."""
    if "proposed" in row.meta and row.state == ("active" if active else "inactive"):
        done = "approved" if active else "rejected or deactivated"
        raise Refused(f"This was already {done}. It is {row.state}.", current=row.state)


def _read_version(row_id: UUID, version: int | None, actor: Actor) -> int:
    """The version to decide about: the one that was read, else the one of now. It is read before the row is locked, so
    that of two who decide at once the second is refused."""
    row: SharedContext = get_own(SharedContext, row_id, "knowledge row", actor=actor)
    if row.state != "proposed":
        raise Refused(f"Someone else already decided. This row is {row.state}.", current=row.state)
    return version or row.version
