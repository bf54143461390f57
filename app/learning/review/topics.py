"""What a complaint is about where any business has the same words for it: dates, currencies, units, times, taxes and
languages. Two people who name different currencies still complain about the currency."""

from __future__ import annotations

import re
from calendar import month_abbr, month_name
from collections import Counter

from app.learning.review.types import Signal

# "May" is a verb more often than a month.
MONTHS = "|".join(name for name in (*month_name, *month_abbr) if name and name != "May")
TOPICS = {
    "dates": rf"\b(?:{MONTHS}|months?|dates?|mm/?dd|dd/?mm|day first|us format|american)\b",
    "currencies": r"\b(?:gbp|eur|usd|aud|cad|chf|jpy|nzd|sek|nok|dkk|sgd|hkd|inr|zar|pln|czk|sterling|pounds?|euros?"
    r"|dollars?|cents?|quid|francs?|yen|rupees?|kroner|kronor|currency|currencies)\b|[€£$¥]",
    "units": r"\b(?:kgs?|kilos?|grams?|mg|lbs?|ounces?|oz|ml|litres?|liters?|gallons?|metres?|meters?|feet|ft"
    r"|inch(?:es)?|miles?|km|celsius|fahrenheit|degrees|tonnes?|tons?|metric|imperial|units?)\b",
    "times": r"\b(?:\d{1,2}\s?(?:am|pm)|a\.m\.|p\.m\.|o['’]?clock|\d{1,2}:\d{2}|\d{1,2}h|noon|time zones?|utc|gmt"
    r"|local time)\b",
    "taxes": r"\b(?:vat|gst|tax(?:es)?|net|gross|inclusive|before tax|after tax)\b",
    "languages": r"\b(?:english|german|french|spanish|italian|dutch|polish|portuguese|irish|welsh|languages?"
    r"|translate[ds]?)\b",
}
WORD = re.compile(r"\w+|[^\w\s]")
PATTERNS = {topic: re.compile(pattern, re.IGNORECASE) for topic, pattern in TOPICS.items()}


def topics_of(signal: Signal) -> Counter[str]:
    """The topics in what a person said; of an edit, in the words that the answer did not have."""
    had = set(WORD.findall((signal.answer or "").lower()))
    new = [word for word in WORD.findall(signal.preferred_answer or "") if word.lower() not in had]
    text = " ".join(filter(None, (signal.comment, signal.follow_up, *new)))
    return Counter(topic for topic, pattern in PATTERNS.items() if pattern.search(text))
