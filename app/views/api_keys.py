"""Settings, API keys: made, shown once, revoked. And the note of when each key and login was last used."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, time
from typing import Any
from uuid import UUID

from flask import (
    Blueprint,
    Flask,
    Response,
    current_app,
    flash,
    g,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from sqlalchemy.exc import SQLAlchemyError

from app.actor import SCOPES
from app.db import acting_as, transaction
from app.errors import Invalid
from app.security.access import access
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity, last_used
from app.services.workspaces import keys as workspace_keys

bp = Blueprint("keys", __name__, url_prefix="/admin/settings/keys")

ABOUT = {
    "ingest": "send sessions, events and chats, and run agents",
    "feedback": "send feedback and read your own",
    "feedback-token": "let your server speak for the users of your product",
    "context": "read knowledge for prompts",
    "knowledge": "propose knowledge",
    "admin": "everything you can do here",
}


@bp.get("")
@access("admin")
def index() -> Any:
    return _page()


def _page(errors: dict[str, str] | None = None, key: str = "", status: int = 200) -> Response:
    """The page; `key` was just made and is shown this once."""
    html = render_template(
        "keys/index.html",
        keys=workspace_keys.list_keys(actor=g.actor),
        last_used=last_used.last_used,
        now=datetime.now(UTC),
        scopes=[(scope, ABOUT[scope]) for scope in SCOPES],
        chosen=request.form.getlist("scopes"),
        form=request.form if errors else {},
        errors=errors or {},
        key=key,
    )
    return make_response(html, status)


@bp.post("")
@access("admin")
def create() -> Any:
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
        return datetime.combine(datetime.strptime(day.strip(), "%Y-%m-%d").date(), time.max, UTC)  # noqa: DTZ007 - a day
    except ValueError:
        raise Invalid("No day.", {"expires": "Give a day such as 2030-12-31."}) from None


@bp.post("/<uuid:key_id>/revoke")
@access("admin")
def revoke(key_id: UUID) -> Any:
    with transaction():
        row = workspace_keys.revoke_key(key_id, actor=g.actor)
    flash(f"The key {row.name} does not work any more.", "success")
    return redirect(url_for("keys.index"), 303)


def note_use(response: Response) -> Response:
    """Remember in memory who was here; now and then write it down, beside the request."""
    actor = g.get("actor")
    if actor is not None and last_used.note(actor, g.get("login_id")):
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
        threading.Thread(target=_write_uses, args=(app,), name="uses", daemon=True).start()
    return response


def _write_uses(app: Flask) -> None:
    with app.app_context():
        try:
            write_uses()
        except SQLAlchemyError as trouble:
            app.logger.warning("the last uses of keys were not written: %s", trouble)


def write_uses() -> None:
    with last_used.writing:
        for batch in last_used.take():
            with acting_as(identity.product_in(batch.tenant_id)), transaction():
                last_used.write(batch)
            last_used.forget(batch)
        for tenant_id, noted in knowledge_usage.take().items():
            actor = identity.product_in(tenant_id)
            try:
                with acting_as(actor), transaction():
                    knowledge_usage.write(noted, actor=actor)
            except SQLAlchemyError:
                knowledge_usage.put_back(tenant_id, noted)
                raise


def register(app: Flask) -> None:
    app.register_blueprint(bp)
    app.after_request(note_use)
