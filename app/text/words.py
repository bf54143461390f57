"""Words, sentences and quotations of a text, read the same way wherever two texts are compared by their words."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

STOP = frozenset(
    """a about after again against all also always am an and another any anybody are aren as at avoid be because been
    before being between both but by can could d did didn do does doesn doing don during each every everybody everyone
    for from give had has have having he hello her here hey hi him his how i if in instead into is isn it its just let
    lets like ll m may me might more most must my need neither never no nor not now of off ok okay on only or other our
    out over own please prefer rather re s same say several shall she should so some somebody someone such t tell than
    thank thanks that the their them then there these they this those to too under unless until up us use used uses
    using ve very want was we were what when where which while who whom whose why will with would yes you
    your""".split()  # noqa: SIM905 - a list of words reads better as a text.
)
ENDINGS = ("ies", "ing", "ed", "es", "s")
MIN_LETTERS = 3
# A full stop after one of these does not end a sentence.
ABBREVIATIONS = frozenset("co corp dr e.g eg etc i.e inc jr ltd mr mrs ms no nr prof sr st vs".split())  # noqa: SIM905 - the same.
WORD = re.compile(r"[^\W_]+")
# A tool or a field as programs write it.
IDENTIFIER = re.compile(r"\b(?:[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Za-z]\w*_\w+)\b")
# An identifier; a number with its decimals; a word with its apostrophe; a sign that ends or opens something.
TOKEN = re.compile(r"[A-Za-z]\w*(?:_\w+)+|\d+(?:[.,]\d+)*|%|[^\W\d_]+(?:['’][^\W\d_]+)?|[.;:!?,()=\n]")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
QUOTED = re.compile(r'"([^"\n]*)"|“([^”\n]*)”')
_END = re.compile(r"[.!?…]+(?=[\s\"”)]|$)")
_BREAK = re.compile(r";|(?=\sthen\s)", re.IGNORECASE)
_LOOSE = re.compile(r"^(?:[\s,;:]|and\b)+|(?:[\s,;]|\band\b)+$", re.IGNORECASE)


def split_name(name: str) -> list[str]:
    """The parts of a camelCase or snake_case name, in lower case."""
    return [part.lower() for part in WORD.findall(_HUMPS.sub(" ", name))]


def stem(word: str) -> str:
    """A word without its endings, as long as three letters stay."""
    while True:
        ending = next((e for e in ENDINGS if word.endswith(e) and len(word) - len(e) >= MIN_LETTERS), None)
        if ending is None:
            return word
        word = word[: -len(ending)]


def words(text: str) -> list[str]:
    """The distinct words of a text in their order: names split, lower case, without stop words and endings."""
    return list(dict.fromkeys(stem(part) for part in split_name(text) if part not in STOP))


def stems(text: str) -> list[str]:
    """Every word of a text without its endings, stop words and repetitions included."""
    return [stem(part) for part in split_name(text)]


def drop_stop_words(text: str) -> str:
    """A text without its stop words, otherwise as it was written."""
    return " ".join(part for part in re.findall(r"[^\W_][\w'’-]*", text) if part.lower() not in STOP)


def quotations(text: str) -> list[str]:
    """The texts in double quotes."""
    return [first or second for first, second in QUOTED.findall(text) if first or second]


def without_quotations(text: str) -> str:
    """The text with everything in double quotes blanked out; every other character stays where it was."""
    return QUOTED.sub(lambda found: " " * len(found[0]), text)


def sentences(text: str) -> list[str]:
    """A text cut at the ends of its sentences, outside quotations."""
    return _cut(text, _sentence_ends(without_quotations(text)))


def lines_and_sentences(text: str) -> list[str]:
    """The sentences of a text in which a line ends a sentence too."""
    return [sentence for line in text.splitlines() for sentence in sentences(line)]


def steps(text: str) -> list[str]:
    """What a message asks for, one after the other: cut at sentence ends, at `;` and at ` then `."""
    plain = without_quotations(text)
    ends = sorted([*_sentence_ends(plain), *(found.end() for found in _BREAK.finditer(plain))])
    cut = (_LOOSE.sub("", re.sub(r"^then\s", "", part, flags=re.IGNORECASE)) for part in _cut(text, ends))
    return [part for part in cut if WORD.search(part)]


def _sentence_ends(plain: str) -> Iterator[int]:
    for found in _END.finditer(plain):
        before = re.search(r"[\w.]+$", plain[max(0, found.start() - 12) : found.start()])
        if not (found[0] == "." and before and before[0].lower() in ABBREVIATIONS and found.end() < len(plain)):
            yield found.end()


def _cut(text: str, ends: Iterable[int]) -> list[str]:
    places = [0, *ends, len(text)]
    return [part for start, end in pairwise(places) if (part := text[start:end].strip())]
