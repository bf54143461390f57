"""Verdicts: what decides, what only explains, and what cannot be judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import Invalid
from app.evals.compare.sessions import compare_sessions
from app.evals.expected.expectations import suggest_facts
from app.evals.trace import make_run
from tests.evals import mutations

READ = {"name": "find", "annotations": {"readOnlyHint": True}}
WRITE = {"name": "save"}


def talk(*said: Any, **more: Any) -> dict[str, Any]:
    """A session: texts are said in turn by the person and the agent, tuples are calls."""
    session: dict[str, Any] = {"events": [], "tools": [READ], "session_type": "agent", **more}
    user = True
    for one in said:
        if isinstance(one, tuple):
            session["events"] += mutations.call(session, *one)
            continue
        kind = "user.message" if user else "agent.message"
        session["events"].append({"event_type": kind, "payload": {"text": one}})
        user = not user
    return session


def event_of(event_type: str, **payload: Any) -> dict[str, Any]:
    return {"event_type": event_type, "payload": payload}


def test_the_answer_has_the_promised_shape() -> None:
    result = compare_sessions(talk("Hi", "Hello"), talk("Hi", "Bye now"))

    assert {"session_type", "verdict", "passed", "overall_accuracy", "dimensions", "divergences"} <= result.keys()
    assert list(result["dimensions"]) == [
        "entities_created", "entities_updated", "tool_calls", "tool_args", "final_message",
    ]  # fmt: skip
    assert {"score", "passed", "weight", "reason"} <= result["dimensions"]["tool_calls"].keys()
    assert set(result["divergences"][0]) == {
        "dimension", "path", "golden", "replay", "weight", "golden_seq", "replay_seq", "text",
    }  # fmt: skip
    json.dumps(result, allow_nan=False)


def test_the_only_answer_of_a_session_decides() -> None:
    golden = talk("Who owns Brightwater?", "Brightwater belongs to Ana Duarte since last March.")

    same = compare_sessions(
        golden, talk("Who owns Brightwater?", "Since last March, Brightwater belongs to Ana Duarte.")
    )
    other = compare_sessions(golden, talk("Who owns Brightwater?", "I have no tool for this question."))

    assert (same["verdict"], other["verdict"]) == ("pass", "fail")
    assert other["reason"] == "the answer's words are not close (0.00 of 0.60)"
    assert other["overall_accuracy"] <= 0.59


def test_words_alone_do_not_decide_a_longer_talk_that_changed_nothing() -> None:
    golden = talk("Cancel it", "I cannot do that.", "Why?", "It is not refundable.", tools=[READ, WRITE])
    replay = talk("Cancel it", "I cannot do that.", "Why?", "Company policy, I am afraid so.", tools=[READ, WRITE])

    result = compare_sessions(golden, replay)

    assert result["passed"] is True
    assert result["reason"] == "changed nothing, as before; the answer was not judged"


def test_without_a_tool_that_writes_the_answer_decides_a_longer_talk() -> None:
    golden = talk("Cancel it", "I cannot do that.", "Why?", "Because the fare is not refundable.")
    replay = talk("Cancel it", "I cannot do that.", "Why?", "Ask someone else please, thank you.")

    assert compare_sessions(golden, replay)["verdict"] == "fail"


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [("You may take four, so 4.", "pass"), ("It is 6 of them.", "fail"), ("I do not know.", "fail")],
)
def test_figures_that_were_asked_for_decide(answer: str, verdict: str) -> None:
    tools = [READ, WRITE]
    golden = talk("Hello", "Hello, how can I help?", "How many bags may I take?", "You can take 4 bags.", tools=tools)
    replay = talk("Hello", "Hello, how can I help?", "How many bags may I take?", answer, tools=tools)

    assert compare_sessions(golden, replay)["verdict"] == verdict


def test_another_figure_in_the_same_words_fails_a_single_question() -> None:
    golden = talk("How many deals closed in March?", "In March 14 deals closed, most of them in the north.")
    replay = talk("How many deals closed in March?", "In March 12 deals closed, most of them in the north.")

    result = compare_sessions(golden, replay)

    assert (result["verdict"], result["reason"]) == ("fail", "the agent never said 14, which was asked for")
    assert compare_sessions(golden, golden)["overall_accuracy"] == 1.0


BOOKED = "book", {"seats": 2}, {"ok": True}
ASKED = "Book it. How much will it cost in total?"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ([ASKED, BOOKED, "Booked for you, the price was 450 euros."], "pass"),
        ([ASKED, BOOKED, "Booked."], "pass"),
        ([ASKED, BOOKED, "Booked: 400 euros for 2 seats and 50 for the bags, so 450."], "pass"),
        ([ASKED, BOOKED, "Booked, and it costs 430 euros."], "fail"),
        ([ASKED, BOOKED, "It costs 430.", "Are you sure?", "Sorry, it is 450."], "pass"),
        ([ASKED, "Just a moment.", "Go on", BOOKED], "fail"),
        (["Book it. How many stops are there?", BOOKED, "There are 3 stops."], "pass"),
        (["Book it.", BOOKED, "Booked seats 14 and 15."], "pass"),
    ],
)
def test_a_figure_that_was_asked_for_along_with_a_change_is_not_another_one(said: list[Any], verdict: str) -> None:
    golden = talk(ASKED, BOOKED, "Booked, that is 450 euros in total.")

    assert compare_sessions(golden, talk(*said))["verdict"] == verdict


def test_a_figure_that_was_announced_before_the_change_is_no_report() -> None:
    """The last message stands before the last change: nobody was told what came of it."""
    announced = talk(ASKED, "It will cost 450 euros. I book it now.", BOOKED)
    golden = talk(ASKED, BOOKED, "Booked, that is 450 euros in total.")

    result = compare_sessions(golden, announced)

    assert (result["verdict"], result["reason"]) == ("fail", "the agent ended without saying 450, which was asked for")
    assert compare_sessions(announced, announced)["overall_accuracy"] == 1.0
    assert compare_sessions(announced, golden)["verdict"] == "pass", "a golden that reported nothing asks for nothing"


def test_figures_that_the_user_gave_or_never_asked_for_do_not_decide() -> None:
    tools = [READ, WRITE]
    golden = talk("I have 4 bags", "Yes?", "In total, may I take all of them?", "Yes, all 4.", tools=tools)
    replay = talk("I have 4 bags", "Yes?", "In total, may I take all of them?", "Yes, all of them.", tools=tools)

    assert compare_sessions(golden, replay)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("status", "verdict"), [("failed", "errored"), ("cancelled", "errored"), ("running", "unknown")]
)
def test_a_replay_that_did_not_finish_is_not_judged(status: str, verdict: str) -> None:
    result = compare_sessions(talk("Hi", "Hello"), talk("Hi", "Hello", status=status))

    assert (result["verdict"], result["passed"], result["overall_accuracy"]) == (verdict, None, None)


@pytest.mark.parametrize("value", [float("nan"), "x" * 300_000])
def test_what_is_too_large_or_no_number_is_unknown(value: Any) -> None:
    session = talk("Hi", ("save", {"v": value}, {}), "Done")

    result = compare_sessions(session, session)

    assert (result["verdict"], result["truncated"]) == ("unknown", True)


def test_a_miss_is_reported_and_a_set_may_leave_it_unjudged() -> None:
    golden = talk("Hi", ("find", {"q": 1}, "x"), "Hello")
    replay = talk("Hi", ("find", {"q": 2}, "No recorded answer", True), "Hello")
    replay["events"][2]["payload"]["replay"] = {"kind": "miss"}

    usual, careful = compare_sessions(golden, replay), compare_sessions(golden, replay, policy={"on_miss": "unknown"})

    assert (usual["verdict"], usual["left_recording"], careful["verdict"]) == ("pass", True, "unknown")
    assert "no recorded answer for find" in [found["text"] for found in usual["divergences"]]


def test_a_failure_after_a_drift_says_so() -> None:
    tools = [READ, WRITE]
    yes = ("save", {"plan": "basic"}, {})
    golden = talk("Change my plan", "Shall I take the basic one?", "Yes", yes, "Done.", tools=tools)
    replay = talk("Change my plan", "Your plan was cancelled.", "Yes", "What do you mean?", tools=tools)

    result = compare_sessions(golden, replay)
    careful = compare_sessions(golden, replay, policy={"on_drift": "unknown"})

    assert (result["verdict"], result["drifted"], result["drift"]["turn"]) == ("fail", True, 1)
    assert result["reason"].endswith("from turn 1 on, the recorded user answers a question this agent did not ask")
    assert careful["verdict"] == "unknown"


def test_a_failure_before_the_drift_is_not_blamed_on_it() -> None:
    tools = [READ, WRITE]
    golden = talk("Start", ("save", {"a": 1}, {}), "Saved. Anything else?", "No", "Good.", tools=tools)
    replay = talk("Start", ("save", {"a": 2}, {}), "Something quite different.", "No", "Good.", tools=tools)

    result = compare_sessions(golden, replay)

    assert (result["verdict"], result["drifted"], result["drift"]["turn"]) == ("fail", False, 1)


def test_a_set_changes_thresholds_and_what_decides() -> None:
    golden, replay = talk("Hi", ("find", {"q": 1}, 1), "Hello"), talk("Hi", "Hello")

    assert compare_sessions(golden, replay)["verdict"] == "pass"
    assert compare_sessions(golden, replay, policy={"decides": {"tool_calls": True}})["verdict"] == "fail"
    lenient = {"decides": {"tool_calls": True}, "thresholds": {"tool_calls": 0.0}}
    assert compare_sessions(golden, replay, policy=lenient)["verdict"] == "pass"
    nothing = {"decides": dict.fromkeys(["entities_created", "entities_updated", "final_message"], False)}
    assert compare_sessions(golden, replay, policy=nothing)["verdict"] == "unknown"


def test_divergences_come_by_what_they_cost_and_are_at_most_200() -> None:
    golden = talk("Hi", ("save", {f"k{n}": n for n in range(400)}, {}), ("find", {"q": 1}, 1), "Hello")
    replay = talk("Hi", ("save", {f"k{n}": n + 1 for n in range(400)}, {}), "Bye")

    found = compare_sessions(golden, replay)["divergences"]

    assert len(found) == 200
    assert found[0]["dimension"] == "entities_created"
    assert found[0]["text"] == "save: k0 is 1 instead of 0"


class TestExpected:
    golden = talk("Price of P-1?", ("find", {"q": "P-1"}, {"price": 90}), "It costs 90.", tools=[READ, WRITE])

    def judged(self, replay: dict[str, Any], **expected: Any) -> dict[str, Any]:
        return compare_sessions({**self.golden, "expected": expected}, replay)

    def test_the_answer_that_was_right_replaces_the_recorded_one(self) -> None:
        replay = talk("Price of P-1?", "P-1 costs 120 euros with tax.", tools=[READ, WRITE])

        assert self.judged(replay)["verdict"] == "fail"
        right = self.judged(replay, answer="With tax P-1 costs 120 euros.")
        assert (right["verdict"], right["baseline"]) == ("pass", "expected")

    def test_mentions_are_found_by_value_and_in_order(self) -> None:
        replay = talk("Price of P-1?", "On 3 March 2026 it was $1,200 for part P-1.", tools=[READ, WRITE])

        assert self.judged(replay, mentions=["1200.00", "2026-03-03", "part P-1"])["verdict"] == "pass"
        missing = self.judged(replay, mentions=["1300", "-1200", "P-1 part"])
        assert missing["verdict"] == "fail"
        assert missing["reason"] == "the answer does not mention “1300”"

    def test_what_must_not_be_mentioned(self) -> None:
        result = self.judged(self.golden, must_not_mention=["90"])

        assert (result["verdict"], result["dimensions"]["final_message"]["score"]) == ("fail", 0.0)

    def test_calls_that_must_and_must_not_occur(self) -> None:
        replay = talk("Price of P-1?", ("find", {"q": "P-1", "basis": "LTM"}, {}), "It costs 90.", tools=[READ, WRITE])

        assert self.judged(replay, calls=[{"name": "find", "arguments": {"basis": "LTM"}}])["verdict"] == "pass"
        assert self.judged(self.golden, calls=[{"name": "find", "arguments": {"basis": "LTM"}}])["verdict"] == "fail"
        forbidden = self.judged(replay, no_calls=["find"])
        assert (forbidden["verdict"], forbidden["reason"]) == ("fail", "find was called, which must not happen")
        assert self.judged(replay, no_calls=["save"])["verdict"] == "pass"

    def test_effects_that_should_have_been(self) -> None:
        effect = {"kind": "created", "type": "save", "fields": {"a": 1}}
        did = talk("Price of P-1?", ("save", {"a": 1.0}, {}), "It costs 90.", tools=[READ, WRITE])

        assert self.judged(did, effects=[effect])["verdict"] == "pass"
        assert self.judged(self.golden, effects=[effect])["verdict"] == "fail"

    @pytest.mark.parametrize(
        "expected",
        [
            [],
            {"anser": "x"},
            {"answer": ""},
            {"mentions": "x"},
            {"mentions": ["x"] * 9},
            {"calls": [{"arguments": {}}]},
            {"calls": [{"name": "x", "arguments": []}]},
            {"effects": [{"kind": "deleted", "type": "x"}]},
            {"effects": [{"kind": "updated", "type": "x", "fields": {}}]},
            {"no_calls": [3]},
        ],
    )
    def test_other_shapes_are_refused(self, expected: Any) -> None:
        with pytest.raises(Invalid, match="expected"):
            compare_sessions({**self.golden, "expected": expected}, self.golden)


CRITERIA = {
    "price": {"kind": "numeric", "weight": 3, "relative_tolerance": 0.01},
    "currency": {"kind": "select", "weight": 2},
    "risk": {"kind": "text", "match": "keyword", "weight": 1},
    "order": {"kind": "relation-rank", "weight": 1},
}


def response(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"session_type": "response", "events": [event_of("response.submitted", values=values)], **more}


class TestResponses:
    values = {"price": 100, "currency": "EUR", "risk": "one large customer", "order": ["a", "b", "c", "d", "e"]}

    def judged(self, **changed: Any) -> dict[str, Any]:
        return compare_sessions(response(self.values, criteria=CRITERIA), response({**self.values, **changed}))

    def test_each_criterion_has_its_weight_and_decides(self) -> None:
        result = self.judged(price=102)

        assert (result["verdict"], result["reason"]) == ("fail", "price is 102 instead of 100")
        assert {name: each["weight"] for name, each in result["dimensions"].items()} == {
            "price": 3, "currency": 2, "risk": 1, "order": 1,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("changed", "verdict"),
        [
            ({"price": 100.9}, "pass"),
            ({"price": "100.0"}, "pass"),
            ({"price": None}, "fail"),
            ({"currency": "eur"}, "fail"),
            ({"risk": "customer concentration: one large one"}, "pass"),
            ({"risk": "currency"}, "fail"),
            ({"order": ["b", "a", "c", "d", "e"]}, "pass"),
            ({"order": ["e", "d", "c", "b", "a"]}, "fail"),
            ({"order": ["a", "b", "c"]}, "fail"),
            ({"invented": 7}, "fail"),
        ],
    )
    def test_values_are_judged_as_their_criterion_says(self, changed: dict[str, Any], verdict: str) -> None:
        assert self.judged(**changed)["verdict"] == verdict

    def test_a_changed_record_fails_a_response_too(self) -> None:
        replay = response(self.values)
        replay["events"].append(event_of("entity.created", entity_id="x", entity_type="deal", fields={}))

        assert compare_sessions(response(self.values, criteria=CRITERIA), replay)["verdict"] == "fail"

    def test_an_extraction_weighs_values_sources_and_confidence(self) -> None:
        def extraction(price: float, source: str, confidence: float) -> dict[str, Any]:
            given = {"price": {"value": price, "source": source, "confidence": confidence}}
            return {**response(given, criteria=CRITERIA), "session_type": "agent", "output_type": "fields"}

        golden = extraction(100, "page 2", 0.9)
        elsewhere = compare_sessions(golden, extraction(100, "page 3", 0.5))
        wrong = compare_sessions(golden, extraction(200, "page 2", 0.9))

        assert (elsewhere["verdict"], round(elsewhere["overall_accuracy"], 2)) == ("pass", 0.8)
        assert wrong["verdict"] == "fail"
        assert sum(each["weight"] for each in wrong["dimensions"].values()) == pytest.approx(1.0)

    def test_mixed_compares_both_halves(self) -> None:
        def mixed(price: float, answer: str) -> dict[str, Any]:
            session = talk("Fill it in", answer, tools=[READ, WRITE], session_type="mixed", criteria=CRITERIA)
            session["events"].insert(1, event_of("response.submitted", values={"price": price}))
            return session

        result = compare_sessions(mixed(100, "Done."), mixed(130, "Done."))

        assert result["verdict"] == "fail"
        assert {"entities_created", "final_message", "price"} <= result["dimensions"].keys()
        assert compare_sessions(mixed(100, "Done."), mixed(100.5, "Done."))["verdict"] == "pass"


def test_a_tool_session_is_its_output_and_what_it_changed() -> None:
    golden = talk(("find", {"q": 1}, {"n": 1, "items": ["a"]}), session_type="tool")

    assert compare_sessions(golden, talk(("find", {}, '{"items": ["a"], "n": 1.0}'), session_type="tool"))["passed"]
    assert not compare_sessions(golden, talk(("find", {}, {"n": 2, "items": ["a"]}), session_type="tool"))["passed"]
    failed = compare_sessions(golden, talk(("find", {}, "Error: no", True), session_type="tool"))
    assert failed["reason"] == "the tool failed, which it did not before"


def test_suggested_facts_stand_in_the_answer_and_in_a_result() -> None:
    session = mutations.sessions()["billing-question"]

    assert suggest_facts(mutations.run_of(session)) == ["INV-311", "INV-312"]
    named = talk("Who?", ("find", {}, {"owner": "Ana Duarte", "since": "2025-03-01", "value": 1200}))
    named["events"].append(event_of("agent.message", text="Since 1 March 2025 it belongs to Ana Duarte, at $1,200.00."))
    assert suggest_facts(make_run(named["events"])) == ["1 March 2025", "Ana Duarte", "$1,200.00"]


@pytest.mark.parametrize(
    ("golden", "replay", "verdict"),
    [
        ("1 found: Kestrel.", "4 found: Kestrel.", "fail"),
        ("The pipeline holds 14 open deals of Kestrel.", "The pipeline holds 12 open deals of Kestrel.", "fail"),
        ("The pipeline holds 14 open deals of Kestrel.", "The pipeline holds open deals of Kestrel.", "pass"),
        ("The pipeline holds 14 open deals of Kestrel.", "The pipeline holds 14 open deals of Kestrel, 3 new.", "pass"),
        ("The pipeline holds $1,200 of Kestrel.", "The pipeline holds 1200.00 of Kestrel.", "pass"),
        ("The 2 deals of 2024 hold 5, 6, 7 and 8.", "The 2 deals of 2024 hold 5, 6, 7 and 9.", "pass"),
    ],
)
def test_an_answer_with_other_figures_is_another_answer(golden: str, replay: str, verdict: str) -> None:
    result = compare_sessions(talk("Show me Kestrel", golden), talk("Show me Kestrel", replay))
    assert result["verdict"] == verdict, result["reason"]


def test_other_figures_say_which() -> None:
    result = compare_sessions(talk("Search Kestrel", "1 found: Kestrel."), talk("Search Kestrel", "4 found: Kestrel."))
    assert result["reason"] == "the answer says 4 where the golden says 1"
    assert result["divergences"][0]["path"] == "figures"
    found = [("find", {}, [])]
    wrong = {**talk("Search Kestrel", *found, "1 found: Kestrel."), "expected": {"calls": [{"name": "find"}]}}
    assert compare_sessions(wrong, talk("Search Kestrel", *found, "4 found: Kestrel."))["verdict"] == "pass"
    same = compare_sessions(talk("Set 4 or 5?", "It is 4."), talk("Set 4 or 5?", "It is 5."))
    assert same["verdict"] == "pass"


def test_figures_count_only_where_the_answer_does() -> None:
    said = ("Look", "I found 3.", "Thanks", "Bye, 3 of us.")
    other = ("Look", "I found 3.", "Thanks", "Bye, 9 of us.")
    tools = {"tools": [WRITE]}
    assert compare_sessions(talk(*said, **tools), talk(*other, **tools))["verdict"] == "pass"


def test_where_nothing_should_have_changed_the_wrong_answer_does_not_count() -> None:
    golden = talk("Close Kestrel", ("save", {"id": "k", "stage": "closed"}, {"ok": True}), tools=[WRITE])
    golden["events"].append(event_of("agent.message", text="Kestrel is closed now, as you wished."))
    replay = talk("Close Kestrel", "Only its owner may do that.", tools=[WRITE])
    assert compare_sessions(golden, replay)["verdict"] == "fail"
    assert compare_sessions({**golden, "expected": {"effects": []}}, replay)["verdict"] == "pass"
    assert compare_sessions({**golden, "expected": {"effects": []}}, golden)["verdict"] == "fail"


def test_what_should_have_been_submitted_replaces_what_was() -> None:
    def submitted(value: int) -> dict[str, Any]:
        values = {"valuation": {"value": value, "source": "p. 2"}}
        given = {"criteriaSetId": "c", "entityId": "e", "values": values}
        return talk("Read it", ("submitResponse", given, {"id": "r"}), session_type="response")

    effect = {"kind": "response", "type": "c", "target": "e", "fields": {"valuation": 12}}
    golden = {**submitted(10), "expected": {"effects": [effect]}}
    assert compare_sessions(golden, submitted(12))["verdict"] == "pass"
    assert compare_sessions(golden, submitted(10))["verdict"] == "fail"
    assert compare_sessions({**submitted(10), "expected": {"effects": []}}, submitted(10))["verdict"] == "fail"
