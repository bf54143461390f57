"""A golden's calls as a recording: what a replayed call is answered with. `exact` and `nearest` are recorded,
`simulated` is made up, `read` asks the caller to read the workspace, `miss` is an error that the agent sees. A call
that writes is never executed and never answered with another call's result."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from app.evals.compare import clipping
from app.evals.trace import NO_RESULT, Call, Run, Tool, calls_of, find_tool
from app.text.values import TRUNCATED, Leaves, Reader, leaves, likeness
from app.text.words import WORD, split_name

EXACT, NEAREST, READ, SIMULATED, MISS = "exact", "nearest", "read", "simulated", "miss"
MIN_SIMILARITY = 0.80


@dataclass
class Entry:
    """One recorded call. `epoch` counts the successful writes before it."""

    call: Call
    epoch: int
    used: bool = False

    def as_answer(self, kind: str, similarity: float | None = None) -> "RecordedAnswer":
        call = self.call
        self.used = True
        output = NO_RESULT if call.output is None and call.failed else call.output
        return RecordedAnswer(kind, output, call.failed, similarity, call.sequence, call.result_sequence)


@dataclass(frozen=True)
class RecordedAnswer:
    """What a call is answered with; `read` has no output. `result_seq` is the number of the golden's own result."""

    kind: str
    output: Any = None
    is_error: bool = False
    similarity: float | None = None
    golden_seq: int | None = None
    result_seq: int | None = None

    def mark(self) -> dict[str, Any]:
        """What the `tool.result` carries under `replay`."""
        more = {"similarity": self.similarity, "golden_seq": self.golden_seq}
        return {"kind": self.kind, **{name: value for name, value in more.items() if value is not None}}


class Recording:
    """The calls of a golden, each with what came back, played back to one replay."""

    def __init__(self, run: Run) -> None:
        self.tools, self.clipped = run.tools, run.clipped
        self.epoch = 0
        self.simulated: dict[str, dict[str, Any]] = {}
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        epoch = 0
        for call in calls_of(run, run.tools, Reader()):
            self._entries[call.name].append(Entry(call, epoch))
            epoch += call.writes and not call.failed

    def answer(
        self, name: str, arguments: Any, *, writes: bool | None = None, own_read: bool = False
    ) -> RecordedAnswer:
        """The answer to a call: the first of exact, nearest, read, simulated and miss that fits."""
        tool = find_tool(name, self.tools)
        writing = tool.writes if writes is None else writes
        given = Reader().arguments(arguments, tool.schema)
        kept = given
        if self.clipped:
            kept = Reader().arguments(clipping.clip_value(arguments, clipping.VALUE_ROOM), tool.schema)
        found = self._exact(name, kept) or self._about_simulated(given, writing)
        if found is None and not writing:
            found = self._nearest(name, kept, tool) or (RecordedAnswer(READ) if own_read else None)
        if found is None and writing and given is not TRUNCATED:
            found = self._simulate(given)
        if found is None:
            return RecordedAnswer(MISS, f"No recorded answer for {name} with these arguments.", is_error=True)
        if writing and not found.is_error:
            self.epoch += 1
        return found

    def called(self) -> dict[str, bool]:
        """The tools that were called, and whether each writes."""
        return {name: entries[0].call.writes for name, entries in self._entries.items()}

    def wrote(self) -> None:
        """A call that was run for real has written: what is read from now on was recorded after a write."""
        self.epoch += 1

    def _exact(self, name: str, given: Any) -> RecordedAnswer | None:
        """Of several recorded calls the first unused one that the replay has reached; the last of them again when all
        are used; the first when it has reached none."""
        mine = leaves(given)
        same = [entry for entry in self._entries.get(name, ()) if likeness(leaves(entry.call.arguments), mine) == 1.0]
        if not same:
            return None
        reached = [entry for entry in same if entry.epoch <= self.epoch]
        entry = next((one for one in reached if not one.used), reached[-1]) if reached else same[0]
        return entry.as_answer(EXACT)

    def _nearest(self, name: str, given: Any, tool: Tool) -> RecordedAnswer | None:
        wanted = _nonempty_leaves(given)
        scored = [
            (score, -place, entry)
            for place, entry in enumerate(self._entries.get(name, ()))
            if (score := call_similarity(_nonempty_leaves(entry.call.arguments), wanted, tool.schema)) is not None
        ]
        if not scored:
            return None
        score, _, entry = max(scored, key=lambda found: found[:2])
        return entry.as_answer(NEAREST, round(score, 4))

    def _about_simulated(self, given: Any, writing: bool) -> RecordedAnswer | None:
        """A later read of something that was only simulated gives back what it was made of."""
        if writing or not self.simulated:
            return None
        texts = (leaf for leaf in leaves(given).values() if isinstance(leaf, str))
        found = next((text for text in texts if text in self.simulated), None)
        return None if found is None else RecordedAnswer(SIMULATED, dict(self.simulated[found]))

    def _simulate(self, given: Any) -> RecordedAnswer:
        made = f"sim-{len(self.simulated) + 1}"
        # The id of an update is that of what it updates.
        output = {"id": made, **given, "ok": True, "simulated": True}
        self.simulated[made] = output
        return RecordedAnswer(SIMULATED, dict(output))


def call_similarity(recorded: Leaves, given: Leaves, schema: Mapping[str, Any] | None = None) -> float | None:
    """How near two calls are: the mean likeness of their free texts. None unless everything else is equal."""
    from rapidfuzz import fuzz

    if recorded.keys() != given.keys() or not given:
        return None
    scores: list[float] = []
    for path, mine in given.items():
        other = recorded[path]
        if likeness({path: other}, {path: mine}) == 1.0:
            continue
        if not (_is_free(path, mine, schema) and _is_free(path, other, schema)) or not _same_names(mine, other):
            return None
        score = fuzz.token_set_ratio(mine.casefold(), other.casefold()) / 100
        if score < MIN_SIMILARITY:
            return None
        scores.append(score)
    return sum(scores) / len(scores) if scores else 1.0


def _is_free(path: tuple[str | int, ...], leaf: Any, schema: Mapping[str, Any] | None) -> bool:
    """Whether a leaf is free text: words with a space between them, and no date, id or one of a list of options."""
    if not isinstance(leaf, str) or " " not in leaf or _is_date(leaf):
        return False
    names = [part for part in path if isinstance(part, str)]
    return split_name(names[-1] if names else "")[-1:] != ["id"] and not _has_options(names, schema)


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text[:10]))
    except ValueError:
        return False


def _has_options(names: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    inner: Any = schema
    for name in names:
        inner = inner.get("properties", {}).get(name) if isinstance(inner, Mapping) else None
        inner = inner.get("items", inner) if isinstance(inner, Mapping) else None
    return isinstance(inner, Mapping) and ("enum" in inner or "const" in inner)


def _same_names(a: str, b: str) -> bool:
    """Whether both texts have the same numbers and capitalised words: another year or company is another question."""
    mine, theirs = (WORD.findall(text) for text in (a, b))
    named = {word.casefold() for word in (*mine, *theirs) if word != word.lower() or not word.isalpha()}
    return all(named <= {word.casefold() for word in words} for words in (mine, theirs))


def _nonempty_leaves(arguments: Any) -> Leaves:
    """The leaves without null and empty values."""
    empty: tuple[Any, ...] = (None, "", {}, [])
    return {path: leaf for path, leaf in leaves(arguments).items() if not any(leaf == nothing for nothing in empty)}
