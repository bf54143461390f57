"""A replay from its inputs to its verdict: load, compare without a transaction, then store it all in a short one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db, run
from app.errors import Refused
from app.evals.compare.clipping import clip_event, clip_run
from app.evals.compare.sessions import Golden, compare
from app.evals.rubric import keep_compared
from app.evals.trace import Event, Run
from app.evals.verdict import ERRORED, FAIL, PASS, Policy, read_policy
from app.learning.prompt import DEFAULT_BUDGET, Prompt, PromptRow, format_prompt, scope_of
from app.models import AgentSession, AgentVersion, Feedback, SharedContext
from app.services import audit
from app.services.evals.compare import golden_of, load_events, nearness
from app.services.evals.judging.queue import queue_judgement
from app.services.evals.results import Case, cases_of, finish_run_of_case, verdict_of
from app.services.feedback import intake as feedback_intake
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback
from app.services.sessions import leases
from app.services.sessions.leases import LeasedSession, RunOutcome
from app.services.sessions.transcript import RecordNames
from app.text.hidden_characters import strip_hidden

LIVE, RECORDED = "live", "recorded"
MAX_REPLAYS = 100
MAX_DIVERGENCES = 50
# Every case of a run passes through these, so each reads what it needs with as few statements as it can.
LOAD_REPLAY = """
SELECT r.status, r.context_mode, r.options, g.policy, t.secret, o.event_bytes
  FROM eval_runs AS r
  JOIN tenants AS t ON t.id = r.tenant_id
  LEFT JOIN sessions AS o ON o.tenant_id = r.tenant_id AND o.id = %(golden)s
  LEFT JOIN golden_sets AS g ON g.tenant_id = r.tenant_id AND g.name = %(set)s
 WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s
"""
START_RUN = """
UPDATE eval_runs SET status = 'running' WHERE tenant_id = %(tenant)s AND id = %(run)s AND status = 'queued'
"""
LOCK_GOLDEN = "SELECT 1 FROM sessions WHERE tenant_id = %(tenant)s AND id = %(golden)s FOR NO KEY UPDATE"
LOAD_RUN = """
SELECT context_mode, cancel_requested_at IS NOT NULL, options ? 'trial'
  FROM eval_runs WHERE tenant_id = %(tenant)s AND id = %(run)s
"""
OPEN_REPORT = """
SELECT id FROM feedback
 WHERE tenant_id = %(tenant)s AND kind = 'replay_failure' AND status IN ('pending', 'reviewed')
   AND context ->> 'golden_session_id' = %(golden)s AND context ->> 'agent_version_id' = %(version)s
   AND context ->> 'context_mode' = %(mode)s
   FOR UPDATE
"""


Replayed = AgentSession | LeasedSession


@dataclass(frozen=True)
class Replay:
    """What a replay takes its inputs from and is measured by. `tools` says what each tool may do."""

    golden_id: UUID
    run_id: UUID
    context_mode: str
    snapshot: Mapping[str, Any]
    golden: Golden
    policy: Policy
    tools: Mapping[str, str] = field(default_factory=dict)

    def policy_of(self, tool: str) -> str:
        return self.tools.get(tool) or self.tools.get("*") or RECORDED


def load_replay(session: LeasedSession, *, actor: Actor) -> tuple[Replay, Prompt | None]:
    """What the replay needs, and the frozen knowledge of its golden; none where the context is live."""
    meta = session.meta
    kept = meta["eval_golden"]
    of_run = {"tenant": actor.tenant_id, "run": meta["eval_run_id"]}
    golden_id = UUID(meta["eval_source"])
    asked = run(LOAD_REPLAY, of_run | {"set": kept.get("set"), "golden": golden_id})
    [(status, context_mode, options, policy, secret, size)] = asked
    if status == "queued":
        run(START_RUN, of_run)
    recorded = load_events({golden_id: size}, actor=actor)[golden_id] if size is not None else None
    if recorded is None or not recorded.events:
        raise Refused("The golden was deleted before its replay began.")
    snapshot = kept["snapshot"]
    as_recorded = recorded.as_run(snapshot["session_type"], snapshot.get("output_type"), snapshot.get("tools") or ())
    replay = Replay(
        golden_id=golden_id,
        run_id=UUID(meta["eval_run_id"]),
        context_mode=context_mode,
        snapshot=snapshot,
        golden=golden_of(as_recorded, kept),
        policy=read_policy(policy) if policy else Policy(),
        tools=options.get("tools") or {},
    )
    return replay, None if context_mode == LIVE else frozen_prompt(snapshot, options, secret, actor=actor)


def frozen_prompt(snapshot: Mapping[str, Any], options: Mapping[str, Any], secret: str, *, actor: Actor) -> Prompt:
    """The golden's knowledge in the same order, and so the same bytes. Added rows come first of their type."""
    minus = set(options.get("minus") or ())
    rows = [row for row in snapshot["shared_context"]["rows"] if row["id"] not in minus]
    known = [_frozen_row(row, -float(place)) for place, row in enumerate(rows)]
    added = _added_rows(options.get("plus") or (), {row["id"] for row in rows}, actor)
    return format_prompt([*added, *known], secret=secret, budget=2 * DEFAULT_BUDGET, top_n=len(known) + len(added) + 1)


def _frozen_row(row: Mapping[str, Any], rank: float) -> PromptRow:
    """A frozen row as its run had it. Earlier versions removed hidden characters only while building the prompt."""
    content, context = strip_hidden(row["content"]), strip_hidden(row["context"] or "") or None
    return PromptRow(UUID(row["id"]), row["type"], content, context, row["scope"], int(row["version"]), rank)


def _added_rows(ids: Sequence[str], there: set[str], actor: Actor) -> list[PromptRow]:
    wanted = [UUID(row_id) for row_id in ids if row_id not in there]
    if not wanted:
        return []
    rows = db.session.scalars(
        select(SharedContext).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(wanted))
    )
    scoped = [(row, scope_of(row.agent_id, row.entity_type_id)) for row in rows]
    return [PromptRow(row.id, row.type, row.content, row.context, scope, row.version, 1.0) for row, scope in scoped]


def load_trace(
    replay: Replay, session: LeasedSession, ending: RunOutcome, tools: Sequence[Any], *, actor: Actor
) -> Run:
    """The replay as the comparer takes it: the events it has stored, and those that it is about to end with."""
    snapshot = replay.snapshot
    so_far = load_events({session.id: session.event_bytes}, actor=actor, clip=replay.golden.run.clipped)[session.id]
    last = [
        Event(one.event_type, one.payload, session.event_count + place) for place, one in enumerate(ending.events, 1)
    ]
    whole = replace(so_far, events=(*so_far.events, *(map(clip_event, last) if so_far.clipped else last)))
    return whole.as_run(snapshot["session_type"], snapshot.get("output_type"), tools, ending.status)


def compare_replay(replay: Replay, trace: Run) -> dict[str, Any]:
    """The verdict on a replay. Needs no transaction, and must have none open: comparing texts takes a while."""
    golden = replay.golden
    if trace.clipped:
        golden = replace(golden, run=clip_run(golden.run))
    return compare(golden, trace, nearness(), replay.policy).as_json()


def finish_replay(session: LeasedSession, ending: RunOutcome, result: dict[str, Any], *, actor: Actor) -> None:
    """End a replay and store its verdict in one short transaction. The last trial of a golden reports its failure or
    settles an earlier report, unless the run is a trial run. The last replay of a run ends the run. Where the golden
    has criteria, a judge comes first, and both happen when it is done."""
    golden_id, run_id = str(session.meta["eval_source"]), UUID(session.meta["eval_run_id"])
    [(context_mode, cancelled, trial)] = run(LOAD_RUN, {"tenant": actor.tenant_id, "run": run_id})
    # Trials of one golden finish one after the other. The run is locked only at the end: all its cases pass here.
    lock_golden(golden_id, actor=actor)
    criteria_set_id = session.meta["eval_golden"].get("criteriaSetId")
    waits = criteria_set_id is not None and not cancelled and result["verdict"] in (PASS, FAIL)
    result = {**(keep_compared(result) if waits else result), "judged_at": datetime.now(UTC).isoformat()}
    leases.end(session, ending, actor=actor, marks={"eval_result": result})
    if waits:
        queue_judgement(session.id, run_id, UUID(criteria_set_id), actor=actor)
    if not cancelled and not trial:
        group = cases_of(run_id, actor=actor, golden_id=golden_id, divergences=True)
        report_verdict(verdict_of(group), group, session, context_mode, actor=actor)
    finish_run_of_case(run_id, actor=actor)


def lock_golden(golden_id: str, *, actor: Actor) -> None:
    run(LOCK_GOLDEN, {"tenant": actor.tenant_id, "golden": golden_id})


def report_verdict(
    verdict: str | None, group: Sequence[Case], session: Replayed, context_mode: str, *, actor: Actor
) -> None:
    """Write at most one open feedback row per failing golden, under its lock; dismiss it when a later run passes."""
    if verdict not in (PASS, FAIL):
        return
    of_golden = {"tenant": actor.tenant_id, "golden": session.meta["eval_source"]}
    lock_golden(of_golden["golden"], actor=actor)
    reports = run(OPEN_REPORT, of_golden | {"version": session.agent_version_id, "mode": context_mode})
    row = db.session.get(Feedback, reports[0][0], populate_existing=True) if reports else None
    if verdict == FAIL:
        _report_failure(row, group, session, context_mode, actor)
    elif row is not None and row.status == "pending":
        version = db.session.scalar(select(AgentVersion.version).where(AgentVersion.id == session.agent_version_id))
        feedback_review.settle_pending([row.id], "dismissed", actor=actor, notes=f"passes again on v{version}")


def _report_failure(
    row: Feedback | None, group: Sequence[Case], session: Replayed, context_mode: str, actor: Actor
) -> None:
    failed = [case for case in group if case.verdict == FAIL]
    replays = [str(case.session_id) for case in failed]
    divergences = (failed[0].divergences or [])[:MAX_DIVERGENCES]
    if row is not None:
        before = row.context["replay_session_ids"]
        row.context = {
            **row.context,
            "replay_session_ids": [before[0], *(before[1:] + replays)[-MAX_REPLAYS + 1 :]],
            "divergences": divergences,
            "eval_run_id": str(session.meta["eval_run_id"]),
        }
        db.session.flush()
        audit.record(actor, "feedback.changed", "feedback", row.id, kind=row.kind, replays=len(replays))
        return
    reason = failed[0].reason or "differs from its golden"
    feedback_intake.record_feedback(
        NewFeedback(
            source_type="session",
            kind="replay_failure",
            origin="system",
            rating="negative",
            comment=f"Replay fails: {RecordNames([reason], actor=actor).replace_ids(reason)}.",
            session_id=UUID(replays[0]),
            agent_id=session.agent_id,
            context={
                "golden_session_id": str(session.meta["eval_source"]),
                "replay_session_ids": replays[:MAX_REPLAYS],
                "agent_version_id": str(session.agent_version_id),
                "context_mode": context_mode,
                "eval_run_id": str(session.meta["eval_run_id"]),
                "divergences": divergences,
            },
        ),
        actor=actor,
    )


def errored_result(reason: str) -> dict[str, Any]:
    """The result of a replay that did not complete."""
    nothing = dict.fromkeys(("passed", "overall_accuracy", "baseline"))
    return {"verdict": ERRORED, "reason": reason, **nothing, "dimensions": {}, "divergences": []}
