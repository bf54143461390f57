"""Webhooks: where a workspace sends its events."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import counter, json_object, timestamp
from app.models.base import KeyedRow, Row, addressable, index, one_of, within

WEBHOOK_EVENTS = ("feedback.submitted", "proposal.created", "knowledge.activated", "eval.regressed")
WEBHOOK_FORMATS = ("json", "slack")
DELIVERY_STATUSES = ("pending", "delivered", "failed", "dropped")


class Webhook(Row):
    """An address that gets events. It can hold a secret, so only admins read it and nobody is shown more of it than its
    `origin`. What its events are signed with is derived from its id and stored nowhere."""

    __tablename__ = "webhooks"
    __table_args__ = (addressable(), CheckConstraint(one_of("format", WEBHOOK_FORMATS), name="format_known"))

    url: Mapped[str]
    origin: Mapped[str]
    format: Mapped[str]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))


class WebhookSubscription(KeyedRow):
    """An event that a webhook gets. Every member's transaction reads these, and they say nothing else."""

    __tablename__ = "webhook_subscriptions"
    __table_args__ = (
        within("webhooks", "webhook_id", ondelete="CASCADE"),
        index("webhook_subscriptions_hook_idx", "tenant_id, webhook_id"),
        CheckConstraint(one_of("event", WEBHOOK_EVENTS), name="event_known"),
    )

    event: Mapped[str] = mapped_column(primary_key=True)
    webhook_id: Mapped[UUID] = mapped_column(primary_key=True)


class WebhookDelivery(Row):
    """One event for one webhook, written with the change that it tells of. Its payload is made when it is first sent. A
    row that is being sent is due again when its lease is over."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        within("webhooks", "webhook_id", ondelete="CASCADE"),
        index("webhook_deliveries_due_idx", "tenant_id, next_at, id", where="status = 'pending'"),
        index("webhook_deliveries_recent_idx", "tenant_id, created_at DESC, id DESC"),
        index("webhook_deliveries_hook_idx", "tenant_id, webhook_id, created_at DESC, id DESC"),
        CheckConstraint(one_of("status", DELIVERY_STATUSES), name="status_known"),
        CheckConstraint("(status = 'pending') = (finished_at IS NULL)", name="ends"),
    )

    webhook_id: Mapped[UUID]
    event: Mapped[str]
    subject_id: Mapped[UUID | None]
    details: Mapped[json_object]
    status: Mapped[str] = mapped_column(server_default="pending")
    attempt: Mapped[counter]
    next_at: Mapped[timestamp]
    payload: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    response_status: Mapped[int | None]
    error: Mapped[str | None]
    finished_at: Mapped[datetime | None]
