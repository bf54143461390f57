"""Revise what a golden is held to. Its recording and snapshot stay; each revision keeps what was expected before."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused, Stale
from app.evals.expected.changes import describe_call
from app.models import AgentSession, User
from app.services import audit
from app.services.evals.drafts import Draft, build_expected
from app.services.evals.expected import check_expected
from app.services.evals.expected_changes import describe_effects
from app.services.evals.golden import lock_session, require_admin
from app.services.evals.snapshot import recorded_run
from app.services.feedback import negative

# What replays are judged by; everything else about a golden is frozen or only describes it.
JUDGED_BY = ("expected", "baseline_rejected", "recorded_is_right")
# Lists of texts whose order has no meaning.
UNORDERED = ("mentions", "must_not_mention", "no_calls")
MAX_REVISIONS = 100
MAX_HISTORY_CHARS = 1_000_000
MAX_REASON_CHARS = 2000
STALE = "Someone changed these expectations while you edited them. Look at theirs, then save again."
FULL = "This golden was revised too often to keep its history. Revoke it and promote the session again."
NOT_BOTH = "Say what should have happened, or that the recorded run is right. Not both."


@dataclass(frozen=True, kw_only=True)
class Revision:
    """New expectations, as `expected` or as the `draft` of a form. Without any the golden is held to its recording
    again: `recorded_is_right` says whether that is right, and None takes it as it was before. `revision` is the number
    of revisions that the editor saw."""

    expected: Mapping[str, Any] | None = None
    draft: Draft | None = None
    recorded_is_right: bool | None = None
    reason: str | None = None
    revision: int | None = None


def revise_expectations(
    session_id: UUID, given: Revision, *, actor: Actor, at: datetime | None = None
) -> Mapping[str, Any]:
    """Replace what a golden is held to and keep what that was. Runs under way keep what they started with."""
    require_admin(actor)
    session = lock_session(session_id, actor=actor)
    golden: dict[str, Any] | None = session.meta.get("golden")
    if golden is None:
        raise NotFound("This session is not golden.")
    past: list[dict[str, Any]] = golden.get("revisions", [])
    if given.revision is not None and given.revision != len(past):
        raise Stale(STALE, len(past))
    reason = _clean_reason(given.reason)
    before = {name: golden[name] for name in JUDGED_BY if name in golden}
    after = _baseline(given, session, golden, actor)
    if _without_order(after) == _without_order(before):
        return golden
    now = (at or datetime.now(UTC)).astimezone(UTC).isoformat()
    entry = {
        "number": len(past) + 1,
        # Clocks of two servers may differ; the history is in order all the same.
        "at": max(now, past[-1]["at"]) if past else now,
        "by": str(actor.id),
        "before": before,
        **({"reason": reason} if reason else {}),
    }
    if len(past) >= MAX_REVISIONS or len(json.dumps([*past, entry], ensure_ascii=False)) > MAX_HISTORY_CHARS:
        raise Refused(FULL)
    rest = {name: held for name, held in golden.items() if name not in JUDGED_BY}
    revised = {**rest, **after, "revisions": [*past, entry]}
    session.meta = {**session.meta, "golden": revised}
    db.session.flush()
    audit.record(
        actor, "golden.expectations_changed", "session", session.id, set=golden["set"], revision=entry["number"],
        reason=reason,
    )  # fmt: skip
    return revised


def _without_order(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a golden is held to, so that the same texts in another order are equal."""
    expected = dict(state.get("expected") or {})
    sets = {name: sorted(expected[name]) for name in UNORDERED if expected.get(name)}
    return {**state, "expected": expected | sets}


def _clean_reason(text: str | None) -> str | None:
    text = (text or "").strip() or None
    if text and len(text) > MAX_REASON_CHARS:
        raise Invalid.of({"reason": f"At most {MAX_REASON_CHARS:,} characters."})
    return text


def _baseline(given: Revision, session: AgentSession, golden: Mapping[str, Any], actor: Actor) -> dict[str, Any]:
    asked = dict(given.expected or {})
    expected = {name: held for name, held in asked.items() if held or (name == "effects" and held is not None)}
    if (expected or given.draft) and given.recorded_is_right:
        fields = ("expected", "recorded_is_right")
        raise Invalid(f"expected and recorded_is_right: {NOT_BOTH}", dict.fromkeys(fields, NOT_BOTH))
    if expected or given.draft:
        run = recorded_run(session, actor=actor)
        if given.draft:
            return {"expected": build_expected(given.draft, session, run, actor=actor)}
        check_expected(expected, session, run, actor=actor)
        return {"expected": expected}
    if given.recorded_is_right:
        return {"recorded_is_right": True}
    return _recorded_baseline(given, session, golden, actor)


def _recorded_baseline(
    given: Revision, session: AgentSession, golden: Mapping[str, Any], actor: Actor
) -> dict[str, Any]:
    """Held to the recording: as it last was, or by whether someone complained about the session."""
    states = [golden, *(one["before"] for one in reversed(golden.get("revisions", [])))]
    recorded = [{name: one[name] for name in JUDGED_BY if name in one} for one in states if "expected" not in one]
    if given.recorded_is_right is None and recorded:
        return recorded[0]
    rejected = any("baseline_rejected" in one for one in recorded) or negative.had_negative(session.id, actor=actor)
    return {"baseline_rejected": True} if rejected else {}


@dataclass(frozen=True)
class PastRevision:
    """One revision: who made it and when, and what the golden was held to before and after it."""

    number: int
    at: datetime
    by: UUID
    who: str | None
    reason: str | None
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def list_revisions(session_id: UUID, *, actor: Actor) -> list[PastRevision]:
    """The revisions of a golden, newest first. Two queries at most."""
    golden: Any = db.session.scalar(
        select(AgentSession.meta["golden"]).where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.id == session_id,
            AgentSession.golden_set.is_not(None),
        )
    )
    if golden is None:
        raise NotFound("There is no such golden in this workspace.")
    past = golden.get("revisions", [])
    names = _names_of({one["by"] for one in past}) if past else {}
    states = [*(one["before"] for one in past), {name: golden[name] for name in JUDGED_BY if name in golden}]
    return [
        PastRevision(
            number=one["number"],
            at=datetime.fromisoformat(one["at"]),
            by=UUID(one["by"]),
            who=names.get(one["by"]),
            reason=one.get("reason"),
            before=one["before"],
            after=after,
        )
        for one, after in zip(past, states[1:], strict=True)
    ][::-1]


Difference = tuple[str, list[str], list[str]]
# The parts of what a golden is held to, as a page calls them.
_PARTS = {
    "mentions": "Must mention",
    "must_not_mention": "Must not mention",
    "calls": "Must call",
    "no_calls": "Must not call",
    "effects": "Changes",
    "answer": "Answer",
    "recorded_is_right": "The recording",
    "baseline_rejected": "The recording",
}


@dataclass(frozen=True)
class DescribedRevision:
    """A revision with what changed in words: the part, what is gone and what is new."""

    number: int
    at: datetime
    who: str | None
    reason: str | None
    changed: list[Difference]


def describe_past(past: Sequence[PastRevision], *, actor: Actor) -> list[DescribedRevision]:
    """Revisions in words. Three queries at most, however many there are."""
    states = [state for one in past for state in (one.before, one.after)]
    effects = [effect for state in states for effect in (state.get("expected") or {}).get("effects") or ()]
    words = iter(describe_effects(effects, actor=actor))
    texts = [_in_words(state, words) for state in states]
    return [
        DescribedRevision(one.number, one.at, one.who, one.reason, _differences(before, after))
        for one, before, after in zip(past, texts[::2], texts[1::2], strict=True)
    ]


def _in_words(state: Mapping[str, Any], words: Iterator[str]) -> dict[str, list[str]]:
    """Each part of what a golden is held to as texts."""
    expected = state.get("expected") or {}
    found = {
        name: [str(one) for one in expected.get(name) or ()] for name in ("mentions", "must_not_mention", "no_calls")
    }
    found["calls"] = [describe_call(one) for one in expected.get("calls") or ()]
    if expected.get("effects") is not None:
        found["effects"] = [next(words) for _ in expected["effects"]] or ["nothing may change"]
    found["answer"] = [expected["answer"]] if expected.get("answer") else []
    found["recorded_is_right"] = ["is right"] if state.get("recorded_is_right") else []
    found["baseline_rejected"] = ["was rejected"] if state.get("baseline_rejected") else []
    return {name: texts for name, texts in found.items() if texts}


def _differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[Difference]:
    changed: dict[str, tuple[list[str], list[str]]] = {}
    for name, label in _PARTS.items():
        old, new = before.get(name, []), after.get(name, [])
        gone, added = [one for one in old if one not in new], [one for one in new if one not in old]
        if gone or added:
            known = changed.setdefault(label, ([], []))
            known[0].extend(gone)
            known[1].extend(added)
    return [(label, gone, added) for label, (gone, added) in changed.items()]


def _names_of(user_ids: Collection[str]) -> dict[str, str]:
    rows = db.session.execute(select(User.id, User.name).where(User.id.in_([UUID(one) for one in user_ids])))
    return {str(user_id): name for user_id, name in rows}
