"""A replay: what it is measured by, and what its verdict sets off, all in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.evals.compare import Golden, compare
from app.evals.expected import read_expected
from app.evals.runs import Run, make_run
from app.evals.verdict import ERRORED, FAIL, PASS, Policy, read_policy
from app.learning.prompt import DEFAULT_BUDGET, Prompt, PromptRow, format_prompt
from app.models import AgentSession, AgentVersion, EvalRun, Feedback, GoldenSet, SharedContext, Tenant
from app.services import audit, feedback, intake, leases
from app.services.comparisons import nearness
from app.services.intake import NewFeedback
from app.services.leases import Ending, Held
from app.services.run_results import Case, cases_of, finish_if_done, lock_run, verdict_of
from app.services.session_events import Event, events_of

LIVE, RECORDED = "live", "recorded"
MOST_REPLAYS = 100
DIVERGENCES_KEPT = 50


@dataclass(frozen=True)
class Replay:
    """What a replay takes its inputs from and is measured by. `tools` says what each tool may do."""

    golden_id: UUID
    run_id: UUID
    context_mode: str
    snapshot: Mapping[str, Any]
    golden: Golden
    golden_events: Sequence[Mapping[str, Any]]
    policy: Policy
    tools: Mapping[str, str] = field(default_factory=dict)

    def policy_of(self, tool: str) -> str:
        return self.tools.get(tool) or self.tools.get("*") or RECORDED


def load_replay(session: Held, *, actor: Actor) -> tuple[Replay, Prompt | None]:
    """What the replay needs, and the frozen knowledge of its golden; none where the context is live."""
    meta = session.meta
    kept = meta["eval_golden"]
    run = db.session.get_one(EvalRun, UUID(meta["eval_run_id"]))
    if run.status == "queued":
        db.session.execute(
            update(EvalRun)
            .where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run.id, EvalRun.status == "queued")
            .values(status="running")
            .execution_options(synchronize_session=False)
        )
    golden_id = UUID(meta["eval_source"])
    events = [_plain(event) for event in events_of(golden_id, actor=actor)]
    if not events:
        raise Refused("The golden was deleted before its replay began.")
    snapshot = kept["snapshot"]
    replay = Replay(
        golden_id=golden_id,
        run_id=run.id,
        context_mode=run.context_mode,
        snapshot=snapshot,
        golden=golden_of(events, kept),
        golden_events=events,
        policy=_policy(kept.get("set"), actor),
        tools=run.options.get("tools") or {},
    )
    return replay, None if run.context_mode == LIVE else frozen_prompt(snapshot, run.options, actor=actor)


def golden_of(events: Sequence[Mapping[str, Any]], kept: Mapping[str, Any]) -> Golden:
    """A golden as the comparer has it, from its events and from what promoting froze."""
    snapshot = kept["snapshot"]
    run = make_run(
        events,
        session_type=snapshot["session_type"],
        output_type=snapshot.get("output_type"),
        tools=snapshot.get("tools") or (),
    )
    criteria = (snapshot.get("criteria") or {}).get("dimensions")
    return Golden(run, read_expected(kept.get("expected")), criteria, kept.get("baseline_rejected") is True)


def _plain(event: Event) -> dict[str, Any]:
    return {"event_type": event.event_type, "payload": event.payload, "sequence": event.sequence}


def _policy(set_name: str | None, actor: Actor) -> Policy:
    policy = db.session.scalar(
        select(GoldenSet.policy).where(GoldenSet.tenant_id == actor.tenant_id, GoldenSet.name == set_name)
    )
    return read_policy(policy) if policy else Policy()


def frozen_prompt(snapshot: Mapping[str, Any], options: Mapping[str, Any], *, actor: Actor) -> Prompt:
    """The knowledge that the golden had, in the same order and so the same bytes, with rows added or taken away.

    An added row stands first of its type: it is what is being tried.
    """
    minus = set(options.get("minus") or ())
    rows = [row for row in snapshot["shared_context"]["rows"] if row["id"] not in minus]
    known = [_row(row, -float(place)) for place, row in enumerate(rows)]
    added = _added(options.get("plus") or (), {row["id"] for row in rows}, actor)
    secret = db.session.scalar(select(Tenant.secret).where(Tenant.id == actor.tenant_id)) or ""
    return format_prompt([*added, *known], secret=secret, budget=2 * DEFAULT_BUDGET, top_n=len(known) + len(added) + 1)


def _row(row: Mapping[str, Any], rank: float) -> PromptRow:
    return PromptRow(
        UUID(row["id"]), row["type"], row["content"], row["context"], row["scope"], int(row["version"]), rank
    )


def _added(ids: Sequence[str], there: set[str], actor: Actor) -> list[PromptRow]:
    wanted = [UUID(row_id) for row_id in ids if row_id not in there]
    if not wanted:
        return []
    rows = db.session.scalars(
        select(SharedContext).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(wanted))
    )
    scopes = {(True, True): "both", (True, False): "agent", (False, True): "entity_type", (False, False): "workspace"}
    return [
        PromptRow(
            row.id, row.type, row.content, row.context, scopes[bool(row.agent_id), bool(row.entity_type_id)],
            row.version, 1.0,
        )
        for row in rows
    ]  # fmt: skip


def judge(replay: Replay, events: Sequence[Mapping[str, Any]], status: str, tools: Sequence[Any]) -> dict[str, Any]:
    """The verdict on a replay. Nothing is read or written."""
    snapshot = replay.snapshot
    found: Run = make_run(
        events,
        session_type=snapshot["session_type"],
        output_type=snapshot.get("output_type"),
        status=status,
        tools=tools,
    )
    return compare(replay.golden, found, nearness(), replay.policy).as_json()


def settle(session: Held, ending: Ending, result: dict[str, Any], *, actor: Actor) -> None:
    """End a replay with its verdict. When it is the last trial of its golden, that golden's failure becomes feedback
    or an earlier one is settled; when it is the last of its run, the run ends.

    Trials of one golden settle one after the other. The run itself is held only at the end, and for a moment: all its
    cases pass here.
    """
    run = db.session.get_one(EvalRun, UUID(session.meta["eval_run_id"]), populate_existing=True)
    _hold_golden(session, actor)
    leases.end(session, ending, actor=actor)
    db.session.execute(
        update(AgentSession)
        .where(AgentSession.tenant_id == session.tenant_id, AgentSession.id == session.id)
        .values(meta={**session.meta, "eval_result": {**result, "judged_at": datetime.now(UTC).isoformat()}})
    )
    golden_id = str(session.meta["eval_source"])
    group = cases_of(run.id, actor=actor, golden_id=golden_id, divergences=True)
    verdict = verdict_of(group)
    if run.cancel_requested_at is None:
        speak(verdict, group, session, run, actor=actor)
    finish_if_done(lock_run(run.id, actor=actor), actor=actor)


def _hold_golden(session: AgentSession | Held, actor: Actor) -> None:
    golden_id = UUID(str(session.meta["eval_source"]))
    db.session.execute(
        select(AgentSession.id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == golden_id)
        .with_for_update(key_share=True)
    )


def speak(
    verdict: str | None, group: Sequence[Case], session: AgentSession | Held, run: EvalRun, *, actor: Actor
) -> None:
    """A failed golden is one row of feedback, however often it fails; a later pass settles it. Of several runs that end
    at once, one after the other has its say."""
    if verdict not in (PASS, FAIL):
        return
    _hold_golden(session, actor)
    if verdict == FAIL:
        _report(group, session, run, actor)
    elif verdict == PASS:
        row = _open_row(session, run, actor)
        if row is not None and row.status == "pending":
            version = db.session.scalar(select(AgentVersion.version).where(AgentVersion.id == session.agent_version_id))
            feedback.settle_pending([row.id], "dismissed", actor=actor, notes=f"passes again on v{version}")


def _open_row(session: AgentSession | Held, run: EvalRun, actor: Actor) -> Feedback | None:
    context: Any = Feedback.context
    return db.session.scalar(
        select(Feedback)
        .where(
            Feedback.tenant_id == actor.tenant_id,
            Feedback.kind == "replay_failure",
            Feedback.status.in_(("pending", "reviewed")),
            context["golden_session_id"].astext == str(session.meta["eval_source"]),
            context["agent_version_id"].astext == str(session.agent_version_id),
            context["context_mode"].astext == run.context_mode,
        )
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def _report(group: Sequence[Case], session: AgentSession | Held, run: EvalRun, actor: Actor) -> None:
    failed = [case for case in group if case.verdict == FAIL]
    replays = [str(case.session_id) for case in failed]
    divergences = (failed[0].divergences or [])[:DIVERGENCES_KEPT]
    row = _open_row(session, run, actor)
    if row is not None:
        before = row.context["replay_session_ids"]
        row.context = {
            **row.context,
            "replay_session_ids": [before[0], *(before[1:] + replays)[-MOST_REPLAYS + 1 :]],
            "divergences": divergences,
        }
        db.session.flush()
        audit.record(actor, "feedback.changed", "feedback", row.id, kind=row.kind, replays=len(replays))
        return
    intake.give_feedback(
        NewFeedback(
            source_type="session",
            kind="replay_failure",
            origin="system",
            rating="negative",
            comment=f"Replay fails: {failed[0].reason}.",
            session_id=UUID(replays[0]),
            agent_id=session.agent_id,
            context={
                "golden_session_id": str(session.meta["eval_source"]),
                "replay_session_ids": replays[:MOST_REPLAYS],
                "agent_version_id": str(session.agent_version_id),
                "context_mode": run.context_mode,
                "divergences": divergences,
            },
        ),
        actor=actor,
    )


def unjudged(reason: str) -> dict[str, Any]:
    """The result of a replay that came to no end."""
    return {
        "verdict": ERRORED,
        "passed": None,
        "reason": reason,
        "overall_accuracy": None,
        "dimensions": {},
        "divergences": [],
        "baseline": None,
    }
