"""Read a message the way the gate does: judging words by what they do, other words by where they were said before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.text.words import ENDINGS, MIN_LETTERS

MAX_WORDS = 400
# More of an answer says little about whether a word of the message comes from it.
MAX_TURN_CHARS = 8000
FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
CODE_LINE = re.compile(
    r"^\s*(?:at \S+\(|File \"|Traceback|[A-Za-z_.]+(?:Error|Exception)\b|\d{4}-\d\d-\d\d[ T]\d\d:\d\d"
    r"|(?:ERROR|WARN|WARNING|INFO|DEBUG)\b|(?:assert|if|return|import|def|raise)\b.*[=:()]).*$",
    re.MULTILINE,
)
QUOTED_LINE = re.compile(r"^\s*>.*$", re.MULTILINE)
QUOTE = re.compile(
    r"\"[^\"\n]{2,600}\"|“[^”\n]{2,600}”|„[^“”\n]{2,600}[“”]|«[^»\n]{2,600}»|(?<!\w)'[^'\n]{8,400}'(?!\w)"
)
TOKEN = re.compile(r"<\w+>|\d[\d.,:]*\d|\d|[^\W\d_]+(?:'[^\W\d_]+)?|[?!]+|\.\.\.|[.,;:()]|[\U0001f300-\U0001faff✅❌✔]")
CLAUSE_END = frozenset((".", "...", ";"))
LEXICON = Path(__file__).parent / "lexicon.txt"
# Words that carry the grammar of a clause. They stand for themselves, also where the rest is read by class.
GRAMMAR = frozenset(
    """a an the of to in on at for with from by and or is are was were be been being am has have had do does did as than
    then so too very much more most less all any some every each there here where when what which who why how yes ok
    okay now new old same different both up down out over into oh hm hmm ah wow well ugh hey hi hello <quote> <code>
    instead rather actually really simply completely totally quite pretty bit lot way""".split()  # noqa: SIM905 - a list of words reads better as a text.
)


@dataclass(frozen=True)
class Turn:
    """What a person asked and what the agent answered."""

    user: str
    agent: str

    @property
    def both(self) -> tuple[str, str]:
        return self.user, self.agent


@dataclass(frozen=True)
class Reading:
    """A message token by token: what the token is, what it does in a judgement if it is known for that, and where it
    was said before: `_a` in the answer, `_q` in its question, `_e` earlier, `_n` nowhere; figures `#a` and so on."""

    tokens: list[str]
    roles: list[str | None]
    places: list[str]
    agent_asked: bool

    def words(self, vocabulary: frozenset[str]) -> list[str]:
        """The tokens, with those that are not in the vocabulary read by what they do or where they were said."""
        return [
            token if token in vocabulary and not token[0].isdigit() else role or place
            for token, role, place in zip(self.tokens, self.roles, self.places, strict=True)
        ]

    @property
    def classes(self) -> list[str]:
        """What each token does. Words of grammar and signs stand for themselves."""
        return [
            role or (token if token in GRAMMAR or not token[0].isalnum() else place)
            for token, role, place in zip(self.tokens, self.roles, self.places, strict=True)
        ]

    def clauses(self, vocabulary: frozenset[str]) -> list[tuple[list[str], list[str]]]:
        """Words and classes, cut where a clause ends."""
        found: list[tuple[list[str], list[str]]] = [([], [])]
        for token, word, name in zip(self.tokens, self.words(vocabulary), self.classes, strict=True):
            found[-1][0].append(word)
            found[-1][1].append(name)
            if token in CLAUSE_END or token[0] in "?!":
                found.append(([], []))
        return [clause for clause in found if clause[0]] or [([], [])]


def tokens_of(text: str) -> list[str]:
    """The words, figures and signs of a text in lower case. A quotation is one token, and so is a line of code."""
    text = FENCE.sub(" <code> ", text)
    text = QUOTED_LINE.sub(" <quote> ", text)
    text = CODE_LINE.sub(" <code> ", text)
    text = QUOTE.sub(lambda found: " <quote> " if " " in found[0] else found[0], text)
    return TOKEN.findall(text.replace("’", "'").replace("`", "'").lower())[:MAX_WORDS]


def stem(word: str) -> str:
    """A word without one ending, as long as three letters stay."""
    ending = next((e for e in ENDINGS if word.endswith(e) and len(word) - len(e) >= MIN_LETTERS), "")
    return word[: len(word) - len(ending)]


def read_message(message: str, turns: Sequence[Turn]) -> Reading:
    """Read a message that follows these turns; the last of them is the answer it most likely speaks of."""
    last = turns[-1] if turns else Turn("", "")
    said = (_stems((last.agent,)), _stems((last.user,)), _stems(text for turn in turns[:-1] for text in turn.both))
    tokens = tokens_of(message)
    places = [f"{'#' if token[0].isdigit() else '_'}{_place(stem(token), *said)}" for token in tokens]
    roles = [None if token[0].isdigit() else _role(token) for token in tokens]
    return Reading(tokens, roles, places, last.agent.rstrip().endswith("?"))


def _stems(texts: Iterable[str]) -> set[str]:
    return {stem(token) for text in texts for token in TOKEN.findall(text[:MAX_TURN_CHARS].lower())}


def _place(root: str, answer: set[str], question: set[str], earlier: set[str]) -> str:
    return "a" if root in answer else "q" if root in question else "e" if root in earlier else "n"


def known_roles() -> list[str]:
    """The classes of words, in order."""
    return sorted({f"~{name}" for name in _lexicon().values()})


def _role(word: str) -> str | None:
    root = stem(word)
    found = next((role for form in (word, root, f"{root}e", f"{root}y") if (role := _lexicon().get(form))), None)
    return f"~{found}" if found else None


@cache
def _lexicon() -> dict[str, str]:
    """The class of each word. Of a word listed twice the first class counts."""
    found: dict[str, str] = {}
    for line in LEXICON.read_text().splitlines():
        name, mark, words = line.partition(": ")
        if mark and not line.startswith("#"):
            found = dict.fromkeys(words.split(), name) | found
    return found
