"""How often a verdict agrees with the truth, and how fast verdicts are.

The runs are not part of this repository: name a file of runs in the import format in `UPSHOT_BENCH_RUNS`, and in
`UPSHOT_BENCH_TRUTH` a JSON object that gives each run's `task` and `reward`. Without them only speed is measured.
Every run with reward 1 is a golden, and the other runs of its task are replays.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.evals.compare.sessions import Comparison, Golden, compare
from app.evals.stats import wilson
from app.evals.trace import Run, make_run
from app.formats.tool_results import with_error_mark
from app.ingest.messages import read_line
from app.text.embeddings import embed, nearness_of

SECONDS = 3.0


def measure() -> dict[str, Any]:
    """Agreement with the truth where there is one, verdicts a second, and the time of a hostile pair."""
    runs, truth = os.environ.get("UPSHOT_BENCH_RUNS"), os.environ.get("UPSHOT_BENCH_TRUTH")
    found: dict[str, Any] = {}
    if runs and truth:
        found["agreement"] = agreement(load(Path(runs)), json.loads(Path(truth).read_text()))
    return {**found, "verdicts_per_second": round(speed(), 1), "hostile_seconds": round(hostile(), 3)}


def load(path: Path) -> dict[str, Run]:
    """The runs of a file as the import would store them."""
    with path.open("rb") as lines:
        sessions = [read_line(line) for line in lines if line.strip()]
    return {session.fields["external_id"]: _run(session) for session in sessions}


def _run(session: Any) -> Run:
    events = [
        {
            "event_type": event.event_type,
            "payload": with_error_mark(event.payload) if event.event_type == "tool.result" else event.payload,
        }
        for event in session.events
    ]
    return make_run(
        events, session_type=session.fields["session_type"], tools=session.fields["metadata"].get("tools", ())
    )


def pairs(runs: dict[str, Run], truth: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Golden, replay, and whether the replay did as well."""
    tasks = defaultdict(list)
    for name, about in truth.items():
        tasks[about["task"]].append(name)
    return [
        (golden, replay, truth[replay]["reward"] == 1)
        for names in tasks.values()
        for golden in names
        if truth[golden]["reward"] == 1
        for replay in names
        if replay != golden
    ]


def agreement(runs: dict[str, Run], truth: dict[str, Any]) -> dict[str, Any]:
    """Share of pairs whose verdict agrees, and how well accuracy ranks them; apart for goldens with changes."""
    nearness = nearness_of(embed)
    judged = [(*pair, compare(Golden(runs[pair[0]]), runs[pair[1]], nearness)) for pair in pairs(runs, truth)]
    changed = [entry for entry in judged if entry[3].golden_effects]
    if os.environ.get("UPSHOT_BENCH_SHOW"):
        for golden, replay, right, result in judged:
            if result.passed != right:
                print(f"{golden} {replay} reward {right:d}: {result.verdict}, {result.reason}")
    selves = [compare(Golden(run), run, nearness) for run in runs.values()]
    return {
        "pairs": _figures([(right, result) for *_, right, result in judged]),
        "golden_changed_something": _figures([(right, result) for *_, right, result in changed]),
        "self_equal": all(each.overall_accuracy == 1.0 and not each.divergences for each in selves),
    }


def _figures(judged: Sequence[tuple[bool, Comparison]]) -> dict[str, Any]:
    agreeing = sum(result.passed is right for right, result in judged)
    low, high = wilson(agreeing, len(judged))
    return {
        "count": len(judged),
        "agreement": round(agreeing / len(judged), 4),
        "interval": [round(low, 3), round(high, 3)],
        "auc": _auc([(right, result.overall_accuracy or 0.0) for right, result in judged]),
    }


def _auc(scored: Sequence[tuple[bool, float]]) -> float | None:
    good, bad = ([score for right, score in scored if right is side] for side in (True, False))
    wins = sum((a > b) + 0.5 * (a == b) for a in good for b in bad)
    return round(wins / (len(good) * len(bad)), 4) if good and bad else None


def speed() -> float:
    """Verdicts a second of one core's time, of a golden and a replay with forty events each, embeddings included."""
    nearness = nearness_of(embed)
    golden, replay = Golden(forty_events(0)), [forty_events(number) for number in range(2000)]
    compare(golden, replay[1], nearness)
    began, count = time.process_time(), 0
    while time.process_time() - began < SECONDS:
        compare(golden, replay[count % len(replay)], nearness).as_json()
        count += 1
    return count / (time.process_time() - began)


def forty_events(number: int) -> Run:
    """Five turns, each with two reads, a write of seventeen values and an answer of about fifty words."""
    events: list[dict[str, Any]] = []
    for turn in range(5):
        events.append(_said("user.message", f"Please look at order {turn} and move it to the next stage."))
        for step in range(3):
            call_id, name = f"c{turn}-{step}", "update_order" if step == 2 else "find_orders"
            arguments: dict[str, Any] = {"query": f"order {turn} of Halden Works", "limit": 5}
            if step == 2:
                lines = [{"sku": f"S{place}", "count": place, "price": place * 1.5} for place in range(5)]
                arguments = {"order_id": f"O{turn}", "stage": "shipped" if number % 2 else "packed", "lines": lines}
            events.append({"event_type": "tool.call", "payload": {"id": call_id, "name": name, "arguments": arguments}})
            result = {"call_id": call_id, "output": {"items": [arguments] * 3}, "is_error": False}
            events.append({"event_type": "tool.result", "payload": result})
        words = " ".join(f"order {turn} line {place} stands at stage {place + number}" for place in range(7))
        events.append(_said("agent.message", f"I moved the order as you asked; {words}. Is there anything else to do?"))
    tools = [{"name": "find_orders", "annotations": {"readOnlyHint": True}}, {"name": "update_order"}]
    return make_run(events, tools=tools)


def _said(kind: str, text: str) -> dict[str, Any]:
    return {"event_type": kind, "payload": {"text": text}}


def hostile() -> float:
    """Seconds for the worst of some pairs of ten megabytes, each of which must end as truncated."""
    took = []
    for run in _hostile_runs():
        began = time.perf_counter()
        result = compare(Golden(run), run, nearness_of(embed))
        took.append(time.perf_counter() - began)
        if not result.truncated:
            raise RuntimeError("A hostile pair was not marked as truncated.")
    return max(took)


def _hostile_runs() -> list[Run]:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    values: dict[str, list[Any]] = {
        "long text": ["x y " * 2_500_000],
        "many small values": [[1] * 120_000] * 40,
        "deep": [deep],
        "many long calls": ["a-1 " * 60_000] * 42,
    }
    calls = [_calls(arguments) for arguments in values.values()]
    spaces = [_said("user.message", "Hi"), _said("agent.message", "1 jan" + " " * 10_000_000 + "?")]
    return [make_run(events, tools=[]) for events in [*calls, spaces]]


def _calls(arguments: list[Any]) -> list[dict[str, Any]]:
    return [_said("user.message", "Hi")] + [
        event
        for number, given in enumerate(arguments)
        for event in (
            {"event_type": "tool.call", "payload": {"id": str(number), "name": "save", "arguments": {"it": given}}},
            {"event_type": "tool.result", "payload": {"call_id": str(number), "output": given, "is_error": False}},
        )
    ]
