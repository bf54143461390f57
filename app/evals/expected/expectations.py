"""What should have happened where the recorded run was wrong: each key replaces that part of the recording."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, Effect, change_of_call, merge_updates
from app.evals.trace import Call, Run, Tool, find_tool, last_message
from app.formats.messages import invalid_values
from app.text.similarity import FactIndex
from app.text.values import MAX_BYTES, Path, Reader, canonical, format_path, leaves, same_leaf
from app.text.words import quotations

MAX_MENTIONS = 8
MAX_CALLS = 50
MAX_FACT_CHARS = 200
MAX_EVIDENCE_CHARS = 1_000_000


def _read_call(call: Any) -> tuple[str, dict[str, Any]]:
    known = isinstance(call, dict) and not call.keys() - {"name", "arguments"}
    name, arguments = (call.get("name"), call.get("arguments", {})) if known else (None, None)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("Send an object with a name and arguments, nothing else.")
    return name, arguments


def _check_effect(effect: dict[str, Any]) -> dict[str, Any]:
    kind, target = effect.get("kind"), effect.get("target")
    if kind not in (CREATED, UPDATED, RESPONSE) or not isinstance(effect.get("type"), str):
        raise ValueError("Send kind (created, updated or response), type, target and fields.")
    if not isinstance(effect.get("fields", {}), dict):
        raise ValueError("Send fields as an object.")
    if isinstance(target, bool) or not isinstance(target, str | int | None):
        raise ValueError("Send the id of the record as text.")
    if kind != RESPONSE and (kind == UPDATED) != (target is not None):
        raise ValueError("An update has a target and a creation has none.")
    return effect


def _unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_FACT_CHARS)]
_Facts = Annotated[list[_Text], Field(max_length=MAX_MENTIONS), AfterValidator(_unique)]
_Names = Annotated[list[_Text], Field(max_length=MAX_CALLS), AfterValidator(_unique)]
_Calls = Annotated[list[Annotated[Any, AfterValidator(_read_call)]], Field(max_length=MAX_CALLS)]
_Effects = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_effect)]], Field(max_length=MAX_CALLS)]


class Expected(BaseModel):
    """None means: as recorded. A call is a name with arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    answer: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)] | None = None
    mentions: _Facts | None = None
    must_not_mention: _Facts | None = None
    calls: _Calls | None = None
    no_calls: _Names | None = None
    effects: _Effects | None = None

    @property
    def about_answer(self) -> bool:
        return self.answer is not None or bool(self.mentions) or bool(self.must_not_mention)

    @property
    def about_calls(self) -> bool:
        return self.calls is not None or bool(self.no_calls)

    def read_effects(self, reader: Reader) -> list[Effect]:
        """The expected effects as the comparer takes them: everything about one record is one effect."""
        given = [(one["kind"], one["type"], one.get("target"), one.get("fields") or {}) for one in self.effects or ()]
        return merge_updates([Effect(kind, of, target, reader.value(fields)) for kind, of, target, fields in given])


def read_expected(given: Any) -> Expected:
    """What was sent, checked; Invalid with a sentence for each key that is wrong."""
    try:
        return Expected() if given is None else Expected.model_validate(given)
    except ValidationError as wrong:
        raise invalid_values("expected", wrong) from None


_UNIT = r"(?:\s?(?:%|percent|million|billion|thousand|[kmb]n?\b|[a-z]+\b))?"
_KINDS = (
    # Dates, ids, numbers with a unit, and names: capitalised words that do not open a sentence.
    r"\b\d{4}-\d\d-\d\d\b",
    r"\b\d{1,2}(?:st|nd|rd|th)?\s+[A-Z][a-z]{2,8}\.?,?\s+\d{4}\b",
    r"\b[A-Z][a-z]{2,8}\.?\s+\d{1,2}(?:st|nd|rd|th)?,?\s+\d{4}\b",
    r"\b(?=[\w-]{0,63}\d)(?=[\w-]{0,63}[^\W\d_])[\w-]{4,64}\b",
    rf"(?<![\w.-])[-−]?[$€£¥]?\d[\d,]*(?:\.\d+)?{_UNIT}",
    r"(?<=[a-z0-9,;:\)] )[A-Z][\w&'’.-]*(?:\s+[A-Z][\w&'’.-]*)*",
)
_FACT = re.compile("|".join(f"({kind})" for kind in _KINDS))


def suggest_facts(run: Run) -> list[str]:
    """Up to eight facts of the last message that a tool result has too, in the order of the message."""
    message = canonical(last_message(run)[0][:MAX_EVIDENCE_CHARS])
    known = FactIndex(_evidence(run))
    found: dict[str, None] = {}
    for fact in _facts(message):
        # A record may have the bare number without the unit that the message adds.
        bare = re.match(r"[-−]?[$€£¥]?\d[\d,]*(?:\.\d+)?", fact)
        for text in dict.fromkeys((fact, bare[0] if bare else fact)):
            if 1 < len(text) <= MAX_FACT_CHARS and known.mentions(text) and not any(text in other for other in found):
                found[text] = None
                break
        if len(found) == MAX_MENTIONS:
            break
    return list(found)


def _facts(message: str) -> Iterable[str]:
    quoted = [(message.find(text), text) for text in quotations(message)]
    plain = [(match.start(), match[0].strip(" .,;:")) for match in _FACT.finditer(message)]
    return [text for _, text in sorted(quoted + plain)]


def _evidence(run: Run) -> str:
    parts: list[str] = []
    for event in run.events:
        if event.event_type == "tool.result" and event.payload.get("is_error") is not True:
            output = event.payload.get("output")
            parts.append(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str))
    return "\n".join(parts)[:MAX_EVIDENCE_CHARS]


def check_consistent(expected: Expected) -> None:
    """Invalid, with a sentence under each name, when parts of what should have happened exclude each other."""
    _check_facts(expected)
    _check_calls(expected)
    found = find_conflict(expected.effects or ())
    if found is not None:
        one, other, name = found
        sentence = f"It gives {name} another value than effects.{one} does, for the same record; keep one of them."
        raise Invalid.of({f"expected.effects.{other}": sentence})


def find_conflict(effects: Sequence[Mapping[str, Any]]) -> tuple[int, int, str] | None:
    """Two updates that give a field of one record different values, and the field: only the last one would count."""
    given: dict[tuple[str, str], dict[Path, tuple[int, Any]]] = {}
    for place, one in enumerate(effects):
        if one["kind"] != UPDATED:
            continue
        known = given.setdefault((one["type"], str(one.get("target"))), {})
        for path, value in leaves(Reader().value(one.get("fields") or {})).items():
            earlier = known.setdefault(path, (place, value))
            if earlier[0] != place and not same_leaf(earlier[1], value):
                return earlier[0], place, format_path(path)
    return None


def _check_facts(expected: Expected) -> None:
    asked = {"mentions": expected.mentions or (), "answer": (expected.answer,) if expected.answer else ()}
    for name, texts in asked.items():
        for text in texts:
            answer = FactIndex(text)
            wrong = next((fact for fact in expected.must_not_mention or () if answer.mentions(fact)), None)
            if wrong is not None:
                what = "It cannot mention" if name == "mentions" else "The answer itself mentions"
                raise _conflict(name, "must_not_mention", f"{what} “{wrong[:60]}”, which it must not mention.")


def _check_calls(expected: Expected) -> None:
    must, forbidden = [name for name, _ in expected.calls or ()], set(expected.no_calls or ())
    both = next((name for name in must if name in forbidden), None)
    if both is not None:
        raise _conflict("calls", "no_calls", f"It cannot both call {both[:60]} and not call it.")
    writes = next((name for name in must if name in builtin_tools.WRITES), None)
    if writes is not None and expected.effects == []:
        raise _conflict("calls", "effects", f"Where nothing may change, it cannot call {writes}.")
    for one in expected.effects or ():
        made_by = builtin_tools.tools_that_make(one["kind"], one["type"])
        if one["type"] in forbidden or forbidden.issuperset(made_by):
            raise _forbidden_maker(made_by[0])


def check_makable(expected: Expected, tools: Mapping[str, Tool], kinds: Collection[str]) -> None:
    """The same for what needs to be known of the session: its `tools`, and the `kinds` of records that there are."""
    if expected.effects is None:
        return
    creates = any(one["kind"] == "created" and one["type"] in kinds for one in expected.effects)
    if creates and "createEntity" in (expected.no_calls or ()):
        raise _forbidden_maker("createEntity")
    for name, given in expected.calls or ():
        tool = find_tool(name, tools)
        if tool.writes and not any(_could_make(tool, given, one) for one in expected.effects):
            sentence = (
                f"A call of {name[:60]} as it is given here changes something that is not among what should change."
            )
            raise _conflict("calls", "effects", f"{sentence} Add the change, or take the call away.")


def _could_make(tool: Tool, given: dict[str, Any], effect: Mapping[str, Any]) -> bool:
    """Whether a call with at least these arguments can make a change. Arguments that do not say it leave it open."""
    if tool.name not in builtin_tools.tools_that_make(effect["kind"], effect["type"]):
        return False
    arguments = Reader().arguments(given, tool.schema)
    if not isinstance(arguments, dict):
        return True
    if tool.name in builtin_tools.WRITES and builtin_tools.change_of(tool.name, arguments) is None:
        return True
    made = change_of_call(Call("", tool.name, arguments, None, False, True, 0, tool))
    if tool.name == "createEntity" and made.type != effect["type"]:
        return False
    target = effect.get("target")
    own = isinstance(target, str) and target.startswith("$")
    if made.target is not None and target is not None and not own and not same_leaf(made.target, target):
        return False
    asked, there = leaves(made.fields) if made.fields else {}, leaves(Reader().value(effect.get("fields") or {}))
    return all(path in there and same_leaf(value, there[path]) for path, value in asked.items())


def _forbidden_maker(tool: str) -> Invalid:
    return _conflict("effects", "no_calls", f"What it should change is changed by {tool[:60]}, which it must not call.")


def _conflict(one: str, other: str, sentence: str) -> Invalid:
    names = f"expected.{one}", f"expected.{other}"
    return Invalid(f"{names[0]} and {names[1]}: {sentence}", dict.fromkeys(names, sentence))
