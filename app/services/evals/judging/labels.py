"""Blind labels: what people say of judged dimensions before they see the judge's verdict, and how far both agree.

Overruled dimensions are never offered and never counted. They are picked because someone disagreed.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy.exc import IntegrityError

from app.actor import Actor
from app.db import db, run
from app.errors import Invalid, NotFound, Refused
from app.evals.agreement import Agreement, measure_agreement
from app.evals.rubric import JUDGED
from app.evals.trace import Event
from app.formats.criteria import AnyDimension, read_dimensions
from app.models import AgentSession, CriteriaSet, JudgeLabel, Judgement, JudgementOverrule
from app.services import audit
from app.services.entities import criteria as criteria_store
from app.services.evals.compare import load_events
from app.services.evals.golden import require_admin

# The newest judgements that labels are drawn from.
MAX_DRAWN = 2_000
# A seeded order: the same for a person however often they come back, and another for the next person. An answer that
# was reused is the same cell again.
NEXT = """
SELECT c.id, c.name
  FROM (SELECT j.id, d.name
          FROM (SELECT id, dimensions FROM judgements
                 WHERE tenant_id = %(tenant)s AND criteria_set_id = %(criteria)s AND model = %(model)s
                   AND status = 'judged' AND NOT cached
                 ORDER BY created_at DESC LIMIT %(most)s) AS j
         CROSS JOIN LATERAL jsonb_object_keys(j.dimensions) AS d (name)) AS c
 WHERE NOT EXISTS (SELECT FROM judge_labels AS l WHERE l.tenant_id = %(tenant)s AND l.judgement_id = c.id
                      AND l.dimension = c.name AND l.created_by = %(user)s)
   AND NOT EXISTS (SELECT FROM judgement_overrules AS o WHERE o.tenant_id = %(tenant)s AND o.judgement_id = c.id
                      AND o.dimension = c.name)
 ORDER BY md5(%(seed)s || c.id::text || c.name) LIMIT 1
"""


@dataclass(frozen=True)
class Judge:
    """A model that judged by a criteria set, and how far it agrees with people."""

    criteria_set_id: UUID
    criteria: str
    model: str | None
    judged: int
    overruled: int
    agreement: Agreement


@dataclass(frozen=True)
class Cell:
    """A judged dimension as a person is asked about it, without what the judge said."""

    session_id: UUID
    title: str
    dimension: str
    rule: AnyDimension
    reference: list[Event]
    replay: list[Event]


@dataclass(frozen=True)
class Label:
    """A label that was given, with what the judge had said."""

    id: UUID
    criteria_set_id: UUID
    model: str
    dimension: str
    passed: bool
    judge_passed: bool
    judge_score: Any
    judge_reason: str
    session_id: UUID | None
    golden_id: str | None


def list_judges(*, actor: Actor, criteria_set_id: UUID | None = None) -> list[Judge]:
    """The judges of the workspace, or of one criteria set. Three queries."""
    require_admin(actor, "check judges")
    mine = [Judgement.tenant_id == actor.tenant_id, Judgement.status == JUDGED, Judgement.model.is_not(None)]
    if criteria_set_id is not None:
        mine.append(Judgement.criteria_set_id == criteria_set_id)
    overruled = exists().where(
        JudgementOverrule.tenant_id == Judgement.tenant_id, JudgementOverrule.judgement_id == Judgement.id
    )
    found = db.session.execute(
        select(
            Judgement.criteria_set_id, CriteriaSet.name, Judgement.model, func.count(), func.count().filter(overruled)
        )
        .join(CriteriaSet, CriteriaSet.id == Judgement.criteria_set_id)
        .where(*mine)
        .group_by(Judgement.criteria_set_id, CriteriaSet.name, Judgement.model)
        .order_by(CriteriaSet.name, Judgement.model)
    ).all()
    pairs = _pairs(actor)
    return [Judge(*row, agreement=measure_agreement(pairs[row[0], str(row[2])])) for row in found]


def _pairs(actor: Actor) -> Mapping[tuple[UUID, str], list[tuple[bool, bool]]]:
    rows = db.session.execute(
        select(JudgeLabel.criteria_set_id, JudgeLabel.model, JudgeLabel.passed, JudgeLabel.judge_passed)
        .where(JudgeLabel.tenant_id == actor.tenant_id)
        .order_by(JudgeLabel.created_at, JudgeLabel.id)
    )
    found: dict[tuple[UUID, str], list[tuple[bool, bool]]] = defaultdict(list)
    for criteria_set_id, model, person, judge in rows:
        found[criteria_set_id, model].append((person, judge))
    return found


def agreement_of(criteria_set_id: UUID, model: str, *, actor: Actor) -> Agreement:
    """How far one judge agrees with people."""
    return measure_agreement(_pairs(actor)[criteria_set_id, model])


def next_cell(criteria_set_id: UUID, model: str, *, actor: Actor) -> Cell | None:
    """The next dimension for this person to label; None when there is none left."""
    require_admin(actor, "check judges")
    seed = f"{criteria_set_id}{model}{actor.id}"
    asked = {"tenant": actor.tenant_id, "criteria": criteria_set_id, "model": model, "user": actor.id, "seed": seed}
    found = run(NEXT, asked | {"most": MAX_DRAWN})
    return _load_cell(found[0][0], found[0][1], actor) if found else None


def _load_cell(judgement_id: UUID, dimension: str, actor: Actor) -> Cell:
    held = db.session.get_one(Judgement, judgement_id)
    replay = db.session.get_one(AgentSession, held.session_id)
    golden_id = UUID(str(replay.eval_source))
    golden = db.session.get(AgentSession, golden_id)
    sizes = {one.id: one.event_bytes for one in (golden, replay) if one is not None}
    events = load_events(sizes, actor=actor)
    criteria = criteria_store.get_version(held.criteria_set_id, held.criteria_version or 1, actor=actor)
    return Cell(
        session_id=replay.id,
        title=replay.title,
        dimension=dimension,
        rule=read_dimensions(criteria.dimensions)[dimension],
        reference=list(events[golden_id].events) if golden is not None else [],
        replay=list(events[replay.id].events),
    )


def add_label(session_id: UUID, dimension: str, *, passed: bool, actor: Actor) -> Label:
    """Keep what a person says of a dimension, once, and say what the judge had said."""
    require_admin(actor, "check judges")
    held = db.session.scalar(
        select(Judgement).where(Judgement.tenant_id == actor.tenant_id, Judgement.session_id == session_id)
    )
    if held is None or held.status != JUDGED:
        raise NotFound("There is no such judgement in this workspace.")
    if dimension not in held.dimensions:
        raise Invalid.of({"dimension": "Choose a dimension that was judged."})
    if _was_overruled(held, dimension):
        raise Refused("This dimension was overruled, so its verdict is already known.")
    label = JudgeLabel(
        tenant_id=actor.tenant_id, criteria_set_id=held.criteria_set_id, model=held.model, judgement_id=held.id,
        dimension=dimension, passed=passed, judge_passed=held.dimensions[dimension]["passed"], created_by=actor.id,
    )  # fmt: skip
    try:
        with db.session.begin_nested():
            db.session.add(label)
            db.session.flush()
    except IntegrityError:
        raise Refused("You already labelled this. Labels can’t change.") from None
    audit.record(actor, "judge_label.added", "session", held.session_id, dimension=dimension, passed=passed)
    return get_label(label.id, actor=actor)


def _was_overruled(held: Judgement, dimension: str) -> bool:
    of_dimension = (JudgementOverrule.judgement_id == held.id) & (JudgementOverrule.dimension == dimension)
    found = select(exists().where(JudgementOverrule.tenant_id == held.tenant_id, of_dimension))
    return bool(db.session.scalar(found))


def get_label(label_id: UUID, *, actor: Actor) -> Label:
    """A label of this person beside the judge's own words."""
    mine = (JudgeLabel.tenant_id == actor.tenant_id, JudgeLabel.id == label_id, JudgeLabel.created_by == actor.id)
    found = db.session.execute(
        select(JudgeLabel, Judgement.dimensions, Judgement.session_id, AgentSession.eval_source)
        .outerjoin(Judgement, Judgement.id == JudgeLabel.judgement_id)
        .outerjoin(AgentSession, AgentSession.id == Judgement.session_id)
        .where(*mine)
    ).one_or_none()
    if found is None:
        raise NotFound("There is no such label of yours.")
    label, dimensions, session_id, golden_id = found
    mark = (dimensions or {}).get(label.dimension) or {}
    return Label(
        label.id, label.criteria_set_id, label.model, label.dimension, label.passed, label.judge_passed,
        mark.get("score"), mark.get("reason", ""), session_id, golden_id,
    )  # fmt: skip
