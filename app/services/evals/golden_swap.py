"""A replay takes the place of its golden: copied into an ordinary session, promoted, and the old golden revoked."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

from sqlalchemy import select, text

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.models import AgentSession, Feedback
from app.services import audit
from app.services.evals.golden import Promoted, Promotion, lock_session, promote_session, revoke_golden

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
