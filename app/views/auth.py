"""Signing in and out: with a password, with a link that works once, into the demo, and by invitation.

Each of them works as someone who is not yet proved to be them; `acting_as` sees to it that this ends with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from flask import Blueprint, Response, current_app, g, redirect, render_template, request

from app.actor import Actor
from app.db import acting_as, transaction
from app.errors import Invalid, NotFound, Throttled
from app.formats.ids import parse_id
from app.security import cookies
from app.security.access import access
from app.services.workspaces import identity, logins, people, throttle
from app.services.workspaces.people import Invitation
from app.views.htmx import local_path, render, vary_by_htmx

DEVICE = "upshot_device"
MISSING = {"email": "Enter your email address.", "password": "Enter your password."}
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
    show = partial(_form, wanted, email)
    missing = {name: text for name, text in MISSING.items() if not request.form.get(name, "").strip()}
    if missing:
        return show(missing, 422)
    try:
        with password_attempt(email, known_device(email)):
            actor, token = logins.sign_in(email, request.form["password"], **_visit())
    except (Invalid, Throttled) as wrong:
        return refuse_attempt(wrong, show)
    return sign_in_as(actor, token, local_path(wanted))


def _form(wanted: str | None, email: str = "", errors: dict[str, str] | None = None, status: int = 200) -> Response:
    return render(
        "auth/sign_in.html",
        status=status,
        email=email,
        errors=errors or {},
        wanted=local_path(wanted, ""),
        demo=current_app.config["DEMO"],
    )


def _visit() -> dict[str, Any]:
    return {"user_agent": request.user_agent.string, "request_id": g.request_id}


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
            actor, login = logins.use_link(token, **_visit())
    except NotFound as spent:
        return _show_spent(spent.detail)
    return sign_in_as(actor, login, "/")


@bp.post("/demo/enter")
@access("public", also="person")
def enter_demo() -> Any:
    if not current_app.config["DEMO"]:
        raise NotFound("This server has no demo.")
    with acting_as(g.actor), transaction():
        actor, token = logins.enter_demo(**_visit())
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
    except (Invalid, Throttled) as wrong:
        return refuse_attempt(wrong, partial(_invitation, token, invited))
    except NotFound as spent:
        return _show_spent(spent.detail)


def _join(token: str, invited: Invitation) -> tuple[Actor, str]:
    """Accept the invitation and sign in. The password may be a guess at that of an account, so it is counted like any
    other, also where there is no account: what the page answers must not tell."""
    name, password = request.form.get("name", ""), request.form.get("password", "")
    mine = _is_me(invited)
    if not mine:
        people.check_newcomer(name, password, invited.email)
    signed_in_as = g.actor.id if g.actor else None
    with password_attempt(invited.email, str(g.login_id) if mine else known_device(invited.email)):
        actor = people.accept_invite(token, name, password, signed_in_as=signed_in_as, request_id=g.request_id)
        return actor, logins.begin_login(actor=actor, user_agent=request.user_agent.string)


def _look_up(token: str) -> Invitation:
    with acting_as(g.actor):
        return people.look_up_invite(token)


def _is_me(invited: Invitation) -> bool:
    return g.actor is not None and invited.user_id == g.actor.id


def _invitation(token: str, invited: Invitation, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    return render(
        "auth/invite.html",
        status=status,
        token=token,
        invited=invited,
        mine=_is_me(invited),
        name=request.form.get("name", ""),
        errors=errors or {},
    )


def _show_spent(sentence: str) -> Response:
    return render("auth/spent.html", status=404, sentence=sentence)


@contextmanager
def password_attempt(email: str, device: str | None) -> Iterator[None]:
    """Check a password inside the block, in one transaction. The attempt is counted before, for good, and forgotten
    when the password is right; a wrong one that was the last is refused as one too many."""
    address = request.remote_addr or ""
    with transaction():
        attempt = throttle.count_attempt(email, address, device)
    try:
        with acting_as(g.actor), transaction():
            yield
            throttle.forget_attempts(email, address, device)
    except Invalid:
        if attempt.last:
            raise throttle.too_many(attempt.retry_after) from None
        raise


def refuse_attempt(
    wrong: Invalid | Throttled, show: Callable[[dict[str, str], int], Response], field: str = "password"
) -> Response:
    """Show the form again with what was wrong, or with how long to wait."""
    if isinstance(wrong, Invalid):
        return show(wrong.fields, 422)
    answer = show({field: wrong.detail}, 429)
    answer.headers["Retry-After"] = str(wrong.retry_after)
    return answer


def known_device(email: str) -> str | None:
    """What this browser is called if the person with this e-mail signed in with it before."""
    cookie = request.cookies.get(cookies.cookie_name(DEVICE))
    if not cookie:
        return None
    with acting_as(g.actor):
        user_id = identity.find_user(email)
    return cookies.find_mark(current_app.config["SECRET_KEY"], cookie, user_id) if user_id else None


def sign_in_as(actor: Actor, token: str, to: str) -> Response:
    """Go on with the new login. The one that the browser had before, if any, ends: a login never changes hands."""
    if g.login_id is not None:
        with acting_as(g.actor), transaction():
            logins.end_login(g.login_id, actor=g.actor)
    answer = set_cookie(redirect(to, 303), token)
    name = cookies.cookie_name(DEVICE)
    mark = cookies.add_mark(current_app.config["SECRET_KEY"], request.cookies.get(name, ""), actor.id)
    return _set_cookie(answer, name, mark, cookies.MARK_LIFETIME)


def set_cookie(answer: Any, token: str) -> Response:
    return _set_cookie(answer, cookies.cookie_name(), token, int(logins.LIFETIME.total_seconds()))


def forget_cookie(answer: Any) -> Response:
    return _set_cookie(answer, cookies.cookie_name(), "", 0)


def _set_cookie(answer: Any, name: str, value: str, seconds: int) -> Response:
    secure = current_app.config["SECURE"]
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="Lax", secure=secure, path="/")
    return vary_by_htmx(answer)


@bp.post("/workspace")
@access("signed_in")
def switch() -> Any:
    """A login is for one workspace: the one here ends, one there begins."""
    tenant_id = parse_id(request.form.get("workspace"))
    if tenant_id is None:
        raise NotFound("No such workspace.")
    if tenant_id == g.actor.tenant_id:
        return redirect("/", 303)
    agent = request.user_agent.string
    with transaction():
        _, token = logins.switch_workspace(tenant_id, actor=g.actor, login_id=g.login_id, user_agent=agent)
    return set_cookie(redirect("/", 303), token)
