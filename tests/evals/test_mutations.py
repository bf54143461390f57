"""Tests that no data can flatter: what must not change a verdict does not, and what must does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.evals.compare.sessions import Comparison, Golden, compare
from tests.evals import mutations

SESSIONS = {name: session for name, session in mutations.sessions().items() if mutations.writes(session)}

KEYS = st.sampled_from(["amount", "note", "lines", "open", "where", "owner"])
SCALARS: st.SearchStrategy[Any] = (
    st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 3))
    | st.text("abc éß 10-", min_size=1, max_size=12).filter(lambda text: text.strip() != "")
    | st.sampled_from(["2026-03-01", "2026-03-01T10:00:00+02:00", "5", "x-1"])
)
VALUES = SCALARS | st.lists(SCALARS, min_size=1, max_size=3) | st.dictionaries(KEYS, SCALARS, min_size=1, max_size=3)
ARGUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


def id_lists(size: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.integers(0, 12) | st.sampled_from(["12", "9", "b-7"]), min_size=size, max_size=size)


TOOLS = [
    {"name": "find_order", "annotations": {"readOnlyHint": True}},
    {"name": "update_order", "annotations": {"readOnlyHint": False}},
    {"name": "create_order", "annotations": {"readOnlyHint": False}},
]


@st.composite
def made_sessions(draw: st.DrawFn) -> mutations.Session:
    """A session with reads, updates of a few orders, creations, failures, and talk between them."""
    session: mutations.Session = {"session_type": "agent", "events": [], "tools": TOOLS}
    events = session["events"]
    events.append({"event_type": "user.message", "payload": {"text": "Please see to the orders."}})
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["find_order", "update_order", "create_order"]))
        arguments = draw(ARGUMENTS)
        if kind == "update_order":
            # Later updates of the same order name the same fields, so that an overwritten one leaves nothing.
            arguments = {"order_id": draw(st.sampled_from(["A-1", "B-2"])), "state": draw(SCALARS)}
        if kind == "create_order" and draw(st.booleans()):
            size = draw(st.integers(1, 4))
            arguments |= {name: draw(id_lists(size)) for name in ("part_ids", "new_part_ids")}
            arguments["tagIds"] = draw(id_lists(5))
        failed = draw(st.booleans()) and number > 0
        output = "Error: no" if failed else {"order_id": f"NEW-{number}"} if kind == "create_order" else {"ok": True}
        events += mutations.call(session, kind, arguments, output, is_error=failed)
    events.append({"event_type": "agent.message", "payload": {"text": "I have seen to the orders for you today."}})
    assume(mutations.writes(session))
    return session


def judged(golden: mutations.Session, replay: mutations.Session) -> Comparison:
    return compare(Golden(mutations.run_of(golden)), mutations.run_of(replay))


def picker(data: st.DataObject) -> mutations.Pick:
    return lambda count: data.draw(st.integers(0, count - 1))


@pytest.mark.parametrize("name", mutations.sessions())
def test_a_session_equals_itself(name: str) -> None:
    session = mutations.sessions()[name]

    result = judged(session, session)

    assert (result.verdict, result.overall_accuracy, result.divergences) == ("pass", 1.0, [])


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("edit", mutations.NEUTRAL)
@settings(max_examples=15)
@given(data=st.data())
def test_neutral_edits_keep_the_verdict(name: str, edit: Any, data: st.DataObject) -> None:
    replay = edit(copy.deepcopy(SESSIONS[name]), picker(data))

    result = judged(SESSIONS[name], replay)

    assert result.verdict == "pass", result.reason


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("edit", mutations.BREAKING)
@settings(max_examples=15)
@given(data=st.data())
def test_breaking_edits_fail(name: str, edit: Any, data: st.DataObject) -> None:
    replay = edit(copy.deepcopy(SESSIONS[name]), picker(data))

    result = judged(SESSIONS[name], replay)

    assert result.verdict == "fail"
    assert result.overall_accuracy is not None
    assert result.overall_accuracy <= 0.59
    assert result.divergences[0]["dimension"] in ("entities_created", "entities_updated")


@settings(max_examples=60)
@given(session=made_sessions(), data=st.data())
def test_neutral_edits_of_any_session_keep_the_verdict(session: mutations.Session, data: st.DataObject) -> None:
    replay = copy.deepcopy(session)
    for edit in data.draw(
        st.lists(st.sampled_from(mutations.NEUTRAL[:3] + mutations.NEUTRAL[4:]), min_size=1, max_size=3)
    ):
        replay = edit(replay, picker(data))

    result = judged(session, replay)

    # In a session with one question that ended up changing nothing the words decide; these all changed something.
    assert result.verdict == "pass", result.reason


@settings(max_examples=60)
@given(session=made_sessions(), data=st.data())
def test_breaking_edits_of_any_session_fail(session: mutations.Session, data: st.DataObject) -> None:
    edit = data.draw(st.sampled_from(mutations.BREAKING))

    result = judged(session, edit(copy.deepcopy(session), picker(data)))

    assert result.verdict == "fail"


@settings(max_examples=60)
@given(session=made_sessions())
def test_any_session_equals_itself(session: mutations.Session) -> None:
    result = judged(session, copy.deepcopy(session))

    assert (result.verdict, result.overall_accuracy, result.divergences) == ("pass", 1.0, [])
