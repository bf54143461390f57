"""Messages to train the machine-feedback gate on, put together from the hand-written lines in `scripts/gate_data`.

A trade has turns of a conversation and lines that a person might answer to them. Phrases fit any trade. The lines in
`*_held.txt` were written apart and serve to judge what was learnt; no line of them is trained on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from app.learning.gate.reading import Turn

FOLDER = Path(__file__).parent / "gate_data"
# What a line of a trade says about the answer above it, by its first character.
MARKS = {"-": "not_ok", "+": "ok", "~": "mixed", ">": "next", "o": "other", "?": "ask"}
LABELS = {"not_ok": "not_ok", "ok": "ok", "retraction": "ok", "neutral": "neutral"}
SLOT = re.compile(r"\{(\w+)\}")


@dataclass
class Topic:
    """One turn of a trade, with the lines about it."""

    turn: Turn
    things: list[str] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in MARKS.values()})


@dataclass(frozen=True)
class Example:
    """A message after some turns, what it says about one of them, and which."""

    turns: list[Turn]
    message: str
    label: str | None
    target: int | None
    source: str


def read_trades(*names: str) -> list[list[Topic]]:
    trades: list[list[Topic]] = []
    user = ""
    for name in names:
        for line in (FOLDER / name).read_text().splitlines():
            if line.startswith("== "):
                trades.append([])
            elif line.startswith("U: "):
                user = line[3:]
            elif line.startswith("A: "):
                trades[-1].append(Topic(Turn(user, line[3:])))
            elif line.startswith("T: "):
                trades[-1][-1].things = line[3:].split(" | ")
            elif line:
                trades[-1][-1].lines[MARKS[line[0]]].append(line[2:])
    return trades


def read_phrases(*names: str) -> dict[str, list[str]]:
    """The phrases by section. A phrase in a fence may have several lines."""
    found: dict[str, list[str]] = {}
    for name in names:
        section = ""
        fenced: list[str] | None = None
        for line in (FOLDER / name).read_text().splitlines():
            if line.startswith("```"):
                if fenced is not None:
                    found[section].append("\n".join(fenced))
                fenced = [] if fenced is None else None
            elif fenced is not None:
                fenced.append(line)
            elif re.fullmatch(r"\[\w+\]", line):
                section = line[1:-1]
                found.setdefault(section, [])
            elif line:
                found[section].append(line)
    return found


class Composer:
    """Puts examples together, the same ones for the same seed."""

    def __init__(self, trades: list[list[Topic]], phrases: dict[str, list[str]], seed: int) -> None:
        self.trades, self.phrases, self.random = trades, phrases, Random(seed)  # noqa: S311 - it should give the same examples again.

    def examples(self, each: int) -> list[Example]:
        """About `each` messages for every section of phrases, and all lines of the trades, each a few times."""
        found = [
            self.of_line(trade, place, name, line)
            for trade in self.trades
            for place, topic in enumerate(trade)
            for name, lines in topic.lines.items()
            for line in lines
        ]
        for section, phrases in self.phrases.items():
            for number in range(max(each, len(phrases))):
                found.append(self.of_phrase(section, phrases[number % len(phrases)]))
        return found

    def of_line(self, trade: list[Topic], place: int, name: str, line: str) -> Example:
        label = {"not_ok": "not_ok", "ok": "ok", "mixed": "neutral"}.get(name)
        return self._example(trade, place, line, label, name)

    def of_phrase(self, section: str, phrase: str) -> Example:
        trade = self.random.choice(self.trades)
        place = self.random.randrange(len(trade))
        text = self._fill(phrase, trade[place])
        return self._example(trade, place, text, LABELS.get(section), section)

    def _fill(self, phrase: str, topic: Topic) -> str:
        def slot(match: re.Match[str]) -> str:
            name = {"bad": "not_ok", "good": "ok"}.get(match[1], match[1])
            lines = topic.things if name == "thing" else topic.lines[name]
            if not lines:
                lines = ["do it again for another one"] if name == "next" else ["how so?"]
            return self.random.choice(lines)

        return SLOT.sub(slot, phrase)

    def _example(self, trade: list[Topic], place: int, text: str, label: str | None, source: str) -> Example:
        topic = trade[place]
        earlier = [other.turn for other in trade if other is not topic]
        self.random.shuffle(earlier)
        earlier = earlier[: self.random.randrange(len(earlier) + 1)]
        if self.random.random() < 0.35:
            stranger = self.random.choice(self.trades)
            if stranger is not trade:
                earlier.insert(0, self.random.choice(stranger).turn)
        turns = [*earlier, topic.turn]
        target = len(turns) - 1
        if len(turns) > 1 and self.random.random() < 0.3 and (label is None or names_topic(text, topic)):
            target = self.random.randrange(len(turns) - 1)
            turns.insert(target, turns.pop())
        return Example(
            turns, self._roughen(self._surround(text, topic, label)), label, target if label else None, source
        )

    def _surround(self, text: str, topic: Topic, label: str | None) -> str:
        """Now and then something beside it that judges nothing."""
        chance = self.random.random()
        more = self.phrases["thanks"] + topic.lines["ask"] + topic.lines["next"] + topic.lines["other"]
        extra = SLOT.sub("", self.random.choice(more)).strip() or "thanks"
        if chance < 0.06:
            return f"{extra}. {text}"
        if chance < 0.14:
            return f"{text.rstrip('.')}. {extra}"
        return text

    def _roughen(self, text: str) -> str:
        """As people type: without capitals, apostrophes or full stops, with a slip."""
        draw = self.random.random
        if "\n" in text:
            return text
        if draw() < 0.5:
            text = text[0].upper() + text[1:]
        elif draw() < 0.3:
            text = text.lower()
        if draw() < 0.2:
            text = text.replace("'", "")
        elif draw() < 0.1:
            text = text.replace("'", "’")
        if draw() < 0.12 and len(text) > 12:
            at = self.random.randrange(1, len(text) - 2)
            text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        if text[-1].isalnum():
            text += self.random.choice(["", "", "", ".", ".", "!", "...", " :)" if draw() < 0.1 else ""])
        return text


def names_topic(text: str, topic: Topic) -> bool:
    """Whether the text has a word of the turn or of what was made in it, so that it can be about an earlier one."""
    about = f"{topic.turn.user} {topic.turn.agent} {' '.join(topic.things)}"
    return bool(_telling(text) & _telling(about))


def _telling(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{5,}|\d{2,}", text.lower()))
