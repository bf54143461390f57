"""Settings, API keys: made, shown once, revoked."""

from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from flask import Response, g, request, url_for

from app.actor import SCOPES
from app.db import transaction
from app.errors import Invalid
from app.security.access import access
from app.services.workspaces import keys as workspace_keys
from app.services.workspaces import last_used
from app.views.htmx import leave, render
from app.views.settings import bp

ABOUT = {
    "ingest": "send sessions, events and chats, and run agents",
    "feedback": "send feedback and read your own",
    "feedback-token": "let your server speak for the users of your product",
    "context": "read knowledge for prompts",
    "knowledge": "propose knowledge",
    "admin": "everything you can do here",
}


@bp.get("/keys")
@access("admin")
def list_keys() -> Any:
    return _page()


def _page(errors: dict[str, str] | None = None, key: str = "", status: int = 200) -> Response:
    """The page; `key` was just made and is shown this once."""
    return render(
        "settings/keys.html",
        status=status,
        keys=workspace_keys.list_keys(actor=g.actor),
        last_used=last_used.last_used,
        now=datetime.now(UTC),
        scopes=[(scope, ABOUT[scope]) for scope in SCOPES],
        chosen=request.form.getlist("scopes"),
        form=request.form if errors else {},
        errors=errors or {},
        key=key,
    )


@bp.post("/keys")
@access("admin")
def create_key() -> Any:
    try:
        expires_at = _end_of(request.form.get("expires", ""))
        with transaction():
            _, key = workspace_keys.create_key(
                name=request.form.get("name", ""),
                scopes=request.form.getlist("scopes"),
                actor=g.actor,
                expires_at=expires_at,
            )
    except Invalid as wrong:
        return _page(wrong.fields, status=422)
    return _page(key=key, status=201)


def _end_of(day: str) -> datetime | None:
    """The end of the day, so that the key works on it; None when no day was chosen."""
    if not day.strip():
        return None
    try:
        return datetime.combine(date.fromisoformat(day.strip()), time.max, UTC)
    except ValueError:
        raise Invalid.of({"expires": "Give a day such as 2030-12-31."}) from None


@bp.post("/keys/<uuid:key_id>/revoke")
@access("admin")
def revoke_key(key_id: UUID) -> Any:
    with transaction():
        row = workspace_keys.revoke_key(key_id, actor=g.actor)
    return leave(url_for("settings.list_keys"), f"The key {row.name} does not work any more.")
