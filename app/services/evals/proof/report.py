"""A proof as its page shows it: each golden with both replays, what it was measured on, and what would exercise a row
that no golden does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.evals.proof import OUTCOMES
from app.models import Agent, AgentSession, AgentVersion, SharedContext, User
from app.services.evals import candidates
from app.services.evals.proof.finish import gate_of_row
from app.services.evals.proof.start import applies_to
from app.services.evals.usage import Usage, usage_of_runs
from app.services.knowledge.proofs import Proof, cases_of, titles_of

MAX_SUGGESTED = 5
SCANNED_SESSIONS = 500


@dataclass(frozen=True)
class ProofCase:
    """A golden in a proof. Its replays are None when their run was deleted."""

    golden_id: UUID
    title: str
    exercised: bool
    outcome: str
    before: str
    after: str
    without_id: UUID | None
    with_id: UUID | None


@dataclass(frozen=True)
class ProofReport:
    """What a proof found and what it took. `versions` names the agents it was measured on, such as `deal-analyst v3`;
    `gate` says why the gate stays closed, if it has a say."""

    proof: Proof
    cases: list[ProofCase]
    versions: list[str]
    used: Usage
    gate: str | None
    overrider: str | None

    @property
    def exercised(self) -> list[ProofCase]:
        return [case for case in self.cases if case.exercised]

    @property
    def idle(self) -> list[ProofCase]:
        return [case for case in self.cases if not case.exercised]


def report_proof(proof: Proof, *, actor: Actor) -> ProofReport:
    """The whole of a proof that is done, what it broke first. Six queries at most."""
    stored = cases_of(proof.id, actor=actor)
    titles = titles_of([UUID(case["golden"]) for case in stored], actor=actor)
    replays = {case[side] for case in stored for side in ("with", "without")}
    there = set(db.session.scalars(select(AgentSession.id).where(*_own(actor), AgentSession.id.in_(replays))))
    cases = [_read_case(case, titles, there) for case in stored]
    used = sum(usage_of_runs(proof.run_ids, actor=actor).values(), start=Usage())
    return ProofReport(
        proof=proof,
        cases=sorted(cases, key=lambda case: (OUTCOMES.index(case.outcome), case.title.lower(), case.golden_id)),
        versions=_version_names(proof.agent_version_ids, actor),
        used=used,
        gate=gate_of_row(proof.row_id, proof.score, actor=actor),
        overrider=_name_of(proof.overridden_by),
    )


def _read_case(case: dict[str, Any], titles: dict[UUID, str], there: set[UUID]) -> ProofCase:
    golden_id = UUID(case["golden"])
    with_id, without_id = (found if (found := UUID(case[side])) in there else None for side in ("with", "without"))
    return ProofCase(
        golden_id=golden_id,
        title=titles.get(golden_id, "a golden that was deleted"),
        with_id=with_id,
        without_id=without_id,
        **{name: case[name] for name in ("exercised", "outcome", "before", "after")},
    )


def _own(actor: Actor) -> tuple[Any, ...]:
    return (AgentSession.tenant_id == actor.tenant_id,)


def _version_names(version_ids: Sequence[UUID], actor: Actor) -> list[str]:
    rows = db.session.execute(
        select(Agent.slug, AgentVersion.version)
        .join(AgentVersion, (AgentVersion.tenant_id == Agent.tenant_id) & (AgentVersion.agent_id == Agent.id))
        .where(Agent.tenant_id == actor.tenant_id, AgentVersion.id.in_(version_ids))
        .order_by(Agent.slug)
    )
    return [f"{slug} v{version}" for slug, version in rows]


def _name_of(user_id: UUID | None) -> str | None:
    return db.session.scalar(select(User.name).where(User.id == user_id)) if user_id else None


@dataclass(frozen=True)
class Suggestions:
    """What could become a golden that exercises a row: requests that went wrong, and sessions, as `id` and `title`."""

    candidates: list[candidates.Candidate]
    sessions: list[Any]


def suggest_goldens(row_id: UUID, *, actor: Actor) -> Suggestions:
    """Candidates and recent sessions to which a row's condition applies, of the agents that get the row. Five queries
    at most."""
    row = db.session.scalar(
        select(SharedContext).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id == row_id)
    )
    if row is None:
        return Suggestions([], [])
    groups = candidates.list_candidates(actor=actor, limit=candidates.MAX_GROUPS).items
    fit = [one for one in groups if row.agent_id in (None, one.agent_id) and applies_to(row, [one.prompt])]
    where = [
        *_own(actor), AgentSession.status == "completed", AgentSession.eval_source.is_(None),
        AgentSession.golden_set.is_(None), AgentSession.title != "",
    ]  # fmt: skip
    if row.agent_id is not None:
        where.append(AgentSession.agent_id == row.agent_id)
    newest = (
        select(AgentSession.id, AgentSession.title)
        .where(*where)
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(SCANNED_SESSIONS)
    )
    sessions: dict[str, Any] = {}
    for one in db.session.execute(newest):
        if applies_to(row, [one.title]):
            # People ask the same again; the newest of each is enough.
            sessions.setdefault(one.title, one)
    return Suggestions(fit[:MAX_SUGGESTED], list(sessions.values())[:MAX_SUGGESTED])
