"""Plan and start eval runs: replays of goldens with one configuration. The cases of a run are sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, insert, select, true

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.models import Agent, AgentSession, AgentVersion, EvalRun, SharedContext
from app.models.agents import REPLAYABLE_KINDS
from app.models.evals import CONTEXT_MODES
from app.services import audit
from app.services.evals.golden import clean_set_name, require_admin

POLICIES = ("recorded", "live", "refuse")
MAX_TRIALS = 20
MAX_ROWS = 50


def start_run(new: NewRun, *, actor: Actor) -> EvalRun:
    """Write a run and all its cases. They wait for the executor like any other session."""
    require_admin(actor, "start evals")
    _check_new_run(new)
    goldens, tested, left_out = _plan_run(new, actor)
    versions = {one.version_id for one in tested.values()}
    agents = {new.agent_id} if new.agent_id else {one.agent_id for one in tested.values()}
    options = _run_options(new, actor)
    run = EvalRun(
        id=uuid4(),
        tenant_id=actor.tenant_id,
        name=f"{_run_subject(new, goldens)} {datetime.now(UTC):%Y-%m-%d %H:%M}",
        **{name: getattr(new, name) for name in ("set_name", "triggered_by", "context_mode", "trials", "ref")},
        agent_id=agents.pop() if len(agents) == 1 else None,
        agent_version_id=versions.pop() if len(versions) == 1 else None,
        options=options | _run_marks(new, tested, left_out),
        config_hash=_config_hash(new, options),
        golden_session_count=len(goldens),
        created_by=actor.id,
    )
    db.session.add(run)
    db.session.flush()
    cases = [
        _case_row(run, row, tested[row.agent_id], trial, actor) for row in goldens for trial in range(1, run.trials + 1)
    ]
    db.session.execute(insert(AgentSession.__table__).inline(), cases)  # type: ignore[arg-type]
    audit.record(
        actor, "eval_run.started", "eval_run", run.id, set=new.set_name, goldens=len(goldens), trials=new.trials,
        context=new.context_mode, live_tools=[name for name, what in options["tools"].items() if what == "live"],
        left_out=sum(left_out.values()),
    )  # fmt: skip
    return run


def _run_subject(new: NewRun, goldens: Sequence[Any]) -> str:
    if new.proof is not None:
        return f"Proof {new.proof['side']} “{new.proof['content'][:80]}”"
    return new.set_name or goldens[0].title[:80]


def _run_marks(new: NewRun, tested: Mapping[UUID, AgentUnderTest], left_out: Mapping[str, int]) -> dict[str, Any]:
    """A run on another version, with other knowledge or over a part of its set is a trial and does not score."""
    part = new.set_name is None or bool(left_out.get("other_agents"))
    # Anything but every golden on its own agent as it is now.
    other = any(agent_id != one.agent_id or not one.current for agent_id, one in tested.items())
    trial = part or other or bool(new.plus_rows or new.minus_rows)
    marks = {"trial": trial, "left_out": left_out, "command_line": new.command_line, "proof": new.proof}
    return {name: value for name, value in marks.items() if value}


def _config_hash(new: NewRun, options: Mapping[str, Any]) -> str:
    """Equal for runs that test the same thing."""
    tested = [str(new.agent_id), str(new.agent_version_id), new.context_mode, options]
    return sha256(json.dumps(tested, sort_keys=True).encode()).hexdigest()[:16]


def _check_new_run(new: NewRun) -> None:
    rows = len(new.plus_rows) + len(new.minus_rows)
    odd_tools = any(what not in POLICIES for what in new.tools.values()) or len(new.tools) > 200
    checks = (
        ("setName", (new.set_name is None) == (not new.golden_ids), "Choose a set or goldens, not both."),
        ("context", new.context_mode not in CONTEXT_MODES, f"Use {' or '.join(CONTEXT_MODES)}."),
        ("context", new.context_mode == "live" and rows, "Rows can only be added to or removed from frozen knowledge."),
        ("trials", not 1 <= new.trials <= MAX_TRIALS, f"Enter a number from 1 to {MAX_TRIALS}."),
        ("tools", odd_tools, f"Each tool is one of {', '.join(POLICIES)}."),
        ("rows", rows > MAX_ROWS, f"At most {MAX_ROWS} rows."),
        ("ref", len(new.ref or "") > 200, "At most 200 characters."),
    )
    wrong = {name: sentence for name, is_wrong, sentence in checks if is_wrong}
    if wrong:
        raise Invalid.of(wrong)


def _run_options(new: NewRun, actor: Actor) -> dict[str, Any]:
    wanted = {*new.plus_rows, *new.minus_rows}
    known = select(func.count()).where(
        SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_(wanted), SharedContext.state != "deleted"
    )
    if wanted and db.session.scalar(known) != len(wanted):
        raise NotFound("There is no such knowledge row in this workspace.")
    return {
        "tools": dict(sorted(new.tools.items())),
        "plus": sorted(map(str, new.plus_rows)),
        "minus": sorted(map(str, new.minus_rows)),
    }


def _case_row(run: EvalRun, row: Any, tested: AgentUnderTest, trial: int, actor: Actor) -> dict[str, Any]:
    kept = ("snapshot", "sha256", "expected", "baseline_rejected", "recorded_is_right", "set", "criteriaSetId")
    return {
        "id": uuid4(),
        "tenant_id": actor.tenant_id,
        **{name: getattr(row, name) for name in ("title", "session_type", "output_type", "entity_id")},
        "status": "pending",
        "agent_id": tested.agent_id,
        "agent_version_id": tested.version_id,
        "created_by": actor.id,
        "trace_id": uuid4().hex,
        "tags": [],
        "key_scopes": actor.stored_scopes,
        "metadata": {
            "eval_source": str(row.id),
            "eval_run_id": str(run.id),
            "eval_config": run.config_hash,
            "eval_trial": str(trial),
            "eval_golden": {name: row.golden[name] for name in kept if name in row.golden},
        },
    }


def get_run(run_id: UUID, *, actor: Actor, lock: bool = False) -> EvalRun:
    """The run, read again even if loaded. Each who ends a case locks it first, so that exactly one ends the run."""
    wanted = select(EvalRun).where(EvalRun.tenant_id == actor.tenant_id, EvalRun.id == run_id)
    if lock:
        wanted = wanted.with_for_update(key_share=True)
    run = db.session.scalar(wanted.execution_options(populate_existing=True))
    if run is None:
        raise NotFound("There is no such eval run in this workspace.")
    return run


def models_of(run: EvalRun, *, actor: Actor) -> list[str]:
    """The models that the agents of a run are configured with; an empty text means the server's default."""
    configured = AgentVersion.config["model"].astext
    rows = db.session.scalars(
        select(func.coalesce(configured, ""))
        .distinct()
        .join(AgentSession, AgentSession.agent_version_id == AgentVersion.id)
        .join(Agent, (Agent.tenant_id == AgentVersion.tenant_id) & (Agent.id == AgentVersion.agent_id))
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.eval_run_id == run.id, Agent.kind == "builtin")
    )
    return sorted(str(name) for name in rows)


# The plan of a run: which goldens, on which agent versions, and what is left out

MAX_GOLDENS = 2000


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """What is to be replayed, and with what. Without an agent each golden's own is used, in its current version. With
    `own_only` an agent is given only what it recorded itself: a build asks whether that agent got worse. `tools` maps
    the name of a tool to what it may do, `*` standing for all others. `proof` marks one side of the proof of a
    knowledge row: the row's id, `with` or `without`, and what it says."""

    set_name: str | None = None
    golden_ids: Sequence[UUID] = ()
    agent_id: UUID | None = None
    agent_version_id: UUID | None = None
    own_only: bool = False
    context_mode: str = "frozen"
    tools: Mapping[str, str] = field(default_factory=dict)
    plus_rows: Sequence[UUID] = ()
    minus_rows: Sequence[UUID] = ()
    trials: int = 1
    triggered_by: str = "manual"
    ref: str | None = None
    command_line: bool = False
    proof: Mapping[str, str] | None = None


@dataclass(frozen=True)
class AgentUnderTest:
    """The agent and version that a golden is replayed with."""

    agent_id: UUID
    version_id: UUID
    kind: str
    name: str
    archived: bool
    current: bool

    @property
    def refusal(self) -> str | None:
        """Why it cannot replay anything here."""
        if self.kind == "endpoint":
            repeats = f"{self.name} is an endpoint: a replay would repeat its real actions."
            return f"{repeats} Choose an agent that runs in Upshot."
        if self.kind not in REPLAYABLE_KINDS:
            return f"{self.name} runs outside Upshot. Choose an agent that runs in Upshot."
        return f"{self.name} is archived. Restore it or choose another agent." if self.archived else None


def _plan_run(new: NewRun, actor: Actor) -> tuple[list[Any], dict[UUID, AgentUnderTest], dict[str, int]]:
    """Which goldens are replayed, by whom, and how many are left out and why. Refused if nothing can be replayed."""
    goldens = _load_goldens(new, actor)
    known = _agents_under_test(new, goldens, actor)
    if new.agent_id or new.agent_version_id:
        [one] = known.values()
        if one.refusal:
            raise Refused(one.refusal)
        kept, why = [row for row in goldens if row.agent_id == one.agent_id or not new.own_only], "other_agents"
        if not kept:
            number = f"{len(goldens)} golden{' is' if len(goldens) == 1 else 's are'}"
            raise NotFound(f"Nothing in {new.set_name} was recorded by {one.name}: its {number} of other agents.")
        tested = {row.agent_id: one for row in kept}
    else:
        kept, why = [row for row in goldens if known[row.agent_id].refusal is None], "elsewhere"
        if not kept:
            raise Refused(_nothing_left(goldens, known))
        tested = {row.agent_id: known[row.agent_id] for row in kept}
    return kept, tested, {why: len(goldens) - len(kept)} if len(kept) < len(goldens) else {}


def left_out_notes(options: Mapping[str, Any]) -> list[str]:
    """Sentences about the goldens that a run left out."""
    reasons = {
        "other_agents": "of other agents.",
        "elsewhere": "of external or archived agents. Choose a version that runs in Upshot.",
    }
    counts = [(number, reasons[why]) for why, number in (options.get("left_out") or {}).items()]
    return [f"Left out: {number} golden{'s' if number > 1 else ''} {reason}" for number, reason in counts]


def _nothing_left(goldens: Sequence[Any], known: Mapping[UUID, AgentUnderTest]) -> str:
    """Why none of the goldens meets its own agent."""
    if len(known) == 1:
        [one] = known.values()
        return f"{'Nothing to replay. ' if len(goldens) > 1 else ''}{one.refusal}"
    return (
        f"Nothing to replay. All {len(goldens):,} goldens belong to external or archived agents."
        " Choose an agent that runs in Upshot."
    )


def _load_goldens(new: NewRun, actor: Actor) -> list[Any]:
    """The goldens with what their replays need of them. What they froze is pinned: revoking one changes no run."""
    if new.set_name is not None:
        wanted = AgentSession.golden_set == clean_set_name(new.set_name)
    else:
        wanted = AgentSession.id.in_(new.golden_ids) & AgentSession.golden_set.is_not(None)
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.agent_id, AgentSession.session_type,
            AgentSession.output_type, AgentSession.entity_id, AgentSession.meta["golden"].label("golden"),
        )
        .where(AgentSession.tenant_id == actor.tenant_id, wanted)
        .order_by(AgentSession.created_at, AgentSession.id)
        .limit(MAX_GOLDENS + 1)
    ).all()  # fmt: skip
    if new.set_name is not None and not rows:
        raise NotFound(f"No golden set {new.set_name[:60]}, or the set is empty.")
    if new.set_name is None and len(rows) < len(set(new.golden_ids)):
        raise NotFound("There is no such golden in this workspace.")
    if len(rows) > MAX_GOLDENS:
        raise Refused(f"A run covers at most {MAX_GOLDENS:,} goldens. Split the set.")
    return list(rows)


def _agents_under_test(new: NewRun, goldens: Sequence[Any], actor: Actor) -> dict[UUID, AgentUnderTest]:
    """The agents in question by their id: the one that was chosen, or those that recorded the goldens."""
    agents = {new.agent_id} if new.agent_id else {row.agent_id for row in goldens}
    current = AgentVersion.version == Agent.current_version
    where = Agent.id.in_(agents) & current
    if new.agent_version_id:
        own = Agent.id == new.agent_id if new.agent_id else true()
        where = own & (AgentVersion.id == new.agent_version_id)
    rows = db.session.execute(
        select(Agent.id, AgentVersion.id, Agent.kind, Agent.name, Agent.archived_at.is_not(None), current)
        .join(AgentVersion, (AgentVersion.tenant_id == Agent.tenant_id) & (AgentVersion.agent_id == Agent.id))
        .where(Agent.tenant_id == actor.tenant_id, where)
    )
    known = {row[0]: AgentUnderTest(*row) for row in rows}
    if not known or (not new.agent_version_id and agents - known.keys()):
        raise NotFound("There is no such agent, or no such version of it, in this workspace.")
    return known
