"""What a signal or a reaction says about an answer, and how much it counts."""

SIGNAL_RATINGS = {
    "helpful": "positive",
    "not_helpful": "negative",
    "inaccurate": "negative",
    "unsafe": "negative",
    "edit": "negative",
    "regenerate": "negative",
}
# Asking again is often curiosity: it tells little.
WEIGHTS = {"regenerate": 0.3}
# Who says one of these takes the other back.
OPPOSITE = {"helpful": "not_helpful", "not_helpful": "helpful"}
REACTIONS = {"ok": "positive", "not_ok": "negative", "neutral": "neutral"}


def weight_of(signal: str | None) -> float:
    """How much a row counts: fully, unless its signal is a weak one."""
    return WEIGHTS.get(signal or "", 1.0)
