"""Until when a rule says that it holds."""

import re
from calendar import monthrange
from datetime import date

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - reads better as a text.
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
# Days first, then months, quarters and years, of which the last day counts.
_DATE = (
    rf"(?:the )?(?:end of )?(?P<date>\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}\.\d{{1,2}}\.\d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|{_MONTH} \d{{4}}|Q[1-4] \d{{4}}|20\d\d(?!\d|[.,]\d| [a-z]+s\b| EUR| USD| %))"
)
_UNTIL = (
    r"until|till|through|thru|valid to|up to and including|no later than|expires(?: on)?|ends(?: on)?|ending(?: on)?|by"
)
# "Before 2024" and "signed on" say which records are meant, not how long the rule holds.
ENDINGS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:{_UNTIL}) {_DATE}",
        rf"\b(?:for|in|during) {_DATE} only\b",
        rf"\bonly (?:for|in|during) {_DATE}",
    )
]


def last_day(text: str) -> tuple[date, str] | None:
    """The latest day that a text gives as its end, with the words that say so."""
    matches = (match for pattern in ENDINGS for match in pattern.finditer(text))
    found = [(day, match[0]) for match in matches if (day := _read_day(match["date"].lower()))]
    return max(found, default=None)


def _read_day(words: str) -> date | None:
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    month = next((number for number, name in enumerate(MONTHS, start=1) if name in words), 12)
    try:
        if "-" in words:
            return date(*numbers)
        if re.match(r"\d+\.\d", words):
            return date(*reversed(numbers))
        if words.startswith("q"):
            month = numbers.pop(0) * 3
        year = numbers[-1]
        return date(year, month, numbers[0] if len(numbers) == 2 else monthrange(year, month)[1])
    except ValueError:
        return None
