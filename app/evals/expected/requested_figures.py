"""Figures that a user asked for: where a session changed nothing, they are its purpose."""

import re
from collections.abc import Sequence

from app.evals.trace import Run, Turn, last_message, text_of, turns_of
from app.text.similarity import tokens

# English, as are the other rules that read sentences.
_ASKS = re.compile(
    r"\bhow (?:many|much|long|old|far)\b|\bin total\b|\btotal (?:number|cost|price|amount|sum)\b|\bnumber of\b"
    r"|\bwhat(?: is|'s|’s| are| was| were) (?:the|my|our|its|their) (?:\w+ ){0,2}"
    r"(?:amount|average|balance|cost|count|figure|number|percentage|price|sum|total)\b",
    re.IGNORECASE,
)


def asks_for_figure(turns: Sequence[Turn]) -> bool:
    """Whether the user asks for a figure in any turn."""
    return any(_ASKS.search(turn.user) for turn in turns)


def requested_figures(run: Run) -> list[float]:
    """The figures in the answer to the last such question, without those that the user had mentioned before."""
    turns = turns_of(run)
    asked = [turn for turn in turns if _ASKS.search(turn.user) and turn.answer]
    if not asked:
        return []
    known = {token for turn in turns[: asked[-1].number] for token in tokens(turn.user)}
    found = [token for token in tokens(asked[-1].answer) if isinstance(token, float) and token not in known]
    return list(dict.fromkeys(found))


def answer_figures(run: Run, wanted: str | None = None) -> list[float]:
    """The figures in the last answer, or in the wanted one, without those that the user mentioned."""
    turns = turns_of(run)
    known = {token for turn in turns for token in tokens(turn.user)}
    answer = last_message(run)[0] if wanted is None else wanted
    return list(dict.fromkeys(token for token in tokens(answer) if isinstance(token, float) and token not in known))


def all_figures(run: Run) -> set[float]:
    """Every figure in any message of the agent."""
    said = (text_of(event) for event in run.events if event.event_type == "agent.message")
    return {token for text in said for token in tokens(text) if isinstance(token, float)}
