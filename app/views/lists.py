"""Query string ↔ chips and menus: what a list page reads from its address, and what its filter box and form offer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flask import Response, abort, after_this_request, g, redirect, request

from app.db.paging import Page, Slice
from app.errors import Invalid
from app.services.agents import versions
from app.services.lists import menus as list_menus
from app.services.lists import phrases
from app.services.lists.filters import PAGE_NAMES, SPELLED, Filters
from app.services.lists.phrases import Chip
from app.services.workspaces import store as workspace_store
from app.views.format import query
from app.views.htmx import wants_fragment

Kind = TypeVar("Kind", bound=Filters)
Field = dict[str, Any]
# What a list page understands besides filters: the two directions of its pager, the panel's mark, and that everything
# is wanted where the tab would open with a saved view.
PAGE_ARGS = ("before", "after", "panel", "view")
PAGE_ROWS = 50


@dataclass(frozen=True)
class Listing(Generic[Kind]):
    """What the address asks for. `args` is the query without paging, as chips and links carry it on. `text` is what the
    filter box says, `wrong` what is wrong with it."""

    filters: Kind
    page: Page
    args: dict[str, str]
    chips: Sequence[Chip] = ()
    menus: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    text: str = ""
    wrong: str = ""

    @property
    def filtered(self) -> bool:
        return self.filters.narrows

    def links_to(self, url: str, *names: str) -> dict[str, str]:
        return links_to(url, self.args, *names)


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


def read_box(
    kind: type[Kind], given: Mapping[str, str] | None = None, *, rows: int = PAGE_ROWS, menus: Collection[str] = ()
) -> Listing[Kind]:
    """Read the address of a list that has a filter box, and load these `menus` along with the names that its chips
    need. What the box says may name filters: the address then becomes the one that has them as its own. What no filter
    understands stays in the box, with a sentence."""
    source, wrong = dict(request.args if given is None else given), ""
    text = source.get("q", "").strip()
    if given is None and text:
        source, wrong = _expand(kind, source, text)
    asked = read_listing(kind, source, rows=rows)
    loaded = list_menus.load_menus(menus, phrases.ids_in(kind, asked.args), actor=g.actor)
    chips = phrases.list_chips(kind, asked.args, loaded.names)
    text = text if wrong else asked.args.get("q", "")
    return replace(asked, chips=chips, menus=loaded.values, text=text, wrong=wrong)


def _expand(kind: type[Filters], source: dict[str, str], text: str) -> tuple[dict[str, str], str]:
    """The query with the filters that its words name, or without the words and with what is wrong with them."""
    try:
        found = phrases.parse_phrase(kind, text, today=datetime.now(_zone()).date(), actor=g.actor)
    except Invalid as refusal:
        after_this_request(_mark_invalid)
        return {name: value for name, value in source.items() if name != "q"}, _sentence(refusal)
    if found.keys() == {"q"}:
        return source, ""
    elsewhere = {*PAGE_ARGS, *PAGE_NAMES}
    full = {name: value for name, value in {**source, **found}.items() if value and name not in elsewhere}
    address = query(request.path, full)
    if not wants_fragment():
        abort(redirect(address, 303))
    after_this_request(partial(_push_address, address))
    return full, ""


def _sentence(refusal: Invalid) -> str:
    name, sentence = next(iter(refusal.fields.items()), ("q", refusal.detail))
    return sentence if name == "q" else f"{name}: {sentence}"


def _mark_invalid(response: Response) -> Response:
    response.status_code = 422
    return response


def _push_address(address: str, response: Response) -> Response:
    response.headers["HX-Push-Url"] = address
    return response


def links_to(url: str, args: Mapping[str, str], *names: str) -> dict[str, str]:
    """For each filter the address of the list with it, up to its value, which a row appends."""
    return {name: f"{query(url, {**args, name: None})}{'&' if args.keys() - {name} else '?'}{name}=" for name in names}


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
