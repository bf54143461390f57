"""A golden that did something wrong: what should have happened stands in for it, and a right replay passes."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Invalid
from app.evals.compare.sessions import compare_sessions
from app.evals.expected.expectations import check_consistent, read_expected
from tests.evals.test_compare import READ, WRITE, talk

ASKED = "Marlow EBITDA in one line"


def made(name: str, record: str = "r-1") -> tuple[Any, ...]:
    return "createEntity", {"entityType": "ltm", "name": name, "fields": {}}, {"id": record, "name": name}


def moved(target: str, **changes: Any) -> tuple[Any, ...]:
    return "updateEntity", {"entityId": target, "changes": changes}, {"id": target}


def filled(value: Any, **more: Any) -> dict[str, Any]:
    given = {"criteriaSetId": "terms", "entityId": "tern", "values": {"valuation": value, "currency": "EUR"}}
    done = ("submitResponse", given, {"id": "s"})
    return talk("Read the letter", done, "Submitted.", output_type="field", **more)


def judged(golden: dict[str, Any], replay: dict[str, Any], **expected: Any) -> tuple[str, str]:
    result = compare_sessions({**golden, "expected": expected}, replay)
    return result["verdict"], result["reason"]


def test_what_a_forbidden_call_changed_is_not_expected_any_more() -> None:
    wrong = talk(ASKED, made("EBITDA"), "Done: created EBITDA.")
    later = talk(ASKED, made("EBITDA"), moved("r-1", ebitda=3), "Done: created EBITDA.")
    right = talk(ASKED, "Marlow has an EBITDA of 12.1 million.")

    for golden in (wrong, later):
        assert judged(golden, right, no_calls=["createEntity"]) == (
            "pass", "changed nothing, as expected; the rest passes",
        )  # fmt: skip
        assert judged(golden, golden, no_calls=["createEntity"])[0] == "fail"
    assert judged(wrong, wrong, no_calls=["createEntity"])[1] == "ltm was created, which should not happen"


def test_other_changes_of_the_recording_stay_expected() -> None:
    golden = talk(ASKED, made("EBITDA"), moved("d-1", stage="won"), "Done.")
    right = talk(ASKED, moved("d-1", stage="won"), "Done.")

    assert judged(golden, right, no_calls=["createEntity"])[0] == "pass"
    assert judged(golden, talk(ASKED, "Done."), no_calls=["createEntity"]) == ("fail", "entity d-1 was not updated")
    assert judged(golden, golden, no_calls=["find"])[0] == "pass"


@pytest.mark.parametrize("kind", ["agent", "response", "mixed"])
@pytest.mark.parametrize("value", [148.5, {"value": 148.5, "source": "p. 2"}])
def test_an_expected_call_replaces_the_recorded_one(kind: str, value: Any) -> None:
    expected = {"calls": [{"name": "submitResponse", "arguments": {"values": {"valuation": 148.5}}}]}
    golden = filled(148500, session_type=kind)

    assert judged(golden, filled(value, session_type=kind), **expected)[0] == "pass"
    verdict, reason = judged(golden, golden, **expected)
    assert (verdict, "148500 instead of 148.5" in reason) == ("fail", True)
    # What is not named stays as it was recorded.
    other = filled(148.5, session_type=kind)
    other["events"][1]["payload"]["arguments"]["values"]["currency"] = "USD"
    assert judged(golden, other, **expected)[0] == "fail"


def test_expected_calls_belong_to_recorded_ones_by_target() -> None:
    golden = talk("Close them", moved("a", stage="won"), moved("b", stage="won"), "Done.")
    lost = {"calls": [{"name": "updateEntity", "arguments": {"entityId": "b", "changes": {"stage": "lost"}}}]}
    right = talk("Close them", moved("a", stage="won"), moved("b", stage="lost"), "Done.")

    assert judged(golden, right, **lost)[0] == "pass"
    assert judged(golden, golden, **lost)[0] == "fail"
    assert judged(golden, talk("Close them", moved("b", stage="lost"), "Done."), **lost)[0] == "fail"


def test_the_wrong_record_is_replaced_by_the_right_one() -> None:
    golden = talk("Close Halden", moved("halden-health", stage="won"), "Done.")
    other = {"calls": [{"name": "updateEntity", "arguments": {"entityId": "halden-logistics"}}]}
    right = talk("Close Halden", moved("halden-logistics", stage="won"), "Done.")

    assert judged(golden, right, **other)[0] == "pass"
    assert judged(golden, golden, **other)[0] == "fail"


def test_a_change_that_was_never_made_is_expected_with_its_call() -> None:
    golden = talk("Close Kestrel", "Which Kestrel?", tools=[READ, WRITE])
    won = {"calls": [{"name": "updateEntity", "arguments": {"changes": {"stage": "won"}}}]}
    right = talk("Close Kestrel", moved("k", stage="won"), "Which Kestrel?", tools=[READ, WRITE])
    wrong = talk("Close Kestrel", moved("k", stage="lost"), "Which Kestrel?", tools=[READ, WRITE])

    assert judged(golden, right, **won)[0] == "pass"
    assert judged(golden, wrong, **won) == ("fail", "entity k: stage is “lost” instead of “won”")
    assert judged(golden, golden, **won) == ("fail", "updateEntity was not called")
    twice = talk("Close Kestrel", moved("k", stage="won"), made("more"), "Which Kestrel?", tools=[READ, WRITE])
    assert judged(golden, twice, **won)[0] == "fail"


def swapped(items: list[Any], new: list[Any]) -> tuple[Any, ...]:
    return "swap_parts", {"order_id": "o", "item_ids": items, "new_item_ids": new}, {"ok": True}


def test_ids_come_in_any_order_but_in_their_pairs() -> None:
    golden = talk("Swap them", swapped([1, 2], ["b", "a"]), "Done.")
    assert judged(golden, talk("Swap them", swapped([2, 1], ["a", "b"]), "Done."))[0] == "pass"
    assert judged(golden, talk("Swap them", swapped([2, 1], ["b", "a"]), "Done."))[0] == "fail"
    # An expected call that names one of the lists leaves the other, and so the pairs, to the recording.
    for named in ({"new_item_ids": ["a", "b"]}, {"item_ids": [2, 1]}):
        expected = {"calls": [{"name": "swap_parts", "arguments": named}]}
        assert judged(golden, golden, **expected)[0] == "pass"


def test_ids_that_the_session_made_come_in_any_order_too() -> None:
    first, second = made("A", "z-9999"), made("B", "a-1111")
    golden = talk("Join", first, second, moved("d-1", part_ids=["z-9999", "a-1111"]), "Done.")
    again = made("A", "k-1111"), made("B", "k-2222")
    for parts, verdict in ((["k-2222", "k-1111"], "pass"), (["k-2222", "k-2222"], "fail")):
        assert judged(golden, talk("Join", *again, moved("d-1", part_ids=parts), "Done."))[0] == verdict


def test_asked_figures_of_a_recording_that_was_wrong_are_not_asked_for() -> None:
    looked = ("find", {"kind": "deal"}, [])
    golden = talk("How many deals are there?", "There are 12 deals in the pipeline.")
    replay = talk("How many deals are there?", looked, "There are 13 deals in the pipeline.")

    assert compare_sessions(golden, replay)["verdict"] == "fail"
    assert judged(golden, replay, calls=[{"name": "find"}])[0] == "pass"


def test_forbidden_words_exclude_the_recorded_wording() -> None:
    golden = talk("Multiple of Kestrel?", "On FY2024 figures Kestrel trades at 11.2 times EBITDA.")
    right = talk("Multiple of Kestrel?", "12.9, trailing.")

    assert judged(golden, right, must_not_mention=["FY2024"]) == (
        "pass", "changed nothing, as before; the answer says nothing that it must not",
    )  # fmt: skip
    assert judged(golden, right, must_not_mention=["FY2023"])[0] == "fail", "the recorded words still count"


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ({"mentions": ["14.2 million"], "must_not_mention": ["14.20"]}, ("mentions", "must_not_mention")),
        ({"answer": "It is $1,200.", "must_not_mention": ["1200"]}, ("answer", "must_not_mention")),
        ({"calls": [{"name": "find"}], "no_calls": ["find"]}, ("calls", "no_calls")),
        ({"calls": [{"name": "updateEntity"}], "effects": []}, ("calls", "effects")),
        (
            {"no_calls": ["save"], "effects": [{"kind": "created", "type": "save", "fields": {}}]},
            ("effects", "no_calls"),
        ),
        (
            {"no_calls": ["updateEntity"], "effects": [{"kind": "updated", "type": "entity", "target": "x"}]},
            ("effects", "no_calls"),
        ),
    ],
)
def test_what_excludes_itself_is_refused_under_both_names(expected: dict[str, Any], names: tuple[str, str]) -> None:
    with pytest.raises(Invalid) as refusal:
        check_consistent(read_expected(expected))
    assert refusal.value.fields.keys() == {f"expected.{name}" for name in names}
    assert all(f"expected.{name}" in refusal.value.detail for name in names)


@pytest.mark.parametrize(
    "expected",
    [
        {"mentions": ["14.2"], "must_not_mention": ["14.2 million"]},
        {"calls": [{"name": "find"}], "no_calls": ["save"], "effects": []},
        {"answer": "Only LTM.", "must_not_mention": ["FY2024"], "no_calls": ["createEntity"], "effects": []},
    ],
)
def test_what_can_be_done_together_is_not_refused(expected: dict[str, Any]) -> None:
    check_consistent(read_expected(expected))


@pytest.mark.parametrize(
    ("golden", "replay"),
    [
        ("Yes, the deal is approved.", "No, the deal is not approved."),
        ("The deal with Kestrel was signed.", "The deal with Kestrel was lost."),
        ("Sam leads the deal in the north.", "Tom leads the deal in the north."),
        ("Done: update entity Kestrel deal", "search entities: 1 found: Kestrel deal"),
    ],
)
def test_close_words_are_not_called_the_same(golden: str, replay: str) -> None:
    def nearly(pairs: Any) -> list[float]:
        return [0.9 for _ in pairs]

    result = compare_sessions(talk("What of the deal?", golden), talk("What of the deal?", replay), nearly)

    assert result["verdict"] == "pass", "the score is that of the words"
    told = [result["reason"], result["dimensions"]["final_message"]["reason"]]
    told += [each["text"] for each in result["divergences"]]
    assert not [text for text in told if "the same" in text or "other words" in text or "something else" in text]
    close = "the answer's words are close (1.00); no fact was ticked to hold it to"
    assert result["reason"] == f"changed nothing, as before; {close}"
    same = compare_sessions(talk("What of the deal?", golden), talk("What of the deal?", f" {golden}\n"), nearly)
    assert same["reason"] == "changed nothing, as before; the answer is the same, word for word"
    assert same["divergences"] == []


def test_a_single_question_is_held_to_its_words_unless_a_fact_is_ticked() -> None:
    golden, replay = talk("How many deals?", "There are 12 deals."), talk("How many deals?", "12")

    assert judged(golden, replay) == (
        "fail",
        "the answer's words are not close (0.40 of 0.60), though the figures that were asked for were said",
    )
    assert judged(golden, replay, mentions=["12"]) == (
        "pass", "changed nothing, as before; the answer says the fact that it must",
    )  # fmt: skip


def test_a_pass_below_the_usual_mark_says_what_the_set_asks_for() -> None:
    golden, replay = talk("Who?", "It belongs to Ana."), talk("Who?", "Nobody knows.")

    result = compare_sessions(golden, replay, policy={"thresholds": {"final_message": 0.0}})

    assert result["verdict"] == "pass"
    assert result["reason"].endswith("the answer's words are not close (0.00 of 0.60); this set asks for 0")


def test_a_pass_that_lacks_a_fact_says_how_many_it_has() -> None:
    said = "Kestrel, Bluefin, Osprey, Tern, Quarry, Juniper and Corvus are open, with 12 leads."
    golden = talk("Which?", said)
    facts = ["Kestrel", "Bluefin", "Osprey", "Tern", "Quarry", "Juniper", "Corvus", "12 leads"]

    verdict, reason = judged(golden, talk("Which?", said.replace("12", "13")), mentions=facts)

    assert verdict == "pass"
    assert reason.endswith("the answer says 7 of the 8 facts that it must; the answer does not mention “12 leads”")


def test_an_answer_with_other_figures_than_the_wanted_one_fails() -> None:
    """However alike the words are, and most of all the answer that someone complained about."""
    asked, wanted = "What is the EBITDA?", "The EBITDA is 14 million."
    golden = talk(asked, "The EBITDA is 9 million.")

    assert judged(golden, golden, answer=wanted) == ("fail", "the answer is the recorded one, which was wrong")
    assert judged(golden, talk(asked, "The EBITDA is 15 million."), answer=wanted) == (
        "fail", "the answer says 15 where the golden says 14",
    )  # fmt: skip
    assert judged(golden, talk(asked, "The EBITDA is 14 million."), answer=wanted)[0] == "pass"
    assert judged(golden, talk(asked, "EBITDA: 14 million, the last twelve months."), answer=wanted)[0] == "pass"
    changed = talk(asked, moved("d-1", ebitda=14), "The EBITDA is 9 million.")
    assert judged(changed, changed, answer=wanted)[0] == "fail"
