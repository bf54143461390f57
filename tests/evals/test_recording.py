"""The matching table of recorded tools."""

from __future__ import annotations

from typing import Any

import pytest

from app.evals.recording import Recording
from app.evals.trace import make_run
from tests.evals import mutations

TOOLS = [
    {"name": "get", "annotations": {"readOnlyHint": True}},
    {
        "name": "search",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object", "properties": {"kind": {"enum": ["big deals", "big leads"]}}},
    },
    {"name": "update"},
    {"name": "create"},
]
Said = tuple[str, Any, Any] | tuple[str, Any, Any, bool]


def recording(*calls: Said) -> Recording:
    session: mutations.Session = {"events": [], "tools": TOOLS}
    for said in calls:
        session["events"] += mutations.call(session, *said)
    return Recording(make_run(session["events"], tools=TOOLS))


def test_the_same_arguments_are_exact_whatever_their_order_or_spelling() -> None:
    played = recording(("get", {"a": 120, "b": "x y"}, "found"))

    answered = played.answer("get", '{"b": " x  y", "a": 120.0, "c": null}')

    assert (answered.kind, answered.output, answered.is_error) == ("exact", "found", False)
    assert answered.mark() == {"kind": "exact", "golden_seq": 1}


def test_free_text_in_other_words_is_nearest() -> None:
    played = recording(("search", {"q": "SaaS deals 2024", "limit": 5}, "deals"))

    answered = played.answer("search", {"q": "2024 SaaS deals", "limit": 5, "after": None, "tags": []})

    assert (answered.kind, answered.output, answered.similarity, answered.golden_seq) == ("nearest", "deals", 1.0, 1)


@pytest.mark.parametrize(
    "asked",
    [
        {"q": "SaaS deals 2024", "limit": 6},
        {"q": "SaaS deals 2023", "limit": 5},
        {"q": "Acme deals 2024", "limit": 5},
        {"q": "all people who left", "limit": 5},
        {"q": "SaaS deals 2024", "limit": 5, "stage": "won"},
        {"q": "SaaS deals 2024"},
    ],
)
def test_another_record_date_or_option_is_never_nearest(asked: dict[str, Any]) -> None:
    played = recording(("search", {"q": "SaaS deals 2024", "limit": 5}, "deals"))

    assert played.answer("search", asked).kind == "miss"


def test_options_and_dates_with_a_space_are_no_free_text() -> None:
    played = recording(
        ("search", {"kind": "big deals"}, "a"), ("get", {"at": "2026-03-01 10:00"}, "b"), ("get", {"x_id": "a b"}, "c")
    )

    assert played.answer("search", {"kind": "big leads"}).kind == "miss"
    assert played.answer("get", {"at": "2026-03-01 10:01"}).kind == "miss"
    assert played.answer("get", {"x_id": "b a"}).kind == "miss"


def test_another_id_is_read_from_the_workspace_or_missed() -> None:
    played = recording(("get", {"id": "A"}, "record A"))

    assert played.answer("get", {"id": "B"}, own_read=True).kind == "read"
    missed = played.answer("get", {"id": "B"})
    assert (missed.kind, missed.is_error) == ("miss", True)
    assert missed.output == "No recorded answer for get with these arguments."


def test_what_was_read_after_a_write_comes_after_it() -> None:
    played = recording(
        ("get", {"id": "A"}, "first"), ("update", {"id": "A", "x": 1}, {"ok": True}), ("get", {"id": "A"}, "second")
    )

    said = [played.answer(name, arguments).output for name, arguments in (
        ("get", {"id": "A"}), ("get", {"id": "A"}), ("update", {"id": "A", "x": 1}), ("get", {"id": "A"}),
    )]  # fmt: skip

    assert said == ["first", "first", {"ok": True}, "second"]


def test_what_the_recording_read_only_later_is_given_early_rather_than_not() -> None:
    played = recording(("update", {"id": "A", "x": 1}, {"ok": True}), ("get", {"id": "A"}, "after"))

    assert played.answer("get", {"id": "A"}).output == "after"


def test_a_failure_and_then_a_success_come_in_their_order_and_the_last_comes_again() -> None:
    played = recording(("update", {"id": "A"}, "Error: busy", True), ("update", {"id": "A"}, {"ok": True}))

    answers = [played.answer("update", {"id": "A"}) for _ in range(3)]

    assert [answer.is_error for answer in answers] == [True, False, False]
    assert [answer.golden_seq for answer in answers] == [1, 3, 3]


def test_a_write_with_another_value_is_simulated_and_can_be_read_again() -> None:
    played = recording(("create", {"name": "A"}, {"id": "real-1"}))

    first, second = played.answer("create", {"name": "B"}), played.answer("create", {"name": "C"})

    assert (first.kind, first.output) == ("simulated", {"id": "sim-1", "name": "B", "ok": True, "simulated": True})
    assert second.output["id"] == "sim-2"
    again = played.answer("get", {"id": "sim-1"}, own_read=True)
    assert (again.kind, again.output["name"]) == ("simulated", "B")


def test_a_simulated_update_keeps_the_id_of_what_it_updates() -> None:
    played = recording(("update", {"id": "A", "x": 1}, {"ok": True}))

    assert played.answer("update", {"id": "A", "x": 2}).output == {"id": "A", "x": 2, "ok": True, "simulated": True}


def test_a_call_without_a_result_is_recorded_as_an_error() -> None:
    run = make_run([{"event_type": "tool.call", "payload": {"id": "1", "name": "get", "arguments": {}}}], tools=TOOLS)

    answered = Recording(run).answer("get", {})

    assert (answered.output, answered.is_error) == ("no result recorded", True)


def test_an_unknown_tool_writes() -> None:
    played = recording(("get", {"id": "A"}, "x"))

    assert played.answer("explode", {"what": "all"}).kind == "simulated"


def test_arguments_that_cannot_be_read_are_missed() -> None:
    played = recording(("update", {"id": "A"}, {"ok": True}))

    assert played.answer("update", {"id": float("nan")}).kind == "miss"
