"""The base of every list's filters: query string → frozen dataclass → conditions; what their menus offer; and the
search for words.

A filter is one dataclass field made by `choice`, `slug`, `id_of_row`, `text`, `number` or `seconds`. It declares how
the value is read, what the box, the form and the chip show, and which condition it means. A value behind a `-` is left
out. Anything else in a query is refused with a sentence, so that a mistyped filter never looks like an answer.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache, partial
from typing import Any, ClassVar, Self
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, bindparam, func, literal, select
from sqlalchemy import text as sql
from sqlalchemy.sql.elements import ColumnElement

from app.db import db, queries
from app.db.paging import MAX_COUNT, Page
from app.errors import Invalid
from app.formats.days import read_day
from app.formats.ids import UUID_PATTERN
from app.formats.session_limits import AGENT_SLUG
from app.models import Agent, EntityType

Condition = ColumnElement[bool]
Comparison = Callable[[Any, Any], Any]
PAGE_NAMES = frozenset({"limit", "cursor"})
SORTS = ("newest", "oldest")
YES_NO = ("yes", "no")
# Python keywords and long names make poor queries, so these are spelled differently there.
SPELLED = {"since": "from", "until": "to", "golden_set": "set", "import_id": "import"}


def parse_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise Invalid.of({name: f"Use one of {', '.join(allowed)}."})
    return value


def _reader(pattern: str, convert: Callable[[str], Any], sentence: str) -> Callable[[str, str], Any]:
    """Read a value of this form, or refuse it with the sentence."""

    def parse(name: str, value: str) -> Any:
        try:
            if re.fullmatch(pattern, value, re.ASCII):
                return convert(value)
        except ValueError:
            pass
        raise Invalid.of({name: sentence})

    return parse


parse_text = _reader(r"[^\x00\ud800-\udfff]{0,256}", str, "At most 256 characters of plain text.")
parse_number = _reader(r"[0-9]{1,9}", int, "A whole number such as 3.")
parse_seconds = _reader(r"[0-9]{1,9}([.][0-9]{1,3})?", float, "Seconds such as 30 or 1.5.")
parse_slug = _reader(AGENT_SLUG.pattern, str, "Enter a slug such as deal-analyst.")
parse_row_id = _reader(f"(?i:{UUID_PATTERN.pattern})", UUID, "An id like 6f0a1c52-3f1e-4c8f-9a53-0c8f8a1d2b3c.")


def parse_day(name: str, value: str, zone: tzinfo = UTC) -> date:
    try:
        return read_day(value, datetime.now(zone).date())
    except ValueError:
        raise Invalid.of({name: "A day like 2026-03-31, today, monday, or 7d for the last seven days."}) from None


@dataclass(frozen=True)
class FilterField:
    """How one filter is read, compared and shown.

    `column` is compared with the value by `compare`; it is the filter's own name unless said otherwise. `options` are
    its values, or `menu` names where they come from. `label` is what form and chip call it, `input` the type of the
    field that it is typed into. One that is not `offered` comes with a link. `excludable`: `-` leaves a value out.
    """

    parse: Callable[[str, str], Any]
    column: str | None = None
    compare: Comparison = operator.eq
    options: tuple[str, ...] = ()
    menu: str = ""
    label: str = ""
    key: str = ""
    input: str = ""
    offered: bool = True
    excludable: bool = True


def declare(parse: Callable[[str, str], Any], **more: Any) -> Any:
    """Declare a filter as the field of a dataclass."""
    return field(default=None, metadata={"filter": FilterField(parse, **more)})


def choice(options: tuple[str, ...], **more: Any) -> Any:
    return declare(partial(parse_choice, allowed=options), options=options, **more)


slug = partial(declare, parse_slug)
id_of_row = partial(declare, parse_row_id)
text = partial(declare, parse_text)
seconds = partial(declare, parse_seconds, excludable=False)
number = partial(declare, parse_number, input="number")


def is_set(column: Any, wanted: str) -> Any:
    """Compare by `yes` or `no`: whether there is a value."""
    return column.is_not(None) if wanted == "yes" else column.is_(None)


def is_agent(column: Any, slug: str) -> Any:
    """Compare with the agent of this slug; the slug from before a merge or a rename still works."""
    return column == select(func.coalesce(Agent.merged_into, Agent.id)).where(Agent.slug == slug).scalar_subquery()


def is_type(column: Any, slug: str) -> Any:
    """Compare with the entity type of this slug."""
    return column == select(EntityType.id).where(EntityType.slug == slug).scalar_subquery()


# What compares in the same way whatever the value is.
SAME = (operator.eq, is_agent, is_type)


@cache
def _parameter(name: str) -> Any:
    return bindparam(f"wanted_{name}", required=False)


# By the slug or by the id of an agent.
agent_slug = partial(slug, column="agent_id", compare=is_agent, label="agent", menu="agents")
agent_id = partial(id_of_row, label="agent", offered=False)
# An id that another product gave. It may begin with a `-`.
outside_id = partial(text, offered=False, excludable=False)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What every list has: words, a span of days, an order."""

    q: str | None = text(offered=False, excludable=False)
    since: date | None = declare(parse_day, input="date", excludable=False)
    until: date | None = declare(parse_day, input="date", excludable=False)
    sort: str = field(
        default="newest",
        metadata={"filter": FilterField(partial(parse_choice, allowed=SORTS), offered=False, excludable=False)},
    )
    zone: tzinfo = UTC
    # The names of the filters whose value is left out.
    excluded: frozenset[str] = frozenset()

    # The fields above, which no list compares with a column.
    shared: ClassVar[frozenset[str]] = frozenset({"q", "since", "until", "sort", "zone", "excluded"})

    @classmethod
    def from_args(cls, args: Mapping[str, str], *, zone: tzinfo = UTC) -> Self:
        """Read a query string. Empty values count as absent."""
        declared = cls.declared()
        names = {SPELLED.get(name, name): name for name in declared}
        found: dict[str, Any] = {"zone": zone}
        excluded = set()
        for name, value in args.items():
            if name in PAGE_NAMES:
                continue
            if name not in names:
                raise Invalid(f"Unknown filter {name[:40]!r}. Use one of {', '.join(sorted(names))}.")
            field_name, one = names[name], declared[names[name]]
            if one.excludable and value.startswith("-"):
                excluded.add(field_name)
                value = value[1:]
            if value:
                in_zone = {"zone": zone} if one.parse is parse_day else {}
                found[field_name] = one.parse(name, value, **in_zone)
        return cls(**found, excluded=frozenset(excluded & found.keys()))

    @classmethod
    @cache
    def declared(cls) -> dict[str, FilterField]:
        """Return the declaration of each filter by its name."""
        return {one.name: one.metadata["filter"] for one in fields(cls) if one.metadata}

    @property
    def chosen(self) -> list[str]:
        """The list's own filters that have a value."""
        return [name for name in self.declared() if name not in self.shared and getattr(self, name) is not None]

    def as_args(self) -> dict[str, str]:
        """Return the query string again, without what is at its default."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata}
        defaults = {one.name: one.default for one in fields(self)}
        return {
            SPELLED.get(name, name): f"{'-' if name in self.excluded else ''}{value}"
            for name, value in given.items()
            if value != defaults[name]
        }

    def admits(self, name: str, value: Any) -> bool:
        """Whether the filter of this name, if it is used, leaves rows with the value in the list."""
        wanted = getattr(self, name)
        return wanted is None or (wanted == value) != (name in self.excluded)

    def as_parameters(self) -> tuple[Self, dict[str, Any]]:
        """The same filters with a parameter for each value that is only compared, without the words, and what these
        parameters are now: filters that differ in such values share their statements."""
        declared = self.declared()
        open_ended = [name for name in self.chosen if declared[name].compare in SAME and not declared[name].options]
        named = {name: _parameter(name) for name in open_ended}
        return replace(self, q=None, **named), {named[name].key: getattr(self, name) for name in open_ended}

    @property
    def narrows(self) -> bool:
        """Something is left out. Decides between the two empty states."""
        return bool(self.as_args().keys() - {"sort"})

    @property
    def only_words(self) -> bool:
        """Nothing but words narrows the list, which is in its usual order."""
        return self.as_args().keys() == {"q"}

    @property
    def oldest_first(self) -> bool:
        return self.sort == "oldest"

    def conditions(self) -> list[Condition]:
        raise NotImplementedError

    def compare(self, row: Any, names: Iterable[str]) -> list[Condition]:
        """Return the conditions of these filters on a model, or on the columns of a scan."""
        declared = {name: self.declared()[name] for name in names}
        compared = {
            name: one.compare(getattr(row, one.column or name), getattr(self, name)) for name, one in declared.items()
        }
        return [self.unless_excluded(name, condition) for name, condition in compared.items()]

    def unless_excluded(self, name: str, condition: Any) -> Condition:
        """The condition, or its opposite where the value is left out. A row without a value then stays."""
        wanted: Condition = condition.is_not(True) if name in self.excluded else condition
        return wanted

    def _within(self, column: Any) -> list[Condition]:
        """Return the span of days in the zone; the last day is part of it."""
        found: list[Condition] = []
        if self.since:
            found.append(column >= datetime.combine(self.since, time.min, self.zone))
        if self.until:
            found.append(column < datetime.combine(self.until + timedelta(days=1), time.min, self.zone))
        return found


# Full-text search. Under row-level security PostgreSQL uses no text index, so the search goes through a door that
# returns ids of the bound workspace; the rows are then read as usual.

MAX_MATCHES = 1000
ONE = sql("SELECT * FROM door_search(:kind, :query, :most)")
# A conversation is found by its title and by what was said in it.
CHATS = sql(
    "SELECT * FROM door_search('chats', :query, :most) UNION SELECT * FROM door_search('messages', :query, :most)"
)
# The newest few cost little, and so does counting in any order; the newest thousand lie far apart in a large table.
COUNTED_TOO = sql("""
    SELECT ARRAY(SELECT id FROM door_search(:kind, :query, :shown)),
           (SELECT count(*) FROM door_search('any ' || :kind, :query, :counted))
""")


@dataclass(frozen=True)
class Matches:
    """The rows of which a page is a part. `count` is None where something beside the words narrows the list."""

    ids: list[UUID]
    count: int | None = None

    @property
    def any(self) -> Any:
        """One of these ids. They are one value: a thousand take long to send and to plan."""
        return any_(literal(self.ids, ARRAY(Uuid)))


# The ids of the matches, in a statement that is kept.
MATCHED = any_(queries.value("matched", ARRAY(Uuid)))


def counted_matches(matches: Matches | None) -> dict[str, Any]:
    """What reading a page needs to know of the rows that it is a part of."""
    return {"matched": matches.ids, "count": matches.count} if matches else {}


def find_matches(kind: str, filters: Filters, page: Page, *, whole: bool = False) -> Matches:
    """What a page of rows with the words is taken from: the newest 1,000, or where nothing else narrows the list what
    its first page shows, unless the `whole` is asked for."""
    if kind == "chats" or not filters.only_words:
        return Matches(find_ids(kind, filters.q or ""))
    shown = MAX_MATCHES if page.cursor or whole else page.limit + 1
    asked = {"kind": kind, "query": filters.q, "shown": shown, "counted": MAX_COUNT + 1}
    ids, count = db.session.execute(COUNTED_TOO, asked).one()
    return Matches(ids, count)


def find_ids(kind: str, query: str) -> list[UUID]:
    """The newest 1,000 rows of a kind that have the words. What a member may not read is not found."""
    statement = CHATS if kind == "chats" else ONE.bindparams(kind=kind)
    return list(db.session.scalars(statement, {"query": query, "most": MAX_MATCHES}))
