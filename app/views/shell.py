"""What every page has around it: navigation, tabs with what is waiting, workspaces, theme, keys, toasts."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, current_app, g, redirect, render_template, request

from app.access import access
from app.actor import Actor
from app.views import errors, markdown, texts, times
from app.views.htmx import flashed_toasts, varied
from app.views.sections import TABS, Group, Tab, navigation

THEMES = ("light", "dark", "auto")
A_YEAR = 365 * 24 * 3600

bp = Blueprint("shell", __name__)


class Shell:
    """What base.html reads. Nothing is asked of the database before a template asks for it, so that a page can be
    drawn while the database is away."""

    @property
    def actor(self) -> Actor | None:
        return g.get("actor")

    @property
    def person(self) -> Any:
        return g.get("person")

    @cached_property
    def navigation(self) -> list[Group]:
        return navigation(self.actor, current_app.view_functions.keys())

    @property
    def tabs(self) -> tuple[Tab, ...]:
        """The tabs of Agent Review, on its own pages only."""
        inside = any(tab.endpoint.split(".")[0] == request.blueprint for tab in TABS)
        return TABS if inside and self.actor is not None and self.actor.is_admin else ()

    @cached_property
    def waiting(self) -> dict[str, int]:
        """How many rows wait for a decision, by the name that sections.py gives the count."""
        from app.services import waiting

        return waiting.counts(actor=self.actor) if self.actor is not None and self.actor.is_admin else {}

    @cached_property
    def workspaces(self) -> list[Any]:
        from app.services import people

        return list(people.workspaces_of(self.person.id)) if self.person is not None else []

    @property
    def theme(self) -> str:
        return theme_of_request()

    @property
    def toasts(self) -> list[Any]:
        return flashed_toasts()

    @cached_property
    def version(self) -> str:
        return version("upshot")

    @property
    def model(self) -> str:
        return str(current_app.config["SETTINGS"].model)


def theme_of_request() -> str:
    chosen = request.cookies.get("theme", "auto")
    return chosen if chosen in THEMES else "auto"


@bp.post("/theme")
@access("public")
def theme() -> Response:
    """Remember the theme and go back to where the person was; a script that only wants it kept gets 204."""
    chosen = request.form.get("theme", "auto")
    answer = Response(status=204) if "HX-Request" in request.headers else redirect(_came_from(), 303)
    answer.set_cookie(
        "theme",
        chosen if chosen in THEMES else "auto",
        max_age=A_YEAR,
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )
    return varied(answer)


def _came_from() -> str:
    """The path of the page the form stood on, never another site's."""
    came = urlsplit(request.referrer or "")
    if came.netloc != request.host or not came.path.startswith("/") or came.path.startswith("//"):
        return "/"
    return came.path + (f"?{came.query}" if came.query else "")


@bp.get("/keys")
@access("public")
def keys() -> str:
    return render_template("shell/keys.html")


def register(app: Flask) -> None:
    """Install the blueprint, what templates read, their filters, and the error pages."""
    app.register_blueprint(bp)
    app.jinja_env.filters.update({**times.FILTERS, **texts.FILTERS, "markdown": markdown.render})
    app.context_processor(lambda: {"shell": Shell()})
    errors.register(app)
