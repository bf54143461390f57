"""Queries that are built once. Building one anew for each page, and all that SQLAlchemy does to run it, costs several
times what PostgreSQL needs."""

from collections import namedtuple
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

from sqlalchemy import ARRAY, Text, Uuid, any_, bindparam
from sqlalchemy.dialects.postgresql import psycopg

from app.actor import Actor
from app.db import run
from app.db.direct import Rows

DIALECT: Any = psycopg.dialect()  # type: ignore[no-untyped-call]


def value(name: str, kind: Any) -> Any:
    """A value that is given when the query runs."""
    return bindparam(name, type_=kind, required=False)


MAX_KEPT = 256
# Who asks; and values of which a column is one.
ASKING = Actor(value("actor_id", Uuid), value("tenant_id", Uuid), "")
IDS = any_(value("ids", ARRAY(Uuid)))
NAMES = any_(value("names", ARRAY(Text)))


class Query:
    """A statement that differs in its values only, such as the ids of who is `ASKING`. It is compiled when it first
    runs, and goes straight to libpq."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build

    @cached_property
    def compiled(self) -> tuple[str, dict[str, Any], Any]:
        """The text, the values that are always the same, and what makes a row."""
        statement = self.build()
        made = statement.compile(dialect=DIALECT, compile_kwargs={"render_postcompile": True})
        row = namedtuple("row", statement.selected_columns.keys(), rename=True)  # type: ignore[misc]
        return made.string.replace("%%", "%"), dict(made.params), row._make

    def __call__(self, actor: Actor, **values: Any) -> Rows:
        text, fixed, _ = self.compiled
        return run(text, {**fixed, "actor_id": actor.id, "tenant_id": actor.tenant_id, **values})

    def rows(self, actor: Actor, **values: Any) -> list[Any]:
        """The rows with the names of their columns."""
        return list(map(self.compiled[2], self(actor, **values)))


def keep_queries(build: Callable[..., Any]) -> Callable[..., Query]:
    """The query for each set of arguments, as `build` makes it. The ones that were used last are kept."""

    @lru_cache(maxsize=MAX_KEPT)
    def find(*key: Any) -> Query:
        return Query(partial(build, *key))

    return find
