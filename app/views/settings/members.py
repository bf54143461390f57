"""Settings, Members: who is in the workspace, what they may do, and who is invited."""

from typing import Any
from uuid import UUID

from flask import Response, current_app, g, redirect, request, url_for

from app.db import transaction
from app.errors import Invalid, Refused
from app.models.people import ROLES
from app.security.access import access
from app.services.workspaces import people
from app.views.auth import forget_cookie
from app.views.htmx import Toast, leave, render
from app.views.settings import bp


@bp.get("/members")
@access("admin")
def list_members() -> Any:
    return _page()


def _page(errors: dict[str, str] | None = None, link: str = "", status: int = 200) -> Response:
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
        return _page(wrong.fields, status=422)
    # The address people type, where the operator named it; a request may come in under another one.
    base = current_app.config["SETTINGS"].base_url or request.host_url
    return _page(link=base.rstrip("/") + url_for("auth.invitation", token=token), status=201)


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
        f"{name} is {role} already." if before == role else f"{name} is now {role}.",
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
    return leave(url_for("settings.list_members"), f"{name} is not in the workspace any more.")


@bp.post("/members/invites/<uuid:invite_id>/withdraw")
@access("admin")
def withdraw_invitation(invite_id: UUID) -> Any:
    with transaction():
        people.withdraw_invite(invite_id, actor=g.actor)
    return leave(url_for("settings.list_members"), "The invitation is withdrawn.")


def _refused(refusal: Refused | Invalid) -> Any:
    return leave(url_for("settings.list_members"), Toast(refusal.detail, "error"))
