"""The two ways in which a view answers: a page or its fragment, and a fragment with toasts or a redirect."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from flask import Response, flash, get_flashed_messages, make_response, redirect, render_template, request


@dataclass(frozen=True)
class Toast:
    """What happened, in a few words. `kind` is success, error or info; `undo` is the address that takes it back,
    posted with `fields`. With `target` the answer to the undo replaces that element, without it the page reloads.
    `row` is the id of the element of the list that the undo brings back."""

    text: str
    kind: str = "success"
    undo: str = ""
    target: str = ""
    row: str = ""
    fields: tuple[tuple[str, str], ...] = ()


def wants_fragment() -> bool:
    """htmx asks for a part of the page. For a whole body (Back button, boosted link) it wants the page."""
    return request.headers.get("HX-Request") == "true" and request.headers.get("HX-Request-Type") != "full"


def render(template: str, *, status: int = 200, **context: Any) -> Response:
    """A page that htmx never asks a part of."""
    return make_response(render_template(template, **context), status)


def page(template: str, fragment: str, *, status: int = 200, **context: Any) -> Response:
    """A resource: the whole page, or the one part of it that htmx asked for."""
    name = fragment if wants_fragment() else template
    return vary_by_htmx(render(name, status=status, **context))


def swap(
    template: str, *, fallback: str, status: int = 200, toasts: Sequence[Toast | str] = (), **context: Any
) -> Response:
    """The answer to an action: the changed part, its toasts and what waits now, or a 303 to `fallback` that shows it.

    What was `flash`ed is a toast too. Without htmx a refusal (4xx) is said on the page that is redirected to.
    """
    if not wants_fragment():
        return leave(fallback, *toasts)
    shown = [*flashed_toasts(), *map(_as_toast, toasts)]
    return vary_by_htmx(render("layout/_swapped.html", status=status, changed=template, toasts=shown, **context))


def leave(to: str, *toasts: Toast | str) -> Response:
    """The answer to an action after which another page is shown: a 303, and the toasts there."""
    for toast in toasts:
        message: Any = asdict(_as_toast(toast))
        flash(message, message["kind"])
    return vary_by_htmx(redirect(to, 303))


def toast_only(*toasts: Toast | str, status: int = 200) -> Response:
    """Nothing on the page changes but the toasts."""
    shown = [_as_toast(toast) for toast in toasts]
    return vary_by_htmx(render("layout/_toasts_oob.html", status=status, toasts=shown))


def flashed_toasts() -> list[Toast]:
    """What the last request left to say, whether it was flashed as text or as a toast."""
    flashed: Any = get_flashed_messages(with_categories=True)
    return [_from_flash(message, kind) for kind, message in flashed]


def vary_by_htmx(response: Any) -> Response:
    """One address answers in two shapes, so that a cache must keep them apart."""
    response.vary.add("HX-Request")
    answer: Response = response
    return answer


def _as_toast(toast: Toast | str) -> Toast:
    return toast if isinstance(toast, Toast) else Toast(toast)


def _from_flash(message: Any, kind: str) -> Toast:
    if isinstance(message, dict):
        fields = tuple((str(name), str(value)) for name, value in message.get("fields", ()))
        return Toast(**{**message, "fields": fields})
    return Toast(str(message), "info" if kind == "message" else kind)


# Redirects


def local_path(text: str | None, otherwise: str = "/") -> str:
    """The path if it is one of ours. Browsers read `//host`, `/\\host` and paths with a tab in them as other sites."""
    if not text or not text.startswith("/") or not text.isprintable() or "\\" in text or len(text) > 2000:
        return otherwise
    try:
        parts = urlsplit(text)
    except ValueError:
        return otherwise
    return otherwise if text.startswith("//") or parts.scheme or parts.netloc else text
