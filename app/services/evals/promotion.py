"""Promote sessions to goldens: what the form offers, the one way to promote, and a replay in its golden's place."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select, text

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused, Stale
from app.evals.expected.expectations import read_expected
from app.evals.snapshot import snapshot_hash
from app.models import Agent, AgentSession, AgentVersion, Feedback, SessionEvent
from app.services import audit
from app.services.evals.candidates import SETTLED, find_candidate, pending_signals, signals_of
from app.services.evals.drafts import Draft, build_expected, check_changes_decided, load_material
from app.services.evals.expected import check_expected
from app.services.evals.golden import (
    DEFAULT_SET,
    check_criteria_set,
    check_promotable,
    clean_note,
    clean_set_name,
    lock_session,
    require_admin,
    revoke_golden,
)
from app.services.evals.revisions import NOT_BOTH
from app.services.evals.snapshot import recorded_run, take_snapshot
from app.services.feedback import negative
from app.services.feedback import review as feedback_review

COMPLAINED = "Choose what should have happened, or that the recording is right."
INCOMPLETE = "An answer in this session hit its length limit. Confirm that you want to promote it."
# What a copied replay shares with its original.
COPIED = (
    "tenant_id", "title", "session_type", "output_type", "status", "agent_id", "agent_version_id", "entity_id",
    "owner_id", "model", "input_tokens", "output_tokens", "cost", "duration_ms", "environment", "event_count",
    "truncated", "event_bytes", "started_at",
)  # fmt: skip
# The marks that a replay left on its results are no part of the conversation.
COPY_EVENTS = text("""
    INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload, occurred_at)
    SELECT tenant_id, :copy, sequence, event_type, payload - 'replay', occurred_at
      FROM session_events WHERE tenant_id = :tenant AND session_id = :session
     ORDER BY sequence
""")


class Incomplete(Refused):
    """The session holds an answer that was cut off, and the admin did not confirm that it may be golden."""

    title = "The answer is incomplete"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What is kept with a golden, and the complaints that promoting it settles. `feedback_ids` None means all that are
    pending about the session and the request that it represents; `of_candidate` requires that request to be an open
    candidate. What should have happened comes as `expected` or as the `draft` of a form. `kept` says whether its own
    changes were right; None where the caller did not ask."""

    set_name: str | None = None
    note: str | None = None
    criteria_set_id: UUID | None = None
    feedback_ids: Sequence[UUID] | None = ()
    of_candidate: bool = False
    expected: dict[str, Any] | None = None
    draft: Draft | None = None
    kept: bool | None = None
    recorded_is_right: bool = False
    confirm_incomplete: bool = False

    @property
    def corrects(self) -> bool:
        """Whether it says that something else should have happened."""
        return bool(self.expected) or (self.draft is not None and self.draft.says_something)


@dataclass(frozen=True)
class Promoted:
    """A new golden, and how many complaints were applied with it."""

    session: AgentSession
    golden: dict[str, Any]
    applied: int = 0


def promote_session(session_id: UUID, given: Promotion, *, actor: Actor, at: datetime | None = None) -> Promoted:
    """Freeze a completed session with everything that went into it. Of two who promote it at once, one wins. The
    complaints that led here are applied in the same transaction; Stale when others have settled all of them."""
    require_admin(actor)
    # Only a form asks whether the changes were right, and only a form must not leave a complaint unanswered.
    complained = given.kept is not None and negative.has_open_negative(session_id, actor=actor)
    if complained and not given.kept and not given.corrects and not given.recorded_is_right:
        raise Invalid.at("should", COMPLAINED)
    signals = _signals(session_id, given, actor)
    set_name, note = clean_set_name(given.set_name or DEFAULT_SET), clean_note(given.note)
    if given.corrects and given.recorded_is_right:
        fields = ("expected", "recorded_is_right")
        raise Invalid(f"expected and recorded_is_right: {NOT_BOTH}", dict.fromkeys(fields, NOT_BOTH))
    session = lock_session(session_id, actor=actor)
    check_promotable(session, actor)
    if session.truncated and not given.confirm_incomplete:
        raise Incomplete(INCOMPLETE)
    check_criteria_set(given.criteria_set_id, actor)
    snapshot = take_snapshot(session, actor=actor, criteria_set_id=given.criteria_set_id)
    golden: dict[str, Any] = {
        "set": set_name,
        "promoted_at": (at or datetime.now(UTC)).isoformat(),
        "promoted_by": str(actor.id),
        "note": note,
        "criteriaSetId": str(given.criteria_set_id) if given.criteria_set_id else None,
        "snapshot": snapshot,
        "sha256": snapshot_hash(snapshot),
        **_baseline(given, session, signals, complained, actor),
    }
    session.meta = {**session.meta, "golden": golden}
    db.session.flush()
    more = {"incomplete": True} if session.truncated else {}
    audit.record(actor, "session.promoted", "session", session.id, set=set_name, sha256=golden["sha256"], **more)
    return Promoted(session, golden, _apply_feedback(signals, session, set_name, actor))


def promote_sessions(session_ids: Sequence[UUID], given: Promotion, *, actor: Actor) -> None:
    """Promote several sessions, all or none. Refused when one of them has an open complaint."""
    if negative.sessions_with_negative(session_ids, actor=actor):
        raise Refused("One of these just got negative feedback. Promote it separately.")
    for session_id in session_ids:
        promote_session(session_id, given, actor=actor)


def _signals(session_id: UUID, given: Promotion, actor: Actor) -> Sequence[UUID]:
    if given.feedback_ids is not None:
        return given.feedback_ids
    if given.of_candidate:
        return pending_signals(find_candidate(session_id, actor=actor), session_id, actor=actor)
    return signals_of(session_id, actor=actor)


def _baseline(
    given: Promotion, session: AgentSession, signals: Sequence[UUID], complained: bool, actor: Actor
) -> dict[str, Any]:
    """What replays are measured by where that is not simply what was recorded."""
    expected = _check_expected(given, session, complained, actor)
    if given.recorded_is_right:
        return {"recorded_is_right": True}
    if expected:
        return {"expected": expected}
    # A session that ran a failed request again has no complaint of its own.
    rejected = bool(signals) and "rerun_of" not in session.meta
    return {"baseline_rejected": True} if rejected or negative.has_open_negative(session.id, actor=actor) else {}


def _check_expected(given: Promotion, session: AgentSession, complained: bool, actor: Actor) -> dict[str, Any]:
    """What should have happened, its changes as the comparer reads them; refused where no replay could ever do it."""
    found = dict(given.expected or {})
    # After a complaint, changes that are neither confirmed nor corrected need another reason why they would fail.
    changes = given.draft is not None and given.draft.changes is not None
    undecided = complained and not given.kept and not changes and not given.recorded_is_right
    if not given.corrects and not undecided:
        return found
    run = recorded_run(session, actor=actor)
    if given.draft is not None:
        found = build_expected(given.draft, session, run, actor=actor)
    else:
        check_expected(found, session, run, actor=actor)
    if undecided:
        check_changes_decided(read_expected(found), run, actor=actor)
    return found


def _apply_feedback(signals: Sequence[UUID], session: AgentSession, set_name: str, actor: Actor) -> int:
    if not signals:
        return 0
    outcome = {"kind": "golden", "id": str(session.id), "text": f"promoted to {set_name}"}
    applied = len(feedback_review.settle_pending(signals, "applied", actor=actor, outcome=outcome))
    if not applied:
        raise Stale(SETTLED)
    return applied


def promote_replay(
    golden_id: UUID, replay_id: UUID, *, actor: Actor, note: str | None = None, confirm_incomplete: bool = False
) -> Promoted:
    """Replace a golden by one of its replays, in the same set. Feedback about its failure is applied with it."""
    # finish_replay locks the replay first and then its golden. The same order here avoids a deadlock.
    replay = lock_session(replay_id, actor=actor)
    golden = lock_session(golden_id, actor=actor)
    if golden.golden_set is None:
        raise Refused("This session is no longer golden.")
    if replay.eval_source != str(golden_id):
        raise Refused("This session is no replay of that golden.")
    if replay.status != "completed":
        raise Refused(f"Only completed replays can be golden. This one is {replay.status}.", current=replay.status)
    given = Promotion(
        set_name=golden.golden_set, note=note, recorded_is_right=True, confirm_incomplete=confirm_incomplete,
        feedback_ids=_replay_failures(golden_id, actor),
    )  # fmt: skip
    copy = _copy_session(replay, actor)
    revoke_golden(golden_id, actor=actor)
    return promote_session(copy.id, given, actor=actor)


def _copy_session(replay: AgentSession, actor: Actor) -> AgentSession:
    """The replay as an ordinary session of its own."""
    kept = {name: value for name, value in replay.meta.items() if not name.startswith("eval_")}
    copy = AgentSession(
        id=uuid4(),
        **{name: getattr(replay, name) for name in COPIED},
        created_by=actor.id,
        trace_id=uuid4().hex,
        tags=list(replay.tags),
        finished_at=replay.finished_at or datetime.now(UTC),
        meta={**kept, "copied_from": str(replay.id)},
    )
    db.session.add(copy)
    db.session.flush()
    db.session.execute(COPY_EVENTS, {"copy": copy.id, "tenant": replay.tenant_id, "session": replay.id})
    audit.record(actor, "session.copied", "session", copy.id, copied_from=str(replay.id))
    return copy


def _replay_failures(golden_id: UUID, actor: Actor) -> list[UUID]:
    context: Any = Feedback.context
    pending = select(Feedback.id).where(
        Feedback.tenant_id == actor.tenant_id,
        Feedback.kind == "replay_failure",
        Feedback.status == "pending",
        context["golden_session_id"].astext == str(golden_id),
    )
    return list(db.session.scalars(pending.limit(100)))


def find_trial(session_id: UUID, *, actor: Actor) -> Any:
    """The set that a session is golden in, or whether it can become golden. None for a session that is gone."""
    by_user = (SessionEvent.session_id == session_id) & (SessionEvent.event_type == "user.message")
    asked = select(SessionEvent.id).where(SessionEvent.tenant_id == actor.tenant_id, by_user).exists()
    plain = AgentSession.golden_set.is_(None) & AgentSession.eval_source.is_(None)
    fits = ((AgentSession.status == "completed") & plain & asked).label("promotable")
    wanted = select(AgentSession.golden_set, fits).where(
        AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id
    )
    return db.session.execute(wanted).one_or_none()


def load_offer(session_id: UUID, *, actor: Actor) -> dict[str, Any]:
    """What a promotion would keep, or a refusal. `preferred` is a better answer from feedback."""
    row = db.session.execute(
        select(AgentSession, Agent.slug, AgentVersion.version)
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    session, slug, version = row
    check_promotable(session, actor)
    material = load_material(session_id, actor=actor)
    payloads: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in material.run.events:
        payloads[event.event_type].append(event.payload)
    loaded = next((payload.get("row_ids") for payload in payloads["context.loaded"]), None)
    return {
        "session_id": session.id,
        "title": session.title,
        "agent_id": session.agent_id,
        "agent": slug,
        "version": version,
        "turns": sum(bool(str(payload.get("text") or "").strip()) for payload in payloads["user.message"]),
        "knowledge_rows": len(loaded) if isinstance(loaded, list) else 0,
        "recordings": len(payloads["tool.result"]),
        "material": material,
        "preferred": negative.preferred_answer(session_id, actor=actor),
        "truncated": session.truncated,
    }


def list_choices(session_ids: Sequence[UUID], *, actor: Actor) -> list[tuple[Any, str | None]]:
    """Which of several sessions can be golden as they are: each with the reason why not, or None. Three queries."""
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.agent_id, AgentSession.status, AgentSession.golden_set,
            AgentSession.eval_source, AgentSession.truncated,
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids))
        .order_by(AgentSession.created_at.desc())
    ).all()  # fmt: skip
    by_user = SessionEvent.session_id.in_(session_ids) & (SessionEvent.event_type == "user.message")
    messages = select(SessionEvent.session_id).distinct().where(SessionEvent.tenant_id == actor.tenant_id, by_user)
    asked = set(db.session.scalars(messages))
    unhappy = negative.sessions_with_negative(session_ids, actor=actor)
    return [(row, _refusal(row, row.id in asked, row.id in unhappy)) for row in rows]


def _refusal(row: Any, asked: bool, unhappy: bool) -> str | None:
    reasons = (
        (row.golden_set is not None, f"is already golden in {row.golden_set}"),
        (row.eval_source is not None, "is a replay"),
        (row.status != "completed", f"is {row.status}, not completed"),
        (not asked, "has no user message"),
        (row.truncated, "has an incomplete answer. Promote it separately"),
        (unhappy, "got negative feedback. Promote it separately"),
    )
    return next((reason for applies, reason in reasons if applies), None)
