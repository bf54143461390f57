"""Days as people name them: "today", "since Monday", "last 7 days", "before 1 Nov".

A day that is named relative to today keeps its name, so that an address or a saved view means the same next week.
"""

import re
from datetime import date, timedelta

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNITS = {"day": 1, "week": 7, "month": 30}
# What the boxes offer; any number of days and any weekday is understood.
OFFERED_SPANS = ("today", "yesterday", "last 7 days", "last 30 days", "since Monday", "this month")

_RELATIVE = re.compile(
    rf"(?P<base>today|yesterday|month|{'|'.join(WEEKDAYS)})(?P<less>-1)?|(?P<number>[1-9][0-9]{{0,2}})d"
)
_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?"
)
_DAY = (
    rf"today|yesterday|{'|'.join(WEEKDAYS)}|20[0-9]{{2}}-[0-9]{{2}}-[0-9]{{2}}"
    rf"|[0-9]{{1,2}} (?:{_MONTH})(?: 20[0-9]{{2}})?|(?:{_MONTH}) [0-9]{{1,2}}(?: 20[0-9]{{2}})?"
)
_SPAN = re.compile(
    rf"(?:(?:last|past) (?:(?P<number>[1-9][0-9]{{0,2}}) )?(?P<unit>day|week|month)s?|this (?P<this>week|month)"
    rf"|(?P<alone>today|yesterday)|(?P<side>since|from|after|before|until|on) (?P<day>{_DAY}))(?!\S)",
    re.IGNORECASE,
)


class NamedDay(date):
    """A day named relative to today. `str` gives the name back."""

    name: str

    @classmethod
    def of(cls, day: date, name: str) -> "NamedDay":
        made = cls(day.year, day.month, day.day)
        made.name = name
        return made

    def __str__(self) -> str:
        return self.name


def read_day(text: str, today: date) -> date:
    """Read `2026-11-01`, `today`, `monday`, `month`, the day before one of these as `monday-1`, or `7d`, with which
    the last seven days begin. Anything else is a ValueError."""
    found = _RELATIVE.fullmatch(text)
    if not found:
        if not re.fullmatch("20[0-9]{2}-[0-9]{2}-[0-9]{2}", text, re.ASCII):
            raise ValueError(f"{text!r} is no day")
        return date.fromisoformat(text)
    if found["number"]:
        return NamedDay.of(today - timedelta(days=int(found["number"]) - 1), text)
    return NamedDay.of(_base_day(found["base"], today) - timedelta(days=1 if found["less"] else 0), text)


def _base_day(name: str, today: date) -> date:
    if name in WEEKDAYS:
        return today - timedelta(days=(today.weekday() - WEEKDAYS.index(name)) % 7)
    return {"today": today, "yesterday": today - timedelta(days=1), "month": today.replace(day=1)}[name]


def describe_day(name: str, value: str) -> str:
    """What a `from` or a `to` means, in words: "last 7 days", "since Monday", "before Monday", "until 2026-11-01"."""
    found = _RELATIVE.fullmatch(value)
    if found and found["number"] and name == "from":
        return f"last {found['number']} days" if value != "1d" else "today"
    if name == "from" and value in ("today", "month"):
        return "this month" if value == "month" else value
    base = found["base"] if found and found["base"] else value
    word = base.capitalize() if base in WEEKDAYS else base
    if found and found["less"]:
        return f"{'before' if name == 'to' else 'since the day before'} {word}"
    return f"{'since' if name == 'from' else 'until'} {word}"


def find_span(text: str, start: int, today: date) -> tuple[int, dict[str, str]] | None:
    """Find a span of days that begins at this place of a text: where it ends, and its `from` and `to`. Words that
    name no day, as in "before merging", are none."""
    found = _SPAN.match(text, start)
    if not found:
        return None
    if found["unit"]:
        return found.end(), {"from": f"{int(found['number'] or 1) * UNITS[found['unit'].lower()]}d", "to": ""}
    if found["this"]:
        return found.end(), {"from": "monday" if found["this"].lower() == "week" else "month", "to": ""}
    if found["alone"]:
        alone = found["alone"].lower()
        return found.end(), {"from": alone, "to": alone if alone == "yesterday" else ""}
    try:
        return found.end(), _one_side(found["side"].lower(), _canonical(found["day"].lower(), today))
    except ValueError:
        return None


def _one_side(side: str, day: str) -> dict[str, str]:
    if side in ("since", "from"):
        return {"from": day}
    if side == "on":
        return {"from": day, "to": day}
    if side == "until":
        return {"to": day}
    if side == "before":
        return {"to": f"{day}-1" if _RELATIVE.fullmatch(day) else str(date.fromisoformat(day) - timedelta(days=1))}
    return {"from": day if _RELATIVE.fullmatch(day) else str(date.fromisoformat(day) + timedelta(days=1))}


def _canonical(day: str, today: date) -> str:
    """A weekday as it is, and a date with its year: the latest that is not in the future where none was given."""
    if _RELATIVE.fullmatch(day) or day.startswith("20"):
        return str(read_day(day, today))
    parts = day.split()
    number, month = (parts[0], parts[1]) if parts[0].isdigit() else (parts[1], parts[0])
    year = int(parts[2]) if len(parts) > 2 else today.year
    found = date(year, MONTHS.index(month[:3]) + 1, int(number))
    return str(found.replace(year=year - 1) if len(parts) == 2 and found > today else found)
