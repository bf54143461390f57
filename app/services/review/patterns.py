"""Patterns: groups of feedback that complain about the same thing, as reviews found them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import literal, select, text, update
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db, get_own
from app.models import Feedback, FeedbackPattern, FeedbackPatternRow, SharedContext

LIVE_STATES = ("proposed", "active")
# Counts, times and the label's scope follow the rows; a pattern that lost its last row is gone.
RECOUNT = text("""
    WITH seen AS (
        SELECT p.id, count(r.feedback_id) AS number, min(r.occurred_at) AS first, max(r.occurred_at) AS last
          FROM feedback_patterns AS p
          LEFT JOIN feedback_pattern_rows AS r ON r.tenant_id = p.tenant_id AND r.pattern_id = p.id
         WHERE p.tenant_id = :tenant AND p.id = ANY (:ids)
         GROUP BY p.id),
    gone AS (DELETE FROM feedback_patterns AS p USING seen WHERE p.id = seen.id AND seen.number = 0)
    UPDATE feedback_patterns AS p
       SET signal_count = seen.number, first_seen_at = seen.first, last_seen_at = seen.last
      FROM seen WHERE p.tenant_id = :tenant AND p.id = seen.id AND seen.number > 0
""")

NOTE_WAITING = text("""
    UPDATE feedback_pattern_rows AS r SET waits = w.reason
      FROM unnest(CAST(:ids AS uuid[]), CAST(:reasons AS text[])) AS w (id, reason)
     WHERE r.tenant_id = :tenant AND r.feedback_id = w.id AND r.waits IS DISTINCT FROM w.reason
""")


@dataclass(frozen=True, kw_only=True)
class NewPattern:
    """A pattern as a review found it. `id` is that of a known pattern."""

    label: str
    agent_id: UUID | None
    entity_type_id: UUID | None
    rows: Sequence[tuple[UUID, datetime]]
    id: UUID | None = None


def get_pattern(pattern_id: UUID, *, actor: Actor) -> FeedbackPattern:
    actor.check_admin("Only admins can see patterns of feedback.")
    return get_own(FeedbackPattern, pattern_id, "pattern", actor=actor)


def patterns_of(feedback_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, UUID]:
    """The pattern of each of these rows that is in one. One query."""
    link = FeedbackPatternRow
    of_rows = link.tenant_id == actor.tenant_id, link.feedback_id.in_(feedback_ids)
    return {row.feedback_id: row.pattern_id for row in db.session.execute(select(link).where(*of_rows)).scalars()}


def save_pattern(new: NewPattern, *, actor: Actor) -> dict[UUID, UUID]:
    """Put feedback into a pattern, and return the pattern of each row. What is in a pattern stays there, and the rest
    joins it; a row that is alone in one without a rule may still move. Feedback that was deleted meanwhile is left
    out."""
    ids = [feedback_id for feedback_id, _ in new.rows]
    homes = patterns_of(ids, actor=actor)
    settled = _settled(set(homes.values()), actor)
    kept = {feedback_id: home for feedback_id, home in homes.items() if home in settled}
    pattern_id = _choose(new, list(kept.values()), actor)
    joining = [feedback_id for feedback_id in ids if feedback_id not in kept]
    if joining:
        _join(joining, pattern_id, new, {home for home in homes.values() if home != pattern_id}, actor)
    return dict.fromkeys(joining, pattern_id) | kept


def _choose(new: NewPattern, homes: list[UUID], actor: Actor) -> UUID:
    """The pattern that most of the rows are in, else the known one, else a new one."""
    if homes:
        return max(sorted(set(homes)), key=homes.count)
    return new.id if new.id and _is_known(new.id, actor) else uuid4()


def _settled(pattern_ids: Collection[UUID], actor: Actor) -> set[UUID]:
    """Those patterns that hold several rows or have a rule."""
    pattern = FeedbackPattern
    mine = pattern.tenant_id == actor.tenant_id, pattern.id.in_(pattern_ids)
    grown = (pattern.signal_count > 1) | pattern.shared_context_id.is_not(None)
    return set(db.session.scalars(select(pattern.id).where(*mine, grown)))


def _join(ids: list[UUID], pattern_id: UUID, new: NewPattern, left: Collection[UUID], actor: Actor) -> None:
    times = [at for _, at in new.rows]
    pattern = insert(FeedbackPattern).values(
        id=pattern_id,
        tenant_id=actor.tenant_id,
        label=new.label,
        agent_id=new.agent_id,
        entity_type_id=new.entity_type_id,
        first_seen_at=min(times),
        last_seen_at=max(times),
    )
    db.session.execute(pattern.on_conflict_do_nothing(index_elements=["id"]))
    rows = select(Feedback.tenant_id, Feedback.id, literal(pattern_id), Feedback.occurred_at).where(
        Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(ids)
    )
    link = insert(FeedbackPatternRow).from_select(["tenant_id", "feedback_id", "pattern_id", "occurred_at"], rows)
    moved = {"pattern_id": link.excluded.pattern_id, "occurred_at": link.excluded.occurred_at}
    db.session.execute(link.on_conflict_do_update(index_elements=["tenant_id", "feedback_id"], set_=moved))
    recount([pattern_id, *left], actor=actor)


def recount(pattern_ids: Collection[UUID], *, actor: Actor) -> None:
    """Bring counts and times of patterns up to date with their rows."""
    db.session.execute(RECOUNT, {"tenant": actor.tenant_id, "ids": list(pattern_ids)})
    db.session.expire_all()


def note_waiting(reasons: Mapping[UUID, str | None], *, actor: Actor) -> None:
    """Note why feedback waits; None where it waits no longer."""
    given = {"tenant": actor.tenant_id, "ids": list(reasons), "reasons": list(reasons.values())}
    db.session.execute(NOTE_WAITING, given)


def link_rule(pattern_ids: Collection[UUID], row_id: UUID, *, actor: Actor) -> None:
    """Note the rule that was proposed for these patterns."""
    of_workspace = FeedbackPattern.tenant_id == actor.tenant_id, FeedbackPattern.id.in_(pattern_ids)
    db.session.execute(update(FeedbackPattern).where(*of_workspace).values(shared_context_id=row_id))


def live_rules(pattern_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, UUID]:
    """The rule of each of these patterns whose rule is proposed or active. One query."""
    pattern, rule = FeedbackPattern, SharedContext
    rows: Any = db.session.execute(
        select(pattern.id, rule.id)
        .join(rule, (rule.tenant_id == pattern.tenant_id) & (rule.id == pattern.shared_context_id))
        .where(pattern.tenant_id == actor.tenant_id, pattern.id.in_(pattern_ids), rule.state.in_(LIVE_STATES))
    )
    return dict(rows.all())


def _is_known(pattern_id: UUID, actor: Actor) -> bool:
    pattern = FeedbackPattern
    of_workspace = pattern.tenant_id == actor.tenant_id, pattern.id == pattern_id
    return db.session.scalar(select(pattern.id).where(*of_workspace)) is not None
