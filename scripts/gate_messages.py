"""Messages to train the machine-feedback gate on, put together from the hand-written lines in `scripts/gate_data`.

A trade has turns of a conversation and lines that a person might answer to them. Phrases fit any trade. Talks are used
as they are written; the files `talks_held_*.txt` serve to judge what was learnt, and no line of them is trained on.
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
LABELS = {
    "not_ok": "not_ok", "correct": "not_ok", "not_ok_friendly": "not_ok", "ok": "ok", "confirm": "ok",
    "ok_against": "ok", "retraction": "ok", "neutral": "neutral",
}  # fmt: skip
ROLES = (
    "boss", "client", "customer", "colleague", "accountant", "plumber", "lawyer", "teacher", "neighbour", "supplier",
    "landlord", "doctor", "editor", "inspector", "manager", "team", "guest", "intern", "partner", "chef", "printer",
    "designer", "architect", "wife", "husband", "sister", "nurse", "coach", "buyer", "mayor", "authority", "insurer",
)  # fmt: skip
SLOT = re.compile(r"\{(\w+)\}")
# A mark, perhaps the number of a turn, and a text that goes on until a line begins with a mark.
BLOCK_LINE = re.compile(r"^(U:|A:|[-+~o])(\d?) (.*(?:\n(?!U: |A: |[-+~o]\d? ).*)*)", re.MULTILINE)


FORMS = (
    "a table",
    "three bullet points",
    "two sentences",
    "one sentence",
    "100 words",
    "a formal letter",
    "a short email",
    "French",
    "plain English",
    "a list",
    "five examples",
    "a checklist",
    "a headline",
    "the gross price",
    "the net price",
    "figures for 2024",
    "figures for last year",
    "the second quarter",
    "a friendly tone",
    "a neutral tone",
    "an invoice",
    "a reminder",
    "a version for children",
    "half a page",
    "a phone script",
    "numbers with units",
    "the metric values",
    "names in alphabetical order",
    "a draft for the website",
    "a slogan",
)
# What happened to what somebody made, by sections of `outcomes.txt`: the frame, the outcome, what that says.
OUTCOMES = (
    ("about_answer", "went_badly", "not_ok"), ("about_answer", "went_well", "ok"),
    ("sarcastic", "went_badly", "not_ok"),
    ("about_others", "went_badly", None), ("about_others", "went_well", None),
    ("fit_wrong", None, "not_ok"), ("fit_right", None, "ok"), ("fit_ask", None, None),
)  # fmt: skip


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


def read_talks(*names: str) -> list[Example]:
    """Messages that are used as they are written, each after the turns of its block. A mark may name the turn that a
    message judges, counted from 0; otherwise it is the last."""
    found = []
    for name in names:
        for block in (FOLDER / name).read_text().strip().split("\n\n"):
            parts = BLOCK_LINE.findall(block)
            users, agents = ([text for mark, _, text in parts if mark == kind] for kind in ("U:", "A:"))
            turns = [Turn(*both) for both in zip(users, agents, strict=True)]
            for mark, digit, text in parts[2 * len(turns) :]:
                label = LABELS.get(MARKS[mark], "neutral" if mark == "~" else None)
                target = (int(digit) if digit else len(turns) - 1) if label else None
                found.append(Example(turns, text, label, target, "talk"))
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

    def talks(self, talks: list[Example], copies: int) -> list[Example]:
        """Messages as they are written, and copies as other people type them, after more turns."""
        return [*talks, *(self._retold(talk) for talk in talks for _ in range(copies - 1))]

    def _retold(self, talk: Example) -> Example:
        before = [topic.turn for topic in self.random.choice(self.trades)][: self.random.randrange(4)]
        target = None if talk.target is None else talk.target + len(before)
        return Example([*before, *talk.turns], self._roughen(talk.message), talk.label, target, talk.source)

    def outcomes(self, frames: dict[str, list[str]], each: int) -> list[Example]:
        """About so many messages of every kind that say what came of something."""
        found = []
        for frame, outcome, label in OUTCOMES:
            for _ in range(each):
                trade = self.random.choice(self.trades)
                place = self.random.randrange(len(trade))
                text = self.random.choice(frames[frame])
                if outcome:
                    said = self.random.choice(frames[outcome])
                    text = text.replace("{It}", said[0].upper() + said[1:]).replace("{it}", said)
                found.append(self._example(trade, place, self._fill(text, trade[place], False), label, frame))
        return found

    def plain(self, parts: dict[str, list[str]], each: int) -> list[Example]:
        """Plain sentences about a subject: about so many of each kind, and as many that judge nothing."""
        kinds = (("said", "bad", "not_ok"), ("said", "good", "ok"), ("nothing", "bad", None), ("nothing", "good", None))
        found = []
        for frame, cue, label in kinds:
            for _ in range(each):
                trade = self.random.choice(self.trades)
                place = self.random.randrange(len(trade))
                text = self.random.choice(parts[frame])
                rest = "{n} as well" if label == "ok" else self.random.choice(("it should be {n}", "it's {n}", "{n}"))
                for name, value in (
                    ("subject", self.random.choice(parts["subject"])), ("is", self.random.choice(parts["copula"])),
                    ("cue", self.random.choice(parts[cue])), ("rest", rest),
                ):  # fmt: skip
                    text = text.replace("{" + name + "}", value)
                text = self._fill(text, trade[place], label == "ok")
                found.append(self._example(trade, place, text, label, frame))
        # That something is not wrong says little about it.
        for _ in range(each // 4):
            trade = self.random.choice(self.trades)
            place = self.random.randrange(len(trade))
            negated = self.random.choice(("it's not {}", "that's not {}", "it isn't {}", "I'm not saying it's {}"))
            text = negated.format(self.random.choice(("wrong", "bad", "incorrect", "useless", "a mess")))
            found.append(self._example(trade, place, text, None, "negated"))
        return found

    def of_line(self, trade: list[Topic], place: int, name: str, line: str) -> Example:
        label = {"not_ok": "not_ok", "ok": "ok", "mixed": "neutral"}.get(name)
        return self._example(trade, place, line, label, name)

    def of_phrase(self, section: str, phrase: str) -> Example:
        trade = self.random.choice(self.trades)
        place = self.random.randrange(len(trade))
        text = self._fill(phrase, trade[place], section == "confirm")
        return self._example(trade, place, text, LABELS.get(section), section)

    def _fill(self, phrase: str, topic: Topic, confirms: bool) -> str:
        figures = re.findall(r"\d[\d.,:]*\d|\d", topic.turn.agent) or ["12"]

        def slot(match: re.Match[str]) -> str:
            name = {"bad": "not_ok", "good": "ok"}.get(match[1], match[1])
            if name in ("role", "role2"):
                return self.random.choice(ROLES)
            if name == "topic":
                return str(self.random.choice(re.findall(r"[^\W\d_]{4,}", topic.turn.user)[1:] or ["this"]))
            if name in ("form", "form2"):
                return self.random.choice(FORMS)
            if name in ("n", "n2"):
                # What the answer said, or another figure.
                said = self.random.choice(figures)
                same = confirms or name == "n2"
                return said if same else str(self.random.choice((3, 7, 14, 18, 26, 45, 70, 130, 250, 480, 1200)))
            lines = topic.things if name == "thing" else topic.lines[name]
            return self.random.choice(lines or ["do it again for another one" if name == "next" else "how so?"])

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
