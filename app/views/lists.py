"""Query string ↔ chips and menus: what a list page reads from its address, and what its Filter menu offers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flask import g, request

from app.db.paging import Page, Slice
from app.services.agents import versions
from app.services.lists.filters import SPELLED, Filters
from app.services.workspaces import store as workspace_store

Kind = TypeVar("Kind", bound=Filters)
Field = dict[str, Any]
# What a list page understands besides filters: the two directions of its pager, the panel's mark, and that everything
# is wanted where the tab would open with a saved view.
PAGE_ARGS = ("before", "after", "panel", "view")
PAGE_ROWS = 50


@dataclass(frozen=True)
class Listing(Generic[Kind]):
    """What the address asks for. `args` is the query without paging, as chips and links carry it on."""

    filters: Kind
    page: Page
    args: dict[str, str]

    @property
    def filtered(self) -> bool:
        return self.filters.narrows


def read_listing(
    kind: type[Kind],
    given: Mapping[str, str] | None = None,
    *,
    rows: int = PAGE_ROWS,
    local_days: bool = True,
    **fixed: str,
) -> Listing[Kind]:
    """Read the address, or the query that was given. `fixed` is what the page itself narrows by, whatever it says.
    Days are cut in the workspace's zone, which costs a query, unless `local_days` is off."""
    source = request.args if given is None else given
    given = {name: value.strip() for name, value in source.items() if value.strip()}
    args = {name: value for name, value in given.items() if name not in PAGE_ARGS}
    zone = _zone() if local_days and {"from", "to"} & args.keys() else UTC
    filters = kind.from_args({**args, **fixed}, zone=zone)
    return Listing(filters, Page(rows, page_cursor(given)), args)


def page_cursor(given: Mapping[str, str] | None = None) -> str | None:
    """The place in the list that the address names, in either direction."""
    args = request.args if given is None else given
    return args.get("after") or args.get("before")


def _zone() -> tzinfo:
    try:
        return ZoneInfo(workspace_store.get_settings(g.actor).timezone)
    except ZoneInfoNotFoundError:
        return UTC


def pager_links(found: Slice[Any]) -> dict[str, Any]:
    """The pager's two addresses, as its macro takes them."""
    return {"newer": found.prev_cursor, "older": found.next_cursor}


DAYS: list[Field] = [
    {"name": "from", "label": "since", "type": "date"},
    {"name": "to", "label": "until", "type": "date"},
]


def agent_menu() -> Field:
    """The workspace's agents as a filter. One query."""
    agents = [(row.slug, row.slug) for row in versions.list_agents(actor=g.actor)]
    return {"name": "agent", "label": "agent", "options": agents}


def offer(kind: type[Filters], *names: str, **options: Iterable[tuple[str, str]]) -> list[Field]:
    """Return these filters as the menu shows them. `options` are the values of a menu that only the page knows."""
    declared = kind.declared()
    found: list[Field] = []
    for name in names:
        one, query_name = declared[name], SPELLED.get(name, name)
        shown: Field = {"name": query_name, "label": one.label or query_name}
        if name in options or one.options:
            shown["options"] = list(options.get(name, [(value, value.replace("_", " ")) for value in one.options]))
        elif one.input:
            shown["type"] = one.input
        found.append(shown)
    return found
