"""Whether a replay could ever do what is expected of it: tools that there are, and values that fit where they go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.calls import covered
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, effects_of
from app.evals.compare.values import Reader, as_number
from app.evals.expected.contradictions import check_makable
from app.evals.expected.expectations import Expected
from app.evals.expected.tool_names import is_slip, nearest
from app.evals.trace import Run, Tool, calls_of
from app.formats.value_schema import misfit
from app.models import Agent, AgentSession, AgentVersion, CriteriaSet, Entity, EntityType
from app.services.evals.expected_effects import OWN, as_id, fitting, values_misfit

RECORDS = ("knowledge", "feedback", "agent")
MOST_NAMED = 8


@dataclass(frozen=True)
class Tools:
    """The tools of a session and its agent by name. `whole` says that there are no others: an agent that runs
    elsewhere does not tell all that it has, and neither does a server that is not asked."""

    named: Mapping[str, Tool]
    whole: bool

    def refusal(self, name: str) -> str | None:
        """Why a name cannot be that of a tool, or None when it can."""
        if name in self.named:
            return None
        meant = nearest(name, self.named)
        if not self.whole and (meant is None or not is_slip(name, meant)):
            return None
        if meant:
            return f"There is no tool “{name[:60]}”. Did you mean {meant}?"
        others = sorted(self.named.keys() - builtin_tools.WRITES - builtin_tools.READS)[:MOST_NAMED]
        has = f" It has {', '.join(others)}." if others else ""
        return f"There is no tool “{name[:60]}”.{has}"


def check_possible(expected: Expected, session: AgentSession, run: Run, *, actor: Actor) -> None:
    """Invalid, with a sentence for each place, where what is expected of calls and changes can never be met. What the
    session did itself can always be done again."""
    if not expected.about_calls and not expected.effects:
        return
    checks = _Checks(run, tools_of(session, run, actor=actor), actor)
    wrong = checks.wrong(expected)
    if wrong:
        first = next(iter(wrong))
        raise Invalid(f"{first}: {wrong[first]}", wrong)
    check_makable(expected, run.tools, checks.kinds)


def tools_of(session: AgentSession, run: Run, *, actor: Actor) -> Tools:
    """What the session was offered and called, what its agent has now and had then, and ours. One query."""
    rows = db.session.execute(
        select(Agent.kind, AgentVersion.config)
        .outerjoin(
            AgentVersion,
            (AgentVersion.tenant_id == Agent.tenant_id)
            & (AgentVersion.agent_id == Agent.id)
            & or_(AgentVersion.version == Agent.current_version, AgentVersion.id == session.agent_version_id),
        )
        .where(Agent.tenant_id == actor.tenant_id, Agent.id == session.agent_id)
    ).all()
    configs = [config for _, config in rows if config]
    listed = isinstance(session.meta.get("tools"), list) and bool(session.meta["tools"])
    whole = listed or (rows[0][0] == "builtin" and not any(config.get("mcp_servers") for config in configs))
    called = {str(event.payload.get("name")) for event in run.events if event.event_type == "tool.call"}
    had = {str(tool.get("name")) for config in configs for tool in config.get("http_tools") or ()}
    names = {*builtin_tools.READS, *builtin_tools.WRITES, *called, *had}
    ours = {name: Tool(name, schema=builtin_tools.schema_of(name) if whole and not listed else None) for name in names}
    return Tools({**ours, **run.tools}, whole)


class _Checks:
    """What is looked up once for all that is expected of one session."""

    def __init__(self, run: Run, tools: Tools, actor: Actor) -> None:
        self.tools, self.actor = tools, actor
        rows = db.session.scalars(select(EntityType).where(EntityType.tenant_id == actor.tenant_id))
        self.kinds = {kind.slug: kind for kind in rows}
        reader = Reader()
        self.calls = [call for call in calls_of(run, run.tools, reader) if not call.failed]
        effects, _ = effects_of(run, calls_of(run, run.tools, reader), reader)
        self.recorded = [(one.kind, one.type, one.print) for one in effects]

    def wrong(self, expected: Expected) -> dict[str, str]:
        """Sentences by place, such as `expected.calls.0`."""
        found: dict[str, str | None] = {}
        refused = [said for name in expected.no_calls or () if (said := self.tools.refusal(name))]
        found["expected.no_calls"] = " ".join(refused) or None
        for place, (name, given) in enumerate(expected.calls or ()):
            found[f"expected.calls.{place}"] = self.tools.refusal(name) or self._call(name, given)
        for place, effect in enumerate(expected.effects or ()):
            found[f"expected.effects.{place}"] = self._effect(effect)
        return {place: sentence for place, sentence in found.items() if sentence}

    def _call(self, name: str, given: dict[str, Any]) -> str | None:
        wanted = Reader().arguments(given)
        if any(call.name == name and covered(name, wanted, call.arguments) == 1.0 for call in self.calls):
            return None
        tool = self.tools.named.get(name)
        wrong = misfit(given, tool.schema) if tool else None
        if wrong:
            return f"{name[:60]}, {wrong[0][:60]}: {wrong[1]}"
        if tool is None or tool.schema is None or name not in builtin_tools.WRITES | builtin_tools.READS:
            return None
        kind = given.get("entityType")
        if isinstance(kind, str) and kind not in self.kinds:
            return f"{name}, entityType: {self._no_kind(kind)}"
        made = builtin_tools.change_of(name, given)
        wrong_change = self._change(*made) if made else None
        return f"{name}, {wrong_change}" if wrong_change else None

    def _effect(self, effect: Mapping[str, Any]) -> str | None:
        kind, of, target, fields = effect["kind"], effect["type"], effect.get("target"), effect.get("fields") or {}
        value = Reader().value(fields)
        if (kind, of, repr((target, value))) in self.recorded:
            return None
        return self._change(kind, of, target, fields)

    def _change(self, kind: str, of: str, target: Any, fields: Mapping[str, Any]) -> str | None:
        if kind == RESPONSE:
            return self._response(of, fields)
        if (kind, of) == (UPDATED, "entity"):
            return self._update(target, fields)
        if kind == CREATED and of in self.kinds:
            return _fields({name: value for name, value in fields.items() if name != "name"}, self.kinds[of])
        if builtin_tools.makers(kind, of)[0] != of or (kind == UPDATED and of in RECORDS):
            return None
        return self._of_tool(kind, of, fields)

    def _of_tool(self, kind: str, of: str, fields: Mapping[str, Any]) -> str | None:
        tool = self.tools.named.get(of)
        if tool is not None:
            wrong = misfit(fields, tool.schema)
            return f"{of[:60]}, {wrong[0][:60]}: {wrong[1]}" if wrong else None
        if not self.tools.whole:
            return self.tools.refusal(of)
        return self._no_kind(of) if kind == CREATED else self.tools.refusal(of)

    def _no_kind(self, of: str) -> str:
        meant = nearest(of, [*self.kinds, *self.tools.named])
        hint = f" Did you mean {meant}?" if meant else f" There is {', '.join(list(self.kinds)[:MOST_NAMED])}."
        return f"There is no kind of record “{of[:60]}”.{hint if self.kinds else ''}"

    def _update(self, target: Any, fields: Mapping[str, Any]) -> str | None:
        if OWN.fullmatch(str(target)):
            return None
        known = as_id(str(target))
        kind = self._kind_of(known) if known else None
        if kind is None:
            there = any(one[:2] == (UPDATED, "entity") and repr(target) in one[2] for one in self.recorded)
            return None if there or not self.tools.whole else f"There is no record with the id {str(target)[:60]}."
        return _fields(fields, kind)

    def _kind_of(self, entity_id: UUID) -> EntityType | None:
        return db.session.scalar(
            select(EntityType)
            .join(Entity, (Entity.tenant_id == EntityType.tenant_id) & (Entity.entity_type_id == EntityType.id))
            .where(Entity.tenant_id == self.actor.tenant_id, Entity.id == entity_id)
        )

    def _response(self, of: str, fields: Mapping[str, Any]) -> str | None:
        known = as_id(of)
        criteria = db.session.scalar(
            select(CriteriaSet).where(CriteriaSet.tenant_id == self.actor.tenant_id, CriteriaSet.id == known)
        )
        if criteria is None:
            return f"There is no criteria set with the id {of[:60]}." if of and self.tools.whole else None
        return values_misfit(fields, criteria)


def _fields(fields: Mapping[str, Any], kind: EntityType) -> str | None:
    try:
        fitting({name: _as_number(value, kind.fields.get(name)) for name, value in fields.items()}, kind)
    except ValueError as wrong:
        return str(wrong)
    return None


def _as_number(value: Any, schema: Any) -> Any:
    """A text that writes a number is that number where a field holds one."""
    numeric = isinstance(schema, Mapping) and schema.get("type") in ("number", "integer")
    return (
        as_number(value.strip())
        if numeric and isinstance(value, str) and as_number(value.strip()) is not None
        else value
    )
