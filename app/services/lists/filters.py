"""The base of every list's filters: query string → frozen dataclass → conditions.

A filter is one dataclass field made by `choice`, `slug`, `id_of_row`, `text`, `number` or `seconds`. It declares how
the value is read, what the menu and the chip show, and which condition it means. Anything else in a query is refused
with a sentence, so that a mistyped filter never looks like an answer.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import partial
from typing import Any, ClassVar, Self
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.sql.elements import ColumnElement

from app.errors import Invalid
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
parse_slug = _reader(AGENT_SLUG.pattern, str, "A short name in small letters, such as deal-analyst.")
parse_row_id = _reader(f"(?i:{UUID_PATTERN.pattern})", UUID, "An id like 6f0a1c52-3f1e-4c8f-9a53-0c8f8a1d2b3c.")
parse_day = _reader(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", date.fromisoformat, "A day like 2026-03-31.")


@dataclass(frozen=True)
class FilterField:
    """How one filter is read, compared and shown.

    `column` is compared with the value by `compare`; it is the filter's own name unless said otherwise. `options` are
    the choices of its menu, `label` is what menu and chip call it, `input` the type of the field that it is typed into.
    """

    parse: Callable[[str, str], Any]
    column: str | None = None
    compare: Comparison = operator.eq
    options: tuple[str, ...] = ()
    label: str = ""
    input: str = ""


def declare(parse: Callable[[str, str], Any], **more: Any) -> Any:
    """Declare a filter as the field of a dataclass."""
    return field(default=None, metadata={"filter": FilterField(parse, **more)})


def choice(options: tuple[str, ...], **more: Any) -> Any:
    return declare(partial(parse_choice, allowed=options), options=options, **more)


slug = partial(declare, parse_slug)
id_of_row = partial(declare, parse_row_id)
text = partial(declare, parse_text)
seconds = partial(declare, parse_seconds)
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


# By the slug or by the id of an agent.
agent_slug = partial(slug, column="agent_id", compare=is_agent, label="agent")
agent_id = partial(id_of_row, label="agent")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What every list has: words, a span of days, an order."""

    q: str | None = text()
    since: date | None = declare(parse_day)
    until: date | None = declare(parse_day)
    sort: str = field(default="newest", metadata={"filter": FilterField(partial(parse_choice, allowed=SORTS))})
    zone: tzinfo = UTC

    # The fields above, which no list compares with a column.
    shared: ClassVar[frozenset[str]] = frozenset({"q", "since", "until", "sort", "zone"})

    @classmethod
    def from_args(cls, args: Mapping[str, str], *, zone: tzinfo = UTC) -> Self:
        """Read a query string. Empty values count as absent."""
        declared = cls.declared()
        names = {SPELLED.get(name, name): name for name in declared}
        found: dict[str, Any] = {"zone": zone}
        for name, value in args.items():
            if name in PAGE_NAMES:
                continue
            if name not in names:
                raise Invalid(f"There is no filter {name[:40]!r}; use one of {', '.join(sorted(names))}.")
            if value:
                found[names[name]] = declared[names[name]].parse(name, value)
        return cls(**found)

    @classmethod
    def declared(cls) -> dict[str, FilterField]:
        """Return the declaration of each filter by its name."""
        return {one.name: one.metadata["filter"] for one in fields(cls) if one.metadata}

    @property
    def chosen(self) -> list[str]:
        """The list's own filters that have a value."""
        return [name for name in self.declared() if name not in self.shared and getattr(self, name) is not None]

    def as_args(self) -> dict[str, str]:
        """Return the query string again, without what is at its default."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "zone"}
        defaults = {one.name: one.default for one in fields(self)}
        return {SPELLED.get(name, name): str(value) for name, value in given.items() if value != defaults[name]}

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

    def _compare(self, row: Any, names: Iterable[str]) -> list[Condition]:
        """Return the conditions of these filters on a model, or on the columns of a scan."""
        declared = {name: self.declared()[name] for name in names}
        return [one.compare(getattr(row, one.column or name), getattr(self, name)) for name, one in declared.items()]

    def _within(self, column: Any) -> list[Condition]:
        """Return the span of days in the zone; the last day is part of it."""
        found: list[Condition] = []
        if self.since:
            found.append(column >= datetime.combine(self.since, time.min, self.zone))
        if self.until:
            found.append(column < datetime.combine(self.until + timedelta(days=1), time.min, self.zone))
        return found
