"""Compare what was said: facts, figures and wording of the last answer, and where the conversation drifts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from app.evals.compare.dimensions import MESSAGE, PASS_AT, Dimension, Divergence, standard_dimension
from app.evals.expected.expectations import Expected
from app.evals.trace import Run, Turn, last_message, text_of, turns_of
from app.text.similarity import FactIndex, Nearness, text_similarity, tokens
from app.text.values import canonical
from app.text.words import sentences, words

SAME = "the answer is the same, word for word"


def message_dimension(golden: Run, replay: Run, expected: Expected, nearness: Nearness | None) -> Dimension:
    """The last message: by the facts that it must and must not say if they are known, and by its text."""
    (recorded, golden_seq), (answer, replay_seq) = last_message(golden), last_message(replay)
    wanted, golden_seq = (recorded, golden_seq) if expected.answer is None else (expected.answer, None)

    def divergence(path: str, before: str | None, after: str | None, text: str) -> Divergence:
        return Divergence(MESSAGE, path, before, after, text, golden_seq, replay_seq)

    text = text_similarity([(wanted, answer)], nearness)[0]
    same = canonical(wanted) == canonical(answer)
    if not same and expected.answer is not None and canonical(answer) == canonical(recorded):
        found = divergence("text", wanted, answer, "the answer is the recorded one, which was wrong")
        return standard_dimension(MESSAGE, 0.0, "", [found], decides=True)
    words = [] if same else [divergence("text", wanted, answer, _wording_reason(wanted, answer, text, expected))]
    must, must_not = expected.mentions or (), expected.must_not_mention or ()
    if not must and not must_not:
        return standard_dimension(MESSAGE, text, SAME, words, decides=expected.about_answer)
    facts = FactIndex(answer)
    wrong = [fact for fact in must_not if facts.mentions(fact)]
    missing = [fact for fact in must if not facts.mentions(fact)]
    listed = [
        divergence("must_not_mention", None, fact, f"the answer mentions “{fact}”, which it must not") for fact in wrong
    ]
    listed += [divergence("mentions", fact, None, f"the answer does not mention “{fact}”") for fact in missing]
    if wrong:
        score = 0.0
    elif must:
        score = 0.7 * (1 - len(missing) / len(must)) + 0.3 * text
    else:
        # A recorded answer with a forbidden fact is no measure for the wording of another.
        was_wrong = expected.answer is None and any(map(FactIndex(recorded).mentions, must_not))
        score = 1.0 if was_wrong else text
    reason = _facts_reason(listed, len(must), len(missing), score, words)
    return replace(standard_dimension(MESSAGE, score, "", listed or words, decides=True), reason=reason)


def _facts_reason(found: list[Divergence], must: int, missing: int, score: float, words: list[Divergence]) -> str:
    """Why the answer passes or not, where facts are known that it must or must not say."""
    if score < PASS_AT[MESSAGE] and found:
        return found[0].text
    if missing:
        return f"the answer says {must - missing} of the {must} facts that it must; {found[0].text}"
    if must:
        return f"the answer says the {'fact' if must == 1 else f'{must} facts'} that it must"
    if score < PASS_AT[MESSAGE] and words:
        return words[0].text
    return "the answer says nothing that it must not"


def requested_figures_dimension(golden: Run, replay: Run, message: Dimension) -> Dimension:
    """The last answer where the session changed nothing and the user asked for figures: the golden's must occur. The
    words around a figure differ from run to run and count only where the answer decides anyway."""
    figures = _requested_figures(golden)
    if not figures or not any(_ASKS.search(turn.user) for turn in turns_of(replay)):
        return message
    stated = _all_figures(replay)
    found = [
        Divergence(MESSAGE, "figures", figure, None, f"the agent never said {figure:g}, which was asked for")
        for figure in figures
        if figure not in stated
    ]
    if message.decides and not found:
        more = "" if message.passed else ", though the figures that were asked for were said"
        return replace(message, reason=f"{message.reason}{more}")
    share = 1 - len(found) / len(figures)
    return replace(
        message,
        score=min(share, message.score) if message.decides else share,
        reason=found[0].text if found else "the agent said the figures that were asked for",
        decides=True,
        divergences=(*found, *message.divergences),
    )


def reported_figures_dimension(golden: Run, replay: Run, message: Dimension, *, unanswered: bool) -> Dimension:
    """The last answer where the session changed something and the user asked for a figure too: a replay that was asked
    the same must not say others in its place. `unanswered`: the replay ended on a change, so that what it said before
    in that turn announced the work and reported nothing."""
    asked, turns = _asked_turn(golden), turns_of(replay)
    same = [turn for turn in turns if asked is not None and _asks_the_same(asked.user, turn.user)]
    figures = _requested_figures(golden)
    answered = [turn for turn in same if not unanswered or turn is not turns[-1]]
    if not same or _all_figures(replay, turns[-1].number if unanswered else None) & set(figures):
        return message
    instead = [figure for turn in answered for figure in _new_figures(turn.answer, turns)]
    if not figures or not (instead or unanswered):
        return message
    says = f"the answer says {_listed(instead)} where the golden says {_listed(figures)}"
    text = says if instead else f"the agent ended without saying {_listed(figures)}, which was asked for"
    found = Divergence(MESSAGE, "figures", figures, instead or None, text)
    return replace(message, score=0.0, reason=text, decides=True, divergences=(found, *message.divergences))


def answer_figures_dimension(golden: Run, replay: Run, message: Dimension, wanted: str | None = None) -> Dimension:
    """The last answer where it decides: other figures in place of the golden's, or of the `wanted` answer's, make it a
    different answer, however similar the words are. Fewer or additional figures are a matter of wording."""
    answer = last_message(golden)[0] if wanted is None else wanted
    expected = _new_figures(answer, turns_of(golden))
    other = _new_figures(last_message(replay)[0], turns_of(replay))
    stated = _all_figures(replay)
    missing = [figure for figure in expected if figure not in stated]
    instead = [figure for figure in other if figure not in expected]
    if not missing or not instead:
        return message
    text = f"the answer says {_listed(instead)} where the golden says {_listed(missing)}"
    found = Divergence(MESSAGE, "figures", missing, instead, text)
    score = min(message.score, 1 - len(missing) / len(expected))
    reason = text if score < message.score else message.reason
    return replace(message, score=score, reason=reason, divergences=(found, *message.divergences))


def _listed(figures: list[float]) -> str:
    return ", ".join(f"{figure:.12g}" for figure in figures[:3]) + (" and more" if len(figures) > 3 else "")


def _wording_reason(golden: str, replay: str, text: float, expected: Expected) -> str:
    """How the words of two answers that are not the same compare. Words that are close may say the opposite."""
    if not replay:
        return "there was no answer"
    if not golden:
        return "there was an answer, which did not happen before"
    if text >= PASS_AT[MESSAGE]:
        held = bool(expected.mentions or expected.must_not_mention)
        return f"the answer's words are close ({text:.2f}){'' if held else '; no fact was ticked to hold it to'}"
    # The two digits are never rounded up to the mark.
    return f"the answer's words are not close ({min(text, PASS_AT[MESSAGE] - 0.01):.2f} of {PASS_AT[MESSAGE]:.2f})"


# Figures that a user asked for: where a session changed nothing, they are its purpose. The rule reads English.
_ASKS = re.compile(
    r"\bhow (?:many|much|long|old|far)\b|\bin total\b|\btotal (?:number|cost|price|amount|sum)\b|\bnumber of\b"
    r"|\bwhat(?: is|'s|’s| are| was| were) (?:the|my|our|its|their) (?:\w+ ){0,2}"
    r"(?:amount|average|balance|cost|count|figure|number|percentage|price|sum|total)\b",
    re.IGNORECASE,
)


def _asked_turn(run: Run) -> Turn | None:
    """The last turn in which the user asked for figures and the agent said something."""
    return next((turn for turn in reversed(turns_of(run)) if _ASKS.search(turn.user) and turn.answer), None)


def _requested_figures(run: Run) -> list[float]:
    """The figures in the answer to the last such question, without those that the user had mentioned before."""
    asked = _asked_turn(run)
    return _new_figures(asked.answer, turns_of(run)[: asked.number]) if asked else []


def _asks_the_same(one: str, other: str) -> bool:
    """Whether both messages ask for figures, in questions that share at least half of the words of the shorter."""
    if not _ASKS.search(one) or not _ASKS.search(other):
        return False
    a, b = (_question_words(text) for text in (one, other))
    return len(a & b) * 2 >= max(min(len(a), len(b)), 1)


def _question_words(text: str) -> set[str]:
    asking = " ".join(sentence for sentence in sentences(text) if _ASKS.search(sentence))
    return set(words(asking)) - {"many", "much", "total", "number"}


def _new_figures(answer: str, turns: Sequence[Turn]) -> list[float]:
    """The figures in an answer, without those that the user mentioned in these turns."""
    known = {token for turn in turns for token in tokens(turn.user)}
    return list(dict.fromkeys(one for one in tokens(answer) if isinstance(one, float) and one not in known))


def _all_figures(run: Run, before: int | None = None) -> set[float]:
    """Every figure in any message of the agent, or in those before the turn of a number."""
    turn, texts = 0, []
    for event in run.events:
        turn += event.event_type == "user.message"
        if event.event_type == "agent.message" and (before is None or turn < before):
            texts.append(text_of(event))
    return {token for text in texts for token in tokens(text) if isinstance(token, float)}


# Drift: the recorded user answers a question that this agent did not ask.
MIN_SIMILARITY = 0.35
_ENDS_IN_QUESTION = re.compile(r"\?[\s\"'”’)\]*_`~]*\Z")


def first_drift(golden: Run, replay: Run, nearness: Nearness | None) -> tuple[int, Divergence] | None:
    """The first turn with a different answer although the user continues as recorded, and the difference."""
    turns = zip(turns_of(golden), turns_of(replay), strict=False)
    # Pairs of turns followed by the same user message, as long as the user says the same in both.
    pairs = list(takewhile(lambda pair: pair[0].user == pair[1].user, turns))[:-1]
    likes = text_similarity([(a.answer, b.answer) for a, b in pairs], nearness, enough=MIN_SIMILARITY)
    for (a, b), like in zip(pairs, likes, strict=True):
        asks = [bool(_ENDS_IN_QUESTION.search(turn.answer[-200:])) for turn in (a, b)]
        if like < MIN_SIMILARITY or asks[0] != asks[1]:
            text = f"in turn {a.number} the agent said something else than the recorded person answers to"
            return a.number, Divergence("turns", f"turn {a.number}", a.answer, b.answer, text, a.sequence, b.sequence)
    return None
