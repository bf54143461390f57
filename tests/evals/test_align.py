from __future__ import annotations

from app.evals.compare.align import align
from app.text.diff import exact_diff
from app.text.embeddings import embed, nearness_of
from app.text.similarity import text_similarity
from tests.evals import mutations
from tests.evals.test_compare import talk


def test_steps_stand_side_by_side() -> None:
    golden = talk("Go", ("ask", {"q": 1}, 1), ("save", {"a": 1}, {}), ("find", {"q": 3}, 1), "Done")
    replay = talk("Go", ("save", {"a": 2}, {}), ("find", {"q": 3}, 1), ("look", {}, 1), ("ask", {"q": 1}, 1), "Done")

    rows = align(mutations.run_of(golden), mutations.run_of(replay))

    assert [(row.change, (row.golden or row.replay).name) for row in rows] == [  # type: ignore[union-attr]
        ("same", "user.message"),
        ("moved", "ask"),
        ("changed", "save"),
        ("same", "find"),
        ("inserted", "look"),
        ("moved", "ask"),
        ("same", "agent.message"),
    ]


def test_the_words_of_two_answers() -> None:
    parts = exact_diff("The price is 90 euros.", "The price was 90 euros.")

    assert parts == [("same", "The price "), ("gone", "is"), ("new", "was"), ("same", " 90 euros.")]
    assert "".join(text for kind, text in parts if kind != "new") == "The price is 90 euros."


def test_meaning_counts_where_words_differ() -> None:
    pair = ("The meeting was moved to the following week.", "We postponed the appointment until next week.")
    other = ("The meeting was moved to the following week.", "Paint the fence in a dark green colour today.")
    near = nearness_of(embed)

    words, meant = text_similarity([pair]), text_similarity([pair, other], near)

    assert meant[0] > words[0]
    assert meant[0] > meant[1]
