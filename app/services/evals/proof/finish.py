"""The result of a proof, computed in the transaction that ends the second of its runs; and the gate that it opens."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import exists, or_, select, update
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db, get_own, run
from app.errors import Problem
from app.evals.proof import Pair, Replays, Score, score_pairs
from app.formats.agent_config import OFFLINE
from app.models import EvalRun, Feedback, KnowledgeProof, SharedContext, SharedContextFeedback
from app.services import audit
from app.services.knowledge import hygiene
from app.services.knowledge import proofs as knowledge_proofs
from app.services.knowledge import rows as knowledge_rows
from app.services.workspaces import store as workspace_store

GATE = "proved"
# What each replay did, as hashes: its calls with their arguments, and what it said.
SIGNATURES = """
SELECT s.eval_source, s.model,
       md5(coalesce(string_agg(CASE WHEN e.event_type = 'tool.call'
                                    THEN (e.payload ->> 'name') || coalesce(e.payload ->> 'arguments', '') END, E'\\n'
                               ORDER BY e.occurred_at, e.sequence), '')),
       md5(coalesce(string_agg(CASE WHEN e.event_type = 'agent.message' THEN e.payload ->> 'text' END, E'\\n'
                               ORDER BY e.occurred_at, e.sequence), ''))
  FROM sessions AS s
  LEFT JOIN session_events AS e ON e.tenant_id = s.tenant_id AND e.session_id = s.id
   AND e.event_type IN ('tool.call', 'agent.message')
 WHERE s.tenant_id = %(tenant)s AND s.eval_run_id = %(run)s AND s.status = 'completed'
   AND s.eval_source = ANY (%(goldens)s::text[])
 GROUP BY s.id
"""
Signatures = dict[str, tuple[frozenset[str], frozenset[str]]]


def finish_proofs(ended: EvalRun, *, actor: Actor) -> None:
    """Finish the proofs whose second run this was. Two runs that end at once take turns at the proof, and the later one
    sees the other's end. A proof without both of its runs is cancelled."""
    if "proof" not in ended.options:
        return
    proofs = db.session.scalars(
        select(KnowledgeProof)
        .where(
            KnowledgeProof.tenant_id == actor.tenant_id,
            KnowledgeProof.status == "running",
            or_(KnowledgeProof.with_run_id == ended.id, KnowledgeProof.without_run_id == ended.id),
        )
        .order_by(KnowledgeProof.id)
        .with_for_update()
    ).all()
    seen: dict[UUID, Signatures] = {}
    for proof in proofs:
        with_run, without_run = _load_runs(proof, actor)
        if with_run is None or without_run is None or "cancelled" in (with_run.status, without_run.status):
            proof.status, proof.completed_at = "cancelled", datetime.now(UTC)
        elif with_run.completed_at and without_run.completed_at:
            _finish(proof, with_run, without_run, seen, actor)
        db.session.flush()


def reopen_proofs(run_id: UUID, *, actor: Actor) -> None:
    """Let proofs wait again for a run that is taken up again. While another proof of the row is under way, they stay as
    they are."""
    other = aliased(KnowledgeProof)
    of_row = (other.tenant_id == actor.tenant_id) & (other.shared_context_id == KnowledgeProof.shared_context_id)
    db.session.execute(
        update(KnowledgeProof)
        .where(
            KnowledgeProof.tenant_id == actor.tenant_id,
            or_(KnowledgeProof.with_run_id == run_id, KnowledgeProof.without_run_id == run_id),
            KnowledgeProof.status == "done",
            ~exists().where(of_row, other.status == "running"),
        )
        .values(status="running", completed_at=None)
        .execution_options(synchronize_session=False)
    )


def _load_runs(proof: KnowledgeProof, actor: Actor) -> tuple[EvalRun | None, EvalRun | None]:
    """The run with the row and the one without it, as they are now."""
    ids = [proof.with_run_id, proof.without_run_id]
    wanted = select(EvalRun).where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id.in_(ids))
    found = {one.id: one for one in db.session.scalars(wanted.execution_options(populate_existing=True))}
    with_run, without_run = (found.get(run_id) if run_id else None for run_id in ids)
    return with_run, without_run


def _finish(
    proof: KnowledgeProof, with_run: EvalRun, without_run: EvalRun, seen: dict[UUID, Signatures], actor: Actor
) -> None:
    after, before = with_run.results["bySession"], without_run.results["bySession"]
    planned = [case for case in proof.cases if case["golden"] in after and case["golden"] in before]
    for one in (with_run, without_run):
        if one.id not in seen:
            seen[one.id] = _signatures(one.id, [case["golden"] for case in planned], actor)
    pairs = [
        Pair(
            case["golden"],
            case["applies"],
            _replays(before[case["golden"]], seen[without_run.id].get(case["golden"])),
            _replays(after[case["golden"]], seen[with_run.id].get(case["golden"])),
        )
        for case in planned
    ]
    score = score_pairs(pairs)
    proof.cases = [
        {**case, **_describe_pair(pair, before[pair.golden_id], after[pair.golden_id])}
        for case, pair in zip(planned, pairs, strict=True)
    ]
    proof.exercised, proof.undecided = score.n, score.undecided
    exercised = [pair for pair in pairs if pair.exercised]
    proof.fixed, proof.broken = (
        [UUID(pair.golden_id) for pair in exercised if pair.outcome == outcome] for outcome in ("fixed", "broken")
    )
    proof.status, proof.completed_at = "done", datetime.now(UTC)
    db.session.flush()
    audit.record(
        actor, "knowledge.proved", "shared_context", proof.shared_context_id, exercised=score.n, fixed=score.fixed,
        broken=score.broken, undecided=score.undecided,
    )  # fmt: skip
    _apply_gate(proof, score, actor)


def _replays(result: Mapping[str, Any], did: tuple[frozenset[str], frozenset[str]] | None) -> Replays:
    calls, said = did or (frozenset(), frozenset())
    return Replays([trial["verdict"] for trial in result["trials"]], calls, said)


def _describe_pair(pair: Pair, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "exercised": pair.exercised,
        "outcome": pair.outcome,
        "before": pair.before.verdict,
        "after": pair.after.verdict,
        "without": before["replay_session_id"],
        "with": after["replay_session_id"],
    }


def _signatures(run_id: UUID, golden_ids: Sequence[str], actor: Actor) -> Signatures:
    """What the trials of each golden did, and said where the offline model spoke."""
    rows = run(SIGNATURES, {"tenant": actor.tenant_id, "run": run_id, "goldens": list(golden_ids)})
    found: dict[str, tuple[set[str], set[str]]] = {}
    for golden_id, model, calls, said in rows:
        of_golden = found.setdefault(golden_id, (set(), set()))
        of_golden[0].add(calls)
        if model == OFFLINE:
            of_golden[1].add(said)
    return {golden_id: (frozenset(calls), frozenset(said)) for golden_id, (calls, said) in found.items()}


def _apply_gate(proof: KnowledgeProof, score: Score, actor: Actor) -> None:
    """Activate a row that a tool proposed, where the workspace lets proofs decide and this one is good enough."""
    row = get_own(SharedContext, proof.shared_context_id, "knowledge row", actor=actor, lock=True)
    if knowledge_proofs.row_hash(row) != proof.row_hash or gate_refusal(row, score, actor=actor) != "":
        return
    reason = f"Activated by the gate: its proof fixes {score.fixed} and breaks 0 of {score.n} goldens."
    try:
        with db.session.begin_nested():
            knowledge_rows.set_state(row.id, "active", actor=actor, reason=reason)
            audit.record(
                actor, "knowledge.gate_opened", "shared_context", row.id, gate=GATE, fixed=score.fixed,
                exercised=score.n,
            )  # fmt: skip
    except Problem:
        # It says the same as another, or its own words replace what was changed since. A person decides.
        db.session.expire(row)


def gate_of_row(row_id: UUID, score: Score, *, actor: Actor) -> str | None:
    """Why the gate stays closed for a row with these figures, if the gate has a say."""
    row: SharedContext = get_own(SharedContext, row_id, "knowledge row", actor=actor)
    return gate_refusal(row, score, actor=actor)


def gate_refusal(row: Any, score: Score, *, actor: Actor) -> str | None:
    """Why the gate does not open for a proposed row: a sentence, or empty where it opens. None where the gate has no
    say: the workspace lets people decide, or a person wrote the row."""
    if row.state != "proposed" or "proposed" not in row.meta or "retires" in row.meta:
        return None
    if workspace_store.get_settings(actor).knowledge_gate != GATE:
        return None
    if score.gate_refusal:
        return score.gate_refusal
    if _has_only_replays(row):
        return "Its only evidence is failed replays, so an admin decides."
    findings = hygiene.check_rows([row.id], actor=actor).get(row.id, [])
    return f"The checks have a finding: {findings[0].check}." if findings else ""


def _has_only_replays(row: Any) -> bool:
    """Whether all feedback behind a row comes from failed replays. Such a row never activates by itself."""
    link = SharedContextFeedback
    kinds = (
        select(Feedback.kind)
        .join(link, (link.tenant_id == Feedback.tenant_id) & (link.feedback_id == Feedback.id))
        .where(link.tenant_id == row.tenant_id, link.shared_context_id == row.id)
        .distinct()
    )
    return list(db.session.scalars(kinds)) == ["replay_failure"]
