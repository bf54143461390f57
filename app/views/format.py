"""How pages write values: money, times, numbers, ids, tool calls and records. Registered as template filters."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from app.formats.cron import describe_cron
from app.formats.ids import parse_id
from app.services.privacy import A_MEMBER


def money(value: Decimal | float) -> str:
    """`$0.0042`, `$1.20`, `$1,204.00`: small sums keep two digits that mean something."""
    amount = Decimal(value)
    if not amount:
        return "$0"
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    text = f"{amount:.6f}" if abs(amount) < Decimal("0.0001") else f"{amount:.4f}"
    return f"${text.rstrip('0').rstrip('.')}"


def span(since: datetime, until: datetime | None = None) -> str:
    """`3 days`: how long something waits, in one unit written out."""
    seconds = ((until or now()) - since).total_seconds()
    unit, length = ("minute", MINUTE) if seconds < HOUR else ("hour", HOUR) if seconds < DAY else ("day", DAY)
    number = max(1, int(seconds // length))
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


# Machine text: tool calls on one line, readable JSON, addresses with a query

LINE_LENGTH = 120
ITEM_LENGTH = 40


def value_line(value: Any, limit: int = ITEM_LENGTH) -> str:
    """One value on one line, cut where it gets long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def args_line(args: Any) -> str:
    """`(q="Halden", limit=10)`: a tool's arguments as its one quiet line shows them."""
    if args is not None and not isinstance(args, Mapping):
        return f"({value_line(args, LINE_LENGTH)})"
    return "(" + ", ".join(f"{name}={_argument(value)}" for name, value in (args or {}).items()) + ")"


def _argument(value: Any) -> str:
    if isinstance(value, str):
        # An id would fill the line and say little; the unfolded call shows all of it.
        return f'"…{value[-8:]}"' if parse_id(value) else f'"{value_line(value)}"'
    return value_line(value)


def result_line(result: Any) -> str:
    """What came back, in as few words as do: `12 results`, `empty`, `4 fields`, or the value itself."""
    if result in (None, "", [], {}):
        return "empty"
    if isinstance(result, list):
        return f"{len(result):,} result{'' if len(result) == 1 else 's'}"
    if isinstance(result, Mapping):
        if len(result) == 1:
            name, value = next(iter(result.items()))
            return result_line(value) if isinstance(value, list) else f"{name}: {value_line(value)}"
        return f"{len(result)} fields"
    return value_line(result, LINE_LENGTH)


def pretty_json(value: Any) -> str:
    """JSON indented for reading; a plain text stays as it is."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def query(url: str, args: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """The address with a query: `args` with `changes` laid over it. Empty values are left out."""
    merged = {**(args or {}), **changes}
    pairs = [(name, str(value)) for name, value in merged.items() if value not in (None, "")]
    return f"{url}?{urlencode(pairs)}" if pairs else url


def without(args: Mapping[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a query that are not named here and not empty: what a form has to carry along."""
    return ((name, value) for name, value in args.items() if name not in names and value not in (None, ""))


def option_label(field: Mapping[str, Any], value: str) -> str:
    """What a filter's value is called in its menu."""
    return str(dict(field.get("options") or []).get(value, value))


# Times, numbers and ids. The server speaks UTC; the browser adds the viewer's zone to the title.

MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MINUTE, HOUR, DAY, MONTH, YEAR = 60, 3600, 86400, 30 * 86400, 365 * 86400
# Up to each limit in seconds, the unit that is said and how long it is.
STEPS = ((HOUR, "min", MINUTE), (DAY, "h", HOUR), (MONTH, "d", DAY), (YEAR, "mo", MONTH))


def now() -> datetime:
    return datetime.now(UTC)


def age(at: datetime, since: datetime | None = None) -> str:
    """`3 h`: how long ago, in one unit. What is less than a minute away, on either side, is `now`."""
    seconds = ((since or now()) - at).total_seconds()
    if abs(seconds) < MINUTE:
        return "now"
    unit, length = next(((unit, length) for limit, unit, length in STEPS if abs(seconds) < limit), ("y", YEAR))
    return f"{int(abs(seconds) // length)} {unit}"


def ago(at: datetime, since: datetime | None = None) -> str:
    """`3 h ago`, `in 2 d` for what is still to come, `just now` in between."""
    text = age(at, since)
    if text == "now":
        return "just now"
    return f"in {text}" if at > (since or now()) else f"{text} ago"


def due(at: datetime, since: datetime | None = None) -> str:
    """`in 2 d` for what is planned, `in less than a minute`, and `due now` from its moment on."""
    seconds = (at - (since or now())).total_seconds()
    if seconds <= 0:
        return "due now"
    return ago(at, since) if seconds >= MINUTE else "in less than a minute"


def exact(at: datetime) -> str:
    return f"{day(at)}, {clock(at)} UTC"


def day(at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at.day} {MONTH_NAMES[at.month - 1]} {at.year}"


def minute(at: datetime) -> str:
    """`Mon 23 Nov 2026, 07:00`: for what is planned, in UTC."""
    return f"{at.astimezone(UTC):%a} {day(at)}, {at.astimezone(UTC):%H:%M}"


def clock(at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at.hour:02}:{at.minute:02}:{at.second:02}"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def percent(value: float, digits: int = 0) -> str:
    """A share of one as `91%`."""
    return f"{value * 100:.{digits}f}%"


def duration(milliseconds: float) -> str:
    """`340 ms`, `7.9 s`, `1 m 37 s`, `2 h 5 m`."""
    if milliseconds < 1000:
        return f"{round(milliseconds)} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    if minutes < 60:
        return f"{minutes} m {seconds} s"
    return f"{minutes // 60} h {minutes % 60} m"


def short_id(value: UUID | str) -> str:
    """The last eight characters: ids grow with time, so that their beginnings look alike."""
    return str(value).replace("-", "")[-8:]


def with_version(slug: str | None, version: int | None) -> str:
    return " ".join(word for word in (slug, version_name(version) if version else "") if word)


def version_name(number: int) -> str:
    """A version of an agent. Below zero it is a draft that was tried out."""
    return f"v{number}" if number > 0 else "draft"


def initials(name: str) -> str:
    """`Sam Okafor` → `SO`, `sam@acme.example` → `S`, nobody or someone hidden → `?`."""
    words = name.split("@")[0].split()
    if not words or name == A_MEMBER:
        return "?"
    return (words[0][0] + (words[-1][0] if len(words) > 1 else "")).upper()


# Records and scores


def field_words(name: str) -> str:
    return name.replace("_", " ")


def readable(value: Any) -> str:
    """A value as it is read: yes and no, numbers with their thousands, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(readable(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{field_words(str(name))}: {readable(item)}" for name, item in value.items())
    return "" if value is None else str(value)


def score(value: float | None) -> str:
    """`0.59`; nothing where nothing was judged."""
    return "" if value is None else f"{value:.2f}"


WRITERS: tuple[Callable[..., Any], ...] = (
    money, span, value_line, args_line, result_line, pretty_json, query, without, minute, age, ago, due, exact, day,
    clock, iso, percent, duration, short_id, initials, readable, score, version_name,
)  # fmt: skip
FILTERS = {write.__name__: write for write in WRITERS}
FILTERS |= {"chosen": option_label, "number": "{:,}".format, "schedule": describe_cron}
