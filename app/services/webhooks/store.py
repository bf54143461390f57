"""The webhooks of a workspace: added, tried, removed, and what became of their deliveries."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select

from app import tokens
from app.actor import Actor
from app.db import db, get_own
from app.db.paging import Page, Slice, read_page
from app.errors import Invalid, Refused
from app.formats.outbound_rules import check_address, format_host
from app.models import Webhook, WebhookDelivery, WebhookSubscription
from app.models.webhooks import WEBHOOK_EVENTS, WEBHOOK_FORMATS
from app.services import audit

MAX_WEBHOOKS = 10
TEST_EVENT = "test"


@dataclass(frozen=True)
class WebhookRow:
    """A webhook as it is shown: `url` ends after the host, since what follows is often a secret."""

    id: UUID
    url: str
    format: str
    events: list[str]
    created_at: datetime
    last_status: str | None = None
    last_at: datetime | None = None
    last_error: str | None = None


def signing_secret(secret_key: str, webhook_id: UUID) -> str:
    """What a webhook's events are signed with. It is derived, so that no table holds it."""
    return f"whsec_{tokens.sign(secret_key, 'webhook', str(webhook_id))}"


def add_webhook(url: str, events: Collection[str], format: str, *, allow: str, actor: Actor) -> Webhook:
    """Send these events to an address from now on. `allow` is the operator's list of private hosts."""
    actor.check_admin("Only admins can add webhooks.")
    wrong = {}
    if format not in WEBHOOK_FORMATS:
        wrong["format"] = f"Use one of {', '.join(WEBHOOK_FORMATS)}."
    if not events or not set(events) <= set(WEBHOOK_EVENTS):
        wrong["events"] = f"Choose one or more of {', '.join(WEBHOOK_EVENTS)}."
    try:
        target = check_address(url, allow)
    except Invalid as refusal:
        wrong["url"] = refusal.detail
    if wrong:
        raise Invalid.of(wrong)
    _check_room(actor)
    origin = f"{target.scheme}://{format_host(target.host, target.port, target.scheme)}"
    row = Webhook(tenant_id=actor.tenant_id, url=target.url, origin=origin, format=format, created_by=actor.id)
    db.session.add(row)
    db.session.flush()
    chosen = [event for event in WEBHOOK_EVENTS if event in events]
    db.session.add_all(
        WebhookSubscription(tenant_id=actor.tenant_id, event=event, webhook_id=row.id) for event in chosen
    )
    db.session.flush()
    audit.record(actor, "webhook.added", "webhook", row.id, url=origin, format=format, events=chosen)
    return row


def _check_room(actor: Actor) -> None:
    number = db.session.scalar(select(func.count()).where(Webhook.tenant_id == actor.tenant_id)) or 0
    if number >= MAX_WEBHOOKS:
        raise Refused(f"A workspace has at most {MAX_WEBHOOKS} webhooks. Delete one first.")


def delete_webhook(webhook_id: UUID, *, actor: Actor) -> str:
    """Delete a webhook with its deliveries, and return the part of its address that is no secret."""
    actor.check_admin("Only admins can delete webhooks.")
    row = get_own(Webhook, webhook_id, "webhook", actor=actor)
    origin = row.origin
    db.session.execute(delete(Webhook).where(Webhook.tenant_id == actor.tenant_id, Webhook.id == webhook_id))
    audit.record(actor, "webhook.deleted", "webhook", webhook_id, url=origin)
    return origin


def queue_test(webhook_id: UUID, *, actor: Actor) -> None:
    """Queue an event that says that it is a test."""
    actor.check_admin("Only admins can test webhooks.")
    get_own(Webhook, webhook_id, "webhook", actor=actor)
    db.session.add(WebhookDelivery(tenant_id=actor.tenant_id, webhook_id=webhook_id, event=TEST_EVENT))
    db.session.flush()
    audit.record(actor, "webhook.tested", "webhook", webhook_id)


def list_webhooks(*, actor: Actor) -> list[WebhookRow]:
    """The webhooks of the workspace, the newest first, each with its last delivery. Two queries."""
    actor.check_admin("Only admins can see webhooks.")
    subscription, sent = WebhookSubscription, WebhookDelivery
    last = (
        select(sent.status, sent.created_at, sent.error)
        .where(sent.tenant_id == Webhook.tenant_id, sent.webhook_id == Webhook.id)
        .order_by(sent.created_at.desc(), sent.id.desc())
        .limit(1)
        .lateral()
    )
    rows = db.session.execute(
        select(Webhook, last.c.status, last.c.created_at, last.c.error)
        .outerjoin(last, last.c.status.is_not(None))
        .where(Webhook.tenant_id == actor.tenant_id)
        .order_by(Webhook.created_at.desc(), Webhook.id)
    ).all()
    pairs: Any = db.session.execute(
        select(subscription.webhook_id, subscription.event).where(subscription.tenant_id == actor.tenant_id)
    ).all()
    events: dict[UUID, list[str]] = {}
    for webhook_id, event in sorted(pairs, key=lambda pair: WEBHOOK_EVENTS.index(pair[1])):
        events.setdefault(webhook_id, []).append(event)
    return [
        WebhookRow(row.id, f"{row.origin}/…", row.format, events.get(row.id, []), row.created_at, *last)
        for row, *last in rows
    ]


def list_deliveries(page: Page, *, actor: Actor) -> Slice[WebhookDelivery]:
    """The deliveries of the workspace, newest first."""
    actor.check_admin("Only admins can see deliveries.")
    sent = WebhookDelivery
    statement: Any = select(sent)
    found = read_page(statement, page, at=sent.created_at, id=sent.id, where=[sent.tenant_id == actor.tenant_id])
    return found.map(lambda row: row[0])
