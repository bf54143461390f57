"""Until when a rule says that it holds."""

import re
from calendar import monthrange
from datetime import date

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = rf"(?:{'|'.join(sorted(MONTHS, key=len, reverse=True))})\.?"
# Days first, then months, quarters and years, of which the last day counts.
_DATE = (
    rf"(?:the )?(?:end of )?(?P<date>\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}\.\d{{1,2}}\.\d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|{_MONTH} \d{{4}}|Q[1-4] \d{{4}}|20\d\d(?!\d|[.,]\d| [a-z]+s\b| EUR| USD| %))"
)
# "Before 2024" and "signed on" say which records are meant, not how long the rule holds.
ENDINGS = (
    re.compile(
        r"\b(?:until|till|through|thru|valid to|up to and including|no later than|expires(?: on)?|ends(?: on)?"
        rf"|ending(?: on)?|by) {_DATE}",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:for|in|during) {_DATE} only\b", re.IGNORECASE),
    re.compile(rf"\bonly (?:for|in|during) {_DATE}", re.IGNORECASE),
)


def last_day(text: str) -> tuple[date, str] | None:
    """The latest day that a text gives as its end, with the words that say so."""
    found = [(day, match[0]) for pattern in ENDINGS for match in pattern.finditer(text) if (day := _day(match["date"]))]
    return max(found) if found else None


def _day(words: str) -> date | None:
    try:
        return _parse(words.lower())
    except ValueError:
        return None


def _parse(words: str) -> date | None:
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    if re.match(r"\d{4}-", words):
        return date(numbers[0], numbers[1], numbers[2])
    if re.match(r"\d+\.\d", words):
        return date(numbers[2], numbers[1], numbers[0])
    year = numbers[-1]
    if words.startswith("q"):
        return _end_of_month(year, numbers[0] * 3)
    month = next((MONTHS[name] for name in re.findall(r"[a-z]+", words) if name in MONTHS), None)
    if month is None:
        return date(year, 12, 31)
    return date(year, month, numbers[0]) if len(numbers) == 2 else _end_of_month(year, month)


def _end_of_month(year: int, month: int) -> date:
    return date(year, month, monthrange(year, month)[1])
