"""When scheduled work is due next: five fields, in UTC."""

import re
from datetime import UTC, datetime, timedelta

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
# Every day that exists comes within eight years: 29 February is skipped at most once in a century.
MAX_AHEAD = 366 * 8


def next_after(cron: str, moment: datetime) -> datetime | None:
    """The first time after the moment that fits, or None for a day that never comes, such as 31 February."""
    fields = cron.split()
    minutes, hours, days, months, weekdays = (
        _values(field, *limits) for field, limits in zip(fields, LIMITS, strict=True)
    )
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


def _values(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        low = least if first == "*" else int(first)
        high = most if first == "*" or (step and not last) else int(last or first)
        found |= set(range(low, high + 1, int(step or 1)))
    return found


def describe_cron(cron: str) -> str:
    """A schedule in words where it is a simple one, else an empty text."""
    fields = cron.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[0-9*/,-]+", part, re.ASCII) for part in fields):
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*":
        return ""
    if (hour, day, weekday) == ("*", "*", "*"):
        return _within_the_hour(minute)
    step = re.fullmatch(r"\*/(2|3|4|6|8|12)", hour, re.ASCII)
    if step and (minute, day, weekday) == ("0", "*", "*"):
        return f"every {step[1]} hours"
    if not minute.isdigit() or not hour.isdigit() or int(minute) > 59 or int(hour) > 23:
        return ""
    return _on_days(day, weekday, f"at {int(hour):02}:{int(minute):02}")


def _within_the_hour(minute: str) -> str:
    if minute == "*":
        return "every minute"
    if minute == "0":
        return "every hour"
    step = re.fullmatch(r"\*/([1-9][0-9]?)", minute, re.ASCII)
    if step:
        return f"every {step[1]} minutes"
    return f"every hour at {int(minute)} past" if minute.isdigit() and int(minute) < 60 else ""


def _on_days(day: str, weekday: str, at: str) -> str:
    if day == "*" and weekday == "*":
        return f"every day {at}"
    if day == "*" and weekday == "1-5":
        return f"on working days {at}"
    if day == "*" and weekday.isdigit() and int(weekday) <= 7:
        return f"every {DAYS[int(weekday) % 7]} {at}"
    if weekday == "*" and day.isdigit() and 1 <= int(day) <= 31:
        return f"on day {int(day)} of every month {at}"
    return ""
