"""What should have changed, in plain words: records found by their names, tools by theirs, and lines about them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.effects import RESPONSE, effects_of
from app.evals.compare.values import Reader, holds_cut
from app.evals.expected.contradictions import clash
from app.evals.expected.corrected_effects import names_writes
from app.evals.expected.effect_text import CREATE, OF, SUBMIT, UPDATE, Line, effect_of, line_of, read_line, write_line
from app.evals.expected.expectations import Expected
from app.evals.expected.tool_names import nearest
from app.evals.trace import Run, Tool, calls_of, tool_named
from app.formats.value_schema import misfit
from app.models import CriteriaSet, Entity, EntityType
from app.services.entities import store as entity_store

MOST_NAMED = 8
# What the session itself creates has no id yet.
OWN = re.compile(r"\$[1-9]\d?")


def read_changes(lines: Sequence[str], run: Run, *, actor: Actor) -> list[dict[str, Any]]:
    """`expected.effects` from what somebody wrote; Invalid with a sentence about the first line that is wrong."""
    known = _tools(run)
    found = []
    for number, text in enumerate(lines, 1):
        try:
            line = read_line(text)
            if line.verb == UPDATE:
                line = _update(line, actor)
            elif line.verb == CREATE:
                line = _create(line, actor)
            elif line.verb == SUBMIT:
                line = _submit(line, actor)
            else:
                _check_tool(line.verb, known)
            found.append(effect_of(line, tool_named(line.verb, run.tools)))
        except ValueError as wrong:
            sentence = str(wrong) if len(lines) == 1 else f"Line {number}: {wrong}"
            raise Invalid(sentence, {"changes": sentence}) from None
    both = clash(found)
    if both is not None:
        sentence = f"Lines {both[0] + 1} and {both[1] + 1} give {both[2]} of one record different values; keep one."
        raise Invalid(sentence, {"changes": sentence})
    return found


def check_said(expected: Expected, run: Run, *, actor: Actor) -> None:
    """Invalid where a session changed something and nothing that was said tells whether that was right."""
    changes = recorded_changes(run, actor=actor)
    if changes and not names_writes(expected, calls_of(run, run.tools, Reader())):
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        sentence = (
            f"It changed something: {changes[0][:200]}{more}. Say whether that was right, or what it should change."
        )
        raise Invalid(sentence, {"kept": sentence})


def recorded_changes(run: Run, *, actor: Actor) -> list[str]:
    """What a session changed, as lines that `read_changes` understands."""
    reader = Reader()
    effects, _ = effects_of(run, calls_of(run, run.tools, reader), reader)
    plain = [
        {"kind": one.kind, "type": one.type, "target": one.target, "fields": one.fields}
        for one in effects
        if not holds_cut(one.fields)
    ]
    return lines_of(plain, actor=actor)


def lines_of(effects: Sequence[Mapping[str, Any]], *, actor: Actor) -> list[str]:
    """Changes in plain words, records by name where only one is called so. Three queries at most."""
    if not effects:
        return []
    kinds = {kind.slug for kind in entity_store.list_types(actor=actor)}
    targets = {str(one.get("target")) for one in effects if one["type"] == "entity" or one["kind"] == RESPONSE}
    names = _names(Entity, targets, actor)
    names |= _names(CriteriaSet, {one["type"] for one in effects if one["kind"] == RESPONSE}, actor)
    return [write_line(line_of(one, kinds, names)) for one in effects]


def _names(of: Any, targets: Collection[str], actor: Actor) -> dict[str, str]:
    ids = [found for text in targets if (found := as_id(text)) is not None]
    if not ids:
        return {}
    lowered = func.lower(of.name)
    wanted = select(lowered).where(of.tenant_id == actor.tenant_id, of.id.in_(ids))
    rows = db.session.execute(select(of.id, of.name).where(of.tenant_id == actor.tenant_id, lowered.in_(wanted)))
    called: dict[str, list[tuple[UUID, str]]] = defaultdict(list)
    for entity_id, name in rows:
        called[name.lower()].append((entity_id, name))
    return {str(same[0][0]): same[0][1] for same in called.values() if len(same) == 1}


def as_id(text: str) -> UUID | None:
    """The id that a text writes, if it writes one."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _update(line: Line, actor: Actor) -> Line:
    """The line with the id of its record, and values of the kinds that its fields have."""
    if OWN.fullmatch(str(line.subject)):
        return line
    record, kind = _record(str(line.subject), actor)
    return Line(UPDATE, record, fitting(line.fields, kind))


def _submit(line: Line, actor: Actor) -> Line:
    """The line with the ids of its criteria and its record."""
    criteria, of, said = str(line.subject).partition(OF)
    same = CriteriaSet.id == known if (known := as_id(criteria)) else func.lower(CriteriaSet.name) == criteria.lower()
    rows = db.session.scalars(select(CriteriaSet).where(CriteriaSet.tenant_id == actor.tenant_id, same).limit(2)).all()
    if len(rows) != 1:
        there = "Several criteria sets are" if rows else "No criteria set is"
        raise ValueError(f"{there} called “{criteria[:60]}”.")
    wrong = values_misfit(line.fields, rows[0])
    if wrong is not None:
        raise ValueError(wrong)
    record = said if OWN.fullmatch(said) else _record(said, actor)[0] if of else ""
    return Line(SUBMIT, f"{rows[0].id}{OF}{record}" if of else str(rows[0].id), line.fields)


def values_misfit(fields: Mapping[str, Any], criteria: CriteriaSet) -> str | None:
    """What is wrong with values that should be submitted under criteria, or None."""
    for name, given in fields.items():
        rule = criteria.dimensions.get(name)
        if rule is None:
            return f"{name[:60]}: {criteria.name} has {', '.join(criteria.dimensions)}."
        value = given["value"] if isinstance(given, Mapping) and "value" in given else given
        numeric = isinstance(rule, Mapping) and rule.get("kind") in ("numeric", "number")
        if numeric and value is not None and misfit(value, {"type": "number"}):
            return f"{name[:60]}: Give a number."
    return None


def _record(said: str, actor: Actor) -> tuple[str, EntityType]:
    """The id of the one record of that name or id, and its kind."""
    same = Entity.id == entity_id if (entity_id := as_id(said)) else func.lower(Entity.name) == said.lower()
    rows = db.session.execute(
        select(Entity.id, EntityType)
        .join(EntityType, (EntityType.tenant_id == Entity.tenant_id) & (EntityType.id == Entity.entity_type_id))
        .where(Entity.tenant_id == actor.tenant_id, same)
        .limit(2)
    ).all()
    if not rows:
        raise ValueError(f"There is no record called “{said[:60]}”.")
    if len(rows) > 1:
        raise ValueError(f"Several records are called “{said[:60]}”; write the id of the one that is meant.")
    return str(rows[0][0]), rows[0][1]


def _create(line: Line, actor: Actor) -> Line:
    said = str(line.subject).lower()
    kind = db.session.scalar(
        select(EntityType)
        .where(
            EntityType.tenant_id == actor.tenant_id,
            (func.lower(EntityType.slug) == said) | (func.lower(EntityType.name) == said),
        )
        .order_by(EntityType.slug)
        .limit(1)
    )
    if kind is None:
        known = [one.slug for one in entity_store.list_types(actor=actor)][:MOST_NAMED]
        there = f"; there is {', '.join(known)}" if known else ""
        raise ValueError(f"There is no kind of record “{said[:60]}”{there}.")
    named = {"name": line.fields["name"]} if "name" in line.fields else {}
    rest = {name: value for name, value in line.fields.items() if name != "name"}
    return Line(CREATE, kind.slug, {**named, **fitting(rest, kind)})


def fitting(fields: Mapping[str, Any], kind: EntityType) -> dict[str, Any]:
    """Fields with values of the kinds that they have; ValueError with a sentence about the first that does not fit."""
    fit = {name: _as_text(value, kind.fields.get(name)) for name, value in fields.items()}
    try:
        entity_store.check_fields(fit, kind)
    except Invalid as wrong:
        [(name, sentence)] = wrong.fields.items()
        raise ValueError(f"{name.removeprefix('fields.')[:60]}: {sentence}") from None
    return fit


def _as_text(value: Any, schema: Any) -> Any:
    """A bare number in a field of text is text."""
    text = isinstance(schema, Mapping) and schema.get("type") == "string"
    return json.dumps(value) if text and isinstance(value, int | float) else value


def _tools(run: Run) -> dict[str, Tool]:
    """What the session could use: what it was offered, what it called, and ours."""
    called = (str(event.payload.get("name")) for event in run.events if event.event_type == "tool.call")
    names = {*builtin_tools.WRITES, *builtin_tools.READS, *called, *run.tools}
    return {name: tool_named(name, run.tools) for name in names}


def _check_tool(name: str, known: Mapping[str, Tool]) -> None:
    if name not in known:
        others = sorted(known.keys() - builtin_tools.WRITES - builtin_tools.READS)[:MOST_NAMED]
        meant = nearest(name, [UPDATE, CREATE, SUBMIT, *known])
        had = f" Did you mean {meant}?" if meant else f" It had {', '.join(others)}." if others else ""
        raise ValueError(f"“{name[:60]}” is neither update, create, submit nor a tool of this session.{had}")
    if not known[name].writes:
        raise ValueError(f"{name[:60]} only reads, so it changes nothing.")
