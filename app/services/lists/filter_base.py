"""What every list may be narrowed by: query string → frozen dataclass → conditions.

Names and values come from allow-lists. Anything else is refused with a sentence, so that a mistyped filter never
looks like an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, ClassVar, Self

from sqlalchemy.sql.elements import ColumnElement

from app.errors import Invalid
from app.services.lists import filter_values as values

Condition = ColumnElement[bool]
PAGE_NAMES = frozenset({"limit", "cursor"})
SORTS = ("newest", "oldest")
# Python keywords and long names make poor queries, so these are spelled differently there.
SPELLED = {"since": "from", "until": "to", "golden_set": "set", "import_id": "import"}


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What every list has: words, a span of days, an order."""

    q: str | None = None
    since: date | None = None
    until: date | None = None
    sort: str = "newest"
    zone: tzinfo = UTC

    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    slugs: ClassVar[tuple[str, ...]] = ()
    ids: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[tuple[str, ...]] = ()
    numbers: ClassVar[tuple[str, ...]] = ()
    seconds: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_args(cls, args: Mapping[str, str], *, also: tuple[str, ...] = (), zone: tzinfo = UTC) -> Self:
        """Read a query string. `also` names what the page itself understands; empty values count as absent."""
        names = {SPELLED.get(field.name, field.name): field.name for field in fields(cls) if field.name != "zone"}
        found: dict[str, Any] = {"zone": zone}
        for name, value in args.items():
            if name in PAGE_NAMES or name in also:
                continue
            if name not in names:
                raise Invalid(f"There is no filter {name[:40]!r}; use one of {', '.join(sorted(names))}.")
            if value:
                found[names[name]] = cls._read(names[name], name, value)
        return cls(**found)

    @classmethod
    def _read(cls, field: str, name: str, value: str) -> Any:
        if field == "sort":
            return values.read_choice(name, value, SORTS)
        if field == "q" or field in cls.texts:
            return values.read_text(name, value)
        if field in ("since", "until"):
            return values.read_day(name, value)
        if field in cls.slugs:
            return values.read_slug(name, value)
        if field in cls.ids:
            return values.read_id(name, value)
        if field in cls.numbers:
            return values.read_number(name, value)
        if field in cls.seconds:
            return values.read_seconds(name, value)
        return values.read_choice(name, value, cls.choices[field])

    def as_args(self) -> dict[str, str]:
        """The query string again, without what is at its default."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "zone" and value != field.default:
                found[SPELLED.get(field.name, field.name)] = str(value)
        return found

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

    def _within(self, column: Any) -> list[Condition]:
        """The days, cut in the zone; the last day is part of the span."""
        found: list[Condition] = []
        if self.since:
            found.append(column >= datetime.combine(self.since, time.min, self.zone))
        if self.until:
            found.append(column < datetime.combine(self.until + timedelta(days=1), time.min, self.zone))
        return found
