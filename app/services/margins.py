"""What was said about a session or a conversation, for the margin of its transcript."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import Feedback, Tenant
from app.services.feedback_lists import FeedbackRow, _readable, _row, _with_names
from app.services.workspaces import keep_settings

MOST = 100


def feedback_about(*, actor: Actor, session_id: UUID | None = None, chats: Collection[str] = ()) -> list[FeedbackRow]:
    """The newest 100 rows about a session or about a chat, by whatever it is called. Members get their own. One query:
    whether authors are hidden is read along with them."""
    settings = select(Tenant.settings).where(Tenant.id == actor.tenant_id).scalar_subquery()
    about = Feedback.session_id == session_id if session_id else Feedback.chat_id.in_(chats)
    rows: list[Any] = list(
        db.session.execute(
            _with_names(settings)
            .where(*_readable(actor), about)
            .order_by(Feedback.created_at.desc(), Feedback.id.desc())
            .limit(MOST)
        )
    )
    if not rows:
        return []
    hides = actor.is_admin and keep_settings(rows[0][-1], actor=actor).author_private
    return [_row(row, actor, hides) for row in rows]
