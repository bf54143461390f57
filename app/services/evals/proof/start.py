"""Plan, start, follow and cancel proofs of knowledge rows: runs over the goldens of their scope, with and without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db, get_own, run
from app.errors import Invalid, Refused
from app.formats.agent_config import OFFLINE, TOOL_GROUPS, tool_names
from app.formats.ids import parse_id
from app.learning.rules import applies_to_texts
from app.models import AgentSession, EvalRun, KnowledgeProof, SharedContext
from app.models.agents import REPLAYABLE_KINDS
from app.models.evals import OPEN_STATUSES
from app.services import audit
from app.services.evals.golden import require_admin
from app.services.evals.results import ENDED_STATUSES, cancel_run
from app.services.evals.runs import MAX_TRIALS, NewRun, start_run
from app.services.evals.usage import Estimate, add_estimates, estimate_run
from app.services.knowledge import proofs as knowledge_proofs

# What a proof replays on each side: the goldens that the row applies to, then the newest.
MAX_GOLDENS = 200
MAX_SCOPE = 2000
# How many rows are proved together.
MAX_ROWS = 20
# A model answers differently each time, the offline model never does.
USUAL_TRIALS = 3
# Of a golden's metadata everything is read once: it can be large. `frozen` says whether the golden had the row in its
# prompt, with the words that it has today or with other ones.
SCOPE = """
SELECT s.id, s.title, s.golden_hash, v.id, coalesce(nullif(v.config ->> 'model', ''), s.model, ''),
       a.kind = ANY (%(kinds)s::text[]) AND a.archived_at IS NULL,
       coalesce(g.golden ->> 'baseline_rejected', '') = 'true', g.golden #>> '{snapshot,entity,type_id}',
       ARRAY (SELECT left(t, 4000) FROM jsonb_array_elements_text(coalesce(g.golden #> '{snapshot,turns}', '[]')) AS t
               LIMIT 50),
       jsonb_path_query_array(g.golden, '$.snapshot.tools[*].name'),
       ARRAY (SELECT r ->> 'id' FROM jsonb_array_elements(g.golden #> '{snapshot,shared_context,rows}') AS r
               WHERE r ->> 'id' = ANY (%(rows)s::text[])),
       ARRAY (SELECT k.id::text FROM jsonb_array_elements(g.golden #> '{snapshot,shared_context,rows}') AS r
                JOIN shared_context AS k ON k.tenant_id = s.tenant_id AND k.id::text = r ->> 'id'
                 AND (k.type, k.content, k.context) IS DISTINCT FROM (r ->> 'type', r ->> 'content', r ->> 'context')
               WHERE k.id::text = ANY (%(rows)s::text[]))
  FROM sessions AS s
  JOIN agents AS a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id
  JOIN agent_versions AS v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.current_version
 CROSS JOIN LATERAL (SELECT s.metadata -> 'golden' AS golden OFFSET 0) AS g
 WHERE s.tenant_id = %(tenant)s AND s.golden_set IS NOT NULL
   AND (%(agent)s::uuid IS NULL OR s.agent_id = %(agent)s::uuid)
 ORDER BY s.created_at DESC, s.id
 LIMIT %(most)s
"""


@dataclass(frozen=True)
class ScopedGolden:
    """A golden of an agent that gets the row. `frozen` are the rows in question that it had in its prompt, `reworded`
    those of them that say something else today."""

    id: UUID
    title: str
    hash: str
    version_id: UUID
    model: str
    replayable: bool
    rejected: bool
    type_id: str | None
    turns: list[str]
    tools: list[str]
    frozen: list[str]
    reworded: list[str]
    applies: bool = False


@dataclass(frozen=True)
class Sides:
    """The rows that the two runs add to frozen knowledge and take from it."""

    plus: tuple[UUID, ...]
    minus: tuple[UUID, ...]
    plain_plus: tuple[UUID, ...]
    plain_minus: tuple[UUID, ...]


@dataclass(frozen=True)
class Plan:
    """What a proof would replay. `left_out` counts goldens by the reason why they cannot say anything."""

    row: SharedContext
    goldens: list[ScopedGolden]
    applying: set[UUID]
    sides: Sides
    in_scope: int
    left_out: dict[str, int]
    usual_trials: int

    @property
    def golden_ids(self) -> list[UUID]:
        return [golden.id for golden in self.goldens]

    @property
    def tested(self) -> dict[UUID, tuple[UUID, str]]:
        """The version and the model that each golden is replayed with."""
        return {golden.id: (golden.version_id, golden.model) for golden in self.goldens}

    @property
    def plain_key(self) -> Any:
        """Equal for rows whose side without them is the same."""
        return tuple(self.golden_ids), self.sides.plain_plus, self.sides.plain_minus


def estimate_proof(row_id: UUID, *, actor: Actor, trials: int | None = None) -> tuple[Plan, Estimate]:
    """What a proof of this row would replay, and what that is likely to take."""
    require_admin(actor, "prove knowledge")
    plan = plan_proof(get_own(SharedContext, row_id, "knowledge row", actor=actor), actor=actor)
    return plan, estimate_run(plan.tested, actor=actor, trials=trials or plan.usual_trials, sides=2)


def estimate_proofs(*, actor: Actor) -> tuple[list[Plan], Estimate]:
    """The same for all proposed rows that need a proof, as `start_proofs` would start them."""
    require_admin(actor, "prove knowledge")
    rows = [get_own(SharedContext, row_id, "knowledge row", actor=actor) for row_id in unproved_rows(actor=actor)]
    plans = [plan_proof(row, actor=actor) for row in rows[:MAX_ROWS]]
    shared = {plan.plain_key: plan for plan in plans}
    sides = [*plans, *shared.values()]
    found = [estimate_run(plan.tested, actor=actor, trials=plan.usual_trials) for plan in sides if plan.goldens]
    return plans, add_estimates(found)


def plan_proof(row: SharedContext, *, actor: Actor) -> Plan:
    """Which goldens a proof of this row replays. Those of agents that cannot replay, and those whose recording was
    complained about without a better answer, are left out."""
    old = parse_id(row.meta["replaces"]["id"]) if "replaces" in row.meta else None
    replaced = db.session.get(SharedContext, old) if old else None
    rows = [row.id, *([replaced.id] if replaced is not None and replaced.state != "deleted" else [])]
    found = _scoped_goldens(row, rows, actor)
    fit = [golden for golden in found if row.entity_type_id is None or golden.type_id == str(row.entity_type_id)]
    able = [golden for golden in fit if golden.replayable and not golden.rejected]
    applying = {golden.id for golden in able if applies_to(row, golden.turns, golden.tools)}
    chosen = sorted(able, key=lambda golden: golden.id not in applying)[:MAX_GOLDENS]
    left_out = {
        "elsewhere": sum(not golden.replayable for golden in fit),
        "rejected": sum(golden.replayable and golden.rejected for golden in fit),
        "further": len(able) - len(chosen),
    }
    offline = bool(chosen) and all(golden.model == OFFLINE for golden in chosen)
    return Plan(
        row=row,
        goldens=chosen,
        applying=applying,
        sides=_choose_sides(rows, chosen),
        in_scope=count_in_scope(row.agent_id, actor=actor),
        left_out={why: number for why, number in left_out.items() if number},
        usual_trials=1 if offline else USUAL_TRIALS,
    )


def applies_to(row: Any, texts: Sequence[str], tools: Sequence[str] = ()) -> bool:
    """Whether a row's condition applies to one of these messages."""
    return applies_to_texts(row.content, row.context, tool_names(TOOL_GROUPS) | set(tools), texts)


def _scoped_goldens(row: SharedContext, rows: Sequence[UUID], actor: Actor) -> list[ScopedGolden]:
    found = run(
        SCOPE,
        {
            "tenant": actor.tenant_id, "agent": row.agent_id, "most": MAX_SCOPE,
            "kinds": list(REPLAYABLE_KINDS), "rows": list(rows),
        },
    )  # fmt: skip
    return [ScopedGolden(*one) for one in found]


def count_in_scope(agent_id: UUID | None, *, actor: Actor) -> int:
    """How many goldens the agents have that get a row of this scope."""
    where = [AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None)]
    if agent_id is not None:
        where.append(AgentSession.agent_id == agent_id)
    return db.session.scalar(select(func.count()).where(*where)) or 0


def _choose_sides(rows: Sequence[UUID], goldens: Sequence[ScopedGolden]) -> Sides:
    """Both sides as near to what the goldens had as possible, so that sides are shared. A proposed new wording is
    measured against the row that it would replace, with the words of today."""
    row, *old = rows
    frozen = {row_id for golden in goldens for row_id in golden.frozen}
    reworded = {row_id for golden in goldens for row_id in golden.reworded}
    gone = [one for one in rows if str(one) in frozen]
    return Sides(
        plus=(row,),
        minus=tuple(one for one in gone if one in old or str(one) in reworded),
        plain_plus=tuple(old),
        plain_minus=tuple(one for one in gone if one == row or str(one) in reworded),
    )


def start_proof(row_id: UUID, *, actor: Actor, trials: int | None = None) -> KnowledgeProof:
    """Start the two runs of a proof. While one is under way, that one is given. Without a golden to replay there are no
    runs, and the proof says so at once."""
    require_admin(actor, "prove knowledge")
    row = _lock_row(row_id, actor)
    return _running_proof(row_id, actor) or _start(row, trials, uuid4(), {}, actor)


def start_proofs(*, actor: Actor, trials: int | None = None) -> list[KnowledgeProof]:
    """Prove the proposed rows that were not proved as they are, the newest first, as one batch. Rows with the same
    goldens share the run without them."""
    require_admin(actor, "prove knowledge")
    batch, shared = uuid4(), dict[Any, EvalRun]()
    started = []
    for row_id in unproved_rows(actor=actor)[:MAX_ROWS]:
        row = _lock_row(row_id, actor)
        # Someone else may have started it while we waited for the row.
        if _running_proof(row_id, actor) is None:
            started.append(_start(row, trials, batch, shared, actor))
    if not started:
        raise Refused("Every proposed row has a proof or is being proved.")
    return started


def unproved_rows(*, actor: Actor) -> list[UUID]:
    """Proposed rows without a proof that still holds, the newest first."""
    newest = (SharedContext.updated_at.desc(), SharedContext.id)
    proposed = select(SharedContext.id).where(
        SharedContext.tenant_id == actor.tenant_id,
        SharedContext.state == "proposed",
        ~SharedContext.meta.has_key("retires"),
    )
    ids = list(db.session.scalars(proposed.order_by(*newest).limit(10 * MAX_ROWS)))
    known = knowledge_proofs.proofs_of(ids, actor=actor)
    return [row_id for row_id in ids if _needs_proof(known.get(row_id))]


def _needs_proof(known: knowledge_proofs.RowProofs | None) -> bool:
    return known is None or (known.running is None and (known.done is None or known.done.stale))


def _lock_row(row_id: UUID, actor: Actor) -> SharedContext:
    row: SharedContext = get_own(SharedContext, row_id, "knowledge row", actor=actor, lock=True)
    if row.state == "deleted":
        raise Refused("This row was deleted.", current=row.state)
    return row


def _running_proof(row_id: UUID, actor: Actor) -> KnowledgeProof | None:
    return db.session.scalar(
        select(KnowledgeProof).where(
            KnowledgeProof.tenant_id == actor.tenant_id,
            KnowledgeProof.shared_context_id == row_id,
            KnowledgeProof.status == "running",
        )
    )


def _start(
    row: SharedContext, trials: int | None, batch: UUID, shared: dict[Any, EvalRun], actor: Actor
) -> KnowledgeProof:
    if trials is not None and not 1 <= trials <= MAX_TRIALS:
        raise Invalid.of({"trials": f"Enter a number from 1 to {MAX_TRIALS}."})
    plan = plan_proof(row, actor=actor)
    trials = trials or plan.usual_trials
    with_run = without_run = None
    if plan.goldens:
        sides = plan.sides
        common: dict[str, Any] = {"golden_ids": plan.golden_ids, "trials": trials}
        key = (plan.plain_key, trials)
        with_run = start_run(
            NewRun(plus_rows=sides.plus, minus_rows=sides.minus, proof=_mark(row, "with"), **common), actor=actor
        )
        without_run = shared.get(key) or start_run(
            NewRun(plus_rows=sides.plain_plus, minus_rows=sides.plain_minus, proof=_mark(row, "without"), **common),
            actor=actor,
        )
        shared[key] = without_run
    proof = KnowledgeProof(
        id=uuid4(),
        tenant_id=actor.tenant_id,
        shared_context_id=row.id,
        row_version=row.version,
        row_hash=knowledge_proofs.row_hash(row),
        batch_id=batch,
        status="running" if with_run else "done",
        completed_at=None if with_run else datetime.now(UTC),
        trials=trials,
        with_run_id=with_run.id if with_run else None,
        without_run_id=without_run.id if without_run else None,
        agent_version_ids=sorted({golden.version_id for golden in plan.goldens}),
        golden_ids=plan.golden_ids,
        golden_hashes=[golden.hash for golden in plan.goldens],
        in_scope=plan.in_scope,
        left_out=plan.left_out,
        cases=[
            {"golden": str(golden.id), "version": str(golden.version_id), "applies": golden.id in plan.applying}
            for golden in plan.goldens
        ],
        created_by=actor.id,
    )
    db.session.add(proof)
    db.session.flush()
    audit.record(
        actor, "knowledge.proof_started", "shared_context", row.id, goldens=len(plan.goldens), trials=trials,
        version=row.version,
    )  # fmt: skip
    return proof


def _mark(row: SharedContext, side: str) -> dict[str, str]:
    """What a run keeps of the proof that it belongs to."""
    return {"row": str(row.id), "side": side, "content": row.content[:160]}


# Follow and cancel


@dataclass(frozen=True)
class ProofProgress:
    """How far proofs are: the rows that are still being proved, and the replays of all their runs."""

    rows: int
    total: int
    ended: int
    batches: list[UUID]

    @property
    def left(self) -> int:
        return self.total - self.ended


def progress_of(*, actor: Actor, row_id: UUID | None = None) -> ProofProgress | None:
    """How far the proofs under way are, of one row or all together; None when there are none. Two queries."""
    where = [KnowledgeProof.tenant_id == actor.tenant_id, KnowledgeProof.status == "running"]
    if row_id is not None:
        where.append(KnowledgeProof.shared_context_id == row_id)
    columns = KnowledgeProof.batch_id, KnowledgeProof.with_run_id, KnowledgeProof.without_run_id
    running = db.session.execute(select(*columns).where(*where)).all()
    if not running:
        return None
    runs = {run_id for _, *run_ids in running for run_id in run_ids if run_id}
    cases = AgentSession.tenant_id == actor.tenant_id, AgentSession.eval_run_id.in_(runs)
    done = func.count().filter(AgentSession.status.in_(ENDED_STATUSES))
    total, ended = db.session.execute(select(func.count(), done).where(*cases)).one()
    return ProofProgress(len(running), total, ended, sorted({row[0] for row in running}))


def cancel_proofs(*, actor: Actor, row_id: UUID | None = None) -> int:
    """Cancel the proof of a row, or all that are under way; returns how many. A run that another proof still needs goes
    on."""
    require_admin(actor, "prove knowledge")
    running = list(
        db.session.execute(
            select(KnowledgeProof.shared_context_id, KnowledgeProof.with_run_id, KnowledgeProof.without_run_id).where(
                KnowledgeProof.tenant_id == actor.tenant_id, KnowledgeProof.status == "running"
            )
        )
    )
    mine = [one for one in running if row_id in (None, one[0])]
    needed = {run_id for one in running if one not in mine for run_id in one[1:]}
    ours = sorted({run_id for one in mine for run_id in one[1:] if run_id} - needed)
    still_open = select(EvalRun.id).where(EvalRun.id.in_(ours), EvalRun.status.in_(OPEN_STATUSES))
    for run_id in sorted(db.session.scalars(still_open.where(EvalRun.tenant_id == actor.tenant_id))):
        # One that ended a moment ago needs no cancelling.
        with suppress(Refused):
            cancel_run(run_id, actor=actor)
    return len(mine)
