"""What a signal says about an answer, and how much."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """A rating, and a weight from 0 to 1 for those who count."""

    rating: str
    weight: float = 1.0


MEANINGS = {
    "helpful": Meaning("positive"),
    "not_helpful": Meaning("negative"),
    "inaccurate": Meaning("negative"),
    "unsafe": Meaning("negative"),
    "edit": Meaning("negative"),
    # Asking again is often curiosity: it tells little.
    "regenerate": Meaning("negative", 0.3),
}
# Who says one of these takes the other back.
OPPOSITE = {"helpful": "not_helpful", "not_helpful": "helpful"}
REACTIONS = {"ok": Meaning("positive"), "not_ok": Meaning("negative"), "neutral": Meaning("neutral")}


def rating_of(signal: str) -> str:
    """The rating of a signal."""
    return MEANINGS[signal].rating


def weight_of(signal: str | None) -> float:
    """How much a row counts: fully, unless its signal is a weak one."""
    return MEANINGS[signal].weight if signal in MEANINGS else 1.0
