"""The steps of two sessions, aligned for pages. Nothing here takes part in a verdict; it costs more than one."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from app.evals.trace import Call, Event, Run, calls_of, text_of
from app.text.diff import match_runs
from app.text.values import Reader, equal, from_json

SAME, CHANGED, MOVED, INSERTED, REMOVED = "same", "changed", "moved", "inserted", "removed"
MAX_STEPS = 2_000


@dataclass(frozen=True)
class Step:
    """One thing that a session did: a message or a call with its result."""

    kind: str
    name: str
    sequence: int
    content: Any = None
    output: Any = None
    failed: bool = False
    # How a replay's call was answered: from the recording, or otherwise.
    answered: str | None = None


@dataclass(frozen=True)
class Row:
    """Two steps side by side."""

    change: str
    golden: Step | None
    replay: Step | None


def align(golden: Run, replay: Run) -> list[Row]:
    """The steps of both in two columns, by the longest common subsequence of their names."""
    before, after = steps_of(golden), steps_of(replay)
    rows: list[Row] = []
    names = [step.name for step in before], [step.name for step in after]
    for equal_names, start, end, other_start, other_end in match_runs(*names):
        if equal_names:
            pairs = zip(before[start:end], after[other_start:other_end], strict=True)
            rows += [Row(SAME if _same(a, b) else CHANGED, a, b) for a, b in pairs]
        else:
            rows += [Row(REMOVED, step, None) for step in before[start:end]]
            rows += [Row(INSERTED, None, step) for step in after[other_start:other_end]]
    return _with_moves(rows)


@dataclass(frozen=True)
class TwoRows:
    """A step of the golden with what became of it in an earlier replay and now. Steps that only a replay has stand
    beside those that the other has in the same place."""

    before: Row | None
    now: Row | None

    @property
    def golden(self) -> Step | None:
        return next((row.golden for row in (self.now, self.before) if row is not None), None)

    @property
    def same(self) -> bool:
        return all(row is not None and row.change == SAME for row in (self.before, self.now))


def join_rows(before: Sequence[Row], now: Sequence[Row]) -> list[TwoRows]:
    """Two alignments with one golden as one, by the golden's steps."""
    joined: list[TwoRows] = []
    for (added_before, one), (added_now, other) in zip_longest(_by_step(before), _by_step(now), fillvalue=((), None)):
        joined += [TwoRows(*pair) for pair in zip_longest(added_before, added_now)]
        if one is not None or other is not None:
            joined.append(TwoRows(one, other))
    return joined


def _by_step(rows: Sequence[Row]) -> list[tuple[list[Row], Row | None]]:
    """Each step of the golden after what a replay added before it; at last what was added behind them all."""
    found: list[tuple[list[Row], Row | None]] = [([], None)]
    for row in rows:
        if row.golden is None:
            found[-1][0].append(row)
        else:
            found[-1] = (found[-1][0], row)
            found.append(([], None))
    return found


def steps_of(run: Run) -> list[Step]:
    """What happened, without what only the machinery did."""
    calls = deque(calls_of(run, run.tools, Reader()))
    found = [_step(event, calls) for event in run.events]
    return [step for step in found if step is not None][:MAX_STEPS]


def _step(event: Event, calls: deque[Call]) -> Step | None:
    if event.event_type == "tool.call":
        call = calls.popleft()
        answered = str(call.replay.get("kind")) if call.replay else None
        output = from_json(call.output)
        return Step("call", call.name, event.sequence, call.arguments, output, call.failed, answered)
    if event.event_type in ("user.message", "agent.message"):
        return Step("message", event.event_type, event.sequence, text_of(event))
    is_change = event.event_type in ("entity.created", "entity.updated", "response.submitted", "knowledge.changed")
    # A change that a call made is shown with the call.
    if is_change and "call_id" not in event.payload:
        return Step("change", event.event_type, event.sequence, dict(event.payload))
    return None


def _same(a: Step, b: Step) -> bool:
    reader = Reader()
    return a.failed == b.failed and equal(reader.value(a.content), reader.value(b.content))


def _with_moves(rows: list[Row]) -> list[Row]:
    """Mark a removed step as moved if the same name and content was inserted elsewhere."""
    gone: dict[str, deque[int]] = defaultdict(deque)
    for place, row in enumerate(rows):
        if row.change == REMOVED and row.golden is not None:
            gone[_step_key(row.golden)].append(place)
    for place, row in enumerate(rows):
        if row.change == INSERTED and row.replay is not None and (places := gone.get(_step_key(row.replay))):
            for moved in (place, places.popleft()):
                rows[moved] = replace(rows[moved], change=MOVED)
    return rows


def _step_key(step: Step) -> str:
    return f"{step.name} {Reader().value(step.content)!r}"
