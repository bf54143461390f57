"""Compare the last answer: required facts, requested figures, and wording."""

from dataclasses import replace

from app.evals.compare.dimensions import MESSAGE, PASS_AT, Dimension, Divergence, standard_dimension
from app.evals.expected.expectations import Expected
from app.evals.expected.requested_figures import all_figures, answer_figures, asks_for_figure, requested_figures
from app.evals.trace import Run, turns_of
from app.text.similarity import FactIndex, Nearness, text_similarity
from app.text.values import canonical

Message = tuple[str, int | None]
SAME = "the answer is the same, word for word"


def message_dimension(golden: Message, replay: Message, expected: Expected, nearness: Nearness | None) -> Dimension:
    """The last message: by the facts that it must and must not say if they are known, and by its text."""
    wanted = golden[0] if expected.answer is None else expected.answer
    text = text_similarity([(wanted, replay[0])], nearness)[0]
    seqs = {"golden_seq": golden[1] if expected.answer is None else None, "replay_seq": replay[1]}
    same = canonical(wanted) == canonical(replay[0])
    if not same and expected.answer is not None and canonical(replay[0]) == canonical(golden[0]):
        told = "the answer is the recorded one, which was wrong"
        return standard_dimension(
            MESSAGE, 0.0, told, [Divergence(MESSAGE, "text", wanted, replay[0], told, **seqs)], decides=True
        )
    words = (
        []
        if same
        else [Divergence(MESSAGE, "text", wanted, replay[0], _wording_reason(wanted, replay[0], text), **seqs)]
    )
    if not expected.mentions and not expected.must_not_mention:
        return standard_dimension(MESSAGE, text, words[0].text if words else SAME, words, decides=expected.about_answer)
    said, must, must_not = FactIndex(replay[0]), expected.mentions or (), expected.must_not_mention or ()
    missing = [fact for fact in must if not said.mentions(fact)]
    wrong = [fact for fact in must_not if said.mentions(fact)]
    found = [
        Divergence(MESSAGE, "must_not_mention", None, fact, f"the answer mentions “{fact}”, which it must not", **seqs)
        for fact in wrong
    ]
    found += [
        Divergence(MESSAGE, "mentions", fact, None, f"the answer does not mention “{fact}”", **seqs) for fact in missing
    ]
    if must:
        score = 0.7 * (1 - len(missing) / len(must)) + 0.3 * text
    else:
        # A recorded answer with a forbidden fact is no measure for the wording of another.
        score = 1.0 if _recording_is_wrong(golden[0], expected) else text
    score = 0.0 if wrong else score
    reason = _facts_reason(found, len(must), len(missing), score, words)
    return standard_dimension(MESSAGE, score, reason, found or words, decides=True)


def _recording_is_wrong(recorded: str, expected: Expected) -> bool:
    said = FactIndex(recorded)
    return expected.answer is None and any(said.mentions(fact) for fact in expected.must_not_mention or ())


def _facts_reason(found: list[Divergence], must: int, missing: int, score: float, words: list[Divergence]) -> str:
    """Why the answer passes or not, where facts are known that it must or must not say."""
    if score < PASS_AT[MESSAGE] and found:
        return found[0].text
    if missing:
        return f"the answer says {must - missing} of the {must} facts that it must; {found[0].text}"
    if must:
        return (
            "the answer says the fact that it must" if must == 1 else f"the answer says the {must} facts that it must"
        )
    if score < PASS_AT[MESSAGE] and words:
        return words[0].text
    return "the answer says nothing that it must not"


def requested_figures_dimension(golden: Run, replay: Run, message: Dimension) -> Dimension:
    """The last answer of a session that changed nothing and in which the user asked for figures: the golden's must
    occur.

    A replay whose user asked for none is not checked. The words around a figure differ from run to run and count only
    where the answer decides anyway.
    """
    figures = requested_figures(golden)
    if not figures or not asks_for_figure(turns_of(replay)):
        return message
    said = all_figures(replay)
    missing = [figure for figure in figures if figure not in said]
    found = tuple(
        Divergence(MESSAGE, "figures", figure, None, f"the agent never said {figure:g}, which was asked for")
        for figure in missing
    )
    said_so = 1 - len(missing) / len(figures)
    score = min(said_so, message.score) if message.decides else said_so
    if message.decides and not found:
        if message.passed:
            return message
        return replace(message, reason=f"{message.reason}, though the figures that were asked for were said")
    reason = found[0].text if found else "the agent said the figures that were asked for"
    return replace(message, score=score, reason=reason, decides=True, divergences=(*found, *message.divergences))


def answer_figures_dimension(golden: Run, replay: Run, message: Dimension, wanted: str | None = None) -> Dimension:
    """The last answer where it decides: other figures in place of the golden's, or of the `wanted` answer's, make it a
    different answer, however similar the words are. Fewer or additional figures are a matter of wording."""
    told, other = answer_figures(golden, wanted), answer_figures(replay)
    said = all_figures(replay)
    missing = [figure for figure in told if figure not in said]
    instead = [figure for figure in other if figure not in told]
    if not missing or not instead:
        return message
    text = f"the answer says {_listed(instead)} where the golden says {_listed(missing)}"
    found = Divergence(MESSAGE, "figures", missing, instead, text)
    score = min(message.score, 1 - len(missing) / len(told))
    reason = text if score < message.score else message.reason
    return replace(message, score=score, reason=reason, divergences=(found, *message.divergences))


def _listed(figures: list[float]) -> str:
    return ", ".join(f"{figure:.12g}" for figure in figures[:3]) + (" and more" if len(figures) > 3 else "")


def _wording_reason(golden: str, replay: str, text: float) -> str:
    """How the words of two answers that are not the same compare. Words that are close may say the opposite."""
    if not replay:
        return "there was no answer"
    if not golden:
        return "there was an answer, which did not happen before"
    if text >= PASS_AT[MESSAGE]:
        return f"the answer's words are close ({text:.2f}); no fact was ticked to hold it to"
    return f"the answer's words are not close ({_below(text)} of {PASS_AT[MESSAGE]:.2f})"


def _below(score: float) -> str:
    """Two digits that are never rounded up to the mark."""
    return f"{min(score, PASS_AT[MESSAGE] - 0.01):.2f}"
