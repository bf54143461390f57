"""Check that a replay can meet the expectations of a golden, and find the records and tools that they name."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from sqlalchemy import func, or_, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.calls import covered_share
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, effects_of
from app.evals.expected.expectations import Expected, check_consistent, check_makable, read_expected
from app.evals.trace import Run, Tool, calls_of, find_tool
from app.formats.ids import parse_id
from app.formats.json_schema import expected_error
from app.models import Agent, AgentSession, AgentVersion, CriteriaSet, Entity, EntityType
from app.services.entities import store as entity_store
from app.text.values import Reader, as_number
from app.text.words import split_name

RECORDS = ("knowledge", "feedback", "agent")
MAX_NAMES = 8


@dataclass(frozen=True)
class Tools:
    """The tools of a session and its agent. External agents and MCP servers may have more; then it is not `whole`."""

    named: Mapping[str, Tool]
    whole: bool

    def refusal(self, name: str) -> str | None:
        """Why a name cannot be that of a tool, or None when it can."""
        meant = nearest_name(name, self.named)
        if name in self.named or (not self.whole and (meant is None or not is_typo(name, meant))):
            return None
        hint = f" Did you mean {meant}?" if meant else _other_tools("It has", self.named)
        return f"There is no tool “{name[:60]}”.{hint}"


def _other_tools(says: str, known: Mapping[str, Tool]) -> str:
    """The tools of a session that are not ours, as a hint."""
    others = sorted(known.keys() - builtin_tools.WRITES - builtin_tools.READS)[:MAX_NAMES]
    return f" {says} {', '.join(others)}." if others else ""


def check_expected(given: Mapping[str, Any], session: AgentSession, run: Run, *, actor: Actor) -> Expected:
    """Expectations of a session as the comparer reads them; Invalid where no replay could ever meet them."""
    expected = read_expected(given)
    check_consistent(expected)
    check_possible(expected, session, run, actor=actor)
    return expected


def check_possible(expected: Expected, session: AgentSession, run: Run, *, actor: Actor) -> None:
    """Refuse expected calls and changes that can never be met. What the session itself did is always possible."""
    if not expected.about_calls and not expected.effects:
        return
    checks = _Checks(run, tools_of(session, run, actor=actor), actor)
    wrong = checks.wrong(expected)
    if wrong:
        raise Invalid.of(wrong)
    check_makable(expected, run.tools, checks.kinds)


def tools_of(session: AgentSession, run: Run, *, actor: Actor) -> Tools:
    """What the session was offered and called, what its agent has now and had then, and ours. One query."""
    own = (AgentVersion.tenant_id == Agent.tenant_id) & (AgentVersion.agent_id == Agent.id)
    used = or_(AgentVersion.version == Agent.current_version, AgentVersion.id == session.agent_version_id)
    rows = db.session.execute(
        select(Agent.kind, AgentVersion.config)
        .outerjoin(AgentVersion, own & used)
        .where(Agent.tenant_id == actor.tenant_id, Agent.id == session.agent_id)
    ).all()
    configs = [config for _, config in rows if config]
    listed = isinstance(session.meta.get("tools"), list) and bool(session.meta["tools"])
    whole = listed or (rows[0][0] == "builtin" and not any(config.get("mcp_servers") for config in configs))
    called = {str(event.payload.get("name")) for event in run.events if event.event_type == "tool.call"}
    had = {str(tool.get("name")) for config in configs for tool in config.get("http_tools") or ()}
    names = {*builtin_tools.READS, *builtin_tools.WRITES, *called, *had}
    ours = {
        name: replace(find_tool(name, {}), schema=builtin_tools.schema_of(name) if whole and not listed else None)
        for name in names
    }
    return Tools({**ours, **run.tools}, whole)


class _Checks:
    """What is looked up once for all that is expected of one session."""

    def __init__(self, run: Run, tools: Tools, actor: Actor) -> None:
        self.tools, self.actor = tools, actor
        rows = db.session.scalars(select(EntityType).where(EntityType.tenant_id == actor.tenant_id))
        self.kinds = {kind.slug: kind for kind in rows}
        reader = Reader()
        calls = calls_of(run, run.tools, reader)
        self.calls = [call for call in calls if not call.failed]
        self.recorded = [(one.kind, one.type, one.print) for one in effects_of(run, calls, reader)[0]]

    def wrong(self, expected: Expected) -> dict[str, str]:
        """Sentences by place, such as `expected.calls.0`."""
        refused = [refusal for name in expected.no_calls or () if (refusal := self.tools.refusal(name))]
        found: dict[str, str | None] = {"expected.no_calls": " ".join(refused)}
        for place, (name, given) in enumerate(expected.calls or ()):
            found[f"expected.calls.{place}"] = self.tools.refusal(name) or self._call(name, given)
        for place, effect in enumerate(expected.effects or ()):
            found[f"expected.effects.{place}"] = self._effect(effect)
        return {place: sentence for place, sentence in found.items() if sentence}

    def _call(self, name: str, given: dict[str, Any]) -> str | None:
        wanted = Reader().arguments(given)
        if any(call.name == name and covered_share(name, wanted, call.arguments) == 1.0 for call in self.calls):
            return None
        tool = self.tools.named.get(name)
        wrong = _schema_error(tool, given) if tool else None
        if wrong or tool is None or tool.schema is None or name not in builtin_tools.WRITES | builtin_tools.READS:
            return wrong
        kind = given.get("entityType")
        if isinstance(kind, str) and kind not in self.kinds:
            return f"{name}, entityType: {self._no_kind(kind)}"
        made = builtin_tools.change_of(name, given)
        wrong_change = self._change(*made) if made else None
        return f"{name}, {wrong_change}" if wrong_change else None

    def _effect(self, effect: Mapping[str, Any]) -> str | None:
        kind, of, target, fields = effect["kind"], effect["type"], effect.get("target"), effect.get("fields") or {}
        if (kind, of, repr((target, Reader().value(fields)))) in self.recorded:
            return None
        return self._change(kind, of, target, fields)

    def _change(self, kind: str, of: str, target: Any, fields: Mapping[str, Any]) -> str | None:
        if kind == RESPONSE:
            return self._response(of, fields)
        if (kind, of) == (UPDATED, "entity"):
            return self._update(target, fields)
        if kind == CREATED and of in self.kinds:
            return _fields({name: value for name, value in fields.items() if name != "name"}, self.kinds[of])
        if builtin_tools.tools_that_make(kind, of)[0] != of or (kind == UPDATED and of in RECORDS):
            return None
        return self._of_tool(kind, of, fields)

    def _of_tool(self, kind: str, of: str, fields: Mapping[str, Any]) -> str | None:
        tool = self.tools.named.get(of)
        if tool is not None:
            return _schema_error(tool, fields)
        return self._no_kind(of) if self.tools.whole and kind == CREATED else self.tools.refusal(of)

    def _no_kind(self, of: str) -> str:
        meant = nearest_name(of, [*self.kinds, *self.tools.named])
        hint = f" Did you mean {meant}?" if meant else f" There is {', '.join(list(self.kinds)[:MAX_NAMES])}."
        return f"There is no kind of record “{of[:60]}”.{hint if self.kinds else ''}"

    def _update(self, target: Any, fields: Mapping[str, Any]) -> str | None:
        if OWN_RECORD.fullmatch(str(target)):
            return None
        records = find_records(str(target), self.actor) if parse_id(str(target)) else ()
        if not records:
            there = any(one[:2] == (UPDATED, "entity") and repr(target) in one[2] for one in self.recorded)
            return None if there or not self.tools.whole else f"There is no record with the id {str(target)[:60]}."
        return _fields(fields, records[0][1])

    def _response(self, of: str, fields: Mapping[str, Any]) -> str | None:
        found = _find_criteria(of, self.actor) if parse_id(of) else ()
        if not found:
            return f"There is no criteria set with the id {of[:60]}." if of and self.tools.whole else None
        return values_error(fields, found[0])


def _schema_error(tool: Tool, given: Mapping[str, Any]) -> str | None:
    wrong = expected_error(given, tool.schema)
    return f"{tool.name[:60]}, {wrong[0][:60]}: {wrong[1]}" if wrong else None


def _fields(fields: Mapping[str, Any], kind: EntityType) -> str | None:
    try:
        fit_fields(fields, kind)
    except ValueError as wrong:
        return str(wrong)
    return None


# What the session itself creates has no id yet.
OWN_RECORD = re.compile(r"\$[1-9]\d?")


def values_error(fields: Mapping[str, Any], criteria: CriteriaSet) -> str | None:
    """What is wrong with values that should be submitted under criteria, or None."""
    for name, given in fields.items():
        rule = criteria.dimensions.get(name)
        if rule is None:
            return f"{name[:60]}: {criteria.name} has {', '.join(criteria.dimensions)}."
        value = given["value"] if isinstance(given, Mapping) and "value" in given else given
        numeric = isinstance(rule, Mapping) and rule.get("kind") in ("numeric", "number")
        if numeric and value is not None and expected_error(value, {"type": "number"}):
            return f"{name[:60]}: Enter a number."
    return None


def find_records(name: str, actor: Actor) -> Sequence[Any]:
    """The first two records of that name or id, each with its kind."""
    return db.session.execute(
        select(Entity.id, EntityType)
        .join(EntityType, (EntityType.tenant_id == Entity.tenant_id) & (EntityType.id == Entity.entity_type_id))
        .where(Entity.tenant_id == actor.tenant_id, _called(Entity, name))
        .limit(2)
    ).all()


def _find_criteria(name: str, actor: Actor) -> Sequence[CriteriaSet]:
    wanted = select(CriteriaSet).where(CriteriaSet.tenant_id == actor.tenant_id, _called(CriteriaSet, name))
    return db.session.scalars(wanted.limit(2)).all()


def _called(model: Any, name: str) -> Any:
    found = parse_id(name)
    return model.id == found if found else func.lower(model.name) == name.lower()


def fit_fields(fields: Mapping[str, Any], kind: EntityType) -> dict[str, Any]:
    """Fields with values of the kinds that they have; ValueError with a sentence about the first that does not fit."""
    fit = {name: _as_typed(value, kind.fields.get(name)) for name, value in fields.items()}
    try:
        entity_store.check_fields(fit, kind)
    except Invalid as wrong:
        [(name, sentence)] = wrong.fields.items()
        raise ValueError(f"{name.removeprefix('fields.')[:60]}: {sentence}") from None
    return fit


def _as_typed(value: Any, schema: Any) -> Any:
    """A bare number in a field of text is text; a text that writes a number is that number in a field of numbers."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string" and isinstance(value, int | float):
        return json.dumps(value)
    number = as_number(value.strip()) if kind in ("number", "integer") and isinstance(value, str) else None
    return value if number is None else number


# Suggest the tool that a misspelled name probably means

MIN_RATIO = 0.6
TYPO_RATIO = 0.9
MAX_CHARS = 120


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name that is not known, if one is."""
    squeezed = {_normalize(one): one for one in sorted(known)}
    found = get_close_matches(_normalize(name), list(squeezed), n=1, cutoff=MIN_RATIO)
    return squeezed[found[0]] if found else None


def is_typo(name: str, other: str) -> bool:
    """Whether a name misspells another. Singular and plural are two names, and so are get and set."""
    one, two = _normalize(name), _normalize(other)
    if one == two:
        return True
    if one[:1] != two[:1] or one.rstrip("s") == two.rstrip("s"):
        return False
    return SequenceMatcher(None, one, two, autojunk=False).ratio() >= TYPO_RATIO


def _normalize(name: str) -> str:
    """A name without case and separators."""
    return "".join(split_name(name[:MAX_CHARS])).lower()
