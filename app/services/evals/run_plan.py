"""What a run replays and with what: the goldens, the agent and version for each, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound, Refused
from app.models import Agent, AgentSession, AgentVersion
from app.models.agents import REPLAYABLE_KINDS
from app.services.evals.golden import named_set

MOST_GOLDENS = 2000


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """What is to be replayed, and with what. Without an agent each golden's own is used, in its current version.

    With `own_only` an agent is given only what it recorded itself: a build asks whether that agent got worse.
    `tools` maps the name of a tool to what it may do, `*` standing for all others.
    """

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


@dataclass(frozen=True)
class Tested:
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
            return (
                f"{self.name} is an endpoint: a replay would repeat its real actions."
                " Choose an agent that runs in Upshot."
            )
        if self.kind not in REPLAYABLE_KINDS:
            return f"{self.name} runs elsewhere; choose an agent that runs here to replay its goldens with."
        return f"{self.name} is archived; restore it or choose another agent." if self.archived else None


@dataclass(frozen=True)
class Chosen:
    """The goldens of a run, who replays those of each agent, and how many were left out and why."""

    goldens: list[Any]
    tested: dict[UUID, Tested]
    left_out: dict[str, int]

    @property
    def as_they_are(self) -> bool:
        """Whether every golden meets its own agent as it is now; anything else is a trial."""
        return all(agent_id == one.agent_id and one.current for agent_id, one in self.tested.items())


def choose(new: NewRun, *, actor: Actor) -> Chosen:
    """What is replayed. Refuses with a sentence where nothing can be."""
    goldens = _goldens(new, actor)
    known = _known(new, goldens, actor)
    if new.agent_id or new.agent_version_id:
        [one] = known.values()
        if one.refusal:
            raise Refused(one.refusal)
        kept = [row for row in goldens if row.agent_id == one.agent_id] if new.own_only else goldens
        if not kept:
            number = f"{len(goldens)} golden{' is' if len(goldens) == 1 else 's are'}"
            raise NotFound(f"Nothing in {new.set_name} was recorded by {one.name}: its {number} of other agents.")
        return Chosen(kept, {row.agent_id: one for row in kept}, _counted("other_agents", goldens, kept))
    kept = [row for row in goldens if known[row.agent_id].refusal is None]
    if not kept:
        raise Refused(_nothing_left(goldens, known))
    return Chosen(kept, {row.agent_id: known[row.agent_id] for row in kept}, _counted("elsewhere", goldens, kept))


def told_left_out(options: Mapping[str, Any]) -> list[str]:
    """Which goldens a run left out, in sentences."""
    found = options.get("left_out") or {}
    others, elsewhere = found.get("other_agents", 0), found.get("elsewhere", 0)
    told = []
    if others:
        told.append(f"Left out: {others} golden{'s' if others > 1 else ''} of other agents.")
    if elsewhere:
        told.append(
            f"Left out: {elsewhere} golden{'s' if elsewhere > 1 else ''} of agents that run elsewhere or are archived;"
            " choose a version that runs here to replay them with."
        )
    return told


def _nothing_left(goldens: Sequence[Any], known: Mapping[UUID, Tested]) -> str:
    """Why none of the goldens meets its own agent."""
    if len(known) == 1:
        [one] = known.values()
        return f"{'Nothing would be left to replay: ' if len(goldens) > 1 else ''}{one.refusal}"
    return (
        f"Nothing would be left to replay: all {len(goldens):,} goldens are of agents that run elsewhere or are"
        " archived; choose an agent that runs here to replay them with."
    )


def _counted(why: str, goldens: Sequence[Any], kept: Sequence[Any]) -> dict[str, int]:
    return {why: len(goldens) - len(kept)} if len(kept) < len(goldens) else {}


def _goldens(new: NewRun, actor: Actor) -> list[Any]:
    """The goldens with what their replays need of them. What they froze is pinned: revoking one changes no run."""
    where = [AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None)]
    if new.set_name is not None:
        where.append(AgentSession.golden_set == named_set(new.set_name))
    else:
        where.append(AgentSession.id.in_(new.golden_ids))
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.agent_id, AgentSession.session_type,
            AgentSession.output_type, AgentSession.entity_id, AgentSession.meta["golden"].label("golden"),
        )
        .where(*where)
        .order_by(AgentSession.created_at, AgentSession.id)
        .limit(MOST_GOLDENS + 1)
    ).all()  # fmt: skip
    if new.set_name is not None and not rows:
        raise NotFound(f"There is no golden set {new.set_name[:60]}, or nothing is in it.")
    if new.set_name is None and len(rows) < len(set(new.golden_ids)):
        raise NotFound("There is no such golden in this workspace.")
    if len(rows) > MOST_GOLDENS:
        raise Refused(f"A run covers at most {MOST_GOLDENS:,} goldens; split the set.")
    return list(rows)


def _known(new: NewRun, goldens: Sequence[Any], actor: Actor) -> dict[UUID, Tested]:
    """The agents in question by their id: the one that was chosen, or those that recorded the goldens."""
    agents = {new.agent_id} if new.agent_id else {row.agent_id for row in goldens}
    version = AgentVersion.id == new.agent_version_id if new.agent_version_id else None
    if version is not None and not new.agent_id:
        owner = db.session.scalar(
            select(AgentVersion.agent_id).where(AgentVersion.tenant_id == actor.tenant_id, version)
        )
        agents = {owner} if owner else set()
    current = AgentVersion.version == Agent.current_version
    rows = db.session.execute(
        select(Agent.id, Agent.name, Agent.kind, Agent.archived_at, AgentVersion.id, current)
        .join(AgentVersion, (AgentVersion.tenant_id == Agent.tenant_id) & (AgentVersion.agent_id == Agent.id))
        .where(
            Agent.tenant_id == actor.tenant_id, Agent.id.in_(agents), version if version is not None else current
        )
    ).all()  # fmt: skip
    known = {row[0]: Tested(row[0], row[4], row[2], row[1], row[3] is not None, row[5]) for row in rows}
    if not agents or agents - known.keys():
        raise NotFound("There is no such agent, or no such version of it, in this workspace.")
    return known
