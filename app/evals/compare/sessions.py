"""Compare two sessions: one that is known to be right, and the one in question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.evals import verdict
from app.evals.compare.agent import Golden, apply_expectations, dimensions_of, read_side
from app.evals.compare.dimensions import Dimension, Divergence
from app.evals.compare.effects import Effect
from app.evals.compare.message import first_drift
from app.evals.expected.expectations import Expected, read_expected
from app.evals.trace import COMPLETED, Call, Run, last_message, make_run
from app.evals.verdict import ERRORED, FAIL, UNKNOWN, Policy
from app.text.similarity import MAX_TEXT_CHARS, Nearness
from app.text.values import Reader

__all__ = ["Comparison", "Golden", "compare", "compare_sessions"]
MAX_CALLS = 5_000
MAX_EFFECTS = 200
OPEN_STATUSES = ("pending", "running")
_TOO_LARGE = "too large to compare"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. `drift` has the turn and a text; `drifted` says that the failure comes after it."""

    session_type: str
    verdict: str
    reason: str
    overall_accuracy: float | None
    dimensions: tuple[Dimension, ...]
    divergences: list[dict[str, Any]]
    golden_effects: tuple[Effect, ...] = ()
    replay_effects: tuple[Effect, ...] = ()
    drift: dict[str, Any] | None = None
    drifted: bool = False
    left_recording: bool = False
    truncated: bool = False
    baseline: str = "recorded"

    @property
    def passed(self) -> bool | None:
        return {verdict.PASS: True, verdict.FAIL: False}.get(self.verdict)

    def as_json(self) -> dict[str, Any]:
        """The comparison as it is stored and sent."""
        found = {**vars(self), "passed": self.passed}
        effects = {side: found.pop(f"{side}_effects")[:MAX_EFFECTS] for side in ("golden", "replay")}
        return {
            **found,
            "dimensions": {each.name: each.as_json() for each in self.dimensions},
            "effects": {side: [effect.as_json() for effect in made] for side, made in effects.items()},
        }


def compare_sessions(
    golden: Mapping[str, Any], replay: Mapping[str, Any], nearness: Nearness | None = None, policy: Any = None
) -> dict[str, Any]:
    """The same for plain values: sessions with `events`, `tools`, `session_type`, `status`, `output_type`; the golden
    also with `expected`, `criteria` and `rejected`."""
    expected, rejected = read_expected(golden.get("expected")), golden.get("rejected") is True
    known = Golden(_as_run(golden), expected, golden.get("criteria"), rejected)
    return compare(known, _as_run(replay), nearness, verdict.read_policy(policy)).as_json()


def _as_run(session: Mapping[str, Any]) -> Run:
    return make_run(
        session.get("events") or (),
        session_type=session.get("session_type") or "agent",
        status=session.get("status") or COMPLETED,
        output_type=session.get("output_type"),
        tools=session.get("tools") or (),
    )


def compare(golden: Golden, replay: Run, nearness: Nearness | None = None, policy: Policy | None = None) -> Comparison:
    """Compare a session with its golden. Linear in their size, and bounded: what is too large is not judged."""
    policy = policy or Policy()
    kind = golden.run.session_type
    base = "rejected" if golden.rejected else "expected" if golden.expected != Expected() else "recorded"
    unknown = partial(Comparison, kind, UNKNOWN, overall_accuracy=None, dimensions=(), divergences=[], baseline=base)
    # What has not happened yet is no difference.
    if replay.status in OPEN_STATUSES:
        return unknown("This replay is still running.")
    if golden.run.status in OPEN_STATUSES:
        return unknown("The session it is compared with is still running.")
    if _too_long(golden.run) or _too_long(replay):
        return unknown(_TOO_LARGE, truncated=True)
    reader = Reader()
    tools = {**replay.tools, **golden.run.tools}
    before, after = (read_side(run, tools, reader) for run in (golden.run, replay))
    before = apply_expectations(golden, before, after, tools, reader)
    if reader.cut:
        return unknown(_TOO_LARGE, truncated=True)
    dimensions = [policy.apply_to(each) for each in dimensions_of(golden, before, after, nearness, reader)]
    found, reason = verdict.decide_verdict(dimensions)
    turn, drift = first_drift(golden.run, replay, nearness) or (0, None)
    drifted = drift is not None and found == FAIL and _fails_after(dimensions, drift)
    misses = _recording_misses(after.calls)
    if drifted:
        reason = f"{reason}; from turn {turn} on, the recorded user answers a question this agent did not ask"
    found, reason = _unjudged(replay, reader, policy, drifted, bool(misses)) or (found, reason)
    return Comparison(
        session_type=kind,
        verdict=found,
        reason=reason,
        overall_accuracy=verdict.weighted_accuracy(dimensions, found),
        dimensions=tuple(dimensions),
        divergences=verdict.sort_divergences(dimensions, [*misses, drift] if drift else misses),
        golden_effects=tuple(before.effects),
        replay_effects=tuple(after.effects),
        drift={"turn": turn, "text": drift.text} if drift else None,
        drifted=drifted,
        left_recording=bool(misses),
        truncated=reader.cut,
        baseline=base,
    )


def _too_long(run: Run) -> bool:
    """Whether there are more events or calls, or a longer last message, than anything is compared with."""
    if run.cut:
        return True
    calls = sum(event.event_type == "tool.call" for event in run.events)
    return calls > MAX_CALLS or len(last_message(run)[0]) > MAX_TEXT_CHARS


def _fails_after(dimensions: Sequence[Dimension], drift: Divergence) -> bool:
    """Whether the first difference that decides comes after the drift."""
    found = [each for one in dimensions if one.decides and not one.passed for each in one.divergences]
    after = [
        (each.golden_seq or each.replay_seq or 0) > ((drift.golden_seq if each.golden_seq else drift.replay_seq) or 0)
        for each in found
    ]
    return bool(after) and all(after)


def _recording_misses(calls: Sequence[Call]) -> list[Divergence]:
    missed = [call for call in calls if call.replay is not None and call.replay.get("kind") == "miss"]
    return [
        Divergence("recording", one.name, None, one.arguments, f"no recorded answer for {one.name}", None, one.sequence)
        for one in missed
    ]


def _unjudged(replay: Run, reader: Reader, policy: Policy, drifted: bool, missed: bool) -> tuple[str, str] | None:
    """Why there is no verdict, if there is none."""
    if replay.status in ("failed", "cancelled"):
        return ERRORED, f"the replay {'was cancelled' if replay.status == 'cancelled' else 'failed'}"
    if reader.cut:
        return UNKNOWN, _TOO_LARGE
    if missed and policy.on_miss == UNKNOWN:
        return UNKNOWN, "the replay left the recording"
    if drifted and policy.on_drift == UNKNOWN:
        return UNKNOWN, "the talk drifted from the recording"
    return None
