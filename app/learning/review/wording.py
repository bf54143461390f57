"""The text of a rule: what to do and when, from the clearest of the feedback."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from app.learning.hygiene.words import stem
from app.learning.review.affinity import UNSEEN
from app.learning.review.background import Background
from app.learning.review.clarity import ORDERS, Terms, opens_an_order, score_text, split_sentences
from app.learning.review.fixes import find_fix
from app.learning.review.moments import content_words, said_of
from app.learning.review.types import Agent, EntityType, Signal
from app.text.embeddings import embed
from app.text.masking import Masking

MAX_SENTENCE, MAX_COMMENT, MAX_CONTENT, MAX_CONTEXT = 240, 400, 600, 120
MAX_WHEN, COMMON = 4, 0.5
SAME = 0.7
CENTRAL = 2.0
# A second sentence says something that the first does not, and is as clear as one.
SECOND = 0.5
INSTANCE = re.compile(r"\b[A-Z]{1,4}-?\d{2,}\w*|\S+@\S+|\+?\d[\d ]{7,}|https?:\S*|\bwww\.\S+")
MOOD = re.compile(r"(?:!{2,}|\?{2,}|[:;]-?[()D]|\b(?:omg|wtf|lol|ffs|pls|damn)\b)", re.IGNORECASE)
# Words of an order of steps.
STEPS = frozenset({"first", "before", "only then", "beforehand", "until"})
PAST = re.compile(r"\b(?:was|were|had|did|didn['’]?t|told|said|sent|gave|went|came|took|made|got)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Draft:
    """A rule before it has a scope. `context` says when it applies."""

    type: str
    content: str
    context: str | None


@dataclass(frozen=True)
class _Sentence:
    text: str
    place: int
    score: float
    vector: Sequence[float]


def write_rule(
    signals: Sequence[Signal],
    agents: Sequence[Agent],
    kinds: Sequence[EntityType],
    terms: Terms,
    background: Background,
) -> Draft:
    """The rule that these signals ask for, the clearest of them first."""
    fix = find_fix(signals, agents, kinds, background.values)
    parts = [fix] if fix else []
    parts += [_finish(sentence) for sentence in _choose(_sentences(signals, terms))]
    if example := _example(signals):
        parts.append(example)
    content = " ".join(dict.fromkeys(parts))[:MAX_CONTENT]
    return Draft(_pick_type(content, fix), content, find_occasion(signals, background))


def find_occasion(signals: Sequence[Signal], background: Background) -> str | None:
    """The words in which people asked, where most of them asked in the same ones."""
    words = _common_words([signal.question or "" for signal in signals], background.asked, background.size, MAX_WHEN)
    return f"asked about {', '.join(words)}"[:MAX_CONTEXT] if words else None


def _common_words(texts: Sequence[str], usual: Mapping[str, int], size: int, most: int) -> list[str]:
    """Words that most of some texts have and few of all do, the most telling first."""
    inside = [list(dict.fromkeys(content_words(text))) for text in texts]
    count = Counter(mark for words in inside for mark in {stem(word) for word in words})
    needed, population = max(2, COMMON * len(texts)), size + UNSEEN
    lift = {
        mark: number * math.log(population / max(1, usual.get(mark, 0)))
        for mark, number in count.items()
        if number >= needed and usual.get(mark, 0) * len(texts) <= number * population / 2
    }
    form: dict[str, str] = {}
    for word in (word for words in inside for word in words):
        form.setdefault(stem(word), word)
    return [form[mark] for mark in sorted(lift, key=lambda mark: (-lift[mark], mark))[:most]]


def _sentences(signals: Sequence[Signal], terms: Terms) -> list[_Sentence]:
    """What people said, sentence by sentence, each with how well it would stand as a rule."""
    # People say what to do. A failed replay says what one answer lacked, and is read when nobody said anything.
    people = [place for place, signal in enumerate(signals) if signal.author_id]
    own = ((place, text) for place in people or range(len(signals)) for text in _own_sentences(signals[place]))
    found = [(place, text) for place, text in own if _is_plain(text)]
    vectors = embed([text for _, text in found])
    whole = embed([" ".join(said_of(signal) for signal in signals)])
    scored = []
    for (place, text), vector in zip(found, vectors, strict=True):
        central = sum(map(mul, vector, whole[0]))
        flag = 2.0 * signals[place].admin_flag
        scored.append(_Sentence(text, place, score_text(text, terms) + flag + CENTRAL * central - _flaws(text), vector))
    return sorted(scored, key=lambda one: (-one.score, one.place, one.text))


def _own_sentences(signal: Signal) -> Iterator[str]:
    """The sentences of a reason, whole where they are short; of an edit, those that the answer did not have."""
    if signal.admin_flag and signal.comment:
        yield " ".join(signal.comment.split())
        return
    for text in (signal.comment, signal.follow_up if not signal.comment else None):
        sentences = split_sentences(text or "")
        yield from [" ".join(sentences)] if len(" ".join(sentences)) <= MAX_SENTENCE / 2 else sentences
    if signal.preferred_answer:
        had = {sentence.lower() for sentence in split_sentences(signal.answer or "")}
        for sentence in split_sentences(signal.preferred_answer):
            if sentence.lower() not in had and not re.search(r"\d", sentence):
                yield sentence


def _flaws(text: str) -> float:
    """What makes a sentence about one case, or about a mood."""
    short, long = len(content_words(text)) < 3, len(text) > MAX_SENTENCE
    flaws = 1.0 * len(INSTANCE.findall(text)) + 0.7 * bool(MOOD.search(text)) + 0.3 * bool(PAST.search(text))
    return flaws + 0.5 * ("?" in text) + 1.0 * short + 1.0 * long + 0.3 * bool(re.search(r"\d", text))


def _choose(sentences: Sequence[_Sentence]) -> list[str]:
    """The best sentence, and one of another person that adds to it."""
    if not sentences:
        return []
    first = sentences[0]
    for other in sentences[1:]:
        near = sum(map(mul, first.vector, other.vector))
        if other.place != first.place and other.score >= SECOND and near < SAME:
            return [first.text, other.text]
    return [first.text]


def _finish(text: str) -> str:
    text = " ".join(text.split())[:MAX_COMMENT].rstrip(";,")
    text = text[:1].upper() + text[1:] if text[:1].islower() and not re.match(r"[a-z]+[A-Z_]", text) else text
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _example(signals: Sequence[Signal]) -> str | None:
    """The answer that somebody wanted, as an example."""
    wanted = next((one for signal in signals if (one := signal.preferred_answer) and _is_plain(one)), None)
    return f"Answer as in “{' '.join(wanted.split())[:MAX_SENTENCE]}”." if wanted else None


def _is_plain(text: str) -> bool:
    """Whether a text tells nothing about a person: no address, number or secret."""
    return Masking(emails=True, phones=True).text(text) == text and "[masked:" not in text


def _pick_type(content: str, fix: str | None) -> str:
    """A way of working is a lesson, another order a correction, and what orders nothing an insight."""
    orders = {word.lower() for word in ORDERS.findall(content)}
    if (fix and " before " in fix) or (not fix and orders & STEPS):
        return "lesson"
    return "correction" if fix or orders or opens_an_order(content) else "insight"
