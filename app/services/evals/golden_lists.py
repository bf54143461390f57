"""Goldens as they are listed. Of their metadata only what a list shows is read, never the snapshot."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Float, Text, Uuid, cast, func, select, text
from sqlalchemy.orm import aliased
from sqlalchemy.sql import Select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import NotFound
from app.models import Agent, AgentSession, AgentVersion, EvalRun, SharedContext, User
from app.models.agents import REPLAYABLE_KINDS


@dataclass(frozen=True)
class GoldenRow:
    """A golden in a list: whether its own agent can replay it here, and whether another could; `elsewhere` says that
    its own runs there."""

    id: UUID
    title: str
    session_type: str
    created_at: datetime
    set_name: str
    note: str | None
    criteria_set_id: UUID | None
    agent_id: UUID
    agent: str
    agent_name: str
    replayable: bool
    another: bool
    elsewhere: bool
    agent_version: int | None
    promoted_at: datetime | None
    promoted_by: UUID | None
    sha256: str | None
    baseline_rejected: bool
    recorded_is_right: bool
    expected: dict[str, Any] | None
    person: str | None = None


def list_goldens(
    page: Page, *, actor: Actor, set_name: str | None = None, count: int | None = None
) -> Slice[GoldenRow]:
    """One page of goldens, newest session first. Passing `count` saves a query."""
    where = [AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None)]
    if set_name is not None:
        where.append(AgentSession.golden_set == set_name)
    found = read_page(_statement(actor), page, at=AgentSession.created_at, id=AgentSession.id, where=where, count=count)
    return found.map(_row)


def get_golden(session_id: UUID, *, actor: Actor) -> GoldenRow:
    row = db.session.execute(
        _statement(actor).where(
            AgentSession.tenant_id == actor.tenant_id,
            AgentSession.id == session_id,
            AgentSession.golden_set.is_not(None),
        )
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such golden in this workspace.")
    return _row(tuple(row))


def can_replay(agent: Any = Agent) -> Any:
    """Whether an agent can replay anything: it runs in Upshot, and is not archived."""
    return agent.kind.in_(REPLAYABLE_KINDS) & agent.archived_at.is_(None)


def another_can_replay(actor: Actor) -> Any:
    """Whether there is an agent that can be chosen to replay with."""
    other = aliased(Agent)
    return select(other.id).where(other.tenant_id == actor.tenant_id, can_replay(other), ~other.is_system).exists()


def _statement(actor: Actor) -> Select[*tuple[Any, ...]]:
    golden: Any = AgentSession.meta["golden"]
    return (
        select(
            AgentSession.id, AgentSession.title, AgentSession.session_type, AgentSession.created_at,
            AgentSession.golden_set, golden["note"].astext, cast(golden["criteriaSetId"].astext, Uuid),
            AgentSession.agent_id, Agent.slug, Agent.name,
            can_replay(), another_can_replay(actor), Agent.kind.not_in(REPLAYABLE_KINDS), AgentVersion.version,
            cast(golden["promoted_at"].astext, DateTime(timezone=True)), cast(golden["promoted_by"].astext, Uuid),
            golden["sha256"].astext, golden["baseline_rejected"].astext, golden["recorded_is_right"].astext,
            golden["expected"], User.name,
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(User, User.id == cast(golden["promoted_by"].astext, Uuid))
    )  # fmt: skip


def _row(row: tuple[Any, ...]) -> GoldenRow:
    values = [*row]
    values[-4:-2] = [flag == "true" for flag in row[-4:-2]]
    return GoldenRow(*values)


def titles_of(session_ids: Sequence[str | UUID], *, actor: Actor) -> dict[str, str]:
    """The titles of sessions, by their id as text."""
    rows = db.session.execute(
        select(AgentSession.id, AgentSession.title).where(
            AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(session_ids)
        )
    )
    return {str(session_id): title for session_id, title in rows}


# What has changed since goldens were frozen: missing tools, inactive knowledge, duplicates

MAX_REPLAYS = 20


@dataclass(frozen=True)
class GoldenHealth:
    """What a list says beside a golden."""

    tools_gone: tuple[str, ...] = ()
    rows_inactive: int = 0
    duplicate: bool = False


@dataclass(frozen=True)
class FrozenCounts:
    """What a golden keeps, in numbers."""

    agent: str
    version: int | None
    model: str | None
    turns: int
    knowledge_rows: int
    recordings: int


@dataclass(frozen=True)
class ReplayRow:
    """A replay of a golden."""

    id: UUID
    status: str
    verdict: str | None
    accuracy: float | None
    reason: str | None
    run_id: UUID | None
    run: str | None
    context_mode: str | None
    agent: str
    agent_version: int | None
    created_at: Any


_SNAPSHOT: Any = AgentSession.meta["golden"]["snapshot"]
_HTTP_TOOLS = text("'$.golden.snapshot.agent.config.http_tools[*].name'")


def health_of(set_name: str, session_ids: Sequence[UUID], *, actor: Actor) -> dict[UUID, GoldenHealth]:
    """The marks of some goldens of a set. Two queries."""
    if not session_ids:
        return {}
    rows = _frozen_inputs(set_name, session_ids, actor)
    has = _current_tools({row.agent_id for row in rows}, actor)
    return {
        row.id: GoldenHealth(
            tools_gone=_missing_tools(row, has),
            rows_inactive=row.inactive,
            duplicate=row.twins > 1,
        )
        for row in rows
    }


def _frozen_inputs(set_name: str, session_ids: Sequence[UUID], actor: Actor) -> list[Any]:
    twins = func.count().over(partition_by=(AgentSession.agent_id, func.md5(cast(_SNAPSHOT["turns"], Text))))
    kept = (
        select(
            AgentSession.id,
            AgentSession.agent_id,
            _SNAPSHOT["tool_grants"].label("grants"),
            func.jsonb_path_query_array(AgentSession.meta, _HTTP_TOOLS).label("tools"),
            _SNAPSHOT["shared_context"]["row_ids"].label("row_ids"),
            twins.label("twins"),
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set == set_name)
        .subquery()
    )
    used = func.jsonb_array_elements_text(kept.c.row_ids).column_valued("used")
    active = select(cast(SharedContext.id, Text)).where(
        SharedContext.tenant_id == actor.tenant_id, SharedContext.state == "active"
    )
    inactive = select(func.count(used)).where(used.not_in(active)).scalar_subquery()
    return list(db.session.execute(select(kept, inactive.label("inactive")).where(kept.c.id.in_(session_ids))))


def _current_tools(agent_ids: Collection[UUID], actor: Actor) -> dict[UUID, set[str]]:
    """What the current versions of agents may use. Agents that run elsewhere do not say it."""
    rows = db.session.execute(
        select(Agent.id, AgentVersion.config)
        .join(AgentVersion, (AgentVersion.agent_id == Agent.id) & (AgentVersion.version == Agent.current_version))
        .where(Agent.tenant_id == actor.tenant_id, Agent.id.in_(agent_ids), Agent.kind != "external")
    )
    return {agent_id: _tools_of(config) for agent_id, config in rows}


def _tools_of(config: Mapping[str, Any]) -> set[str]:
    named = {str(tool.get("name")) for tool in config.get("http_tools") or () if isinstance(tool, Mapping)}
    return named | {str(group) for group in config.get("tool_groups") or ()}


def _missing_tools(row: Any, has: Mapping[UUID, set[str]]) -> tuple[str, ...]:
    if row.agent_id not in has:
        return ()
    return tuple(name for name in (*(row.grants or ()), *(row.tools or ())) if name not in has[row.agent_id])


def count_frozen(session_id: UUID, *, actor: Actor) -> FrozenCounts:
    """What a golden keeps, in numbers. Its recordings are its own events."""
    recordings = text(
        "(SELECT count(*) FROM session_events e WHERE e.tenant_id = sessions.tenant_id AND e.session_id = sessions.id"
        " AND e.event_type = 'tool.result')"
    )
    row = db.session.execute(
        select(
            _SNAPSHOT["agent"]["slug"].astext, cast(_SNAPSHOT["agent"]["version"].astext, Float),
            _SNAPSHOT["model"].astext,
            func.jsonb_array_length(func.coalesce(_SNAPSHOT["turns"], func.jsonb_build_array())),
            func.jsonb_array_length(
                func.coalesce(_SNAPSHOT["shared_context"]["row_ids"], func.jsonb_build_array())
            ),
            recordings,
        ).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one()  # fmt: skip
    slug, version, model, turns, rows, calls = row
    return FrozenCounts(slug or "", int(version) if version else None, model, turns, rows, calls)


def list_replays(session_id: UUID, *, actor: Actor) -> list[ReplayRow]:
    """The newest replays of a golden. One query."""
    result: Any = AgentSession.meta["eval_result"]
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.status, result["verdict"].astext,
            cast(result["overall_accuracy"].astext, Float), result["reason"].astext, EvalRun.id, EvalRun.name,
            EvalRun.context_mode, Agent.slug, AgentVersion.version, AgentSession.created_at,
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(
            EvalRun, (EvalRun.tenant_id == AgentSession.tenant_id) & (EvalRun.id == AgentSession.eval_run_id)
        )
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.eval_source == str(session_id))
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(MAX_REPLAYS)
    )  # fmt: skip
    return [ReplayRow(*row) for row in rows]
