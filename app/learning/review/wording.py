"""The text of a rule: what to do and when, from the clearest of the feedback."""

from __future__ import annotations

import math
import re
from calendar import day_name, month_name
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from operator import mul

from app.learning.hygiene.checks import EMPTY_STEMS
from app.learning.hygiene.contradictions import LIGHT, shared_words
from app.learning.hygiene.words import content_stems, stem
from app.learning.review.affinity import UNSEEN
from app.learning.review.background import Background
from app.learning.review.claims import contradicts, read_claim, shared_values, source_of, values_in, without_report
from app.learning.review.clarity import ORDERS, Terms, opens_an_order, score_text, split_sentences
from app.learning.review.fixes import Fix, find_fix
from app.learning.review.moments import content_words, said_of
from app.learning.review.orders import count_circumstances, instructions_of, says_what_to_do, statements_of
from app.learning.review.types import Agent, EntityType, Signal
from app.learning.rules import PAIR, read_forms
from app.text.embeddings import embed
from app.text.masking import Masking

MAX_SENTENCE, MAX_COMMENT, MAX_CONTENT, MAX_CONTEXT = 240, 400, 600, 120
MAX_WHEN, COMMON = 3, 0.5
SAME = 0.7
CENTRAL = 2.0
# A second sentence says something that the first does not, and is as clear as one.
SECOND = 0.5
# A sentence that says what to do, before one that says how things are.
ORDER = 1.5
# A sentence with a value that two people name; and how near somebody else must come to a sentence.
MUCH = 0.5
VALUE, SUPPORT = 2.0, 0.15
# When a fact began is no part of it.
SINCE = re.compile(r",?\s+(?:now|since (?:last )?\w+|from now on)(?=[,.]|$)", re.IGNORECASE)
# Words that a sentence adds to a fix: one that names the same tools, and any other.
MORE, NEW = 3, 2
NO_NEWS = frozenset(stem(word) for word in ("use", "call", "say", "ask", "want", "need"))
NEGATED = re.compile(r"\b(?:not|never|no)\b|n['’]t\b", re.IGNORECASE)
REPLAY = "replay_failure"
ASKED_TO = "asked to "
MAX_EXAMPLE = 160
PERSON = re.compile(r"\b(?:Mr|Mrs|Ms|Miss|Dr)\b\.? [A-Z][\w'’-]+")
# Names stand capitalised within a sentence; EBITDA is none.
NAMED = re.compile(r"(?<=[\w,;:] )[A-Z][a-zà-ÿ]+\b|\b(?i:mrs?|ms|dr)\b")
WORD = re.compile(r"[^\W\d_]+")
DAYS = frozenset(stem(name) for name in (*day_name, *month_name, "since", "until", "asks", "show") if name)
# Words of an order of steps.
STEPS = frozenset({"first", "before", "only then", "beforehand", "until"})


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
) -> Draft | None:
    """The rule that these signals ask for, the clearest of them first; None if nothing says what to do."""
    occasion = find_occasion(signals, background)
    fix = find_fix(signals, agents, kinds, background.values, occasion)
    own = [signal for signal in signals if not (fix and signal.kind == REPLAY)]
    said = [_finish(text) for text in _choose(_sentences(own, terms, fix), fix)]
    parts = _without_repeats(fix, said, agents) if fix else said
    if not parts:
        return _quote_replay(signals, occasion)
    if fix and parts == [fix.text] and occasion and not fix.occasion:
        when = occasion if occasion.startswith(ASKED_TO) else f"someone asks about {occasion}"
        parts = [f"{fix.text.rstrip('.')} when {when}."]
    if example := _find_example(signals):
        parts.append(f"For example: “{example}”")
    content = " ".join(parts)[:MAX_CONTENT]
    return Draft(_pick_type(content, fix), content, (fix and fix.occasion) or occasion)


def _quote_replay(signals: Sequence[Signal], occasion: str | None) -> Draft | None:
    """How a replay failed, which is no rule yet: only a model makes one of it."""
    told = next((signal.comment for signal in signals if signal.kind == REPLAY and signal.comment), None)
    return Draft("correction", told, occasion) if told else None


def _without_repeats(fix: Fix, said: Sequence[str], agents: Sequence[Agent]) -> list[str]:
    """A fix and the sentences that say more than it; no fix where a sentence says it."""
    tools = [tool.name for agent in agents for tool in agent.tools]
    names = PAIR.findall(fix.text)
    wanted = read_forms(fix.text, tools, names)[0]
    known, kept = {stem(word) for word in content_words(fix.text)} | NO_NEWS, []
    for text in said:
        forms, words = read_forms(text, tools, names)
        if forms and set(wanted) <= set(forms) and says_what_to_do(text):
            return list(said)
        new = {stem(word) for word in content_words(words)} - known
        least = MORE if forms and set(forms) <= set(wanted) else NEW
        if len(new) >= least or (not forms and NEGATED.search(text)):
            kept.append(text)
    return [fix.text, *kept]


def find_occasion(signals: Sequence[Signal], background: Background) -> str | None:
    """The words in which people asked, where most of them asked in the same ones."""
    asked = [signal.question or "" for signal in signals]
    found = _common_words(asked, background.asked, background.size, MAX_WHEN)
    if not found:
        return None
    opening = sum(text.lower().startswith(f"{found[0]} ") for text in asked)
    order = ASKED_TO if 2 * opening >= len(asked) and len(asked) > 1 else ""
    return f"{order}{_join_words(found, asked)}"[:MAX_CONTEXT]


def _common_words(texts: Sequence[str], usual: Mapping[str, int], size: int, most: int) -> list[str]:
    """Words that most of some texts have and few of all do, the most telling first. Names and days are no occasion."""
    names = {stem(name) for text in texts for name in NAMED.findall(text)} | DAYS
    inside = [list(dict.fromkeys(word for word in content_words(text) if stem(word) not in names)) for text in texts]
    count = Counter(mark for words in inside for mark in {stem(word) for word in words})
    needed, population = max(2, COMMON * len(texts)), size + UNSEEN
    lift = {
        mark: number * math.log(population / max(1, usual.get(mark, 0)))
        for mark, number in count.items()
        if number >= needed
        and mark not in EMPTY_STEMS | LIGHT
        and usual.get(mark, 0) * len(texts) <= number * population / 2
    }
    form: dict[str, str] = {}
    for word in (word for words in inside for word in words):
        form.setdefault(stem(word), word)
    return [form[mark] for mark in sorted(lift, key=lambda mark: (-lift[mark], mark))[:most]]


def _join_words(found: Sequence[str], texts: Sequence[str]) -> str:
    """The most telling of some words with those that stand beside it where most people wrote it: a phrase, no list."""
    runs = Counter(run for text in texts if (run := _run_around(found, text)))
    usual = [run for run in runs if 2 * runs[run] >= runs.total()]
    return max(usual, key=lambda run: (runs[run], run), default="") or _as_written(found[0], texts)


def _run_around(found: Sequence[str], text: str) -> str:
    """The words of a text around the first of those found that were found too."""
    words = WORD.findall(text)
    known = [word.lower() in found for word in words]
    place = next((n for n, word in enumerate(words) if word.lower() == found[0]), None)
    if place is None:
        return ""
    start = next((n + 1 for n in range(place, -1, -1) if not known[n]), 0)
    end = next((n for n in range(place, len(words)) if not known[n]), len(words))
    return " ".join(word if word[1:].isupper() else word.lower() for word in words[start:end])


def _as_written(word: str, texts: Sequence[str]) -> str:
    """A word, in capitals if people write it so."""
    written = (one for text in texts for one in WORD.findall(text))
    return next((one for one in written if one.lower() == word and one[1:].isupper()), word)


def _sentences(signals: Sequence[Signal], terms: Terms, fix: Fix | None) -> list[_Sentence]:
    """What people said that can stand in a rule, the best first. Without an instruction, what explains one; and how it
    is, where two people name the same value."""
    # People say what to do. A failed replay says what one answer lacked, and is read when nobody said anything.
    people = [place for place, signal in enumerate(signals) if signal.author_id]
    own = ((place, text) for place in people or range(len(signals)) for text in _own_sentences(signals[place]))
    found = [(place, text) for place, text in own if _is_plain(text)]
    values = shared_values(signals)
    if values or (fix and not found):
        found += [(place, text) for place, text in _stated(signals) if not values or values & values_in(text)]
    found = list({text: (place, text) for place, text in reversed(found)}.values())
    if not found:
        return []
    vectors = embed([text for _, text in found])
    whole, *each = embed([" ".join(map(said_of, signals)), *map(said_of, signals)])
    scored = []
    for (place, text), vector in zip(found, vectors, strict=True):
        # Where two people name a value, a rule has no sentence without one.
        off = values and not signals[place].admin_flag and not values & read_claim(text).values
        if off or not _is_supported(text, vector, place, signals, each):
            continue
        central = sum(map(mul, vector, whole))
        flag = 2.0 * signals[place].admin_flag
        orders, named = ORDER * says_what_to_do(text), _count_named(text, values)
        score = score_text(text, terms) + flag + orders + named + CENTRAL * central - _flaws(text)
        scored.append(_Sentence(text, place, score, vector))
    return sorted(scored, key=lambda one: (-one.score, one.place, one.text))


def _count_named(text: str, values: Collection[str]) -> float:
    """What speaks for a sentence with a value that two people name: more, if it says which is wrong."""
    claim = read_claim(text)
    return VALUE * (1 + bool(claim.refused)) if claim.values.intersection(values) else 0.0


def _stated(signals: Sequence[Signal]) -> Iterator[tuple[int, str]]:
    """How people say that it is, by their places."""
    for place, signal in enumerate(signals):
        for text in statements_of(signal.comment or signal.follow_up or ""):
            if _is_plain(text):
                yield place, SINCE.sub("", without_report(text))


def _is_supported(
    text: str, vector: Sequence[float], place: int, signals: Sequence[Signal], each: Sequence[Sequence[float]]
) -> bool:
    """Whether somebody else speaks of the same, with the same value or in near words. An admin's flag and a failed
    replay need nobody."""
    own, values, words = signals[place], values_in(text), content_stems(text) - EMPTY_STEMS
    if own.admin_flag or own.kind == REPLAY:
        return True
    for other, its in zip(signals, each, strict=True):
        same = values & values_in(said_of(other)) or words & content_stems(said_of(other))
        if source_of(other) != source_of(own) and (same or sum(map(mul, vector, its)) >= SUPPORT):
            return True
    return False


def _own_sentences(signal: Signal) -> Iterator[str]:
    """The instructions in what a person said, together where they are short; of an edit, the sentences that the answer
    did not have and that name no figure."""
    if signal.kind == "session_failure" or (signal.comment or "").startswith("Replay fails"):
        return
    found = [without_report(one) for one in instructions_of(signal.comment or signal.follow_up or "")]
    whole = " ".join(map(_finish, found))
    yield from [whole] if whole and (signal.admin_flag or len(whole) <= MAX_SENTENCE) else found
    had = {sentence.lower() for sentence in split_sentences(signal.answer or "")}
    for sentence in instructions_of(signal.preferred_answer or ""):
        if sentence.lower() not in had and not re.search(r"\d", sentence):
            yield sentence


def _flaws(text: str) -> float:
    """What makes a sentence about one case."""
    short, long = len(content_words(text)) < 3, len(text) > MAX_SENTENCE
    return 0.7 * count_circumstances(text) + 1.0 * short + 1.0 * long + 0.3 * bool(re.search(r"\d", text))


def _choose(sentences: Sequence[_Sentence], fix: Fix | None) -> list[str]:
    """The best sentence, and one of another person that adds to it. None contradicts another or the fix."""
    known = [fix.text] if fix else []
    sentences = [one for one in sentences if _goes_with(one.text, known)]
    if not sentences:
        return []
    first = sentences[0]
    for other in sentences[1:]:
        near = sum(map(mul, first.vector, other.vector))
        adds = other.place != first.place and other.score >= SECOND and near < SAME
        if adds and not _repeats_value(first.text, other.text) and _goes_with(other.text, [first.text]):
            return [first.text, other.text]
    return [first.text]


def _repeats_value(first: str, other: str) -> bool:
    """Whether a sentence sets no other value than the one before it, and says no more."""
    same = bool(values_in(other)) and values_in(other) <= values_in(first)
    return same and (not says_what_to_do(other) or shared_words(first, other) >= MUCH)


def _goes_with(text: str, known: Sequence[str]) -> bool:
    """Whether the sentences of a text contradict neither each other nor what is known."""
    parts = split_sentences(text)
    others = [part for one in known for part in split_sentences(one)]
    pairs = (*combinations(parts, 2), *product(parts, others))
    return not any(contradicts(one, other) for one, other in pairs)


def _finish(text: str) -> str:
    text = " ".join(text.split())[:MAX_COMMENT].rstrip(";,")
    text = text[:1].upper() + text[1:] if text[:1].islower() and not re.match(r"[a-z]+[A-Z_]", text) else text
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _find_example(signals: Sequence[Signal]) -> str | None:
    """What somebody put in place of an answer, if it is short, with X for a person."""
    for signal in signals:
        had = {sentence.lower() for sentence in split_sentences(signal.answer or "")}
        new = [one for one in split_sentences(signal.preferred_answer or "") if one.lower() not in had]
        text = PERSON.sub("X", " ".join(" ".join(new).split()))
        if text and len(text) <= MAX_EXAMPLE and _is_plain(text):
            return text
    return None


def _is_plain(text: str) -> bool:
    """Whether a text tells nothing about a person: no address, number or secret."""
    return Masking(emails=True, phones=True).text(text) == text and "[masked:" not in text


def _pick_type(content: str, fix: Fix | None) -> str:
    """A way of working is a lesson, another order a correction, and what orders nothing an insight."""
    orders = {word.lower() for word in ORDERS.findall(content)}
    if (fix and " before " in fix.text) or (not fix and orders & STEPS):
        return "lesson"
    return "correction" if fix or orders or opens_an_order(content) else "insight"
