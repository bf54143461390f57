"""Deliveries that are due: claimed under a lease, and finished by whoever holds it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, text, update

from app.actor import Actor
from app.db import db
from app.models import Webhook, WebhookDelivery
from app.services.webhooks.payload import build_payload, slack_message

LEASE = timedelta(seconds=60)
# Pauses between attempts; after the last one it has failed.
BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200, 21600))
KEPT_FOR = timedelta(days=30)
WAITING = text("SELECT door_deliveries()")


@dataclass(frozen=True)
class Claimed:
    """A delivery to make now: where, what, and under which attempt."""

    id: UUID
    webhook_id: UUID
    attempt: int
    event: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a server answered; or why it did not, in a sentence."""

    status: int | None = None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def waiting_workspaces() -> list[UUID]:
    """The workspaces with deliveries that are due."""
    return list(db.session.scalars(WAITING))


def claim_due(base_url: str, *, actor: Actor, most: int) -> list[Claimed]:
    """Claim up to so many deliveries of the actor's workspace. What was deleted meanwhile is dropped."""
    sent = WebhookDelivery
    due = (
        select(sent, Webhook)
        .join(Webhook, (Webhook.tenant_id == sent.tenant_id) & (Webhook.id == sent.webhook_id))
        .where(sent.tenant_id == actor.tenant_id, sent.status == "pending", sent.next_at <= func.clock_timestamp())
        .order_by(sent.next_at, sent.id)
        .limit(most)
        .with_for_update(of=sent, skip_locked=True)
    )
    now: datetime = db.session.scalar(select(func.clock_timestamp()))  # type: ignore[assignment]
    claimed = []
    for row, hook in db.session.execute(due).all():
        row.attempt, row.next_at = row.attempt + 1, now + LEASE
        row.payload = row.payload or build_payload(row, base_url, actor=actor)
        if row.payload is None:
            row.status, row.finished_at, row.error = "dropped", now, "It was deleted before it was sent."
            continue
        body = slack_message(row.payload) if hook.format == "slack" else row.payload
        claimed.append(Claimed(row.id, hook.id, row.attempt, row.event, hook.url, body))
    db.session.flush()
    return claimed


def finish(claimed: Claimed, outcome: Outcome, *, actor: Actor) -> bool:
    """Write down how it went, unless someone else claimed it meanwhile."""
    pause = BACKOFF[claimed.attempt - 1] if claimed.attempt <= len(BACKOFF) else None
    status = "delivered" if outcome.delivered else "pending" if pause else "failed"
    values: dict[str, Any] = {"status": status, "response_status": outcome.status, "error": outcome.error}
    if status == "pending":
        values["next_at"] = func.clock_timestamp() + pause
    else:
        values["finished_at"] = func.clock_timestamp()
    sent = WebhookDelivery
    mine = (sent.tenant_id == actor.tenant_id, sent.id == claimed.id, sent.attempt == claimed.attempt)
    done = db.session.execute(update(sent).where(*mine, sent.status == "pending").values(**values))
    return bool(done.rowcount)  # type: ignore[attr-defined]


def forget_old(*, actor: Actor) -> None:
    """Deliveries are kept for 30 days."""
    sent = WebhookDelivery
    old = sent.finished_at < func.now() - KEPT_FOR
    db.session.execute(delete(sent).where(sent.tenant_id == actor.tenant_id, old))
