"""When scheduled work is due next: five fields, in UTC."""

import re
from datetime import UTC, datetime, timedelta

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# Least and greatest value of minute, hour, day of month, month and day of week.
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
PART = re.compile(r"(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)(?:/([0-9]{1,2}))?", re.ASCII)
# Every day that exists comes within eight years: 29 February is skipped at most once in a century.
MAX_AHEAD = 366 * 8


def check_cron(text: str) -> str:
    """Five fields of numbers, `*`, ranges, lists and steps; ValueError has the sentence for a person."""
    fields = text.split()
    try:
        _read_fields(fields)
    except ValueError:
        raise ValueError("Enter five fields such as `0 * * * *`: minute, hour, day, month, weekday.") from None
    if next_after(text, datetime(2000, 1, 1, tzinfo=UTC)) is None:
        raise ValueError("That date never occurs. Choose another day or month.")
    return " ".join(fields)


def next_after(cron: str, moment: datetime) -> datetime | None:
    """The first time after the moment that fits, or None for a day that never comes, such as 31 February."""
    fields = cron.split()
    minutes, hours, days, months, weekdays = _read_fields(fields)
    weekdays = {day % 7 for day in weekdays}
    # As cron has it: where both the day and the day of the week are restricted, either will do.
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    start = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    for ahead in range(MAX_AHEAD):
        day = start.replace(hour=0, minute=0) + timedelta(days=ahead)
        by_date, by_week = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month not in months or not (by_date or by_week if either else by_date and by_week):
            continue
        for hour in sorted(hours):
            for minute in sorted(minutes):
                found = day.replace(hour=hour, minute=minute)
                if found >= start:
                    return found
    return None


def upcoming(cron: str, moment: datetime, number: int) -> list[datetime]:
    """The next times after the moment."""
    found: list[datetime] = []
    following = next_after(cron, moment)
    while following is not None and len(found) < number:
        found.append(following)
        following = next_after(cron, following)
    return found


def _read_fields(fields: list[str]) -> list[set[int]]:
    return [_values(field, *limits) for field, limits in zip(fields, LIMITS, strict=True)]


def _values(field: str, least: int, most: int) -> set[int]:
    if len(field) > 60:
        raise ValueError(field)
    return {value for part in field.split(",") for value in _range(part, least, most)}


def _range(part: str, least: int, most: int) -> range:
    found = PART.fullmatch(part)
    if found is None:
        raise ValueError(part)
    first, last, step = (int(group) if group else None for group in found.groups())
    low = least if first is None else first
    # A step without an end, such as 5/10, runs to the greatest value.
    high = last if last is not None else low if first is not None and step is None else most
    if not least <= low <= high <= most or (step is not None and not 1 <= step <= most):
        raise ValueError(part)
    return range(low, high + 1, step or 1)


def describe_cron(cron: str) -> str:
    """A schedule in words where it is a simple one, else an empty text."""
    try:
        _read_fields(cron.split())
    except ValueError:
        return ""
    minute, hour, day, month, weekday = cron.split()
    if month != "*":
        return ""
    if (hour, day, weekday) == ("*", "*", "*"):
        return _within_the_hour(minute)
    step = re.fullmatch(r"\*/(2|3|4|6|8|12)", hour)
    if step and (minute, day, weekday) == ("0", "*", "*"):
        return f"every {step[1]} hours"
    if not minute.isdigit() or not hour.isdigit():
        return ""
    return _on_days(day, weekday, f"at {int(hour):02}:{int(minute):02}")


def _within_the_hour(minute: str) -> str:
    known = {"*": "every minute", "0": "every hour"}
    if minute.startswith("*/"):
        return f"every {minute[2:]} minutes"
    return known.get(minute) or (f"every hour at {int(minute)} past" if minute.isdigit() else "")


def _on_days(day: str, weekday: str, at: str) -> str:
    if day == "*" and weekday == "*":
        return f"every day {at}"
    if day == "*" and weekday == "1-5":
        return f"on working days {at}"
    if day == "*" and weekday.isdigit():
        return f"every {DAYS[int(weekday) % 7]} {at}"
    return f"on day {int(day)} of every month {at}" if weekday == "*" and day.isdigit() else ""
