"""Which tool a step calls for, by the words that they share and the rules that apply."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.agents.offline.conversation import OfferedTool
from app.agents.offline.rules import Rulebook
from app.text.words import stem, words

LEAST_SCORE = 0.2
PREFERRED = 1.0
ASKED_TO_WRITE = 0.5
IN_NAME, IN_DESCRIPTION = 1.0, 0.5
WRITE_VERBS = {
    "create": ("add", "create", "log", "new", "book", "record", "submit"),
    "update": ("update", "set", "change", "move", "rename", "assign", "mark", "correct"),
    "delete": ("delete", "remove", "cancel", "archive"),
}
CLASS_OF = {stem(verb): kind for kind, verbs in WRITE_VERBS.items() for verb in verbs}
ANY_OBJECT = frozenset(map(stem, ("entity", "record", "item", "row")))


def choose(step_words: Sequence[str], tools: Sequence[OfferedTool], book: Rulebook) -> OfferedTool | None:
    """The tool with the highest score that may be used; between equals, the one that is offered first."""
    best, best_score = None, 0.0
    for tool, score in scored(step_words, tools, book):
        if score >= LEAST_SCORE and score > best_score:
            best, best_score = tool, score
    return best


def scored(step_words: Sequence[str], tools: Sequence[OfferedTool], book: Rulebook) -> list[tuple[OfferedTool, float]]:
    """Every tool that may be used for a step, with its score, in the order of the offer."""
    weights = _weights(step_words, tools)
    found = []
    for tool in tools:
        stance = book.stance(tool.name)
        asked = tool.writes and is_asked_to_write(step_words, tool)
        if stance < 0 or (tool.writes and stance <= 0 and not asked):
            continue
        extra = (PREFERRED if stance > 0 else 0.0) + (ASKED_TO_WRITE if asked else 0.0)
        found.append((tool, _shared(weights, tool) + extra))
    return found


def is_asked_to_write(step_words: Sequence[str], tool: OfferedTool) -> bool:
    """Whether the step has a verb of the tool's class and names what the tool changes."""
    name = words(tool.name)
    acting = next((word for word in name if word in CLASS_OF), None)
    if acting is None:
        return False
    return any(CLASS_OF.get(word) == CLASS_OF[acting] for word in step_words) and all(
        word in step_words or word in ANY_OBJECT for word in name if word != acting
    )


def _weights(step_words: Sequence[str], tools: Sequence[OfferedTool]) -> dict[str, float]:
    """How much each word says about which tool is meant: little, when many tools know it."""
    weights = {}
    for word in step_words:
        knowing = sum(word in tool.known_words for tool in tools)
        if knowing:
            weights[word] = math.log(1 + len(tools) / (1 + knowing))
    return weights


def _shared(weights: dict[str, float], tool: OfferedTool) -> float:
    total = sum(weights.values())
    if not total:
        return 0.0
    gained = sum(
        weight * (IN_NAME if word in tool.name_words else IN_DESCRIPTION if word in tool.known_words else 0.0)
        for word, weight in weights.items()
    )
    return gained / total
