"""One's own account: name, password, where one is signed in, and what agents remember."""

from functools import partial
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, g, request, url_for

from app.db import transaction
from app.errors import Invalid, NotFound, Throttled
from app.security.access import access
from app.services.knowledge import memories
from app.services.workspaces import keys, logins, people
from app.services.workspaces import store as workspace_store
from app.views.auth import password_attempt, refuse_attempt
from app.views.htmx import leave, render

bp = Blueprint("account", __name__, url_prefix="/account")


@bp.get("")
@access("signed_in")
def index() -> Any:
    return _page()


def _page(form: str = "", errors: dict[str, str] | None = None, status: int = 200) -> Response:
    """The page; `form` is the one whose fields are wrong."""
    user = people.get_person(g.actor.id, actor=g.actor)
    return render(
        "account/index.html",
        status=status,
        user=user,
        name=request.form.get("name", user.name) if form == "name" else user.name,
        name_errors=errors if form == "name" else {},
        password_errors=errors if form == "password" else {},
        logins=logins.list_logins(actor=g.actor),
        last_used=keys.last_used,
        browser_name=browser_name,
        memories=memories.list_memories(actor=g.actor),
        places=workspace_store.list_workspaces(g.actor.id),
    )


# The first mark that a browser carries names it: most of them claim to be others too.
BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")


def browser_name(user_agent: str | None) -> str:
    """`Firefox on Windows`; an unknown browser is shown as it came, cut."""
    text = user_agent or ""
    browser = next((name for mark, name in BROWSERS if mark in text), text[:40] or "Unknown browser")
    system = next((f" on {name}" for name in SYSTEMS if name in text), "").replace("Mac OS X", "macOS")
    return browser + system


@bp.post("/name")
@access("signed_in")
def rename() -> Any:
    try:
        with transaction():
            people.rename_person(request.form.get("name", ""), actor=g.actor)
    except Invalid as wrong:
        return _page("name", wrong.fields, 422)
    return leave(url_for("account.index"), "Changed your name.")


@bp.post("/password")
@access("signed_in")
def change_password() -> Any:
    """A wrong old password counts like a failed sign-in, so that an open browser is no way to guess it."""
    new = request.form.get("new", "")
    if new != request.form.get("again", ""):
        return _page("password", {"again": "The passwords don’t match."}, 422)
    try:
        with password_attempt(g.person.email or str(g.actor.id), str(g.login_id)):
            people.change_password(request.form.get("old", ""), new, actor=g.actor, keep=g.login_id)
    except (Invalid, Throttled) as wrong:
        return refuse_attempt(wrong, partial(_page, "password"), "old")
    return leave(url_for("account.index"), "Changed your password and signed you out everywhere else.")


@bp.post("/logins/<uuid:login_id>/end")
@access("signed_in")
def end_login(login_id: UUID) -> Any:
    with transaction():
        if not logins.end_login(login_id, actor=g.actor):
            raise NotFound("No such login.")
    return leave(url_for("account.index"), "Signed out that browser.")


@bp.post("/logins/end-others")
@access("signed_in")
def end_others() -> Any:
    with transaction():
        ended = logins.end_everywhere(actor=g.actor, keep=g.login_id)
    return leave(url_for("account.index"), f"Signed out {ended} other browser{'' if ended == 1 else 's'}.")


@bp.post("/memories/<uuid:memory_id>/delete")
@access("signed_in")
def delete_memory(memory_id: UUID) -> Any:
    with transaction():
        memories.delete_memory(memory_id, actor=g.actor)
    return leave(url_for("account.index") + "#h-memories", "Deleted 1 memory.")


@bp.post("/memories/delete")
@access("signed_in")
def delete_memories() -> Any:
    with transaction():
        gone = memories.delete_memories(actor=g.actor)
    return leave(url_for("account.index") + "#h-memories", f"Deleted {gone} {'memory' if gone == 1 else 'memories'}.")
