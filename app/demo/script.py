"""The demo's conversations as they are written: who asks which agent what, when, and the feedback they give.

    @ deal-analyst sam 24d 09:40 entity=kestrel      agent, person, start, and options of the session
    > What the person says                           (lines that begin with two spaces continue the text)
    ~ sam inaccurate +9m | Text                      feedback on the answer; `~>` is the answer they wanted
    ~# admin +1d | Text                              an admin's comment on that feedback
    % accept priya +20m                              a decision on what the agent submitted; or `% reject …`
    % answer sam deal-screening {…}                  a response that a person submits after the answer

The agents' answers are recorded in `data/recorded.ndjson`. Days are working days. `{iso 12}` is the date twelve days
ago. An empty line ends a conversation.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

DATE = re.compile(r"\{iso (-?\d+)\}")
SPAN = re.compile(r"\+(\d+)(m|h|d)")
MINUTES = {"m": 1, "h": 60, "d": 1440}
SATURDAY = 5
LONGEST_ANSWER_MS = 6000
# An effect follows its result at once, and so does the end the last answer.
AT_ONCE_MS = 6

Events = list[tuple[str, dict[str, Any]]]


class Line(NamedTuple):
    mark: str
    text: str


@dataclass
class Talk:
    """One conversation of the script."""

    key: str
    persona: str
    agent: str
    person: str
    when: str
    options: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def session_type(self) -> str:
        return self.options.get("type", "chat")

    @property
    def prompts(self) -> list[str]:
        return [line.text for line in self.lines if line.mark == ">"]


@dataclass(frozen=True)
class Remark:
    """Feedback or a decision: who, what, how long after the answer, with which options and text."""

    who: str
    what: str
    after: timedelta
    options: dict[str, str]
    text: str | None
    note: str | None


def parse_talks(text: str, persona: str) -> Iterator[Talk]:
    """Yield the conversations of a file."""
    talk: Talk | None = None
    number = 0
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if talk:
                yield talk
            talk = None
        elif line.startswith("@ "):
            number += 1
            talk = _parse_head(line[2:], f"{persona}-{number:03}", persona)
        elif talk is None:
            raise ValueError(f"{persona}: nobody is asked: {line}")
        elif line.startswith("  "):
            last = talk.lines.pop()
            talk.lines.append(Line(last.mark, f"{last.text}\n{line[2:]}"))
        else:
            mark, _, words = line.partition(" ")
            talk.lines.append(Line(mark, words.strip()))


def _parse_head(head: str, key: str, persona: str) -> Talk:
    agent, person, *rest = head.split()
    options = dict(part.split("=", 1) for part in rest if "=" in part)
    return Talk(key, persona, agent, person, " ".join(part for part in rest if "=" not in part), options)


def parse_remark(text: str) -> Remark:
    """Parse `sam inaccurate +9m id=x | text || note`."""
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


def sort_key(when: str) -> tuple[int, float]:
    """The place of a moment in the order of all, whatever today is."""
    span, _, clock = when.partition(" ")
    if not clock:
        return 0, -int(span[:-1]) * MINUTES[span[-1]]
    hour, minute = clock.split(":")
    return -int(span[:-1]), int(hour) * 60 + int(minute)


def resolve_time(when: str, now: datetime) -> datetime:
    """Resolve `3h`, `25m`, or `2d 09:40`: two working days ago at that time of day."""
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


def fill_dates(text: str, now: datetime) -> str:
    """Replace each `{iso n}` by the date n days ago."""
    return DATE.sub(lambda found: (now - timedelta(days=int(found[1]))).date().isoformat(), text)


def assign_times(events: Sequence[tuple[str, dict[str, Any]]], began: datetime) -> tuple[list[datetime], int]:
    """Return the time of each event, and the agent's working time in milliseconds. Equal events get equal times."""
    at, work, prompts = began, 0, 0
    times: list[datetime] = []
    for kind, payload in events:
        spent = _duration_ms(kind, payload) if times else 0
        if kind == "user.message":
            prompts += 1
            at += timedelta(seconds=40 + len(payload["text"]) % 90 if prompts > 1 else 0)
        at += timedelta(milliseconds=spent)
        work += spent
        times.append(at)
    return times, work


def _duration_ms(kind: str, payload: dict[str, Any]) -> int:
    size = len(str(payload))
    if kind == "tool.call":
        return 380 + 7 * size % 420
    if kind == "tool.result":
        return 60 + 11 * size % 340
    if kind == "agent.message":
        return 520 + min(9 * len(payload["text"]), LONGEST_ANSWER_MS)
    return 0 if kind == "user.message" else AT_ONCE_MS
