"""Labelled weeks of feedback as a reviewer gets them, and how well a plan does (`tests/data/review/README.md`)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from app.learning.review.plan import plan_review
from app.learning.review.types import Agent, Call, EntityType, Plan, Proposal, Signal, Tool

DATA = Path(__file__).parents[1] / "tests" / "data" / "review"
SPACE = UUID("6f1b1c1e-52a6-4a57-9d0b-3e8f6a7f0c11")
START = datetime(2026, 11, 9, 8, tzinfo=UTC)
NOW = START + timedelta(days=7)
WEEKS = ("dev", "held", "second", "third")
KINDS = {
    "thumb": ("signal", "chat"),
    "signal": ("signal", "chat"),
    "edit": ("signal", "chat"),
    "reaction": ("reaction", "chat"),
    "flag": ("flag", "observation"),
    "response_rejected": ("response_rejection", "response"),
    "failure": ("session_failure", "session"),
}
Label = Mapping[str, Any]


@dataclass(frozen=True)
class Week:
    """What a file holds, by its own names."""

    agents: list[Agent]
    entity_types: list[EntityType]
    signals: list[Signal]
    labels: Label

    def plan(self, signals: Sequence[Signal] | None = None) -> Plan:
        rows = self.signals if signals is None else signals
        return plan_review(rows, agents=self.agents, entity_types=self.entity_types, rules=(), now=NOW)


@dataclass(frozen=True)
class Score:
    """How a plan did. `found` are the names of the patterns that it found."""

    recall: float
    precision: float
    scope: float
    duplicates: int
    found: frozenset[str]


def id_of(name: str) -> UUID:
    return uuid5(SPACE, name)


def read_week(name: str) -> Week:
    data = json.loads((DATA / f"{name}.json").read_text())
    sessions = {session["id"]: session for session in data["sessions"]}
    return Week(
        [_read_agent(row) for row in data["agents"]],
        [
            EntityType(id_of(row["slug"]), row["slug"], row["name"], tuple(row["fields"]))
            for row in data["entity_types"]
        ],
        [_read_signal(row, sessions[row["session"]], place) for place, row in enumerate(data["feedback"])],
        data,
    )


def _read_agent(row: Label) -> Agent:
    tools = (Tool(t["name"], t["writes"], t["description"], tuple(t["arguments"])) for t in row["tools"])
    return Agent(id_of(row["slug"]), row["slug"], row["name"], row["instructions"], tuple(tools))


def _read_signal(row: Label, session: Label, place: int) -> Signal:
    turns = [(event["event_type"], event["payload"]) for event in session["events"]]
    said = [payload["text"] for kind, payload in turns if kind == "user.message"]
    answers = [payload["text"] for kind, payload in turns if kind == "agent.message"]
    results = {payload["call_id"]: payload for kind, payload in turns if kind == "tool.result"}
    kind, source = KINDS[row["channel"]]
    return Signal(
        id=id_of(row["id"]),
        kind=kind,
        source_type=source,
        rating=row["rating"],
        origin="system" if row["person"] is None else "user",
        occurred_at=START + timedelta(hours=place),
        signal=row["signal"],
        comment=row["comment"],
        preferred_answer=row["preferred_answer"],
        admin_flag=row["channel"] == "flag",
        author_id=row["person"] and id_of(row["person"]),
        session_id=id_of(session["id"]),
        agent_id=id_of(session["agent"]),
        entity_type_id=row["entity_type"] and id_of(row["entity_type"]),
        field_name=row["field_name"],
        question=said[0] if said else None,
        answer=answers[0] if answers else None,
        calls=tuple(_read_call(call, results) for kind, call in turns if kind == "tool.call"),
        follow_up=said[1] if len(said) > 1 else None,
    )


def _read_call(call: Label, results: Mapping[str, Label]) -> Call:
    result = results.get(call["id"], {})
    return Call(call["name"], call["arguments"], result.get("is_error", False), result.get("output"))


def score_week(week: Week, plan: Plan) -> Score:
    """The figures of the README."""
    patterns = {row["id"]: {id_of(name) for name in row["feedback"]} for row in week.labels["patterns"]}
    best = {
        row["id"]: [one for one in plan.proposals if _finds(one, row, patterns[row["id"]])]
        for row in week.labels["patterns"]
    }
    found = {name for name, proposals in best.items() if proposals}
    right = [
        row["id"] for row in week.labels["patterns"] if row["id"] in found and _scope_is_right(row, best, patterns)
    ]
    taken = [name for one in plan.proposals if (name := _mostly_of(one, patterns))]
    return Score(
        recall=len(found) / len(patterns),
        precision=len(found) / max(1, len(plan.proposals)),
        scope=len(right) / max(1, len(found)),
        duplicates=len(taken) - len(set(taken)),
        found=frozenset(found),
    )


def _finds(one: Proposal, row: Label, ids: set[UUID]) -> bool:
    shared = len(ids & set(one.signal_ids))
    enough = shared >= 0.6 * len(one.signal_ids) and shared >= 0.5 * len(ids)
    return enough and mentions(one.content, row["must_mention"])


def _scope_is_right(row: Label, best: Mapping[str, list[Proposal]], patterns: Mapping[str, set[UUID]]) -> bool:
    one = max(best[row["id"]], key=lambda proposal: len(patterns[row["id"]] & set(proposal.signal_ids)))
    wanted = [name and id_of(name) for name in (row["scope"]["agent"], row["scope"]["entity_type"])]
    return [one.agent_id, one.entity_type_id] == wanted


def _mostly_of(one: Proposal, patterns: Mapping[str, set[UUID]]) -> str | None:
    shared = {name: len(ids & set(one.signal_ids)) for name, ids in patterns.items()}
    return next((name for name, count in shared.items() if count >= 0.6 * len(one.signal_ids)), None)


def normalize(text: str) -> str:
    return re.sub(r"[^\w]+", " ", text.lower()).strip()


def mentions(text: str, groups: Sequence[Sequence[str]]) -> bool:
    def found(alternative: str) -> bool:
        ending = r"\w*" if alternative.endswith("*") else ""
        return bool(re.search(rf"(?<!\w){re.escape(normalize(alternative))}{ending}(?!\w)", normalize(text)))

    return all(any(found(alternative) for alternative in group) for group in groups)


if __name__ == "__main__":
    for name in WEEKS:
        week = read_week(name)
        score = score_week(week, week.plan())
        print(
            f"{name}: recall {score.recall:.2f}, precision {score.precision:.2f}, correct scope {score.scope:.2f}, "
            f"duplicates {score.duplicates}"
        )
