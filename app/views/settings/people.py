"""Settings, Members and API keys: invited, given roles and removed; made, shown once and revoked."""

from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from flask import Response, current_app, g, redirect, request, url_for

from app.actor import SCOPES
from app.db import transaction
from app.errors import Invalid, Refused
from app.models.people import ROLES
from app.security.access import access
from app.services.workspaces import keys as workspace_keys
from app.services.workspaces import people
from app.views.auth import forget_cookie
from app.views.htmx import Toast, leave, render
from app.views.settings import bp

ABOUT = {
    "ingest": "send sessions, events and chats, and run agents",
    "feedback": "send feedback and read your own",
    "feedback-token": "send feedback for your product’s users",
    "context": "read knowledge for prompts",
    "knowledge": "propose knowledge",
    "admin": "everything you can do",
}


@bp.get("/members")
@access("admin")
def list_members() -> Any:
    return _members_page()


def _members_page(errors: dict[str, str] | None = None, link: str = "", status: int = 200) -> Response:
    """The page; `link` is an invitation that was just made and is shown this once."""
    return render(
        "settings/members.html",
        status=status,
        members=people.list_members(actor=g.actor),
        invites=people.list_invites(actor=g.actor),
        roles=[(role, role.capitalize()) for role in ROLES if role != "owner" or g.actor.at_least("owner")],
        form=request.form if errors else {},
        errors=errors or {},
        link=link,
        invited=request.form.get("email", "").strip() if link else "",
    )


@bp.post("/members")
@access("admin")
def invite_member() -> Any:
    email, role = request.form.get("email", ""), request.form.get("role", "")
    try:
        with transaction():
            token = people.invite_person(email=email, role=role, actor=g.actor)
    except Invalid as wrong:
        return _members_page(wrong.fields, status=422)
    # The address people type, where the operator named it; a request may come in under another one.
    base = current_app.config["SETTINGS"].base_url or request.host_url
    return _members_page(link=base.rstrip("/") + url_for("auth.invitation", token=token), status=201)


@bp.post("/members/<uuid:user_id>/role")
@access("admin")
def change_role(user_id: UUID) -> Any:
    role = request.form.get("role", "")
    try:
        with transaction():
            before = people.change_role(user_id, role, actor=g.actor)
            name = people.get_person(user_id, actor=g.actor).name
    except (Refused, Invalid) as refusal:
        return _refused(refusal)
    return leave(
        "/" if user_id == g.actor.id and before != role else url_for("settings.list_members"),
        f"{name} is already {role}." if before == role else f"{name} is now {role}.",
    )


@bp.post("/members/<uuid:user_id>/remove")
@access("admin")
def remove_member(user_id: UUID) -> Any:
    try:
        with transaction():
            name = people.get_person(user_id, actor=g.actor).name
            people.remove_member(user_id, actor=g.actor)
    except Refused as refusal:
        return _refused(refusal)
    if user_id == g.actor.id:
        return forget_cookie(redirect("/sign-in", 303))
    return leave(url_for("settings.list_members"), f"Removed {name}.")


@bp.post("/members/invites/<uuid:invite_id>/withdraw")
@access("admin")
def withdraw_invitation(invite_id: UUID) -> Any:
    with transaction():
        people.withdraw_invite(invite_id, actor=g.actor)
    return leave(url_for("settings.list_members"), "Withdrew the invitation.")


def _refused(refusal: Refused | Invalid) -> Any:
    return leave(url_for("settings.list_members"), Toast(refusal.detail, "error"))


@bp.get("/keys")
@access("admin")
def list_keys() -> Any:
    return _keys_page()


def _keys_page(errors: dict[str, str] | None = None, key: str = "", status: int = 200) -> Response:
    """The page; `key` was just made and is shown this once."""
    return render(
        "settings/keys.html",
        status=status,
        keys=workspace_keys.list_keys(actor=g.actor),
        last_used=workspace_keys.last_used,
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
        return _keys_page(wrong.fields, status=422)
    return _keys_page(key=key, status=201)


def _end_of(day: str) -> datetime | None:
    """The end of the day, so that the key works on it; None when no day was chosen."""
    if not day.strip():
        return None
    try:
        return datetime.combine(date.fromisoformat(day.strip()), time.max, UTC)
    except ValueError:
        raise Invalid.of({"expires": "Enter a date such as 2030-12-31."}) from None


@bp.post("/keys/<uuid:key_id>/revoke")
@access("admin")
def revoke_key(key_id: UUID) -> Any:
    with transaction():
        row = workspace_keys.revoke_key(key_id, actor=g.actor)
    return leave(url_for("settings.list_keys"), f"Revoked {row.name}.")
