"""The demo's conversations as they are written down: who asked which agent what, when, and what was said about it.

    @ deal-analyst sam 24d 09:40 entity=kestrel      agent, person, when it began, and more about the session
    > What the person says                           (lines that begin with two spaces continue the text)
    ~ sam inaccurate +9m | Text                      feedback on the answer to it; `~>` the answer that was wanted
    ~# admin +1d | Text                              what an admin said to the others about that feedback
    % accept priya +20m                              a decision on what the agent submitted; or `% reject …`
    % answer sam deal-screening {…}                  what somebody submitted after the answer

What the agents answered is not written here: it is recorded, see `recorded.ndjson`. Days are working days.
`{iso 12}` stands for the date twelve days ago. A conversation ends with an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta

DATE = re.compile(r"\{iso (-?\d+)\}")
SPAN = re.compile(r"\+(\d+)(m|h|d)")
MINUTES = {"m": 1, "h": 60, "d": 1440}
SATURDAY = 5


@dataclass(frozen=True)
class Step:
    """One line: its mark and its words."""

    mark: str
    text: str


@dataclass
class Talk:
    key: str
    persona: str
    agent: str
    person: str
    when: str
    facts: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def fact(self, name: str, default: str = "") -> str:
        return self.facts.get(name, default)

    @property
    def prompts(self) -> list[str]:
        return [step.text for step in self.steps if step.mark == ">"]


@dataclass(frozen=True)
class Remark:
    """Feedback or a decision: who, what, how long after, with which options, and the words."""

    who: str
    what: str
    after: timedelta
    options: dict[str, str]
    words: str | None
    note: str | None


def read_talks(text: str, persona: str) -> Iterator[Talk]:
    """All conversations of a file."""
    talk: Talk | None = None
    number = 0
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if talk:
                yield talk
            talk = None
        elif line.startswith("@ "):
            number += 1
            talk = _begun(line[2:], f"{persona}-{number:03}", persona)
        elif talk is None:
            raise ValueError(f"{persona}: nobody is asked: {line}")
        elif line.startswith("  "):
            last = talk.steps.pop()
            talk.steps.append(Step(last.mark, f"{last.text}\n{line[2:]}"))
        else:
            mark, _, words = line.partition(" ")
            talk.steps.append(Step(mark, words.strip()))


def _begun(head: str, key: str, persona: str) -> Talk:
    agent, person, *rest = head.split()
    facts = dict(part.split("=", 1) for part in rest if "=" in part)
    return Talk(key, persona, agent, person, " ".join(part for part in rest if "=" not in part), facts)


def read_remark(text: str) -> Remark:
    """`sam inaccurate +9m id=x | words || note`."""
    head, bar, rest = text.partition(" |")
    words, _, note = rest.partition("||")
    who, what, *more = head.split()
    after = timedelta()
    options: dict[str, str] = {}
    for item in more:
        span = SPAN.fullmatch(item)
        if span:
            after = timedelta(minutes=int(span[1]) * MINUTES[span[2]])
        else:
            name, _, value = item.partition("=")
            options[name] = value
    return Remark(who, what, after, options, words.strip() or None if bar else None, note.strip() or None)


def place_of(when: str) -> tuple[int, float]:
    """Where a moment stands in the order of all, whatever the day is on which somebody looks."""
    span, _, clock = when.partition(" ")
    if not clock:
        return 0, -int(span[:-1]) * MINUTES[span[-1]]
    hour, minute = clock.split(":")
    return -int(span[:-1]), int(hour) * 60 + int(minute)


def moment(when: str, now: datetime) -> datetime:
    """`3h`, `25m`, or `2d 09:40`: two working days ago at that time of day."""
    span, _, clock = when.partition(" ")
    if not clock:
        return now - timedelta(minutes=int(span[:-1]) * MINUTES[span[-1]])
    day = now
    for _ in range(int(span[:-1])):
        day -= timedelta(days=1)
        while day.weekday() >= SATURDAY:
            day -= timedelta(days=1)
    hour, minute = clock.split(":")
    return datetime.combine(day.date(), time(int(hour), int(minute), 7), now.tzinfo)


def expand(text: str, now: datetime) -> str:
    """The dates that a text leaves open."""
    return DATE.sub(lambda found: (now - timedelta(days=int(found[1]))).date().isoformat(), text)
