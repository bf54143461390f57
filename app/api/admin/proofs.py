"""Proofs of knowledge rows over the API: start and read."""

from typing import Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Moment
from app.services.evals import usage as eval_usage
from app.services.evals.proof import finish as proof_finish
from app.services.evals.proof import start as proof_start
from app.services.evals.runs import MAX_TRIALS
from app.services.knowledge import lists as knowledge_lists
from app.services.knowledge import proofs as knowledge_proofs


class NewProof(Body):
    """How to prove a row."""

    trials: int | None = Field(
        None,
        ge=1,
        le=MAX_TRIALS,
        description="Replays per golden on each side. The majority decides. Defaults to 1 with the offline "
        "model, else 3.",
    )


class ProofStarted(Answer):
    """The runs with and without the row. Empty if no golden can be replayed."""

    id: UUID
    run_ids: list[UUID]


class UsageAnswer(Answer):
    """Usage of the runs. `cost` is in dollars, null if unknown for any replay."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    seconds: float


class ProofAnswer(Answer):
    """The result of a proof. `fixed` and `broken` are goldens. `n` counts goldens that exercise the row and have a
    verdict on both sides."""

    status: Literal["running", "done", "none"]
    id: UUID | None = None
    n: int = 0
    fixed: list[UUID] = []
    broken: list[UUID] = []
    unchanged: int = 0
    undecided: int = Field(0, description="Goldens that exercise the row but lack a verdict on one side.")
    lift: float | None = None
    low: float | None = None
    high: float | None = None
    agent_version_id: UUID | None = Field(None, description="The replayed version, if there was only one.")
    agent_version_ids: list[UUID] = []
    stale: bool = False
    stale_because: list[Literal["row", "agent", "goldens"]] = Field([], description="What has changed since the proof.")
    gate: str | None = Field(None, description="With the gate `proved`, why the row stays proposed.")
    replayed: int = Field(0, description="Number of replayed goldens.")
    left_out: dict[str, int] = Field(
        {},
        description=(
            "Goldens in scope that were not replayed: `elsewhere` (external agent), `rejected` (bad "
            "baseline) or `further` (over the limit)."
        ),
    )
    trials: int | None = None
    row_version: int | None = None
    run_ids: list[UUID] = []
    usage: UsageAnswer | None = None
    override_reason: str | None = None
    created_at: Moment | None = None
    completed_at: Moment | None = None


@admin_route(
    "POST",
    "/api/admin/shared-context/<uuid:row_id>/proof",
    status=202,
    idempotent=True,
    also={409: "The row was deleted."},
)
def start_proof(row_id: UUID, body: NewProof) -> ProofStarted:
    """Prove a knowledge row. Replays the goldens in its scope with and without it, on current agent versions.
    Returns the running proof if there is one."""
    proof = proof_start.start_proof(row_id, actor=g.actor, trials=body.trials)
    return ProofStarted(id=proof.id, run_ids=[one for one in (proof.with_run_id, proof.without_run_id) if one])


@admin_route("GET", "/api/admin/shared-context/<uuid:row_id>/proof")
def read_proof(row_id: UUID) -> ProofAnswer:
    """Get a knowledge row's proof. The running one, or the newest finished one."""
    row = knowledge_lists.get_row(row_id, actor=g.actor).row
    known = knowledge_proofs.proofs_of_row(row.id, actor=g.actor)
    proof = known.running or known.done
    return ProofAnswer.model_validate({"status": "none"} if proof is None else _describe(proof))


def _describe(proof: knowledge_proofs.Proof) -> dict[str, Any]:
    score, done = proof.score, proof.status == "done"
    low, high = score.interval or (None, None)
    used = sum(eval_usage.usage_of_runs(proof.run_ids, actor=g.actor).values(), start=eval_usage.Usage())
    versions = proof.agent_version_ids
    return {
        **vars(proof),
        "n": score.n,
        "unchanged": score.unchanged,
        "undecided": score.undecided,
        "lift": score.lift,
        "low": low,
        "high": high,
        "agent_version_id": versions[0] if len(versions) == 1 else None,
        "stale": proof.stale,
        "gate": (proof_finish.gate_of_row(proof.row_id, score, actor=g.actor) or None) if done else None,
        "replayed": proof.replayed,
        "run_ids": proof.run_ids,
        "usage": used,
    }
