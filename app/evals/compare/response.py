"""Submitted values: one dimension for each criterion, judged as the criterion says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from typing import Any

from app.evals.compare.dimensions import CONFIDENCE, SOURCES, Dimension, Divergence, quote_value, standard_dimension
from app.evals.compare.effects import RESPONSE, Effect
from app.evals.trace import Call, Run
from app.text.similarity import Nearness, text_similarity
from app.text.values import TRUNCATED, Reader, as_number, equal, from_json
from app.text.words import words

TEXT_PASS, KEYWORD_PASS, RANK_PASS = 0.60, 0.80, 0.80
VALUES_WEIGHT = 0.80
CONFIDENCE_WITHIN = 0.10
# Kendall's distance looks at every pair of shared items.
MAX_RANKED = 200


@dataclass(frozen=True)
class Submitted:
    """What a session submitted: each field's value, where it was read, how sure the agent was; the last one counts."""

    values: dict[str, Any]
    sources: dict[str, Any]
    confidences: dict[str, float]
    sequence: int | None = None


def read_submitted(run: Run, calls: Sequence[Call], reader: Reader) -> Submitted:
    """All that was submitted, by successful calls of `submitResponse` and by events that no such call explains."""
    worked = {call.id for call in calls if call.name == "submitResponse" and not call.failed}
    found: dict[str, Any] = {}
    last: int | None = None
    for event in run.events:
        given: Any = None
        if event.event_type == "tool.call" and event.payload.get("id") in worked:
            arguments = from_json(event.payload.get("arguments"))
            given = from_json(arguments.get("values")) if isinstance(arguments, dict) else None
        elif event.event_type == "response.submitted" and (event.payload.get("call_id") or "") not in worked:
            given = event.payload.get("values")
        if isinstance(given, dict):
            found.update(given)
            last = event.sequence
    parts = {
        str(name): value if isinstance(value, dict) and "value" in value else {"value": value}
        for name, value in found.items()
    }
    return Submitted(
        values={
            name: value for name, part in parts.items() if (value := reader.member(name, part["value"])) is not None
        },
        sources={name: reader.value(part["source"]) for name, part in parts.items() if part.get("source") is not None},
        confidences={
            name: number for name, part in parts.items() if (number := _number(part.get("confidence"))) is not None
        },
        sequence=last,
    )


def expected_values(effects: Sequence[Effect], recorded: Submitted) -> Submitted:
    """What should have been submitted in place of what was; read at the same places where it is the same field."""
    values = {name: value for effect in effects if effect.kind == RESPONSE for name, value in effect.fields.items()}
    return replace(
        recorded,
        values={name: value for name, value in values.items() if value is not None},
        sources={name: source for name, source in recorded.sources.items() if name in values},
        confidences={name: sure for name, sure in recorded.confidences.items() if name in values},
    )


def response_dimensions(
    golden: Submitted,
    replay: Submitted,
    criteria: Mapping[str, Any] | None,
    nearness: Nearness | None,
    *,
    put_right: bool = False,
) -> list[Dimension]:
    """One deciding dimension for each criterion and each other field. `put_right`: golden is what should have been.
    A rating is for a judge to give: it counts here only where one was submitted."""
    rules = {name: rule if isinstance(rule, Mapping) else {} for name, rule in (criteria or {}).items()}
    return [
        _criterion(name, rules.get(name, {}), golden, replay, nearness, put_right)
        for name in dict.fromkeys([*rules, *golden.values, *replay.values])
        if rules.get(name, {}).get("kind") != "rating" or name in golden.values or name in replay.values
    ]


def scale_weights(dimensions: Sequence[Dimension], total: float) -> list[Dimension]:
    """The same dimensions with weights that add up to `total`."""
    whole = sum(dimension.weight for dimension in dimensions)
    return [replace(each, weight=each.weight * total / whole if whole else 0.0) for each in dimensions]


def extraction_dimensions(golden: Submitted, replay: Submitted) -> list[Dimension]:
    """Whether the values were read at the same places and with the same confidence. Neither decides."""
    before = {(name, str(source)) for name, source in golden.sources.items()}
    after = {(name, str(source)) for name, source in replay.sources.items()}
    score = len(before & after) / len(before | after) if before | after else 1.0
    seqs = golden.sequence, replay.sequence
    read = [
        Divergence(
            SOURCES, name, golden.sources.get(name), replay.sources.get(name), f"{name} was read somewhere else", *seqs
        )
        for name in dict.fromkeys([*golden.sources, *replay.sources])
        if (name, str(golden.sources.get(name))) not in after or name not in golden.sources
    ]
    shared = [name for name in golden.confidences if name in replay.confidences]
    off = []
    for name in shared:
        a, b = golden.confidences[name], replay.confidences[name]
        if abs(a - b) > CONFIDENCE_WITHIN + 1e-9:
            text = f"the confidence in {name} is {b:g} instead of {a:g}"
            off.append(Divergence(CONFIDENCE, name, a, b, text, *seqs))
    within = 1 - len(off) / len(shared) if shared else 1.0
    return [
        standard_dimension(SOURCES, score, "read at the same places", read),
        standard_dimension(CONFIDENCE, within, "as confident as before", off),
    ]


def _criterion(
    name: str, rule: Mapping[str, Any], golden: Submitted, replay: Submitted, nearness: Nearness | None, put_right: bool
) -> Dimension:
    a, b = golden.values.get(name), replay.values.get(name)
    weight = _number(rule.get("weight", rule.get("importance")))
    weight = 1.0 if weight is None or weight < 0 else weight
    if a is None and b is None:
        reason = f"{name} was left empty, as {'expected' if put_right else 'before'}"
        return Dimension(name, 1.0, weight, 1.0, reason, True)
    score, threshold = (0.0, 1.0) if a is None or b is None else _score(rule, a, b, nearness)
    if score == 1.0 or (score >= threshold and equal(a, b)):
        reason = f"{name} is {'as expected' if put_right else 'the same'}"
        return Dimension(name, score, weight, threshold, reason, True)
    text = _difference_text(name, a, b, score >= threshold, put_right)
    found = Divergence(name, name, a, b, text, golden.sequence, replay.sequence)
    return Dimension(name, score, weight, threshold, text, True, (found,))


def _difference_text(name: str, a: Any, b: Any, near: bool, put_right: bool) -> str:
    if b is None:
        return f"{name} was left empty; {'expected is' if put_right else 'it was'} {quote_value(a)}"
    if a is None:
        return f"{name} is {quote_value(b)}; {'it is expected to be empty' if put_right else 'it was empty before'}"
    if near:
        return f"{name} is near: {quote_value(b)}, {'expected' if put_right else 'before'} {quote_value(a)}"
    return f"{name} is {quote_value(b)} instead of {quote_value(a)}"


def _score(rule: Mapping[str, Any], a: Any, b: Any, nearness: Nearness | None) -> tuple[float, float]:
    """The score of a value, and the least that passes."""
    if a is TRUNCATED or b is TRUNCATED:
        return 0.0, 1.0
    kind = str(rule.get("kind") or ("numeric" if _number(a) is not None and not isinstance(a, str) else "select"))
    if kind in ("numeric", "number"):
        return (1.0 if _within(rule, a, b) else 0.0), 1.0
    if kind in ("relation-rank", "relation_rank", "rank"):
        return rank_likeness(a, b), RANK_PASS
    if kind == "text":
        return _text(rule, a, b, nearness)
    return (1.0 if equal(a, b) else 0.0), 1.0


def _within(rule: Mapping[str, Any], a: Any, b: Any) -> bool:
    """Whether a number is within the tolerance of the golden's; what is no number must be equal."""
    before, after = _number(a), _number(b)
    if before is None or after is None:
        return equal(a, b)
    absolute = _number(rule.get("absolute_tolerance", rule.get("tolerance"))) or 0.0
    relative = _number(rule.get("relative_tolerance")) or 0.0
    return abs(before - after) <= max(absolute, relative * abs(before)) + 1e-9 * max(1.0, abs(before))


def _text(rule: Mapping[str, Any], a: Any, b: Any, nearness: Nearness | None) -> tuple[float, float]:
    match = rule.get("match", "exact")
    if not isinstance(a, str) or not isinstance(b, str) or match == "exact":
        return (1.0 if equal(a, b) else 0.0), 1.0
    if match == "keyword":
        named = rule.get("keywords")
        wanted = {word for text in named for word in words(str(text))} if isinstance(named, list) else set(words(a))
        return (len(wanted & set(words(b))) / len(wanted) if wanted else 1.0), _threshold(rule, KEYWORD_PASS)
    return text_similarity([(a, b)], nearness)[0], _threshold(rule, TEXT_PASS)


def _threshold(rule: Mapping[str, Any], default: float) -> float:
    given = _number(rule.get("threshold"))
    return default if given is None or not 0 <= given <= 1 else given


def rank_likeness(a: Any, b: Any) -> float:
    """(1 − normalised Kendall distance over the shared items) × Jaccard of the two sets of items."""
    before, after = _ranked(a), _ranked(b)
    if not before and not after:
        return 1.0
    shared = [item for item in before if item in after]
    places = [after[item] for item in shared]
    pairs = len(shared) * (len(shared) - 1) // 2
    swapped = sum(one > other for one, other in combinations(places, 2))
    order = 1 - swapped / pairs if pairs else 1.0
    return order * len(shared) / len({*before, *after})


def _ranked(value: Any) -> dict[str, int]:
    items = value if isinstance(value, list) else [value]
    keys = (
        str(item.get("id", item.get("name", item))) if isinstance(item, dict) else str(item)
        for item in items[:MAX_RANKED]
    )
    return {key: place for place, key in enumerate(dict.fromkeys(keys))}


def _number(value: Any) -> float | None:
    """A finite number, also when it came as text; true and false are none."""
    value = as_number(value.strip()) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None
