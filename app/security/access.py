"""Who may reach a route. Every view declares it; a route without a declaration is never served."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask

View = TypeVar("View", bound=Callable[..., Any])
LEVELS = ("public", "signed_in", "member", "admin", "owner")


@dataclass(frozen=True)
class Access:
    """`level` is the least role (`public` needs no sign-in, `signed_in` any person). `scope` is what a key must have;
    without one only a browser session is accepted. `context|feedback` asks for one of the two.

    `also` names one more credential that the route reads: the `person` on a public page, a `visitor` with a feedback
    token, or the `operator` with the server's token.
    """

    level: str
    scope: str | None = None
    also: str | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS or self.also not in (None, "person", "visitor", "operator"):
            raise ValueError(f"{self.level} is no access level")

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple(self.scope.split("|")) if self.scope else ()


def access(level: str, scope: str | None = None, *, also: str | None = None) -> Callable[[View], View]:
    """Declare who may reach a view."""

    def declare(view: View) -> View:
        view.access = Access(level, scope, also)  # type: ignore[attr-defined]
        return view

    return declare


def access_of(app: Flask, endpoint: str | None) -> Access | None:
    """The declaration of an endpoint, or None when there is none."""
    if endpoint == "static":
        return Access("public")
    view = app.view_functions.get(endpoint or "")
    found = getattr(view, "access", None)
    return found if isinstance(found, Access) else None
