"""Going over to another workspace of the same person."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, redirect, request

from app.db import transaction
from app.errors import NotFound
from app.security.access import access
from app.services.workspaces import logins
from app.views.auth import set_cookie

bp = Blueprint("workspace", __name__)


@bp.post("/workspace")
@access("signed_in")
def switch() -> Any:
    """A login is for one workspace: the one here ends, one there begins."""
    try:
        tenant_id = UUID(request.form.get("workspace", ""))
    except ValueError:
        raise NotFound("No such workspace.") from None
    if tenant_id == g.actor.tenant_id:
        return redirect("/", 303)
    with transaction():
        _, token = logins.switch(tenant_id, actor=g.actor, login_id=g.login_id, user_agent=request.user_agent.string)
    return set_cookie(redirect("/", 303), token)  # type: ignore[arg-type]


def register(app: Flask) -> None:
    app.register_blueprint(bp)
