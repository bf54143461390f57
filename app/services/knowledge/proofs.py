"""Proofs of knowledge rows as they are read: their figures, whether they are stale, and what they forbid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.errors import Invalid, Refused
from app.evals.proof import Score
from app.models import AgentSession, KnowledgeProof, SharedContext
from app.models.knowledge import NO_ID
from app.services import audit

MAX_REASON = 2000
MAX_NAMED = 3
# What a row says and whom it is for. Its pin and its state change no replay.
PROVED = ("type", "content", "context", "agent_id", "entity_type_id")
COLUMNS = (
    "id", "shared_context_id", "row_version", "row_hash", "batch_id", "status", "trials", "with_run_id",
    "without_run_id", "agent_version_ids", "golden_ids", "left_out", "fixed", "broken", "created_at", "completed_at",
    "override_reason", "overridden_by", "overridden_at",
)  # fmt: skip
NEWEST = f"""
WITH wanted AS (
    SELECT DISTINCT ON (p.shared_context_id, p.status) p.*
      FROM knowledge_proofs AS p
     WHERE p.tenant_id = %(tenant)s AND p.shared_context_id = ANY (%(rows)s::uuid[]) AND p.status <> 'cancelled'
     ORDER BY p.shared_context_id, p.status, p.created_at DESC, p.id
), goldens AS (
    SELECT s.agent_id, count(*) AS number FROM sessions AS s
     WHERE s.tenant_id = %(tenant)s AND s.golden_set IS NOT NULL AND EXISTS (SELECT FROM wanted)
     GROUP BY s.agent_id
)
SELECT {", ".join(f"p.{name}" for name in COLUMNS)}, p.exercised, p.undecided, p.in_scope,
       jsonb_path_query_array(p.cases, '$[*] ? (@.outcome == "broken")'),
       k.type, k.content, k.context, k.agent_id, k.entity_type_id,
       ARRAY (SELECT v.id FROM unnest(p.agent_version_ids) AS v (id)
               WHERE NOT EXISTS (SELECT FROM agent_versions AS w
                                   JOIN agents AS a ON a.tenant_id = w.tenant_id AND a.id = w.agent_id
                                    AND a.current_version = w.version AND a.archived_at IS NULL
                                  WHERE w.tenant_id = p.tenant_id AND w.id = v.id)),
       ARRAY (SELECT g.id FROM unnest(p.golden_ids, p.golden_hashes) AS g (id, hash)
                LEFT JOIN sessions AS s ON s.tenant_id = p.tenant_id AND s.id = g.id
               WHERE s.golden_hash IS DISTINCT FROM g.hash),
       (SELECT coalesce(sum(g.number), 0)::integer FROM goldens AS g
         WHERE coalesce(k.agent_id, {NO_ID}) IN (g.agent_id, {NO_ID}))
  FROM wanted AS p
  JOIN shared_context AS k ON k.tenant_id = p.tenant_id AND k.id = p.shared_context_id
"""


class BreaksGoldens(Refused):
    """Activating a row would break goldens that its proof replayed. A reason overrides it."""

    title = "Its proof broke a golden"

    def __init__(self, proof: Proof, broken: Sequence[UUID], titles: Mapping[UUID, str]) -> None:
        named = " and ".join(_quote_titles(broken, titles))
        super().__init__(
            f"Its proof breaks {named}. To activate it anyway, give an override reason.",
            broken=[str(golden_id) for golden_id in broken],
        )
        self.proof, self.broken, self.titles = proof, list(broken), dict(titles)


def _quote_titles(broken: Sequence[UUID], titles: Mapping[UUID, str]) -> list[str]:
    """The first goldens by their titles, and how many more there are."""
    named = [f"“{titles.get(golden_id, str(golden_id))}”" for golden_id in broken[:MAX_NAMED]]
    more = len(broken) - len(named)
    return [", ".join(named), f"{more} more"] if more else [", ".join(named)]


@dataclass(frozen=True)
class Proof:
    """A proof with what changed since: `stale_because` names some of `row`, `agent` and `goldens`. `still_broken` are
    the goldens that it broke and that, like their agents, are as they were then."""

    id: UUID
    row_id: UUID
    row_version: int
    row_hash: str
    batch_id: UUID
    status: str
    trials: int
    with_run_id: UUID | None
    without_run_id: UUID | None
    agent_version_ids: list[UUID]
    golden_ids: list[UUID]
    left_out: dict[str, int]
    fixed: list[UUID]
    broken: list[UUID]
    created_at: datetime
    completed_at: datetime | None
    override_reason: str | None
    overridden_by: UUID | None
    overridden_at: datetime | None
    score: Score
    stale_because: list[str]
    still_broken: list[UUID]

    @property
    def stale(self) -> bool:
        return bool(self.stale_because)

    @property
    def run_ids(self) -> list[UUID]:
        """The run with the row and the one without it, as far as they were not deleted."""
        return [run_id for run_id in (self.with_run_id, self.without_run_id) if run_id]

    @property
    def replayed(self) -> int:
        return len(self.golden_ids)


@dataclass(frozen=True)
class RowProofs:
    """The newest proof of a row that is done, and the one under way."""

    done: Proof | None = None
    running: Proof | None = None


def row_hash(row: Any, **changes: Any) -> str:
    """The hash of what a row says and whom it is for, as it is or after a change."""
    return _hash_values([changes.get(name, getattr(row, name)) for name in PROVED])


def _hash_values(values: Sequence[Any]) -> str:
    texts = [None if value is None else str(value) for value in values]
    return sha256(json.dumps(texts).encode()).hexdigest()


def proofs_of(row_ids: Sequence[UUID], *, actor: Actor) -> dict[UUID, RowProofs]:
    """The proofs of these rows. One query."""
    rows = run(NEWEST, {"tenant": actor.tenant_id, "rows": list(row_ids)}) if row_ids else []
    proofs: dict[UUID, dict[str, Proof]] = {}
    for row in rows:
        proof = _read_proof(row)
        proofs.setdefault(proof.row_id, {})[proof.status] = proof
    return {row_id: RowProofs(**of_row) for row_id, of_row in proofs.items()}


def proofs_of_row(row_id: UUID, *, actor: Actor) -> RowProofs:
    return proofs_of([row_id], actor=actor).get(row_id, RowProofs())


def _read_proof(row: Sequence[Any]) -> Proof:
    """A proof from a row of `NEWEST`, with what changed since."""
    stored = dict(zip((*COLUMNS, "exercised", "undecided", "in_scope"), row, strict=False))
    broken_cases, *now, gone_versions, changed, in_scope = row[len(stored) :]
    reasons = {
        "row": stored["row_hash"] != _hash_values(now),
        "agent": bool(gone_versions),
        "goldens": bool(changed) or in_scope != stored["in_scope"],
    }
    gone = {str(one) for one in (*gone_versions, *changed)}
    values = {name: stored[name] for name in COLUMNS if name != "shared_context_id"}
    return Proof(
        **values,
        row_id=stored["shared_context_id"],
        score=Score(len(stored["fixed"]), len(stored["broken"]), stored["exercised"], stored["undecided"]),
        stale_because=[name for name, changed_since in reasons.items() if changed_since],
        still_broken=[UUID(case["golden"]) for case in broken_cases if not {case["golden"], case["version"]} & gone],
    )


def cases_of(proof_id: UUID, *, actor: Actor) -> list[dict[str, Any]]:
    """What became of each golden of a proof."""
    mine = KnowledgeProof.tenant_id == actor.tenant_id, KnowledgeProof.id == proof_id
    return db.session.scalar(select(KnowledgeProof.cases).where(*mine)) or []


def check_activation(row: SharedContext, override_reason: str | None, *, actor: Actor, **changes: Any) -> None:
    """Refuse to bring a row into use that broke goldens, unless there is a reason to. The row is judged as it will be
    after `changes`; a proof of other words says nothing about it. The reason is kept with the proof."""
    proof = proofs_of_row(row.id, actor=actor).done
    if proof is None or not proof.still_broken or row_hash(row, **changes) != proof.row_hash:
        return
    reason = (override_reason or "").strip()
    if not reason:
        raise BreaksGoldens(proof, proof.still_broken, titles_of(proof.still_broken, actor=actor))
    if len(reason) > MAX_REASON:
        raise Invalid.of({"override_reason": f"At most {MAX_REASON:,} characters."})
    stored = db.session.get_one(KnowledgeProof, proof.id)
    stored.override_reason, stored.overridden_by, stored.overridden_at = reason, actor.id, datetime.now(UTC)
    db.session.flush()
    broken = [str(golden_id) for golden_id in proof.still_broken]
    audit.record(actor, "knowledge.proof_overridden", "shared_context", row.id, reason=reason, broken=broken)


def titles_of(golden_ids: Sequence[UUID], *, actor: Actor) -> dict[UUID, str]:
    """What goldens are called."""
    if not golden_ids:
        return {}
    mine = AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(golden_ids)
    return dict(db.session.execute(select(AgentSession.id, AgentSession.title).where(*mine)).all())
