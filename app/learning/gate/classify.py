"""Whether a message judges an earlier answer of the agent, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.learning.gate.model import LABELS, load_model
from app.learning.gate.reading import Turn, read_message
from app.text.embeddings import Embed, embed

MIN_CONFIDENCE = 0.70
# Below this, a message hardly judges anything; from here up to the least confidence a model may decide.
UNCLEAR = 0.40


@dataclass(frozen=True)
class Verdict:
    """What a message says about an answer: `ok`, `not_ok` or `neutral`, and how sure that is."""

    reaction: str
    confidence: float

    @property
    def counts(self) -> bool:
        return self.confidence >= MIN_CONFIDENCE

    @property
    def is_unclear(self) -> bool:
        return UNCLEAR <= self.confidence < MIN_CONFIDENCE


def classify(message: str, turns: Sequence[Turn], embed: Embed = embed) -> Verdict:
    """Judge one message by the turns before it, oldest first. The likeliest verdict, however unlikely it is."""
    model = load_model()
    chances = model.probabilities(read_message(message, turns), embed([message])[0])
    best = max(range(1, len(LABELS)), key=chances.__getitem__)
    return Verdict(str(LABELS[best]), round(chances[best], 4))
