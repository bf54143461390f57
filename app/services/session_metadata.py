"""The metadata of sessions as it is told to others. What a golden froze stays whole inside and is cut here alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import AgentSession

# A golden keeps its snapshot under the one name, and each of its replays a copy under the other.
FROZEN = ("golden", "eval_golden")


def shown_metadata(meta: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """What whoever asks may read of it.

    A snapshot holds the prompt of an agent and the memories of a person. The first is for admins; the second is for
    that person alone, on their account page, so nobody reads more here than how many they were.
    """
    shown = dict(meta)
    for name in FROZEN:
        kept = meta.get(name)
        if isinstance(kept, dict) and "snapshot" in kept:
            rest = {key: value for key, value in kept.items() if key != "snapshot"}
            shown[name] = rest | ({"snapshot": _without_memories(kept["snapshot"])} if actor.is_admin else {})
    return shown


def _without_memories(snapshot: Any) -> Any:
    if not isinstance(snapshot, dict) or "memories" not in snapshot:
        return snapshot
    memories = snapshot["memories"]
    return {**snapshot, "memories": {"count": memories.get("count", 0) if isinstance(memories, dict) else 0}}


def metadata_of(session_ids: list[UUID], *, actor: Actor) -> dict[UUID, dict[str, Any]]:
    """The same of a few sessions, for whoever asks for it by name. One query."""
    rows = db.session.execute(
        select(AgentSession.id, AgentSession.meta).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids)
        )
    )
    return {session_id: shown_metadata(meta, actor=actor) for session_id, meta in rows}
