"""Signing in and out: with a password, with a link that works once, into the demo, and by invitation.

Each of them works as somebody who is not yet proved to be them; `acting_as` sees to it that this ends with it.
"""

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, current_app, g, make_response, redirect, render_template, request

from app.actor import Actor
from app.db import acting_as, transaction
from app.errors import Invalid, NotFound, Throttled
from app.security import cookies, known_browsers
from app.security.access import access
from app.services.workspaces import identity, logins, people, throttle
from app.services.workspaces.people import Invitation
from app.views.htmx import local_path, vary_by_htmx

DEVICE = "upshot_device"
bp = Blueprint("auth", __name__)


@bp.get("/sign-in")
@access("public", also="person")
def sign_in() -> Any:
    """The form, or a redirect for people who are signed in."""
    if g.actor is not None:
        return redirect(local_path(request.args.get("next")), 303)
    return _form(request.args.get("next"))


@bp.post("/sign-in")
@access("public", also="person")
def sign_in_with_password() -> Any:
    wanted, email = request.form.get("next"), request.form.get("email", "")
    missing = {name: text for name, text in MISSING.items() if not request.form.get(name, "").strip()}
    if missing:
        return _form(wanted, email, missing, 422)
    try:
        device = known_device(email)
        attempt = count_attempt(email, device)
        try:
            with acting_as(g.actor), transaction():
                actor, token = logins.sign_in(
                    email,
                    request.form["password"],
                    address=address(),
                    user_agent=request.user_agent.string,
                    request_id=g.request_id,
                    device=device,
                )
        except Invalid as wrong:
            if not attempt.last:
                return _form(wanted, email, wrong.fields, 422)
            raise throttle.too_many(attempt.retry_after) from None
    except Throttled as pause:
        return with_retry_after(_form(wanted, email, {"password": pause.detail}, 429), pause)
    return sign_in_as(actor, token, local_path(wanted))


MISSING = {"email": "Give your e-mail address.", "password": "Give your password."}


def _form(wanted: str | None, email: str = "", errors: dict[str, str] | None = None, status: int = 200) -> Response:
    html = render_template(
        "auth/sign_in.html",
        email=email,
        errors=errors or {},
        wanted=local_path(wanted, ""),
        demo=current_app.config["DEMO"],
    )
    return make_response(html, status)


@bp.post("/sign-out")
@access("signed_in")
def sign_out() -> Any:
    with transaction():
        if g.login_id is not None:
            logins.end_login(g.login_id, actor=g.actor)
    return forget_cookie(redirect("/sign-in", 303))


@bp.get("/sign-in/link/<token>")
@access("public", also="person")
def link(token: str) -> Any:
    """One button. Mail programs and chats open links by themselves, so opening it uses nothing up."""
    with acting_as(g.actor):
        works = logins.link_works(token)
    return render_template("auth/link.html", token=token) if works else _show_spent(logins.SPENT_LINK)


@bp.post("/sign-in/link/<token>")
@access("public", also="person")
def use_link(token: str) -> Any:
    try:
        with acting_as(g.actor), transaction():
            actor, login = logins.use_link(token, user_agent=request.user_agent.string, request_id=g.request_id)
    except NotFound as spent:
        return _show_spent(spent.detail)
    return sign_in_as(actor, login, "/")


@bp.post("/demo/enter")
@access("public", also="person")
def enter_demo() -> Any:
    if not current_app.config["DEMO"]:
        raise NotFound("There is no demo here.")
    with acting_as(g.actor), transaction():
        actor, token = logins.enter_demo(user_agent=request.user_agent.string, request_id=g.request_id)
    return sign_in_as(actor, token, local_path(request.form.get("next")))


@bp.get("/invite/<token>")
@access("public", also="person")
def invitation(token: str) -> Any:
    try:
        return _invitation(token, _look_up(token))
    except NotFound as spent:
        return _show_spent(spent.detail)


@bp.post("/invite/<token>")
@access("public", also="person")
def accept_invitation(token: str) -> Any:
    try:
        invited = _look_up(token)
        return sign_in_as(*_join(token, invited), "/")
    except Invalid as wrong:
        return _invitation(token, invited, wrong.fields, 422)
    except Throttled as pause:
        return with_retry_after(_invitation(token, invited, {"password": pause.detail}, 429), pause)
    except NotFound as spent:
        return _show_spent(spent.detail)


def _join(token: str, invited: Invitation) -> tuple[Actor, str]:
    """Accept the invitation and sign in. The password may be a guess at that of an account, so it is counted like any
    other, also where there is no account: what the page answers must not tell."""
    name, password = request.form.get("name", ""), request.form.get("password", "")
    mine = _is_me(invited)
    if not mine:
        people.check_newcomer(name, password, invited.email)
    device = str(g.login_id) if mine else known_device(invited.email)
    attempt = count_attempt(invited.email, device)
    try:
        with acting_as(g.actor), transaction():
            actor = people.accept_invite(
                token, name, password, signed_in_as=g.actor.id if g.actor else None, request_id=g.request_id
            )
            throttle.forget_attempts(invited.email, address(), device)
            return actor, logins.begin_login(actor=actor, user_agent=request.user_agent.string)
    except Invalid:
        if attempt.last:
            raise throttle.too_many(attempt.retry_after) from None
        raise


def _look_up(token: str) -> Invitation:
    with acting_as(g.actor):
        return people.look_up_invite(token)


def _is_me(invited: Invitation) -> bool:
    return g.actor is not None and invited.user_id == g.actor.id


def _invitation(token: str, invited: Invitation, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    html = render_template(
        "auth/invite.html",
        token=token,
        invited=invited,
        mine=_is_me(invited),
        name=request.form.get("name", ""),
        errors=errors or {},
    )
    return make_response(html, status)


def _show_spent(sentence: str) -> Response:
    return make_response(render_template("auth/spent.html", sentence=sentence), 404)


def count_attempt(email: str, device: str | None) -> throttle.Attempt:
    """Count an attempt for good, before the password is looked at."""
    with transaction():
        return throttle.count_attempt(email, address(), device)


def known_device(email: str) -> str | None:
    """What this browser is called if the person with this e-mail signed in with it before."""
    cookie = request.cookies.get(cookies.cookie_name(DEVICE))
    if not cookie:
        return None
    with acting_as(g.actor):
        user_id = identity.find_user(email)
    return known_browsers.find_mark(current_app.config["SECRET_KEY"], cookie, user_id) if user_id else None


def address() -> str:
    return request.remote_addr or ""


def with_retry_after(answer: Response, pause: Throttled) -> Response:
    answer.headers["Retry-After"] = str(pause.retry_after)
    return answer


def sign_in_as(actor: Actor, token: str, to: str) -> Response:
    """Go on with the new login. The one that the browser had before, if any, ends: a login never changes hands."""
    if g.login_id is not None:
        with acting_as(g.actor), transaction():
            logins.end_login(g.login_id, actor=g.actor)
    answer: Any = redirect(to, 303)
    name = cookies.cookie_name(DEVICE)
    mark = known_browsers.add_mark(current_app.config["SECRET_KEY"], request.cookies.get(name, ""), actor.id)
    _set_cookie(answer, name, mark, known_browsers.LIFETIME)
    return set_cookie(answer, token)


def set_cookie(answer: Response, token: str) -> Response:
    _set_cookie(answer, cookies.cookie_name(), token, int(logins.LIFETIME.total_seconds()))
    return vary_by_htmx(answer)


def _set_cookie(answer: Response, name: str, value: str, seconds: int) -> None:
    secure = current_app.config["SECURE"]
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="Lax", secure=secure, path="/")


def forget_cookie(answer: Any) -> Response:
    answer.delete_cookie(
        cookies.cookie_name(), path="/", secure=current_app.config["SECURE"], httponly=True, samesite="Lax"
    )
    return vary_by_htmx(answer)


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
        _, token = logins.switch_workspace(
            tenant_id, actor=g.actor, login_id=g.login_id, user_agent=request.user_agent.string
        )
    return set_cookie(redirect("/", 303), token)  # type: ignore[arg-type]
