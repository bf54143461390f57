"""The tool for a step, by the words they share and the rules that apply."""

import math
from collections.abc import Sequence

from app.agents.offline.conversation import OfflineTool
from app.agents.offline.rules import Rules
from app.text.words import stem, words

MIN_SCORE = 0.2
PREFERRED_BONUS = 1.0
WRITE_BONUS = 0.5
IN_NAME, IN_DESCRIPTION = 1.0, 0.5
WRITE_VERBS = {
    "create": ("add", "create", "log", "new", "book", "record", "submit"),
    "update": ("update", "set", "change", "move", "rename", "assign", "mark", "correct"),
    "delete": ("delete", "remove", "cancel", "archive"),
}
CLASS_OF = {stem(verb): kind for kind, verbs in WRITE_VERBS.items() for verb in verbs}
ANY_OBJECT = frozenset(map(stem, ("entity", "record", "item", "row")))


def choose_tool(step_words: Sequence[str], tools: Sequence[OfflineTool], rules: Rules) -> OfflineTool | None:
    """The allowed tool with the highest score; of equals, the first in the list."""
    best, best_score = None, 0.0
    for tool, score in score_tools(step_words, tools, rules):
        if score >= MIN_SCORE and score > best_score:
            best, best_score = tool, score
    return best


def score_tools(
    step_words: Sequence[str], tools: Sequence[OfflineTool], rules: Rules
) -> list[tuple[OfflineTool, float]]:
    """Every tool allowed for a step with its score, in the order of the list."""
    weights = _idf(step_words, tools)
    found = []
    for tool in tools:
        stance = rules.stance(tool.name)
        asked = tool.writes and asks_to_write(step_words, tool)
        if stance < 0 or (tool.writes and stance <= 0 and not asked):
            continue
        gained = sum(weight * _share(word, tool) for word, weight in weights.items())
        extra = (PREFERRED_BONUS if stance > 0 else 0.0) + (WRITE_BONUS if asked else 0.0)
        found.append((tool, gained / (sum(weights.values()) or 1.0) + extra))
    return found


def asks_to_write(step_words: Sequence[str], tool: OfflineTool) -> bool:
    """Whether the step has a verb of the tool's class and names what the tool changes."""
    name = words(tool.name)
    acting = next((word for word in name if word in CLASS_OF), None)
    if acting is None:
        return False
    return any(CLASS_OF.get(word) == CLASS_OF[acting] for word in step_words) and all(
        word in step_words or word in ANY_OBJECT for word in name if word != acting
    )


def _idf(step_words: Sequence[str], tools: Sequence[OfflineTool]) -> dict[str, float]:
    """Inverse document frequency: a word that many tools have says little about which one is meant."""
    knowing = {word: sum(word in tool.known_words for tool in tools) for word in step_words}
    return {word: math.log(1 + len(tools) / (1 + count)) for word, count in knowing.items() if count}


def _share(word: str, tool: OfflineTool) -> float:
    return IN_NAME if word in tool.name_words else IN_DESCRIPTION if word in tool.known_words else 0.0
