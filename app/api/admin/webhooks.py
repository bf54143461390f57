"""Webhooks over the API."""

from typing import Annotated, Literal, get_args
from uuid import UUID

from flask import current_app, g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Moment, Query
from app.services.webhooks import store as webhook_store

Event = Literal["feedback.submitted", "proposal.created", "knowledge.activated", "eval.regressed"]
Format = Literal["json", "slack"]


class NewWebhook(Body):
    """A new webhook."""

    url: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="A public address, or one the operator allows. It isn't shown again."
    )
    events: list[Event] = Field(
        list(get_args(Event)), min_length=1, max_length=4, description=("Defaults to all events.")
    )
    format: Format = Field("json", description="Use `slack` for Slack-compatible webhooks.")


class WebhookAnswer(Answer):
    """A webhook. Only the host of its address is shown."""

    id: UUID
    url: str
    format: Format
    events: list[Event]
    created_at: Moment
    last_status: Literal["pending", "delivered", "failed", "dropped"] | None = Field(
        description="Status of the newest delivery. Null before the first."
    )
    last_at: Moment | None
    last_error: str | None


class WebhookMade(WebhookAnswer):
    """A new webhook with its signing secret, which is shown only once."""

    secret: str


class WebhookList(Answer):
    """The workspace's webhooks, newest first."""

    items: list[WebhookAnswer]
    next_cursor: None = None


@admin_route("GET", "/api/admin/webhooks")
def list_webhooks(query: Query) -> WebhookList:
    """List webhooks. Includes the status of the newest delivery."""
    return WebhookList(items=[WebhookAnswer.model_validate(one) for one in webhook_store.list_webhooks(actor=g.actor)])


@admin_route("POST", "/api/admin/webhooks", status=201, also={409: "The workspace already has ten webhooks."})
def add_webhook(body: NewWebhook) -> WebhookMade:
    """Create a webhook. Events are POSTed with `X-Upshot-Signature: t=…,v1=…`, where `v1` is the HMAC-SHA256 of `t`,
    a dot and the body, keyed with the returned `secret`."""
    allow = current_app.config["SETTINGS"].outbound_allow
    row = webhook_store.add_webhook(body.url, body.events, body.format, allow=allow, actor=g.actor)
    secret = webhook_store.signing_secret(current_app.config["SECRET_KEY"], row.id)
    shown = next(one for one in webhook_store.list_webhooks(actor=g.actor) if one.id == row.id)
    return WebhookMade(**vars(shown), secret=secret)


@admin_route("DELETE", "/api/admin/webhooks/<uuid:webhook_id>", status=204)
def delete_webhook(webhook_id: UUID) -> None:
    """Delete a webhook. Deletes its deliveries too. Waiting events are not sent."""
    webhook_store.delete_webhook(webhook_id, actor=g.actor)


@admin_route("POST", "/api/admin/webhooks/<uuid:webhook_id>/test", status=202)
def test_webhook(webhook_id: UUID) -> None:
    """Send a test event. It arrives within seconds. The list shows its status."""
    webhook_store.queue_test(webhook_id, actor=g.actor)
