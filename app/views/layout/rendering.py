"""How templates are rendered quickly: their globals as one dict, addresses that are built once, and rows of lists that
are drawn once."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import flask
from flask import current_app, request
from flask.templating import Environment

from app.views.format import age

# How many rows of lists a process remembers.
MAX_DRAWN = 2000


class Templates(Environment):
    """Flask's environment, whose templates all have the same globals.

    A ChainMap, which is what templates usually get, is walked key by key whenever a template is included or imports
    macros. That was a tenth of a list page."""

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        return super().make_globals(d) if d else self.globals


def url_for(endpoint: str, **values: Any) -> str:
    """Return the address as Flask does. Addresses of rows and static files, of which a page has a hundred, are built
    once for each endpoint."""
    if endpoint == "static":
        return _static_url(request.script_root, **values)
    if all(type(value) is UUID for value in values.values()):
        return _pattern(request.script_root, endpoint, *values).format_map(values)
    return flask.url_for(endpoint, **values)


@cache
def _static_url(_root: str, filename: str) -> str:
    return flask.url_for("static", filename=filename)


@lru_cache(maxsize=1024)
def _pattern(_root: str, endpoint: str, *names: str) -> str:
    """The address with a field for each id."""
    ids: dict[str, Any] = {name: uuid4() for name in names}
    pattern = flask.url_for(endpoint, **ids)
    for name, one in ids.items():
        pattern = pattern.replace(str(one), f"{{{name}}}")
    return pattern


@dataclass(frozen=True)
class Drawing:
    """A partial with all that it shows. Two are the same when their template and `shows` are."""

    template: str
    shows: Any
    values: dict[str, Any] = field(compare=False)


def draw(template: str, **values: Any) -> Any:
    """Render a partial that reads nothing but these values, as a row of a list does. One that was drawn with the same
    values before comes from memory, which costs a tenth."""
    return _draw(Drawing(template, (request.script_root, _shown(values)), values))


@lru_cache(maxsize=MAX_DRAWN)
def _draw(drawing: Drawing) -> Any:
    module = current_app.jinja_env.get_template(drawing.template).make_module(drawing.values)
    return module.__html__()


def _shown(value: Any) -> Any:
    """The value as something that can be compared. A time comes with its age, which pages show and which changes."""
    if isinstance(value, datetime):
        return value, age(value)
    if isinstance(value, SimpleNamespace):
        return _shown(vars(value))
    if isinstance(value, dict):
        return tuple((name, _shown(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_shown, value))
    return value
