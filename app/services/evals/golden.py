"""Goldens and their sets. The database refuses every other change to a golden; the checks here say why."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from app.actor import Actor
from app.db import db, get_own
from app.db.queries import ASKING, NAMES, Query
from app.errors import Forbidden, Invalid, NotFound, Refused, Unprocessable
from app.evals.snapshot import SNAPSHOT_BYTES
from app.evals.verdict import read_policy
from app.models import Agent, AgentSession, CriteriaSet, EvalRun, GoldenSet, SessionEvent, Task
from app.models.agents import REPLAYABLE_KINDS
from app.models.evals import OPEN_STATUSES
from app.services import audit
from app.services.evals.golden_lists import another_can_replay, can_replay
from app.services.evals.snapshot import TooMuchInput

SET_NAME = re.compile(r"[a-z0-9-]{1,60}", re.ASCII)
DEFAULT_SET = "default"
MAX_NOTE_CHARS = 2000
MAX_SESSIONS = 200


@dataclass(frozen=True)
class SetCount:
    """A set: its goldens, how many of them their own agents can replay here, and whether another agent could."""

    name: str
    sessions: int
    policy: dict[str, Any]
    here: int
    elsewhere: int
    another: bool

    @property
    def why_not(self) -> str:
        """Why none of its goldens can be replayed with its own agent; empty where one can."""
        if self.here:
            return ""
        archived = self.sessions - self.elsewhere
        return "external agents" if not archived else f"{'external or ' if self.elsewhere else ''}archived agents"


def edit_golden(session_id: UUID, changes: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """Rename, annotate or judge a golden by other criteria; `changes` has some of `set`, `note`, `criteriaSetId`."""
    require_admin(actor)
    session = lock_session(session_id, actor=actor)
    golden = session.meta.get("golden")
    if not isinstance(golden, dict):
        raise NotFound("This session is not golden.")
    after = dict(golden)
    if "set" in changes:
        after["set"] = clean_set_name(changes["set"])
    if "note" in changes:
        after["note"] = clean_note(changes["note"])
    if "criteriaSetId" in changes:
        wanted = changes["criteriaSetId"]
        check_criteria_set(wanted, actor)
        after["criteriaSetId"] = str(wanted) if wanted else None
    if after == golden:
        return golden
    session.meta = {**session.meta, "golden": after}
    db.session.flush()
    audit.record(
        actor, "golden.edited", "session", session.id, before=golden["set"], after=after["set"], note=after.get("note")
    )
    return after


def move_goldens(session_ids: Sequence[UUID], set_name: str, *, actor: Actor) -> int:
    """Put several goldens into one set; how many that changed."""
    wanted = sorted(set(session_ids))
    if not wanted or len(wanted) > MAX_SESSIONS:
        raise Invalid(f"Choose 1 to {MAX_SESSIONS} goldens.")
    target = clean_set_name(set_name)
    moved = 0
    for session_id in wanted:
        before = lock_session(session_id, actor=actor).golden_set
        edit_golden(session_id, {"set": target}, actor=actor)
        moved += before != target
    return moved


def revoke_golden(session_id: UUID, *, actor: Actor) -> bool:
    """Revoke a golden. Idempotent; returns whether it was golden."""
    require_admin(actor)
    session = lock_session(session_id, actor=actor)
    golden = session.meta.get("golden")
    if golden is None:
        return False
    session.meta = {name: value for name, value in session.meta.items() if name != "golden"}
    db.session.flush()
    audit.record(actor, "golden.revoked", "session", session.id, set=golden["set"], sha256=golden.get("sha256"))
    return True


def list_sets(*, actor: Actor) -> list[SetCount]:
    """The sets of the workspace by name, with how many golden sessions each holds. One query."""
    return [SetCount(str(name), count, policy or {}, *more) for name, count, policy, *more in find_sets(actor)]


@Query
def find_sets() -> Any:
    own = (GoldenSet.tenant_id == AgentSession.tenant_id) & (GoldenSet.name == AgentSession.golden_set)
    return (
        select(
            AgentSession.golden_set,
            func.count(),
            GoldenSet.policy,
            func.count().filter(can_replay()),
            func.count().filter(Agent.kind.not_in(REPLAYABLE_KINDS)),
            another_can_replay(ASKING),
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(GoldenSet, own)
        .where(AgentSession.tenant_id == ASKING.tenant_id, AgentSession.golden_set.is_not(None))
        .group_by(AgentSession.golden_set, GoldenSet.policy)
        .order_by(AgentSession.golden_set)
    )


def clean_set_name(name: str) -> str:
    """The name of a set where there is no usual one: an empty name is Invalid too."""
    name = name.strip()
    if not SET_NAME.fullmatch(name):
        raise Invalid.of({"set": "Use up to 60 lowercase letters, digits and hyphens."})
    return name


def clean_note(note: str | None) -> str | None:
    note = (note or "").strip() or None
    if note and len(note) > MAX_NOTE_CHARS:
        raise Invalid.of({"note": f"At most {MAX_NOTE_CHARS:,} characters."})
    return note


def require_admin(actor: Actor, action: str = "decide what is golden") -> None:
    """Refuse everyone but an admin in person: an agent that acts for an admin is refused too."""
    if not actor.is_admin or actor.agent_id:
        raise Forbidden(f"Only admins can {action}.")


def lock_session(session_id: UUID, *, actor: Actor) -> AgentSession:
    """The session as it is now, locked until the transaction ends."""
    return get_own(AgentSession, session_id, "session", actor=actor, lock=True)


def check_promotable(session: AgentSession, actor: Actor) -> None:
    """Refuses with the reason why a session cannot be golden."""
    if session.golden_set is not None:
        raise Refused(f"This session is already golden in {session.golden_set}.", current=session.golden_set)
    if session.eval_source is not None:
        raise Refused("Replays can’t be promoted here. Promote the replay from its comparison with the golden.")
    if session.status != "completed":
        raise Refused(f"Only completed sessions can be golden. This one is {session.status}.", current=session.status)
    has_text = func.btrim(func.coalesce(SessionEvent.payload["text"].astext, "")) != ""
    asked, size = db.session.execute(
        select(func.bool_or(has_text), func.coalesce(func.sum(SessionEvent.payload_bytes), 0)).where(
            SessionEvent.tenant_id == actor.tenant_id,
            SessionEvent.session_id == session.id,
            SessionEvent.event_type == "user.message",
        )
    ).one()
    if not asked:
        raise Unprocessable("This session has no user message, so it can’t be replayed.")
    if size > SNAPSHOT_BYTES:
        raise TooMuchInput


def check_criteria_set(criteria_set_id: UUID | None, actor: Actor) -> None:
    if criteria_set_id is None:
        return
    known = select(CriteriaSet.id).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == criteria_set_id)
    if db.session.scalar(known) is None:
        raise Invalid.at("criteriaSetId", f"There is no criteria set {criteria_set_id} in this workspace.")


def sets_of_agent(agent_id: UUID, *, actor: Actor) -> list[str]:
    """The sets that hold goldens of an agent."""
    own = AgentSession.golden_set.is_not(None) & (AgentSession.agent_id == agent_id)
    names = select(AgentSession.golden_set).distinct().where(AgentSession.tenant_id == actor.tenant_id, own)
    return [str(name) for name in db.session.scalars(names.order_by(AgentSession.golden_set))]


def usual_set(agent_ids: Collection[UUID], *, actor: Actor) -> str:
    """The set of the most recent golden of these agents, as the default for the next one."""
    own = AgentSession.golden_set.is_not(None) & AgentSession.agent_id.in_(agent_ids)
    last = (
        select(AgentSession.golden_set)
        .where(AgentSession.tenant_id == actor.tenant_id, own)
        .order_by(AgentSession.meta["golden"]["promoted_at"].astext.desc().nulls_last(), AgentSession.golden_set)
        .limit(1)
    )
    return db.session.scalar(last) or DEFAULT_SET


def open_runs(names: Sequence[str], *, actor: Actor) -> dict[str, UUID]:
    """The newest run of each set that has not ended."""
    rows = find_open_runs(actor, names=list(names)) if names else []
    return {str(name): run_id for name, run_id in rows}


@Query
def find_open_runs() -> Any:
    return (
        select(EvalRun.set_name, EvalRun.id)
        .where(EvalRun.tenant_id == ASKING.tenant_id, EvalRun.set_name == NAMES, EvalRun.status.in_(OPEN_STATUSES))
        .order_by(EvalRun.created_at)
    )


def policy_of(name: str, *, actor: Actor) -> dict[str, Any]:
    """What the set asks for, as it is stored; empty when it has no wishes."""
    wanted = select(GoldenSet.policy).where(GoldenSet.tenant_id == actor.tenant_id, GoldenSet.name == name)
    return dict(db.session.scalar(wanted) or {})


def save_policy(name: str, policy: dict[str, Any], *, actor: Actor) -> bool:
    """Change what decides in a set, from its next verdict on. Returns whether anything changed."""
    require_admin(actor, "change golden sets")
    read_policy(policy)
    _require_goldens(name, actor)
    row = db.session.get(GoldenSet, (actor.tenant_id, name), with_for_update=True)
    before = dict(row.policy) if row else {}
    if before == policy:
        return False
    if row is None:
        db.session.add(GoldenSet(tenant_id=actor.tenant_id, name=name, policy=policy))
    elif policy:
        row.policy, row.updated_at = policy, datetime.now(UTC)
    else:
        db.session.delete(row)
    db.session.flush()
    audit.record(actor, "golden_set.policy_changed", "golden_set", None, set=name, policy=policy)
    return True


def rename_set(name: str, new_name: str, *, actor: Actor) -> int:
    """Rename a set with its runs, policy and schedules; returns how many goldens moved."""
    require_admin(actor, "change golden sets")
    target = clean_set_name(new_name)
    ids = _require_goldens(name, actor)
    if target == name:
        return 0
    if _golden_ids(target, actor):
        raise Refused(f"A set named {target} already exists. Select the goldens and move them there.", current=target)
    if open_runs([name], actor=actor):
        raise Refused(f"A run of {name} is in progress. Rename the set when it ends.")
    moved = 0
    for start in range(0, len(ids), MAX_SESSIONS):
        moved += move_goldens(ids[start : start + MAX_SESSIONS], target, actor=actor)
    for model, column in ((EvalRun, EvalRun.set_name), (GoldenSet, GoldenSet.name)):
        renamed = update(model).where(model.tenant_id == actor.tenant_id, column == name).values({column: target})
        db.session.execute(renamed.execution_options(synchronize_session=False))
    _rename_in_schedules(name, target, actor)
    return moved


def _rename_in_schedules(name: str, target: str, actor: Actor) -> None:
    replay: Any = Task.replay
    tasks = db.session.scalars(
        select(Task)
        .where(Task.tenant_id == actor.tenant_id, replay["set"].astext == name)
        .order_by(Task.id)
        .with_for_update()
    ).all()
    for task in tasks:
        task.replay = {**(task.replay or {}), "set": target}
        audit.record(actor, "task.changed", "task", task.id, before={"set": name}, after={"set": target})
    db.session.flush()


def _require_goldens(name: str, actor: Actor) -> list[UUID]:
    ids = _golden_ids(name, actor)
    if not ids:
        raise NotFound(f"No golden set {name[:60]}.")
    return ids


def _golden_ids(name: str, actor: Actor) -> list[UUID]:
    wanted = select(AgentSession.id).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set == name)
    return list(db.session.scalars(wanted))
