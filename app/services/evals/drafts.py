"""Expectations while they are written in a form: what can be picked, and what they come to for the recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import get_own
from app.errors import Invalid
from app.evals.compare.agent import names_writes
from app.evals.compare.sessions import Comparison, Golden, compare
from app.evals.expected.changes import Change
from app.evals.expected.expectations import Expected, suggest_facts
from app.evals.trace import Run, calls_of
from app.evals.verdict import Policy, read_policy
from app.models import AgentSession
from app.services.evals.compare import criteria_of, golden_of, nearness
from app.services.evals.expected import check_expected
from app.services.evals.expected_changes import (
    Choices,
    build_calls,
    build_effects,
    describe_effects,
    load_choices,
    recorded_effects,
    rows_of_calls,
    rows_of_effects,
)
from app.services.evals.golden import policy_of
from app.services.evals.snapshot import recorded_run
from app.services.feedback import negative
from app.text.values import Reader


@dataclass(frozen=True)
class Draft:
    """What a form says. `changes` None: what was recorded is expected; none at all: nothing may change."""

    mentions: tuple[str, ...] = ()
    must_not_mention: tuple[str, ...] = ()
    calls: tuple[Change, ...] = ()
    no_calls: tuple[str, ...] = ()
    changes: tuple[Change, ...] | None = None
    answer: str = ""

    @property
    def says_something(self) -> bool:
        return self != Draft()


@dataclass(frozen=True)
class Material:
    """A session as the form needs it: facts of its answer, what it changed as rows, and what can be picked."""

    session: AgentSession
    run: Run
    choices: Choices
    facts: list[str]
    recorded: list[Change]
    complained: bool


def load_material(session_id: UUID, *, actor: Actor) -> Material:
    session = get_own(AgentSession, session_id, "session", actor=actor)
    run = recorded_run(session, actor=actor)
    choices = load_choices(session, run, actor=actor)
    return Material(
        session=session,
        run=run,
        choices=choices,
        facts=suggest_facts(run),
        recorded=rows_of_effects(recorded_effects(run), choices, actor=actor),
        complained=negative.has_open_negative(session_id, actor=actor),
    )


def draft_of(expected: Mapping[str, Any], choices: Choices, *, actor: Actor) -> Draft:
    """What a golden is held to, as a form shows it."""
    effects = expected.get("effects")
    return Draft(
        mentions=tuple(expected.get("mentions") or ()),
        must_not_mention=tuple(expected.get("must_not_mention") or ()),
        calls=tuple(rows_of_calls(expected.get("calls") or (), choices)),
        no_calls=tuple(expected.get("no_calls") or ()),
        changes=None if effects is None else tuple(rows_of_effects(effects, choices, actor=actor)),
        answer=expected.get("answer") or "",
    )


def build_expected(draft: Draft, session: AgentSession, run: Run, *, actor: Actor) -> dict[str, Any]:
    """What a golden would be held to, checked. Invalid names the places in the draft (`changes.0.record`) or, where
    parts exclude each other, in what it comes to (`expected.no_calls`)."""
    found: dict[str, Any] = {
        name: list(getattr(draft, name))
        for name in ("mentions", "must_not_mention", "no_calls")
        if getattr(draft, name)
    }
    if draft.answer:
        found["answer"] = draft.answer
    wrong: dict[str, str] = {}
    if draft.calls or draft.changes is not None:
        choices = load_choices(session, run, actor=actor)
        try:
            found |= {"calls": build_calls(draft.calls, choices)} if draft.calls else {}
        except Invalid as refusal:
            wrong |= refusal.fields
        try:
            found |= {} if draft.changes is None else {"effects": build_effects(draft.changes, choices, actor=actor)}
        except Invalid as refusal:
            wrong |= refusal.fields
    try:
        check_expected(found, session, run, actor=actor)
    except Invalid as refusal:
        wrong |= refusal.fields
    if wrong:
        raise Invalid.of(wrong)
    return found


def check_changes_decided(expected: Expected, run: Run, *, actor: Actor) -> None:
    """Refuse expectations that leave open whether the recorded changes were right."""
    changes = describe_effects(recorded_effects(run), actor=actor)
    if changes and not names_writes(expected, calls_of(run, run.tools, Reader())):
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        changed = f"It changed something: {changes[0][:200]}{more}."
        raise Invalid.at("kept", f"{changed} Say whether that was right, or what it should change.")


@dataclass(frozen=True)
class RecordingCheck:
    """A recording to be compared with itself under new expectations."""

    golden: Golden
    policy: Policy

    def compare(self) -> Comparison:
        """Whether the recorded session would pass. Needs no transaction, and must have none open."""
        return compare(self.golden, self.golden.run, nearness(), self.policy)


def load_check(session_id: UUID, draft: Draft, set_name: str, *, actor: Actor) -> RecordingCheck:
    """What is needed to say whether the recorded session would pass in that set."""
    session = get_own(AgentSession, session_id, "session", actor=actor)
    run = recorded_run(session, actor=actor)
    expected = build_expected(draft, session, run, actor=actor)
    marks = {**(session.meta.get("golden") or {}), "expected": expected, "baseline_rejected": False}
    golden = golden_of(run, marks, criteria_of(run, actor))
    return RecordingCheck(golden, read_policy(policy_of(set_name, actor=actor)))
