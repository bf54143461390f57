"""Find where a replay leaves the recorded conversation: the recorded user then answers a question that was not
asked."""

from dataclasses import dataclass

from app.evals.trace import Run, Turn, turns_of
from app.text.similarity import Nearness, text_similarity

MIN_SIMILARITY = 0.35
_CLOSING = "\"'”’)]*_`~"


@dataclass(frozen=True)
class Drift:
    """The first turn with a different answer, although the user continues as recorded."""

    turn: int
    golden: str
    replay: str
    golden_seq: int
    replay_seq: int

    @property
    def text(self) -> str:
        return f"in turn {self.turn} the agent said something else than the recorded person answers to"

    @property
    def reason(self) -> str:
        return f"from turn {self.turn} on, the recorded user answers a question this agent did not ask"


def first_drift(golden: Run, replay: Run, nearness: Nearness | None) -> Drift | None:
    """The first drift. Only turns that the person answers count, and only where both had the same person's words."""
    pairs = _paired_turns(turns_of(golden), turns_of(replay))
    likes = text_similarity([(a.answer, b.answer) for a, b in pairs], nearness, enough=MIN_SIMILARITY)
    for (a, b), like in zip(pairs, likes, strict=True):
        if like < MIN_SIMILARITY or ends_in_question(a.answer) != ends_in_question(b.answer):
            return Drift(a.number, a.answer, b.answer, a.sequence, b.sequence)
    return None


def _paired_turns(golden: list[Turn], replay: list[Turn]) -> list[tuple[Turn, Turn]]:
    """Pairs of turns followed by the same user message."""
    found = []
    for place in range(min(len(golden), len(replay)) - 1):
        if golden[place].user != replay[place].user or golden[place + 1].user != replay[place + 1].user:
            break
        found.append((golden[place], replay[place]))
    return found


def ends_in_question(text: str) -> bool:
    """Whether a message ends in a question."""
    text = text[-200:]
    while (shorter := text.rstrip().rstrip(_CLOSING)) != text:
        text = shorter
    return text.endswith("?")
