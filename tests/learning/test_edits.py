"""How much of a text was changed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.learning.edits import EXACT_UP_TO, common_length, edit_distance


def slow_common_length(before: str, after: str) -> int:
    rows = [[0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for i, left in enumerate(before):
        for j, right in enumerate(after):
            rows[i + 1][j + 1] = rows[i][j] + 1 if left == right else max(rows[i][j + 1], rows[i + 1][j])
    return rows[-1][-1]


def test_known_distances() -> None:
    known = {
        ("", ""): 0,
        ("same", "same"): 0,
        ("", "new"): 100,
        ("gone", ""): 100,
        ("abc", "xyz"): 100,
        ("abcd", "abxd"): 40,  # Three signs stay, one goes, one comes.
        ("ab", "abc"): 33,
        ("aaa", "aaaaa"): 40,
    }
    assert {pair: edit_distance(*pair).percent for pair in known} == known


def test_halves_are_rounded_up() -> None:
    # 1 of 8 is 12.5 percent.
    assert edit_distance("1234567", "12345678").percent == 13


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text("abc ", max_size=25), st.text("abc ", max_size=25))
def test_the_quick_way_equals_the_slow_way(before: str, after: str) -> None:
    assert common_length(before, after) == slow_common_length(before, after)


def test_long_texts_are_counted_in_words_and_say_so() -> None:
    long = "word " * EXACT_UP_TO
    found = edit_distance(long, long + "more")
    assert (found.percent, found.approximate) == (0, True)
    assert edit_distance("x" * EXACT_UP_TO, "x" * EXACT_UP_TO).approximate is False
