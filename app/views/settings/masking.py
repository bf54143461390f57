"""Settings, Masking: what is taken out of texts before they are stored, and a box to try it."""

from typing import Any

from flask import g, request, url_for

from app.db import transaction
from app.security.access import access
from app.services.workspaces import store as workspace_store
from app.text.masking import Masking
from app.views.htmx import leave, page
from app.views.settings import bp

MAX_LENGTH = 65_536
EXAMPLE = (
    "Use api_key=9f8a7b6c5d4e3f2a1b0c and pay with 4242 4242 4242 4242. Questions: sam@example.com, +49 30 1234567."
)


@bp.get("/masking")
@access("admin")
def show_masking() -> Any:
    return _page()


def _page(text: str = "", status: int = 200) -> Any:
    settings = workspace_store.get_settings(g.actor)
    masking = Masking(settings.mask_emails, settings.mask_phones)
    return page(
        "settings/masking.html",
        "settings/_masking.html",
        status=status,
        settings=settings,
        text=text or EXAMPLE,
        tried=bool(text),
        masked=masking.text(text or EXAMPLE),
        errors={"text": f"Use at most {MAX_LENGTH:,} characters."} if status == 422 else {},
        longest=MAX_LENGTH,
    )


@bp.post("/masking")
@access("admin")
def save_masking() -> Any:
    changes = {name: request.form.get(name) == "1" for name in ("mask_emails", "mask_phones")}
    with transaction():
        workspace_store.change_settings(changes, actor=g.actor)
    return leave(url_for("settings.show_masking"), "The settings are saved. They hold for what comes in from now on.")


@bp.post("/masking/try")
@access("admin")
def try_masking() -> Any:
    """Nothing of it is stored or logged."""
    text = request.form.get("text", "").replace("\r\n", "\n")
    return _page(text[:MAX_LENGTH], 422 if len(text) > MAX_LENGTH else 200)
