"""Changes that a golden expects, between the rows of a form and what is stored: records and tools found by name."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, or_, select

from app.actor import Actor
from app.db import db, get_own
from app.errors import Invalid
from app.evals.compare.effects import RESPONSE, effects_of
from app.evals.expected.changes import (
    CREATE,
    SUBMIT,
    TOOL,
    UPDATE,
    Change,
    Known,
    change_of,
    describe_effect,
    effect_of,
)
from app.evals.expected.expectations import find_conflict
from app.evals.expected.pairs import Pair, read_pairs, write_pairs
from app.evals.trace import Run, calls_of, find_tool
from app.formats.ids import UUID_PATTERN, parse_id
from app.models import AgentSession, CriteriaSet, Entity, EntityType
from app.services.entities import criteria as criteria_store
from app.services.entities import store as entity_store
from app.services.evals.expected import OWN_RECORD, Tools, find_records, fit_fields, tools_of, values_error
from app.services.evals.snapshot import recorded_run
from app.text.values import Reader, holds_truncated

MAX_TOUCHED = 40
MAX_FOUND = 20
MAX_SEARCHED_BYTES = 1_000_000


@dataclass(frozen=True)
class Choice:
    """A record to pick. Where several have its name, its id says which one is meant."""

    text: str
    about: str


@dataclass(frozen=True)
class Choices:
    """What the rows of a form are made of: kinds of records and criteria by their ids, tools by name."""

    kinds: Mapping[str, EntityType]
    criteria: Mapping[str, CriteriaSet]
    tools: Tools
    records: Sequence[Choice]
    known: Known


def load_choices(session: AgentSession, run: Run, *, actor: Actor) -> Choices:
    """Everything that can be chosen for a session, with the records that it touched. Six queries at most."""
    kinds = {kind.slug: kind for kind in _all(EntityType, actor)}
    criteria = {str(one.id): one for one in criteria_store.list_criteria_sets(actor=actor)}
    tools = tools_of(session, run, actor=actor)
    known = Known(
        {slug: {"properties": {"name": {"type": "string"}, **kind.fields}} for slug, kind in kinds.items()},
        {criteria_id: _criteria_schema(one.dimensions) for criteria_id, one in criteria.items()},
        tools.named,
    )
    return Choices(kinds, criteria, tools, _touched(run, actor), known)


def _all(model: Any, actor: Actor) -> Iterable[Any]:
    return db.session.scalars(select(model).where(model.tenant_id == actor.tenant_id).order_by(model.name))


_OF_CRITERION = {"numeric": "number", "number": "number", "rating": "number", "text": "string"}


def _criteria_schema(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """Criteria as the schema of what is submitted under them."""
    found = {}
    for name, rule in dimensions.items():
        kind = _OF_CRITERION.get(str(rule.get("kind"))) if isinstance(rule, Mapping) else None
        options = rule.get("options") if isinstance(rule, Mapping) else None
        found[name] = {**({"type": kind} if kind else {}), **({"enum": options} if isinstance(options, list) else {})}
    return {"properties": found}


def _touched(run: Run, actor: Actor) -> list[Choice]:
    """The records whose ids occur in the session, in their order."""
    ids: dict[UUID, None] = {}
    for event in run.events:
        for found in UUID_PATTERN.findall(json.dumps(event.payload, default=str)):
            ids.setdefault(UUID(found))
    wanted = list(ids)[:1000]
    rows = _records(Entity.id.in_(wanted), actor) if wanted else []
    return _as_choices(sorted(rows, key=lambda row: wanted.index(row[0]))[:MAX_TOUCHED], actor)


def _records(where: Any, actor: Actor) -> list[Any]:
    """Ids, names and kinds of records."""
    same = (EntityType.tenant_id == Entity.tenant_id) & (EntityType.id == Entity.entity_type_id)
    statement = select(Entity.id, Entity.name, EntityType.name).join(EntityType, same)
    return list(db.session.execute(statement.where(Entity.tenant_id == actor.tenant_id, where).limit(1000)))


def _as_choices(rows: Sequence[Any], actor: Actor) -> list[Choice]:
    unique = unique_names(Entity, [row[0] for row in rows], actor)
    return [
        Choice(name, kind) if str(record) in unique else Choice(str(record), f"{name}, {kind}")
        for record, name, kind in rows
    ]


def search_records(query: str, session_id: UUID, *, actor: Actor) -> list[Choice]:
    """Records to pick by a part of their name: those that the session touched first, unless it is a large one, which
    takes too long to read with every letter."""
    text = query.strip()
    session = get_own(AgentSession, session_id, "session", actor=actor)
    small = session.event_bytes <= MAX_SEARCHED_BYTES
    touched = _touched(recorded_run(session, actor=actor), actor) if small else []
    if not text:
        return touched
    first = [one for one in touched if text.lower() in f"{one.text} {one.about}".lower()]
    found = entity_store.search_entities(text, actor=actor, limit=MAX_FOUND)
    kinds = {kind.slug: kind.name for kind in _all(EntityType, actor)}
    rows = [(row.id, row.name, kinds.get(row.entity_type, row.entity_type)) for row in found]
    return list(dict.fromkeys([*first, *_as_choices(rows, actor)]))[:MAX_FOUND]


def kinds_of(changes: Sequence[Change], *, actor: Actor) -> list[str | None]:
    """For each row the kind of the record that it updates, where that is known. One query."""
    made = [change.of for change in changes if change.kind == CREATE]
    named = {change.record.lower() for change in changes if change.kind == UPDATE and change.record}
    ids = [found for text in named if (found := parse_id(text)) is not None]
    by_text: dict[str, set[str]] = defaultdict(set)
    if named:
        same = (EntityType.tenant_id == Entity.tenant_id) & (EntityType.id == Entity.entity_type_id)
        lowered = func.lower(Entity.name)
        rows = db.session.execute(
            select(Entity.id, lowered, EntityType.slug)
            .join(EntityType, same)
            .where(Entity.tenant_id == actor.tenant_id, or_(Entity.id.in_(ids), lowered.in_(named)))
            .limit(1000)
        )
        for record, name, slug in rows:
            by_text[str(record)].add(slug)
            by_text[name].add(slug)
    return [_kind_of(change, by_text, made) for change in changes]


def _kind_of(change: Change, by_text: Mapping[str, set[str]], made: Sequence[str]) -> str | None:
    if change.kind != UPDATE:
        return None
    if OWN_RECORD.fullmatch(change.record):
        place = int(change.record[1:]) - 1
        return made[place] if place < len(made) else None
    slugs = by_text.get(change.record.lower(), set())
    return next(iter(slugs)) if len(slugs) == 1 else None


def build_effects(changes: Sequence[Change], choices: Choices, *, actor: Actor) -> list[dict[str, Any]]:
    """`expected.effects` from the rows of a form; Invalid with a sentence for each row that is wrong, at places such as
    `changes.0.record` and `changes.0.values.1`."""
    found, wrong = [], {}
    for place, (change, of_record) in enumerate(zip(changes, kinds_of(changes, actor=actor), strict=True)):
        try:
            found.append(_build(change, of_record, choices, actor))
        except RowError as error:
            wrong[f"changes.{place}.{error.part}"] = str(error)
    if wrong:
        raise Invalid.of(wrong)
    both = find_conflict(found)
    if both is not None:
        sentence = f"Change {both[0] + 1} gives {both[2]} of this record another value. Keep one of them."
        raise Invalid.of({f"changes.{both[1]}.record": sentence})
    return found


class RowError(ValueError):
    """What is wrong with a row, and with which part of it."""

    def __init__(self, part: str, sentence: str) -> None:
        super().__init__(sentence)
        self.part = part


def _build(change: Change, of_record: str | None, choices: Choices, actor: Actor) -> dict[str, Any]:
    _CHECKS[change.kind](change, choices)
    if change.kind in (UPDATE, SUBMIT) and not change.values:
        raise RowError("values.0", "Pick a field and give its value.")
    if change.kind in (UPDATE, SUBMIT) and change.record and not OWN_RECORD.fullmatch(change.record):
        record, kind = _find_record(change.record, actor)
        change, of_record = change.with_record(record), kind.slug
    _check_names(change.values)
    try:
        effect = effect_of(change, choices.known, of_record)
    except ValueError as error:
        raise RowError("values.0", str(error)) from None
    _check_values(change, effect, of_record, choices)
    return effect


def _check_update(change: Change, _: Choices) -> None:
    if not change.record:
        raise RowError("record", "Pick a record.")


def _check_create(change: Change, choices: Choices) -> None:
    if change.of not in choices.kinds:
        raise RowError("of", "Pick a kind of record.")


def _check_submit(change: Change, choices: Choices) -> None:
    if change.of not in choices.criteria:
        raise RowError("of", "Pick the criteria.")


def _check_tool(change: Change, choices: Choices) -> None:
    if not change.of:
        raise RowError("of", "Pick a tool.")
    refusal = choices.tools.refusal(change.of)
    if refusal:
        raise RowError("of", refusal)
    if not find_tool(change.of, choices.known.tools).writes:
        raise RowError("of", f"{change.of[:60]} only reads, so it changes nothing.")


_CHECKS = {UPDATE: _check_update, CREATE: _check_create, SUBMIT: _check_submit, TOOL: _check_tool}


def _find_record(name: str, actor: Actor) -> tuple[str, EntityType]:
    """The id of the one record of that name or id, and its kind."""
    rows = find_records(name, actor)
    if not rows:
        raise RowError("record", f"There is no record called “{name[:60]}”.")
    if len(rows) > 1:
        raise RowError("record", f"Several records are called “{name[:60]}”. Pick one from the list.")
    return str(rows[0][0]), rows[0][1]


def _check_names(values: Sequence[Pair]) -> None:
    for place, (name, _) in enumerate(values):
        if not name:
            raise RowError(f"values.{place}", "Name the field.")


def _check_values(change: Change, effect: Mapping[str, Any], of_record: str | None, choices: Choices) -> None:
    """Refuse the first value that does not fit its field."""
    fields = effect["fields"]
    for place, (name, _) in enumerate(change.values):
        if name not in fields:
            continue
        one = {name: fields[name]}
        wrong: str | None = None
        if change.kind == SUBMIT:
            wrong = values_error(one, choices.criteria[change.of])
        elif change.kind in (UPDATE, CREATE) and not (change.kind == CREATE and name == "name"):
            kind = choices.kinds.get(change.of if change.kind == CREATE else of_record or "")
            wrong = _fit_error(one, kind) if kind else None
        if wrong:
            raise RowError(f"values.{place}", wrong.removeprefix(f"{name[:60]}: "))


def _fit_error(fields: Mapping[str, Any], kind: EntityType) -> str | None:
    try:
        fit_fields(fields, kind)
    except ValueError as wrong:
        return str(wrong)
    return None


def build_calls(calls: Sequence[Change], choices: Choices) -> list[dict[str, Any]]:
    """`expected.calls` from rows; Invalid with a sentence for each row that is wrong."""
    found, wrong = [], {}
    for place, call in enumerate(calls):
        try:
            found.append({"name": call.of, "arguments": _arguments(call, choices)})
        except RowError as error:
            wrong[f"calls.{place}.{error.part}"] = str(error)
    if wrong:
        raise Invalid.of(wrong)
    return found


def _arguments(call: Change, choices: Choices) -> dict[str, Any]:
    if not call.of:
        raise RowError("of", "Pick a tool.")
    refusal = choices.tools.refusal(call.of)
    if refusal:
        raise RowError("of", refusal)
    _check_names(call.values)
    schema = choices.known.schema_of_tool(call.of)
    try:
        given = read_pairs(call.values, schema, nested=True)
    except ValueError as error:
        raise RowError("values.0", str(error)) from None
    # An argument that is left empty is one that was not given.
    return {name: value for name, value in given.items() if value is not None}


def rows_of_calls(calls: Iterable[Mapping[str, Any]], choices: Choices) -> list[Change]:
    """Expected calls as rows."""
    return [
        Change(TOOL, of=call["name"], values=tuple(write_pairs(call.get("arguments") or {}, schema, nested=True)))
        for call in calls
        for schema in [choices.known.schema_of_tool(call["name"])]
    ]


def rows_of_effects(effects: Sequence[Mapping[str, Any]], choices: Choices, *, actor: Actor) -> list[Change]:
    """Effects as rows, their records by name where only one is called so. Two queries at most."""
    plain = [change_of(effect, choices.known) for effect in effects]
    kinds = kinds_of(plain, actor=actor)
    names = unique_names(Entity, [found for row in plain if (found := parse_id(row.record))], actor)
    made = [change_of(effect, choices.known, kind) for effect, kind in zip(effects, kinds, strict=True)]
    return [row.with_record(names.get(row.record, row.record)) if row.kind in (UPDATE, SUBMIT) else row for row in made]


def recorded_effects(run: Run) -> list[dict[str, Any]]:
    """What a session changed, as `expected.effects` has it. What was not read to its end is left out."""
    reader = Reader()
    effects, _ = effects_of(run, calls_of(run, run.tools, reader), reader)
    return [
        {"kind": one.kind, "type": one.type, "target": one.target, "fields": one.fields}
        for one in effects
        if not holds_truncated(one.fields)
    ]


def describe_effects(effects: Sequence[Mapping[str, Any]], *, actor: Actor) -> list[str]:
    """Changes in plain words, records by name where only one is called so. Three queries at most."""
    if not effects:
        return []
    kinds = {kind.slug for kind in entity_store.list_types(actor=actor)}
    targets = {str(one.get("target")) for one in effects if one["type"] == "entity" or one["kind"] == RESPONSE}
    names = unique_names(Entity, [found for text in targets if (found := parse_id(text))], actor)
    submitted = {one["type"] for one in effects if one["kind"] == RESPONSE}
    names |= unique_names(CriteriaSet, [found for text in submitted if (found := parse_id(text))], actor)
    return [describe_effect(one, kinds, names) for one in effects]


def name_records(text: str, *, actor: Actor) -> str:
    """A sentence with the names of records in place of their ids, where only one is called so."""
    names = unique_names(Entity, [UUID(found) for found in UUID_PATTERN.findall(text)], actor)
    return UUID_PATTERN.sub(lambda found: names.get(found[0].lower(), found[0]), text)


def unique_names(of: Any, ids: Collection[UUID], actor: Actor) -> dict[str, str]:
    """The names of records, by id, of those whose name nothing else has."""
    if not ids:
        return {}
    lowered = func.lower(of.name)
    wanted = select(lowered).where(of.tenant_id == actor.tenant_id, of.id.in_(ids))
    rows = db.session.execute(select(of.id, of.name).where(of.tenant_id == actor.tenant_id, lowered.in_(wanted)))
    called: dict[str, list[tuple[UUID, str]]] = defaultdict(list)
    for entity_id, name in rows:
        called[name.lower()].append((entity_id, name))
    return {str(same[0][0]): same[0][1] for same in called.values() if len(same) == 1}
