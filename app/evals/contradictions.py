"""What cannot be asked for together: no replay could ever do it."""

from __future__ import annotations

from app.errors import Invalid
from app.evals import own_tools
from app.evals.expected import Expected
from app.evals.similarity import Said


def check_agreed(expected: Expected) -> None:
    """Invalid, with a sentence under both names, when two parts of what should have happened exclude each other."""
    _check_facts(expected)
    _check_calls(expected)


def _check_facts(expected: Expected) -> None:
    asked = {"mentions": expected.mentions or (), "answer": (expected.answer,) if expected.answer else ()}
    for name, texts in asked.items():
        for text in texts:
            said = Said(text)
            wrong = next((fact for fact in expected.must_not_mention or () if said.mentions(fact)), None)
            if wrong is not None:
                what = "It cannot mention" if name == "mentions" else "The answer itself mentions"
                raise _both(name, "must_not_mention", f"{what} “{wrong[:60]}”, which it must not mention.")


def _check_calls(expected: Expected) -> None:
    must = [name for name, _ in expected.calls or ()]
    forbidden = set(expected.no_calls or ())
    both = next((name for name in must if name in forbidden), None)
    if both is not None:
        raise _both("calls", "no_calls", f"It cannot both call {both[:60]} and not call it.")
    if expected.effects is None:
        return
    writes = next((name for name in must if name in own_tools.WRITES), None)
    if writes is not None and not expected.effects:
        raise _both("calls", "effects", f"Where nothing may change, it cannot call {writes}.")
    made = next((tool for one in expected.effects for tool in _makers(one) if tool in forbidden), None)
    if made is not None:
        raise _both("effects", "no_calls", f"What it should change is changed by {made[:60]}, which it must not call.")


def _makers(effect: dict[str, object]) -> tuple[str, ...]:
    """The tools that alone make such a change, as far as the change tells."""
    if effect["kind"] == "response":
        return ("submitResponse",)
    if (effect["kind"], effect["type"]) == ("updated", "entity"):
        return ("updateEntity",)
    return (str(effect["type"]),)


def _both(one: str, other: str, sentence: str) -> Invalid:
    names = f"expected.{one}", f"expected.{other}"
    return Invalid(f"{names[0]} and {names[1]}: {sentence}", dict.fromkeys(names, sentence))
