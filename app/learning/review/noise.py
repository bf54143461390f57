"""Feedback that no rule should come from, and why."""

import re
from difflib import SequenceMatcher

from app.learning.hygiene.prompt_talk import find_prompt_talk
from app.learning.review.moments import content_words, said_of
from app.learning.review.types import Signal
from app.text.hidden_characters import describe_hidden, mixed_words
from app.text.masking import Masking

# Praise that goes on to ask for something else is no noise.
CORRECTS = re.compile(
    r"\b(?:but|only|should|however|except|though|although|instead|not|missing|wrong)\b", re.IGNORECASE
)
OUTAGE = re.compile(
    r"\b(?:time[d ]?[- ]?out|unavailable|unreachable|rate limit|too many requests|bad gateway|network error"
    r"|connection (?:refused|reset|closed|lost)|5\d\d|429)\b",
    re.IGNORECASE,
)
TRIAL = re.compile(
    r"\W*(?:(?:just|only|a|this|is|i'?m|please|pls|ignore|me)\W+)*(?:test(?:s|ing|ed)?\b\W*)+[\d\W]*", re.IGNORECASE
)
SAME_WORD = 0.85
TO_THE_REVIEW = re.compile(
    r"^\W*(?:(?:dear|hey|hi|hello|ok|note (?:to|for)|message (?:to|for)|attention|attn)\W+)*(?:the )?(?:feedback )?"
    r"review(?:er|ing)?(?: agent| bot| model| system)?\s*(?:[:,>!-]|please\b)",
    re.IGNORECASE,
)
TAKEN_BACK = re.compile(
    r"^\W*(?:oh |ok |ah )*(?:never ?mind|nvm|forget it|my (?:mistake|bad|fault)|sorry,? my)\b", re.IGNORECASE
)


def is_suspect(signal: Signal) -> bool:
    """Whether a row may give orders to a model or to the review, hide something, or carry a link or a secret. Honest
    words can look like that, so nothing is dismissed for it; it is just never made a rule of."""
    said = said_of(signal)
    if find_prompt_talk(said) or TO_THE_REVIEW.search(said) or describe_hidden(said) or mixed_words(said):
        return True
    return Masking().text(said) != said


def find_noise(signal: Signal) -> str | None:
    """Why no rule should come from a row, or None."""
    said = said_of(signal)
    if signal.rating == "positive" and not (signal.comment and CORRECTS.search(said)):
        return "Praise. Nothing to change."
    if signal.kind == "session_failure" and OUTAGE.search(said):
        return "An outage, not a mistake of the agent."
    if TAKEN_BACK.search(signal.comment or ""):
        return "Retracted by its author."
    if said and TRIAL.fullmatch(said):
        return "A test of the form."
    if signal.preferred_answer and is_slip(signal.answer or "", signal.preferred_answer):
        return "A slip of the pen in one answer."
    return None


def is_slip(before: str, after: str) -> bool:
    """Whether an edit only puts letters right: one or two words changed, and they are nearly the same."""
    old, new = (re.findall(r"\w+", text) for text in (before, after))
    changed = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
    return len(old) == len(new) and 0 < len(changed) <= 2 and all(_is_misspelt(a, b) for a, b in changed)


def _is_misspelt(a: str, b: str) -> bool:
    if not (a.isalpha() and b.isalpha()) or a[0].lower() != b[0].lower():
        return False
    return SequenceMatcher(None, a.lower(), b.lower()).ratio() >= SAME_WORD


def says_something(signal: Signal) -> bool:
    """Whether a row has words to go by."""
    return bool(signal.preferred_answer) or len(content_words(said_of(signal))) > 1
