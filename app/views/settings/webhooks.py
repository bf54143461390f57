"""Settings: Webhooks."""

from typing import Any
from uuid import UUID

from flask import Response, current_app, g, request, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid, Refused
from app.models.webhooks import WEBHOOK_EVENTS
from app.security.access import access
from app.services.webhooks import store as webhook_store
from app.views.htmx import leave, render
from app.views.lists import page_cursor, pager_links
from app.views.settings import bp

EVENT_WORDS = {
    "feedback.submitted": "New feedback",
    "proposal.created": "New proposal",
    "knowledge.activated": "Rule activated",
    "eval.regressed": "Golden set dropped",
}
FORMAT_WORDS = {"json": "JSON", "slack": "Slack"}


@bp.get("/webhooks")
@access("admin")
def list_webhooks() -> Any:
    return _webhooks_page()


def _webhooks_page(errors: dict[str, str] | None = None, secret: str = "", status: int = 200) -> Response:
    """The page; `secret` belongs to a webhook that was just added and is shown this once."""
    found = webhook_store.list_deliveries(Page(50, page_cursor()), actor=g.actor)
    return render(
        "settings/webhooks.html",
        status=status,
        webhooks=webhook_store.list_webhooks(actor=g.actor),
        found=found,
        events=[(event, EVENT_WORDS[event]) for event in WEBHOOK_EVENTS],
        words=EVENT_WORDS | {webhook_store.TEST_EVENT: "Test event"},
        formats=list(FORMAT_WORDS.items()),
        chosen=request.form.getlist("events"),
        form=request.form if errors else {},
        errors=errors or {},
        secret=secret,
        **pager_links(found),
    )


@bp.post("/webhooks")
@access("admin")
def add_webhook() -> Any:
    form, allow = request.form, current_app.config["SETTINGS"].outbound_allow
    try:
        with transaction():
            row = webhook_store.add_webhook(
                form.get("url", ""), form.getlist("events"), form.get("format", ""), allow=allow, actor=g.actor
            )
            secret = webhook_store.signing_secret(current_app.config["SECRET_KEY"], row.id)
    except Invalid as wrong:
        return _webhooks_page(wrong.fields, status=422)
    except Refused as refusal:
        return _webhooks_page({"url": refusal.detail}, status=409)
    return _webhooks_page(secret=secret, status=201)


@bp.post("/webhooks/<uuid:webhook_id>/test")
@access("admin")
def test_webhook(webhook_id: UUID) -> Any:
    with transaction():
        webhook_store.queue_test(webhook_id, actor=g.actor)
    return leave(url_for("settings.list_webhooks"), "Queued a test event. Reload in a few seconds to see the result.")


@bp.post("/webhooks/<uuid:webhook_id>/delete")
@access("admin")
def delete_webhook(webhook_id: UUID) -> Any:
    with transaction():
        url = webhook_store.delete_webhook(webhook_id, actor=g.actor)
    return leave(url_for("settings.list_webhooks"), f"Deleted the webhook to {url}.")
