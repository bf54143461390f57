"""Golden sessions: promoted, kept by set, renamed and revoked.

While a session is golden the database refuses every other change to it; what is refused here is refused with a
sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import exists, func, select, text

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound, Refused, Unprocessable
from app.evals.expected.contradictions import check_agreed
from app.evals.expected.expectations import read_expected
from app.evals.snapshot import snapshot_hash
from app.models import Agent, AgentSession, CriteriaSet, Feedback, GoldenSet, SessionEvent
from app.models.agents import REPLAYABLE_KINDS
from app.services import audit
from app.services.evals.expected import check_possible, check_said, read_changes
from app.services.evals.golden_lists import another_can_replay, can_replay
from app.services.evals.snapshot import check_input_size, recorded_run, take_snapshot
from app.services.feedback import negative
from app.services.feedback import review as feedback_review

SET = re.compile(r"[a-z0-9-]{1,60}", re.ASCII)
DEFAULT_SET = "default"
LONGEST_NOTE = 2000
MOST_SESSIONS = 200
RIGHT_OR_NOT = ("expected", "recorded_is_right")
CUT_OFF = "An answer in this session was cut off by a length limit. Confirm that it may be golden all the same."


class Incomplete(Refused):
    """The session holds an answer that was cut off, and nobody confirmed that it may be golden."""

    title = "The answer is incomplete"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What is kept with a golden. `expected` is what should have happened where the recorded run was complained
    about; `changes` says in plain words what it should have changed, nothing where there is no line; `kept` says
    whether what it changed was right, and is None where nobody was asked; `recorded_is_right` says that the complaint
    was not; `confirm_incomplete` says that an answer which was cut off may be golden all the same."""

    set_name: str | None = None
    note: str | None = None
    criteria_set_id: UUID | None = None
    feedback_ids: Sequence[UUID] = ()
    expected: dict[str, Any] | None = None
    changes: Sequence[str] | None = None
    kept: bool | None = None
    recorded_is_right: bool = False
    confirm_incomplete: bool = False


@dataclass(frozen=True)
class Promoted:
    """A new golden, and how much of the feedback about it was applied with it."""

    session: AgentSession
    golden: dict[str, Any]
    applied: int = 0


@dataclass(frozen=True)
class SetCount:
    """A set: how many goldens it holds, how many of them their own agents can replay here, whether another agent could,
    and what the set asks for where that is not the usual."""

    name: str
    sessions: int
    policy: dict[str, Any]
    here: int
    elsewhere: int
    another: bool

    @property
    def why_not(self) -> str:
        """Why none of its goldens can be replayed with its own agent; empty where one can."""
        if self.here:
            return ""
        archived = self.sessions - self.elsewhere
        return "run elsewhere" if not archived else "run elsewhere or archived" if self.elsewhere else "agents archived"


def promote_session(session_id: UUID, given: Promotion, *, actor: Actor, at: datetime | None = None) -> Promoted:
    """Freeze a completed session with everything that went into it, so that it can be replayed for ever.

    Of two who promote it at once, one wins. The feedback that led here is applied in the same transaction.
    """
    _admins_only(actor)
    set_name = read_set(given.set_name)
    note = _read_note(given.note)
    check_agreed(read_expected(given.expected))
    if (given.expected or given.changes is not None) and given.recorded_is_right:
        sentence = "Say what should have happened, or that the recorded run is right; not both."
        raise Invalid(f"expected and recorded_is_right: {sentence}", dict.fromkeys(RIGHT_OR_NOT, sentence))
    session = lock_session(session_id, actor=actor)
    check_promotable(session, actor)
    if session.truncated and not given.confirm_incomplete:
        raise Incomplete(CUT_OFF)
    _check_criteria(given.criteria_set_id, actor)
    snapshot = take_snapshot(session, actor=actor, criteria_set_id=given.criteria_set_id)
    expected = _expected(given, session, actor)
    golden: dict[str, Any] = {
        "set": set_name,
        "promoted_at": (at or datetime.now(UTC)).isoformat(),
        "promoted_by": str(actor.id),
        "note": note,
        "criteriaSetId": str(given.criteria_set_id) if given.criteria_set_id else None,
        "snapshot": snapshot,
        "sha256": snapshot_hash(snapshot),
    }
    if expected:
        golden["expected"] = expected
    if given.recorded_is_right:
        golden["recorded_is_right"] = True
    elif not expected and _was_rejected(session, given.feedback_ids, actor):
        golden["baseline_rejected"] = True
    session.meta = {**session.meta, "golden": golden}
    db.session.flush()
    audit.record(
        actor,
        "session.promoted",
        "session",
        session.id,
        set=set_name,
        sha256=golden["sha256"],
        **({"incomplete": True} if session.truncated else {}),
    )
    return Promoted(session, golden, _apply(given.feedback_ids, session, set_name, actor))


def _expected(given: Promotion, session: AgentSession, actor: Actor) -> dict[str, Any]:
    """What should have happened. What somebody wrote about changes stands in it as the comparer reads it."""
    found = dict(given.expected or {})
    says_nothing = given.changes is None and given.kept is False and not given.recorded_is_right
    if not found and given.changes is None and not says_nothing:
        return found
    run = recorded_run(session, actor=actor)
    if given.changes is not None:
        found["effects"] = read_changes(given.changes, run, actor=actor)
    expected = read_expected(found)
    check_agreed(expected)
    check_possible(expected, session, run, actor=actor)
    if says_nothing:
        check_said(expected, run, actor=actor)
    return found


def edit_golden(session_id: UUID, changes: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """Rename, annotate or judge a golden by other criteria; `changes` has some of `set`, `note`, `criteriaSetId`."""
    _admins_only(actor)
    session = lock_session(session_id, actor=actor)
    golden = _golden_of(session)
    after = dict(golden)
    if "set" in changes:
        after["set"] = named_set(changes["set"])
    if "note" in changes:
        after["note"] = _read_note(changes["note"])
    if "criteriaSetId" in changes:
        wanted = changes["criteriaSetId"]
        _check_criteria(wanted, actor)
        after["criteriaSetId"] = str(wanted) if wanted else None
    if after == golden:
        return golden
    session.meta = {**session.meta, "golden": after}
    db.session.flush()
    audit.record(
        actor, "golden.edited", "session", session.id, before=golden["set"], after=after["set"], note=after.get("note")
    )
    return after


def move_goldens(session_ids: Sequence[UUID], set_name: str, *, actor: Actor) -> int:
    """Put several goldens into one set; how many that changed."""
    wanted = sorted(set(session_ids))
    if not wanted or len(wanted) > MOST_SESSIONS:
        raise Invalid(f"Choose 1 to {MOST_SESSIONS} goldens.")
    target = named_set(set_name)
    moved = 0
    for session_id in wanted:
        before = _golden_of(lock_session(session_id, actor=actor))["set"]
        edit_golden(session_id, {"set": target}, actor=actor)
        moved += before != target
    return moved


def revoke_golden(session_id: UUID, *, actor: Actor) -> bool:
    """Take the mark away and change nothing else. Doing it twice is fine; says whether it was golden."""
    _admins_only(actor)
    session = lock_session(session_id, actor=actor)
    golden = session.meta.get("golden")
    if golden is None:
        return False
    session.meta = {name: value for name, value in session.meta.items() if name != "golden"}
    db.session.flush()
    audit.record(actor, "golden.revoked", "session", session.id, set=golden["set"], sha256=golden.get("sha256"))
    return True


def list_sets(*, actor: Actor) -> list[SetCount]:
    """The sets of the workspace by name, with how many golden sessions each holds. One query."""
    own = (GoldenSet.tenant_id == AgentSession.tenant_id) & (GoldenSet.name == AgentSession.golden_set)
    rows = db.session.execute(
        select(
            AgentSession.golden_set,
            func.count(),
            GoldenSet.policy,
            func.count().filter(can_replay()),
            func.count().filter(Agent.kind.not_in(REPLAYABLE_KINDS)),
            another_can_replay(actor),
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(GoldenSet, own)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None))
        .group_by(AgentSession.golden_set, GoldenSet.policy)
        .order_by(AgentSession.golden_set)
    )
    return [SetCount(str(name), count, policy or {}, *more) for name, count, policy, *more in rows]


def read_set(name: str | None) -> str:
    """The name of a set, `default` where a form leaves it empty; or Invalid."""
    return named_set(name or DEFAULT_SET)


def named_set(name: str) -> str:
    """The name of a set where there is no usual one: an empty name is Invalid too."""
    name = name.strip()
    if not SET.fullmatch(name):
        raise Invalid.of({"set": "Small letters, digits and hyphens, at most 60."})
    return name


def _read_note(note: str | None) -> str | None:
    note = (note or "").strip() or None
    if note and len(note) > LONGEST_NOTE:
        raise Invalid.of({"note": f"At most {LONGEST_NOTE:,} characters."})
    return note


def _admins_only(actor: Actor) -> None:
    if not actor.is_admin or actor.agent_id:
        raise Forbidden("Only an admin decides what is golden.")


def lock_session(session_id: UUID, *, actor: Actor) -> AgentSession:
    """The session as it is now, held until the transaction ends."""
    session = db.session.scalar(
        select(AgentSession)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if session is None:
        raise NotFound("There is no such session in this workspace.")
    return session


def _golden_of(session: AgentSession) -> dict[str, Any]:
    golden = session.meta.get("golden")
    if not isinstance(golden, dict):
        raise NotFound("This session is not golden.")
    return golden


def check_promotable(session: AgentSession, actor: Actor) -> None:
    """Refuses with the reason why a session cannot be golden."""
    if session.golden_set is not None:
        raise Refused(f"This session is golden already, in {session.golden_set}.", current=session.golden_set)
    if session.eval_source is not None:
        raise Refused("A replay cannot be golden itself; promote the replay instead of its golden from their diff.")
    if session.status != "completed":
        raise Refused(f"Only a completed session can be golden; this one is {session.status}.", current=session.status)
    if not has_user_message(session.id, actor=actor):
        raise Unprocessable("Nobody said anything in this session, so there is nothing to replay.")
    check_input_size(session, actor)


def has_user_message(session_id: UUID, *, actor: Actor) -> bool:
    said = exists().where(
        SessionEvent.tenant_id == actor.tenant_id,
        SessionEvent.session_id == session_id,
        SessionEvent.event_type == "user.message",
        func.btrim(func.coalesce(SessionEvent.payload["text"].astext, "")) != "",
    )
    return bool(db.session.scalar(select(said)))


def _check_criteria(criteria_set_id: UUID | None, actor: Actor) -> None:
    if criteria_set_id is None:
        return
    known = select(CriteriaSet.id).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == criteria_set_id)
    if db.session.scalar(known) is None:
        sentence = f"There is no criteria set {criteria_set_id} in this workspace."
        raise Invalid(sentence, {"criteriaSetId": sentence})


def _was_rejected(session: AgentSession, feedback_ids: Sequence[UUID], actor: Actor) -> bool:
    """Whether the recorded run itself was complained about. A session that ran a failed request again was not."""
    about_others = "rerun_of" in session.meta
    return (bool(feedback_ids) and not about_others) or negative.has_open_complaint(session.id, actor=actor)


def _apply(feedback_ids: Sequence[UUID], session: AgentSession, set_name: str, actor: Actor) -> int:
    if not feedback_ids:
        return 0
    outcome = {"kind": "golden", "id": str(session.id), "text": f"promoted to {set_name}"}
    return len(feedback_review.settle_pending(feedback_ids, "applied", actor=actor, outcome=outcome))


def sets_of_agent(agent_id: UUID, *, actor: Actor) -> list[str]:
    """The sets that hold goldens of an agent."""
    names = db.session.scalars(
        select(AgentSession.golden_set)
        .distinct()
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.golden_set.is_not(None),
            AgentSession.agent_id == agent_id,
        )
        .order_by(AgentSession.golden_set)
    ).all()
    return [str(name) for name in names]


def usual_set(agent_ids: Collection[UUID], *, actor: Actor) -> str:
    """The set that the last golden of these agents went into, which the next one probably belongs to."""
    last = (
        select(AgentSession.golden_set)
        .where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.golden_set.is_not(None),
            AgentSession.agent_id.in_(agent_ids),
        )
        .order_by(AgentSession.meta["golden"]["promoted_at"].astext.desc().nulls_last(), AgentSession.golden_set)
        .limit(1)
    )
    return db.session.scalar(last) or DEFAULT_SET


# Promote a replay in place of its golden


# The marks that a replay left on its results are no part of what was said.
COPY = text("""
    INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload, occurred_at)
    SELECT tenant_id, :copy, sequence, event_type, payload - 'replay', occurred_at
      FROM session_events WHERE tenant_id = :tenant AND session_id = :session
     ORDER BY sequence
""")


def promote_replay(
    golden_id: UUID, replay_id: UUID, *, actor: Actor, note: str | None = None, confirm_incomplete: bool = False
) -> Promoted:
    """The replay is what is right from now on, in the same set. Open complaints about its failing are applied with it.

    All or nothing: the transaction of the caller has the copy, the promotion and the revocation.
    """
    # A replay that ends holds itself first and its golden then; the same order here.
    replay = lock_session(replay_id, actor=actor)
    golden = lock_session(golden_id, actor=actor)
    if golden.golden_set is None:
        raise Refused("This session is not golden any more; there is nothing to take the place of.")
    if replay.eval_source != str(golden_id):
        raise Refused("This session is no replay of that golden.")
    if replay.status != "completed":
        raise Refused(f"Only a completed replay can become golden; this one is {replay.status}.", current=replay.status)
    set_name = golden.golden_set
    copy = _copy(replay, actor)
    revoke_golden(golden_id, actor=actor)
    return promote_session(
        copy.id,
        Promotion(
            set_name=set_name, note=note, recorded_is_right=True, feedback_ids=_complaints(golden_id, actor),
            confirm_incomplete=confirm_incomplete,
        ),
        actor=actor,
    )  # fmt: skip


def _copy(replay: AgentSession, actor: Actor) -> AgentSession:
    """The replay as an ordinary session of its own."""
    kept = {name: value for name, value in replay.meta.items() if not name.startswith("eval_")}
    copy = AgentSession(
        id=uuid4(),
        tenant_id=replay.tenant_id,
        title=replay.title,
        session_type=replay.session_type,
        output_type=replay.output_type,
        status=replay.status,
        agent_id=replay.agent_id,
        agent_version_id=replay.agent_version_id,
        entity_id=replay.entity_id,
        created_by=actor.id,
        owner_id=replay.owner_id,
        trace_id=uuid4().hex,
        model=replay.model,
        input_tokens=replay.input_tokens,
        output_tokens=replay.output_tokens,
        cost=replay.cost,
        duration_ms=replay.duration_ms,
        environment=replay.environment,
        tags=list(replay.tags),
        event_count=replay.event_count,
        truncated=replay.truncated,
        event_bytes=replay.event_bytes,
        started_at=replay.started_at,
        finished_at=replay.finished_at or datetime.now(UTC),
        meta={**kept, "copied_from": str(replay.id)},
    )
    db.session.add(copy)
    db.session.flush()
    db.session.execute(COPY, {"copy": copy.id, "tenant": replay.tenant_id, "session": replay.id})
    audit.record(actor, "session.copied", "session", copy.id, copied_from=str(replay.id))
    return copy


def _complaints(golden_id: UUID, actor: Actor) -> list[UUID]:
    context: object = Feedback.context
    return list(
        db.session.scalars(
            select(Feedback.id)
            .where(
                Feedback.tenant_id == actor.tenant_id,
                Feedback.kind == "replay_failure",
                Feedback.status == "pending",
                context["golden_session_id"].astext == str(golden_id),  # type: ignore[index]
            )
            .limit(100)
        )
    )
