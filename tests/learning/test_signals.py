"""What a signal says."""

from app.learning.signals import MEANINGS, REACTIONS, rating_of, weight_of
from app.models.feedback import RATINGS, SIGNALS


def test_every_signal_has_a_meaning() -> None:
    assert set(MEANINGS) == set(SIGNALS)
    assert {signal: rating_of(signal) for signal in SIGNALS if rating_of(signal) == "positive"} == {
        "helpful": "positive"
    }
    assert {meaning.rating for meaning in REACTIONS.values()} == set(RATINGS)


def test_asking_again_counts_little() -> None:
    assert weight_of("regenerate") == 0.3
    assert weight_of("inaccurate") == weight_of(None) == 1.0
