"""Large sessions are compared by hashes: the same stays the same, what differs differs, and little memory is taken."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from app.evals.compare import clipping
from app.evals.compare.clipping import TooDense, clip_run, clip_value, read_events
from app.evals.compare.sessions import Golden, compare
from app.evals.recording import Recording
from app.evals.trace import Event, Run, calls_of, make_run
from app.text.values import Clipped, Reader, holds_truncated

LONG = "The term sheet says a lot. " * 2000


def session(arguments: Any, output: Any, answer: str = "Saved.") -> list[dict[str, Any]]:
    return [
        {"event_type": "user.message", "payload": {"text": "Save the note."}},
        {"event_type": "tool.call", "payload": {"id": "c1", "name": "save_note", "arguments": arguments}},
        {"event_type": "tool.result", "payload": {"call_id": "c1", "name": "save_note", "output": output}},
        {"event_type": "agent.message", "payload": {"text": answer}},
    ]


def clipped(events: Iterable[dict[str, Any]]) -> Run:
    return clip_run(make_run(events))


def size(run: Run) -> int:
    return sum(len(json.dumps(event.payload)) for event in run.events)


def test_short_values_stay_as_they_are() -> None:
    events = session({"title": "Heron", "tags": ["a", "b"]}, {"id": "n-1", "ok": True})
    run = clipped(events)
    assert [event.payload for event in run.events] == [event["payload"] for event in events]
    assert (run.clipped, run.cut) == (True, False)


def test_long_values_are_kept_by_beginning_and_hash() -> None:
    run = clipped(session({"title": "Heron", "body": LONG}, {"id": "n-1", "body": LONG, "rows": [[1]] * 9000}))
    assert size(run) < 8000
    arguments, output = run.events[1].payload["arguments"], run.events[2].payload["output"]
    assert arguments["title"] == "Heron"
    assert isinstance(arguments["body"], Clipped)
    assert arguments["body"].startswith("The term sheet")
    assert output["id"] == "n-1"
    assert holds_truncated(Reader().value(arguments))


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"title": "Heron", "body": LONG}, "pass"),
        ({"title": "Heron", "body": LONG.replace(" ", "  ")}, "pass"),
        ({"title": "Heron", "body": LONG[:-2] + "!"}, "fail"),
        ({"title": "Egret", "body": LONG}, "fail"),
        (json.dumps({"body": LONG, "title": "Heron"}), "pass"),
    ],
)
def test_a_comparison_of_clipped_sessions_tells_equal_from_different(arguments: Any, verdict: str) -> None:
    golden = clipped(session({"title": "Heron", "body": LONG}, "ok"))
    assert compare(Golden(golden), clipped(session(arguments, "ok"))).verdict == verdict


def test_lists_of_many_values_are_compared_whole() -> None:
    golden, other = ([[n, n + 1] for n in range(5000)] for _ in range(2))
    assert clip_value(golden, 4000) == clip_value(other, 4000)
    other[4999][1] = -1
    assert clip_value(golden, 4000) != clip_value(other, 4000)


def test_ids_that_a_call_returned_in_a_text_are_found() -> None:
    events = session({"title": "Heron"}, json.dumps({"id": "n-77", "body": LONG}))
    run = clipped(events)
    assert json.loads(json.dumps(calls_of(run, {}, Reader())[0].output))["id"] == "n-77"


def test_what_does_not_fit_is_cut_and_gets_no_verdict() -> None:
    events = [event for n in range(6000) for event in session({"n": n, "why": "x" * 900}, "ok")]
    run = clipped(events)
    assert run.cut
    assert size(run) < 2 * clipping.MAX_BYTES
    found = compare(Golden(run), run)
    assert (found.verdict, found.reason) == ("unknown", "too large to compare")


def test_a_small_session_of_too_many_values_is_not_read_whole() -> None:
    text = json.dumps({"call_id": "c", "output": [[] for _ in range(80_000)]})
    events = [("tool.result", text, n) for n in range(3)]
    with pytest.raises(TooDense):
        read_events(events, clip=False)
    found = read_events(events, clip=True)
    assert (len(found.events), found.cut) == (3, False)
    assert sum(len(json.dumps(event.payload)) for event in found.events) < 2000


def test_a_clipped_recording_answers_the_calls_it_has() -> None:
    recording = Recording(clipped(session({"title": "Heron", "body": LONG}, {"id": "n-1", "body": LONG})))
    found = recording.answer("save_note", {"title": "Heron", "body": LONG}, writes=False)
    assert (found.kind, found.golden_seq, found.result_seq) == ("exact", 2, 3)
    assert recording.answer("save_note", {"title": "Heron", "body": LONG + "!"}, writes=False).kind == "miss"


def test_what_was_in_the_prompt_is_kept() -> None:
    ids = [f"{n:036d}" for n in range(400)]
    kept = clipping.clip_event(Event("context.loaded", {"row_ids": ids, "sha256": "x"}))
    assert kept.payload["row_ids"] == ids
