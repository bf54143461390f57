"""What a knowledge row is worth: goldens replayed without it and with it, compared pair by pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.evals import stats
from app.evals.verdict import ERRORED, FAIL, PASS, UNKNOWN

FIXED, BROKEN, SAME, UNDECIDED = "fixed", "broken", "same", "undecided"
OUTCOMES = (BROKEN, FIXED, UNDECIDED, SAME)
# What the gate `proved` asks for.
MIN_EXERCISED, MIN_FIXED = 5, 1


@dataclass(frozen=True)
class Replays:
    """The trials of a golden on one side: their verdicts, the calls that each made and, where wording counts, what each
    said. A model words its answers differently each time, so wording counts only where a model never does."""

    verdicts: Sequence[str]
    calls: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        return majority(self.verdicts)


@dataclass(frozen=True)
class Pair:
    """A golden without the row and with it. `applies` says that the row's condition fits one of its messages."""

    golden_id: str
    applies: bool
    before: Replays
    after: Replays

    @property
    def exercised(self) -> bool:
        return self.applies or self.before.verdict != self.after.verdict or self._differs

    @property
    def _differs(self) -> bool:
        """Whether no trial on one side did what one on the other did."""
        return _apart(self.before.calls, self.after.calls) or _apart(self.before.said, self.after.said)

    @property
    def outcome(self) -> str:
        """What the row did to the golden."""
        verdicts = self.before.verdict, self.after.verdict
        if not set(verdicts) <= {PASS, FAIL}:
            return UNDECIDED
        return {(FAIL, PASS): FIXED, (PASS, FAIL): BROKEN}.get(verdicts, SAME)


def _apart(first: frozenset[str], second: frozenset[str]) -> bool:
    return bool(first and second) and not first & second


def majority(verdicts: Iterable[str]) -> str:
    """The verdict of most trials that passed or failed. Where none did, or as many passed as failed, there is none."""
    given = list(verdicts)
    passed, failed = given.count(PASS), given.count(FAIL)
    if passed != failed:
        return PASS if passed > failed else FAIL
    return ERRORED if given and all(verdict == ERRORED for verdict in given) else UNKNOWN


@dataclass(frozen=True)
class Score:
    """The figures of a proof. `n` counts the exercised goldens with a verdict on both sides, `undecided` those
    without."""

    fixed: int
    broken: int
    n: int
    undecided: int = 0

    @property
    def unchanged(self) -> int:
        return self.n - self.fixed - self.broken

    @property
    def lift(self) -> float | None:
        return stats.lift(self.fixed, self.broken, self.n)

    @property
    def interval(self) -> tuple[float, float] | None:
        return stats.lift_interval(self.fixed, self.broken, self.n) if self.n else None

    @property
    def gate_refusal(self) -> str:
        """Why these figures do not open the gate `proved`; empty where they do."""
        if self.broken:
            return f"It breaks {_goldens(self.broken)}."
        if self.undecided:
            return f"{_goldens(self.undecided).capitalize()} could not be judged on both sides."
        if self.n < MIN_EXERCISED:
            exercise = f"{_goldens(self.n).capitalize()} exercise{'s' if self.n == 1 else ''} it"
            return f"{exercise}; the gate needs {MIN_EXERCISED}."
        return "" if self.fixed >= MIN_FIXED else "It fixes nothing."


def score_pairs(pairs: Iterable[Pair]) -> Score:
    outcomes = [pair.outcome for pair in pairs if pair.exercised]
    undecided = outcomes.count(UNDECIDED)
    return Score(outcomes.count(FIXED), outcomes.count(BROKEN), len(outcomes) - undecided, undecided)


def _goldens(number: int) -> str:
    return f"{number or 'no'} golden{'' if number == 1 else 's'}"
