"""Refuse expectations that exclude each other, which no replay could meet."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.errors import Invalid
from app.evals.compare import builtin_tools
from app.evals.compare.effects import UPDATED, change_of_call
from app.evals.expected.expectations import Expected
from app.evals.trace import Call, Tool, find_tool
from app.text.similarity import FactIndex
from app.text.values import Path, Reader, format_path, leaves, same_leaf


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
    """The places of two updates that give a field of one record different values, and the field. The last write of a
    record counts, so only one of them could ever be found."""
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
            said = FactIndex(text)
            wrong = next((fact for fact in expected.must_not_mention or () if said.mentions(fact)), None)
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
    """Whether a call with these arguments, and any others, can make a change. Arguments that do not say what is
    changed leave it open."""
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
