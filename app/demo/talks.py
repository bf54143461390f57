"""The demo's conversations as they are written down, one line for each thing that happens.

    # Title of the conversation
    agent: deal-analyst v3          who answers, in which version
    when: 3h  |  2d 09:40           how long ago it began

    > What the person says          (lines that begin with two spaces continue the text)
    @ tool 340 {"q": "…"}           a call that took 340 ms, then its result: `=` fine, `=!` an error, `=?` not said
    < What the agent answers
    ~ sam inaccurate +9m | Text     feedback on the last answer; `~>` the answer that was wanted
    % submit SET {…}                values of a record; then `% accept`, `% reject` and `% retried`
    ! failed Why                    the end, when it went wrong

`{iso 12}` and `{day 12}` stand for the date twelve days ago, `{FY}` for the last fiscal year, `ref:key` for a record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

PLACEHOLDER = re.compile(r"\{(iso|day) (-?\d+)\}|\{FY\}")
SPAN = re.compile(r"\+(\d+)(m|h|d)")
MINUTES = {"m": 1, "h": 60, "d": 1440}


@dataclass(frozen=True)
class Step:
    """One line: its mark, its words, and the text behind the first bar, if any."""

    mark: str
    text: str


@dataclass
class Talk:
    title: str
    facts: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def fact(self, name: str, default: str = "") -> str:
        return self.facts.get(name, default)

    def began(self, now: datetime) -> datetime:
        return moment(self.facts["when"], now)


@dataclass(frozen=True)
class Remark:
    """Feedback or a decision: who, what, how long after, with which options, and the words."""

    who: str
    what: str
    after: timedelta
    options: dict[str, str]
    words: str | None
    note: str | None


def read_talks(text: str) -> list[Talk]:
    """All conversations of a file."""
    talks: list[Talk] = []
    in_facts = False
    for line in text.splitlines():
        if line.startswith("# "):
            talks.append(Talk(line[2:].strip()))
            in_facts = True
        elif in_facts and ": " in line:
            name, value = line.split(": ", 1)
            talks[-1].facts[name] = value.strip()
        elif not line.strip():
            in_facts = _blank(talks, in_facts)
        else:
            _step(talks[-1], line)
    for talk in talks:
        talk.steps = [Step(step.mark, step.text.strip()) for step in talk.steps]
    return talks


def _blank(talks: list[Talk], in_facts: bool) -> bool:
    """An empty line ends the facts; within a text it is part of it."""
    if not in_facts and talks and talks[-1].steps:
        last = talks[-1].steps[-1]
        talks[-1].steps[-1] = Step(last.mark, last.text + "\n")
    return False


def _step(talk: Talk, line: str) -> None:
    if line.startswith("  "):
        last = talk.steps[-1]
        talk.steps[-1] = Step(last.mark, f"{last.text}\n{line[2:]}")
        return
    mark, _, text = line.partition(" ")
    talk.steps.append(Step(mark, text))


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


def moment(when: str, now: datetime) -> datetime:
    """`3h`, `25m`, or `2d 09:40`: two days ago at that time of day."""
    span, _, clock = when.partition(" ")
    back = timedelta(minutes=int(span[:-1]) * MINUTES[span[-1]])
    if not clock:
        return now - back
    hour, minute = clock.split(":")
    return (now - back).replace(hour=int(hour), minute=int(minute), second=7, microsecond=0)


def expand(text: str, now: datetime) -> str:
    """The dates that a text leaves open."""

    def put(found: re.Match[str]) -> str:
        if found[1] is None:
            return f"FY{(now.year - 1) % 100:02d}"
        day = now - timedelta(days=int(found[2]))
        return day.date().isoformat() if found[1] == "iso" else f"{day.day} {day:%B}"

    return PLACEHOLDER.sub(put, text)
