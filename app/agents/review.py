"""Carries out a review: reads open feedback part by part, decides, and writes each decision in a short transaction of
its own with its events. No transaction is open while it decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from app.actor import Actor
from app.agents.turn import StopRequested, Threads
from app.errors import Problem, Throttled
from app.learning.review.decide import UNCLEAR
from app.learning.review.plan import plan_review
from app.learning.review.sentences import SentenceVectors
from app.learning.review.types import Dismissal, KnownPattern, Merge, Pattern, Plan, Proposal, Signal
from app.services.evals.proof.start import start_proof
from app.services.review import decisions, patterns, runs
from app.services.review.batch import World, load_known, load_part, load_spread, load_world
from app.services.review.decisions import Batch, Done
from app.services.review.patterns import NewPattern
from app.services.sessions import leases
from app.services.sessions.events import NewEvent
from app.services.sessions.leases import Lease
from app.services.workspaces.store import get_settings
from app.text import encoder

Result = TypeVar("Result")
Decision = Proposal | Merge | Dismissal
# Asks a model what to do about the feedback of a proposal.
Judge = Callable[[Proposal, Batch, World, dict[UUID, UUID]], Awaitable[None]]
PATTERNS_AT_ONCE = 50
# A failed replay often says what went wrong and not what to do. Without words of a person, that takes a model.
WHAT_FAILED = "Replay fails"
RETURNED = "It is in a pattern that has this rule."
APPLY: dict[type, Callable[..., Done]] = {
    Proposal: lambda decision, batch, actor, session_id: decisions.propose(
        decision, batch, actor=actor, session_id=session_id
    ),
    Merge: lambda decision, batch, actor, _: decisions.merge(decision, batch, actor=actor),
    Dismissal: lambda decision, batch, actor, _: decisions.dismiss(decision, batch, actor=actor),
}


@dataclass
class Reviewer:
    """One attempt at a review. `actor` is the review agent; `judge` asks its model, if it has one and
    this is no dry run."""

    lease: Lease
    threads: Threads
    actor: Actor
    dry_run: bool
    model: str | None = None
    judge: Judge | None = None
    throttled: bool = False
    complete: bool = True
    wait_days: int = 14
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    sentences: SentenceVectors = field(default_factory=SentenceVectors)

    async def run(self) -> str:
        """Review all that is open, and say what was done."""
        await self._transact(lambda: runs.begin_run(self.lease.session_id, self.model, actor=self.actor))
        self.wait_days = await self._transact(lambda: get_settings(self.actor).review_wait_days)
        try:
            await self._review_all()
        finally:
            encoder.release()
        if not self.dry_run:
            await self._prove()
        return await self._transact(
            lambda: runs.finish_run(self.lease.session_id, complete=self.complete, actor=self.actor)
        )

    async def _prove(self) -> None:
        """Where proofs decide what becomes active, prove what was proposed."""
        review, gate = await self._transact(
            lambda: (
                runs.get_review(self.lease.session_id, actor=self.actor),
                get_settings(self.actor).knowledge_gate,
            )
        )
        for row_id in review.proposed if gate == "proved" else ():
            try:
                await self._transact(partial(start_proof, row_id, actor=replace(self.actor, agent_id=None)))
            except Problem as refusal:
                await self.refuse({"what": "prove"}, refusal.detail)

    async def _review_all(self) -> None:
        """Review what is open. Where it came in several parts, the patterns that are spread over them are looked at
        once more as wholes."""
        after: Signal | None = None
        parts: Counter[UUID] = Counter()
        while part := await self._load(after):
            parts.update(await self._review_part(part))
            after = part[-1]
        spread = [pattern_id for pattern_id, number in parts.items() if number > 1]
        for start in range(0, 0 if self.throttled else len(spread), PATTERNS_AT_ONCE):
            some = spread[start : start + PATTERNS_AT_ONCE]
            rows = await self._transact(partial(load_spread, some, self.now, actor=self.actor))
            await self._review_part(rows, counted=False)

    async def _load(self, after: Signal | None) -> list[Signal]:
        return await self._transact(lambda: load_part(after, self.now, actor=self.actor))

    async def _review_part(self, part: Sequence[Signal], *, counted: bool = True) -> set[UUID]:
        """Decide about a part of the feedback, and return the patterns in it that are still without a rule."""
        world, known, rules = await self._transact(lambda: self._surroundings(part))
        plan = await self.threads.call(lambda: self._plan(part, world, known))
        plan = join_returning(plan, rules)
        rejected = [rule for rule in world.rules if rule.rejected]
        batch = Batch({signal.id: signal for signal in part}, rejected)
        saved = await self._save_patterns(plan, batch)
        waiting = dict(plan.pending)
        settled: list[Decision] = [*plan.dismissals, *plan.merges]
        for decision in settled:
            await self.apply(decision, batch, saved)
        for proposal in plan.proposals:
            if self.judge is None and WHAT_FAILED in proposal.content:
                waiting |= dict.fromkeys(proposal.signal_ids, UNCLEAR)
            elif self.judge is not None:
                await self.judge(proposal, replace(batch.of(proposal.signal_ids), by_model=True), world, saved)
            elif why := await self.apply(proposal, batch, saved):
                waiting |= dict.fromkeys(proposal.signal_ids, why)
        await self._note_waiting({id: waiting.get(id) for id in saved})
        decided = {id for decision in [*settled, *plan.proposals] for id in decision.signal_ids}
        left = batch.signals.keys() - decided
        if counted:
            await self._note([], considered=len(part), patterns=len(plan.patterns), left_pending=len(left))
        return {saved[id] for id in left if id in saved}

    async def _note_waiting(self, reasons: dict[UUID, str | None]) -> None:
        if reasons:
            await self._transact(lambda: patterns.note_waiting(reasons, actor=self.actor))

    def _surroundings(self, part: Sequence[Signal]) -> tuple[World, list[KnownPattern], dict[UUID, UUID]]:
        known = load_known(part, actor=self.actor)
        rules = patterns.live_rules([pattern.id for pattern in known], actor=self.actor)
        return load_world(actor=self.actor), known, rules

    def _plan(self, part: Sequence[Signal], world: World, known: Sequence[KnownPattern]) -> Plan:
        return plan_review(
            part,
            agents=world.agents,
            entity_types=world.entity_types,
            rules=world.rules,
            now=self.now,
            known=known,
            wait_days=self.wait_days,
            sentences=self.sentences,
        )

    async def _save_patterns(self, plan: Plan, batch: Batch) -> dict[UUID, UUID]:
        """Store the patterns, and return the pattern of each row."""
        if self.dry_run:
            return {}
        saved: dict[UUID, UUID] = {}
        for start in range(0, len(plan.patterns), PATTERNS_AT_ONCE):
            some = plan.patterns[start : start + PATTERNS_AT_ONCE]
            saved |= await self._transact(partial(self._save, some, batch))
        return saved

    def _save(self, some: Sequence[Pattern], batch: Batch) -> dict[UUID, UUID]:
        saved: dict[UUID, UUID] = {}
        for pattern in some:
            rows = [(id, batch.signals[id].occurred_at) for id in pattern.signal_ids]
            new = NewPattern(
                label=pattern.label or "No words",
                agent_id=pattern.agent_id,
                entity_type_id=pattern.entity_type_id,
                rows=rows,
                id=pattern.known_id,
            )
            saved |= patterns.save_pattern(new, actor=self.actor)
        return saved

    async def apply(self, decision: Decision, batch: Batch, saved: dict[UUID, UUID]) -> str | None:
        """Carry out a decision, and return why the server refused it."""
        if self.dry_run:
            await self._note([], decisions=[describe(decision)], **self._planned(decision))
            return None
        if isinstance(decision, Proposal) and self.throttled:
            self.complete = False
            return "No more proposals in this hour."
        try:
            await self._transact(lambda: self._carry_out(decision, batch, saved))
        except Problem as refusal:
            self.throttled = self.throttled or isinstance(refusal, Throttled)
            self.complete = self.complete and not isinstance(refusal, Throttled)
            await self.refuse(describe(decision), refusal.detail)
            return refusal.detail
        return None

    def _carry_out(self, decision: Decision, batch: Batch, saved: dict[UUID, UUID]) -> None:
        self._write(self.carry_out(decision, batch, saved).events)

    def carry_out(self, decision: Decision, batch: Batch, saved: dict[UUID, UUID]) -> Done:
        """Carry out a decision in the open transaction. Whoever calls writes its events."""
        done = APPLY[type(decision)](decision, batch, self.actor, self.lease.session_id)
        if done.row_id is not None:
            found = {saved[id] for id in decision.signal_ids if id in saved}
            patterns.link_rule(found, done.row_id, actor=self.actor)
        runs.note_step(self.lease.session_id, actor=self.actor, **self._done(decision, done))
        return done

    def _done(self, decision: Decision, done: Done) -> dict[str, Any]:
        if isinstance(decision, Dismissal):
            return {"dismissed": len(done.moved)}
        return {"proposed" if isinstance(decision, Proposal) else "merged": [done.row_id]}

    def _planned(self, decision: Decision) -> dict[str, Any]:
        if isinstance(decision, Dismissal):
            return {"dismissed": len(decision.signal_ids)}
        return {"merged": [decision.rule_id]} if isinstance(decision, Merge) else {}

    async def refuse(self, what: dict[str, Any], why: str) -> None:
        """Report what was tried and not allowed."""
        await self._note([], refused=[{**what, "why": why}])

    async def _note(self, events: Sequence[NewEvent], **done: Any) -> None:
        def work() -> None:
            self._write(events)
            runs.note_step(self.lease.session_id, actor=self.actor, **done)

        await self._transact(work)

    def _write(self, events: Sequence[NewEvent]) -> None:
        """Write events under the lease. Whoever lost it writes nothing of the step."""
        if leases.record(self.lease, events):
            raise StopRequested

    async def _transact(self, work: Callable[[], Result]) -> Result:
        return await self.threads.transact(self.actor, work)


def join_returning(plan: Plan, rules: dict[UUID, UUID]) -> Plan:
    """Feedback of a known pattern that has a rule already joins the rule instead of waiting."""
    merges = []
    for pattern in plan.patterns:
        waiting = tuple(id for id in pattern.signal_ids if id in plan.pending)
        if pattern.known_id in rules and waiting:
            merges.append(Merge(rules[pattern.known_id], waiting, RETURNED))
    joined = {id for one in merges for id in one.signal_ids}
    pending = {id: why for id, why in plan.pending.items() if id not in joined}
    return replace(plan, merges=(*plan.merges, *merges), pending=pending)


def describe(decision: Decision) -> dict[str, Any]:
    """A decision in JSON, for refusals and dry runs."""
    values = {name: _plain(value) for name, value in asdict(decision).items()}
    kind = {Proposal: "propose", Merge: "merge", Dismissal: "dismiss"}[type(decision)]
    return {"what": kind, **values, "signals": len(decision.signal_ids)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(one) for one in value[:20]]
    return str(value) if isinstance(value, UUID) else value
