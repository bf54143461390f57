"""How clearly a text says what to do. A rule is written from the clearest text of a group, and from no group without
one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.learning.hygiene.words import content_stems, stem
from app.learning.review.moments import words_of
from app.learning.review.types import Agent, EntityType, Signal
from app.text.words import split_name

CLEAR = 1.4
# What the words of an order, of a comparison with what was done, and of an order of steps have in common.
ORDERS = re.compile(
    r"\b(?:should|must|shall|needs?|needed|ought|ha(?:s|ve) to|always|never|instead|rather than|only then|first|before"
    r"|belongs?|supposed to|not|don['’]?t|do not|without|use|using|unless|every time|no longer)\b",
    re.IGNORECASE,
)
# Verbs with which people open an order.
OPENERS = frozenset(
    """use call check look put read write give ask take show send tell keep leave add set sign switch turn match convert
    include exclude quote list round start stop make do say treat count file log go run try pick prefer avoid never
    always don't dont don’t please spell mention report name state attach copy confirm mark open close search find see
    compare book enter split group sort order link skip drop return translate""".split()  # noqa: SIM905 - reads better as a text.
)
ABOUT_ONESELF = re.compile(r"\b(?:I|me|my|mine)\b")
WORD = re.compile(r"[A-Za-z'’]+")
NAME = re.compile(r"[A-Za-z_]\w*")
PAIR = re.compile(r"(?<!\w)[A-Za-z_]\w*=[\w\"“]")
SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n")


@dataclass(frozen=True)
class Terms:
    """The names that a workspace uses: tools, arguments and fields as programs write them, and the words in the names
    of fields and kinds of record."""

    names: frozenset[str]
    stems: frozenset[str]


def read_terms(agents: Sequence[Agent], kinds: Sequence[EntityType]) -> Terms:
    tools = [tool for agent in agents for tool in agent.tools]
    fields = [field for kind in kinds for field in kind.fields]
    coded = [name for name in (*(name for tool in tools for name in tool.arguments), *fields) if "_" in name]
    spoken = [part for name in (*fields, *(kind.slug for kind in kinds)) for part in split_name(name)]
    return Terms(frozenset((*(tool.name for tool in tools), *coded)), frozenset(map(stem, spoken)))


def score_signal(signal: Signal, terms: Terms) -> float:
    """How clearly a signal says what to do: an admin's flag first, then an edit, then what its words say."""
    text = words_of(signal)
    known = 3.0 * signal.admin_flag + 1.0 * bool(signal.preferred_answer)
    return known + score_text(text, terms) - 1.0 * (len(text.split()) < 4)


def score_text(text: str, terms: Terms) -> float:
    named = bool(PAIR.search(text)) or any(name in terms.names for name in NAME.findall(text))
    about_fields = bool(content_stems(text) & terms.stems)
    orders = len({word.lower() for word in ORDERS.findall(text)})
    score = 2.0 * named + 0.5 * about_fields + 0.7 * min(2, orders)
    score += 1.2 * opens_an_order(text)
    return score - 0.5 * bool(ABOUT_ONESELF.search(text)) - 0.5 * text.rstrip().endswith("?")


def split_sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def opens_an_order(text: str) -> bool:
    """Whether a sentence of a text opens with a verb that tells what to do."""
    opened = (WORD.findall(sentence) for sentence in split_sentences(text))
    return any(len(words) > 2 and words[0].lower() in OPENERS for words in opened)


def clearest(signals: Iterable[Signal], terms: Terms) -> list[Signal]:
    """Signals with the clearest first: an admin's flag, an edit, a reason, a comment; then by what they say. What the
    system noticed comes after people."""
    return sorted(
        signals, key=lambda one: (not one.admin_flag, not one.author_id, -score_signal(one, terms), str(one.id))
    )
