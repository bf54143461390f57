"""What was done to a record, from the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.models import Agent, AuditEntry, User
from app.services.audit import SAID
from app.services.privacy import name_of

MOST = 50


@dataclass(frozen=True)
class Step:
    """One thing that was done, by whom."""

    action: str
    who: str | None
    details: dict[str, Any]
    created_at: datetime


def trail_of(subject_type: str, subject_id: UUID, *, actor: Actor) -> list[Step]:
    """What changed a record, oldest first. That somebody read it is no change."""
    by = name_of(AuditEntry.actor_user_id, actor, AuditEntry.action.in_(SAID))
    rows = db.session.execute(
        select(AuditEntry.action, func.coalesce(Agent.slug, by), AuditEntry.details, AuditEntry.created_at)
        .outerjoin(User, User.id == AuditEntry.actor_user_id)
        .outerjoin(Agent, (Agent.tenant_id == AuditEntry.tenant_id) & (Agent.id == AuditEntry.actor_agent_id))
        .where(
            AuditEntry.tenant_id == actor.tenant_id,
            AuditEntry.subject_type == subject_type,
            AuditEntry.subject_id == subject_id,
            AuditEntry.action != f"{subject_type}.read",
        )
        .order_by(AuditEntry.created_at.desc(), AuditEntry.id)
        .limit(MOST)
    )
    return [Step(*row) for row in rows][::-1]
