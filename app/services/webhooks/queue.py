"""Queue an event for the webhooks that want it, in the transaction of the change that it tells of."""

import json
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run

# Also part of the statement that writes feedback.
QUEUE = """INSERT INTO webhook_deliveries (tenant_id, webhook_id, event, subject_id, details)
    SELECT s.tenant_id, s.webhook_id, s.event, {subject}, {details}
      FROM {written}webhook_subscriptions AS s WHERE s.tenant_id = {tenant} AND s.event = {event}"""
QUEUE_ONE = QUEUE.format(
    written="", subject="%(subject)s::uuid", details="%(details)s::jsonb", tenant="%(tenant)s", event="%(event)s"
)


def queue_event(event: str, subject_id: UUID, *, actor: Actor, **details: Any) -> None:
    """Queue one of `WEBHOOK_EVENTS`. A workspace without webhooks pays one look into an index."""
    given = {"tenant": actor.tenant_id, "event": event, "subject": subject_id, "details": json.dumps(details)}
    run(QUEUE_ONE, given)
