"""What a signal says."""

from app.learning.signals import REACTIONS, SIGNAL_RATINGS, weight_of
from app.models.feedback import RATINGS, SIGNALS


def test_every_signal_has_a_meaning() -> None:
    assert set(SIGNAL_RATINGS) == set(SIGNALS)
    assert {signal: rating for signal, rating in SIGNAL_RATINGS.items() if rating == "positive"} == {
        "helpful": "positive"
    }
    assert set(REACTIONS.values()) == set(RATINGS)


def test_asking_again_counts_little() -> None:
    assert weight_of("regenerate") == 0.3
    assert weight_of("inaccurate") == weight_of(None) == 1.0
