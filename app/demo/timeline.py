"""When things in a conversation happen, how long the work took and what it cost. The same words give the same times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from app.demo.talks import Step, Talk

# Euro for a million tokens, in and out.
PRICES = {"large": (Decimal("2.40"), Decimal("9.60")), "small": (Decimal("0.30"), Decimal("1.20"))}


@dataclass(frozen=True)
class Moment:
    """A step and when it happened; a result comes when its call is through."""

    step: Step
    at: datetime


@dataclass(frozen=True)
class Effort:
    duration_ms: int
    input_tokens: int
    output_tokens: int
    cost: Decimal


def timed(talk: Talk, began: datetime) -> tuple[list[Moment], datetime, Effort]:
    """The steps with their times, the end, and the effort."""
    at, work, read, written, seen = began, 0, 0, 0, 900
    moments: list[Moment] = []
    for step in talk.steps:
        spent = 0
        if step.mark == ">":
            if moments:
                at += timedelta(seconds=35, milliseconds=25 * len(step.text))
            seen += len(step.text) // 4
        elif step.mark == "@":
            spent, read, written = 380 + 3 * len(step.text) % 400, read + seen, written + len(step.text) // 4
        elif step.mark.startswith("="):
            spent, seen = call_time(moments[-1].step), seen + len(step.text) // 4
        elif step.mark == "<":
            spent, read, written = 650 + 11 * len(step.text), read + seen, written + len(step.text) // 4
            seen += len(step.text) // 4
        elif step.mark == "!":
            # A call that nothing answered was waited for until the end.
            spent = 200 + (call_time(moments[-1].step) if moments[-1].step.mark == "@" else 0)
        at += timedelta(milliseconds=spent)
        work += spent
        moments.append(Moment(step, at))
    return moments, at, Effort(work, read, written, Decimal(0))


def call_time(call: Step) -> int:
    """The milliseconds that a call line names."""
    return int(call.text.split()[1])


def priced(effort: Effort, model: str) -> Effort:
    """The effort with what it cost on a model."""
    price_in, price_out = PRICES[model.partition("-")[0]]
    cost = (effort.input_tokens * price_in + effort.output_tokens * price_out) / 1_000_000
    return Effort(effort.duration_ms, effort.input_tokens, effort.output_tokens, round(cost, 6))
