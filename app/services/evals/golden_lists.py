"""Goldens as they are listed. Of their metadata only what a list shows is read, never the snapshot."""

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Float, Integer, Text, Uuid, cast, func, select, text
from sqlalchemy.orm import aliased
from sqlalchemy.sql import Select

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import NotFound
from app.models import Agent, AgentSession, AgentVersion, EvalRun, EvalVerdict, SessionEvent, SharedContext, User
from app.models.agents import REPLAYABLE_KINDS


def list_goldens(
    page: Page, *, actor: Actor, set_name: str | None = None, run_id: UUID | None = None, count: int | None = None
) -> Slice[SimpleNamespace]:
    """One page of goldens, newest session first, with the `verdict` and `accuracy` that a run found. Passing `count`
    saves a query."""
    where = [AgentSession.tenant_id == actor.tenant_id, AgentSession.golden_set.is_not(None)]
    if set_name is not None:
        where.append(AgentSession.golden_set == set_name)
    columns = _columns(actor) | {"verdict": EvalVerdict.verdict, "accuracy": EvalVerdict.accuracy}
    judged = (EvalVerdict.tenant_id == AgentSession.tenant_id) & (EvalVerdict.golden_id == AgentSession.id)
    statement = _select(columns).outerjoin(EvalVerdict, judged & (EvalVerdict.run_id == run_id))
    found = read_page(statement, page, at=AgentSession.created_at, id=AgentSession.id, where=where, count=count)
    return found.map(lambda row: SimpleNamespace(**dict(zip(columns, row, strict=True))))


def get_golden(session_id: UUID, *, actor: Actor) -> Any:
    golden = (AgentSession.id == session_id) & AgentSession.golden_set.is_not(None)
    wanted = _select(_columns(actor)).where(AgentSession.tenant_id == actor.tenant_id, golden)
    row = db.session.execute(wanted).one_or_none()
    if row is None:
        raise NotFound("There is no such golden in this workspace.")
    return row


def can_replay(agent: Any = Agent) -> Any:
    """Whether an agent can replay anything: it runs in Upshot, and is not archived."""
    return agent.kind.in_(REPLAYABLE_KINDS) & agent.archived_at.is_(None)


def another_can_replay(actor: Actor) -> Any:
    """Whether there is an agent that can be chosen to replay with."""
    other = aliased(Agent)
    return select(other.id).where(other.tenant_id == actor.tenant_id, can_replay(other), ~other.is_system).exists()


def _columns(actor: Actor) -> dict[str, Any]:
    """What lists show of a golden: whether its own agent can replay it here (or runs `elsewhere`), or another could."""
    golden: Any = AgentSession.meta["golden"]
    return {
        "id": AgentSession.id,
        "title": AgentSession.title,
        "session_type": AgentSession.session_type,
        "set_name": AgentSession.golden_set,
        "note": golden["note"].astext,
        "criteria_set_id": cast(golden["criteriaSetId"].astext, Uuid),
        "agent_id": AgentSession.agent_id,
        "agent": Agent.slug,
        "agent_version": AgentVersion.version,
        "replayable": can_replay(),
        "another": another_can_replay(actor),
        "elsewhere": Agent.kind.not_in(REPLAYABLE_KINDS),
        "promoted_at": cast(golden["promoted_at"].astext, DateTime(timezone=True)),
        "promoted_by": cast(golden["promoted_by"].astext, Uuid),
        "sha256": golden["sha256"].astext,
        "baseline_rejected": func.coalesce(golden["baseline_rejected"].astext, "") == "true",
        "recorded_is_right": func.coalesce(golden["recorded_is_right"].astext, "") == "true",
        "expected": golden["expected"],
        "revision": func.jsonb_array_length(func.coalesce(golden["revisions"], func.jsonb_build_array())),
        "person": User.name,
    }


def _select(columns: Mapping[str, Any]) -> Select[*tuple[Any, ...]]:
    return (
        select(*(column.label(name) for name, column in columns.items()))
        .join_from(
            AgentSession, Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id)
        )
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .outerjoin(User, User.id == columns["promoted_by"])
    )


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


_SNAPSHOT: Any = AgentSession.meta["golden"]["snapshot"]
_HTTP_TOOLS = text("'$.golden.snapshot.agent.config.http_tools[*].name'")


def health_of(set_name: str, session_ids: Sequence[UUID], *, actor: Actor) -> dict[UUID, dict[str, Any]]:
    """The marks that a list shows beside goldens of a set: `tools_gone`, `rows_inactive`, `duplicate`. Two queries."""
    if not session_ids:
        return {}
    rows = _frozen_inputs(set_name, session_ids, actor)
    has = _current_tools({row.agent_id for row in rows}, actor)
    marks = {}
    for row in rows:
        needs = (*(row.grants or ()), *(row.tools or ())) if row.agent_id in has else ()
        gone = tuple(name for name in needs if name not in has[row.agent_id])
        marks[row.id] = {"tools_gone": gone, "rows_inactive": row.inactive, "duplicate": row.twins > 1}
    return marks


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
    found = {}
    for agent_id, config in rows:
        named = {str(tool.get("name")) for tool in config.get("http_tools") or () if isinstance(tool, Mapping)}
        found[agent_id] = named | {str(group) for group in config.get("tool_groups") or ()}
    return found


def count_frozen(session_id: UUID, *, actor: Actor) -> Any:
    """What a golden keeps, in numbers. Its recordings are its own events."""
    own = (SessionEvent.tenant_id == AgentSession.tenant_id) & (SessionEvent.session_id == AgentSession.id)
    results = select(func.count()).where(own, SessionEvent.event_type == "tool.result")
    nothing = func.jsonb_build_array()
    knowledge_rows = func.jsonb_array_length(func.coalesce(_SNAPSHOT["shared_context"]["row_ids"], nothing))
    return db.session.execute(
        select(
            func.coalesce(_SNAPSHOT["agent"]["slug"].astext, "").label("agent"),
            cast(_SNAPSHOT["agent"]["version"].astext, Integer).label("version"),
            func.jsonb_array_length(func.coalesce(_SNAPSHOT["turns"], nothing)).label("turns"),
            knowledge_rows.label("knowledge_rows"),
            results.scalar_subquery().label("recordings"),
        ).where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one()


def list_replays(session_id: UUID, *, actor: Actor) -> list[Any]:
    """The newest replays of a golden. One query."""
    result: Any = AgentSession.meta["eval_result"]
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.status, AgentSession.created_at, result["verdict"].astext.label("verdict"),
            cast(result["overall_accuracy"].astext, Float).label("accuracy"), result["reason"].astext.label("reason"),
            EvalRun.context_mode, Agent.slug.label("agent"), AgentVersion.version.label("agent_version"),
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
    return list(rows)


def row_contents(ids: Sequence[str], *, actor: Actor) -> dict[str, str]:
    """What knowledge rows say, by id."""
    if not ids:
        return {}
    rows = db.session.execute(
        select(SharedContext.id, func.left(SharedContext.content, 160)).where(
            SharedContext.tenant_id == actor.tenant_id, SharedContext.id.in_([UUID(one) for one in ids])
        )
    )
    return {str(row[0]): row[1] for row in rows}
