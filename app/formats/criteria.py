"""Dimensions of a criteria set: what a response or a golden is judged by. Each has a kind, and what that kind needs.

A set is stored as `{name: rule}`. PostgreSQL keeps no order of names, so each rule has its `position`.
`parse_dimensions` is strict, for what people and programs send; `read_dimensions` reads whatever was ever stored.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.errors import Invalid
from app.formats.messages import must, sentence

MAX_DIMENSIONS = 200
MAX_NAME = 256
MAX_OPTIONS = MAX_KEYWORDS = 100
MAX_BYTES = 256 * 1024
MAX_AMOUNT = 1e15
RATINGS = (1, 2, 3, 4, 5)
IMPORTANCE = ("critical", "normal", "minor")
KINDS = ("numeric", "select", "text", "relation-rank", "rating")
MATCHES = ("exact", "keyword", "semantic")
# Names that sets may have been stored with, and the names they have now.
OLD_KINDS = {"number": "numeric", "relation_rank": "relation-rank", "rank": "relation-rank"}
OLD_FIELDS = {"tolerance": "absolute_tolerance"}


def _has_distinct_options(options: list[Any]) -> bool:
    return len({json.dumps(option) for option in options}) == len(options)


def _describes_ends(anchors: dict[str, str]) -> bool:
    """Whether the lowest and the highest rating are described. Without them two judges mean different things by a 4."""
    return {"1", "5"} <= {step for step, text in anchors.items() if text.strip()}


Amount = Annotated[float, must(lambda amount: 0 <= amount <= MAX_AMOUNT, "Enter a number from 0 up.")]
Share = Annotated[float, must(lambda share: 0 <= share <= 1, "Enter a number from 0 to 1.")]
Multiple = Annotated[float, must(lambda share: 0 <= share <= 10, "Enter a number from 0 to 10.")]
Weight = Annotated[float, must(lambda weight: 0 <= weight <= 1000, "Enter a number from 0 to 1000.")]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
Option = Word | bool | Annotated[int, Field(ge=-(10**15), le=10**15)] | Annotated[float, Field(allow_inf_nan=False)]
Step = Literal["1", "2", "3", "4", "5"]
Anchors = Annotated[
    dict[Step, Annotated[str, Field(max_length=1000)]],
    must(_describes_ends, "Describe at least 1 and 5."),
    AfterValidator(lambda anchors: {str(step): anchors[str(step)] for step in RATINGS if anchors.get(str(step))}),
]


class Dimension(BaseModel):
    """One dimension, with what all kinds have. `weight` is its share of the score; a weight of 0 is shown only.

    `importance` is for judging: a golden fails when a `critical` dimension does, however good the others are; a
    `normal` one counts by its weight; a `minor` one never lowers a verdict.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kind: str
    label: Annotated[str, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=2000)] = ""
    weight: Weight = 1.0
    importance: Literal["critical", "normal", "minor"] = "normal"
    position: Annotated[int, Field(ge=0, le=10_000)] | None = None


class Numeric(Dimension):
    """A number, right within the larger of both tolerances. The relative one is a share of the golden's number."""

    kind: Literal["numeric"]
    absolute_tolerance: Amount = 0.0
    relative_tolerance: Multiple = 0.0


class Select(Dimension):
    """One of the options; any value where there are none."""

    kind: Literal["select"]
    options: Annotated[
        list[Option], Field(max_length=MAX_OPTIONS), must(_has_distinct_options, "Give each option once.")
    ] = []


class Text(Dimension):
    """A text: equal, with the golden's words (or the given keywords), or of the same meaning. `threshold` is the least
    share or likeness that passes; null is the usual one."""

    kind: Literal["text"]
    match: Literal["exact", "keyword", "semantic"] = "exact"
    keywords: Annotated[list[Word], Field(max_length=MAX_KEYWORDS)] = []
    threshold: Share | None = None


class RelationRank(Dimension):
    """A list of names, the best first. Compared by members and order."""

    kind: Literal["relation-rank"]


class Rating(Dimension):
    """A rating from 1 to 5. `anchors` say what a step means, by its number as text; from `passes_from` on it passes."""

    kind: Literal["rating"]
    anchors: Anchors
    passes_from: Annotated[int, must(lambda step: step in RATINGS, "Pick 1 to 5.")] = 3


AnyDimension = Numeric | Select | Text | RelationRank | Rating
_ANY: TypeAdapter[AnyDimension] = TypeAdapter(Annotated[AnyDimension, Field(discriminator="kind")])


def parse_dimensions(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a set is stored as. Raise Invalid with a sentence for each wrong value, by its place in `dimensions`."""
    if not given:
        raise Invalid.of({"dimensions": "Add at least one dimension."})
    if len(given) > MAX_DIMENSIONS:
        raise Invalid.of({"dimensions": f"Keep to {MAX_DIMENSIONS} dimensions."})
    wrong: dict[str, str] = {}
    found: dict[str, AnyDimension] = {}
    for name, rule in given.items():
        errors = name_errors(name) or _parse(name, rule, found)
        wrong |= {f"dimensions.{name[:60]}{path}": sentence for path, sentence in errors.items()}
    if wrong:
        place, first = next(iter(wrong.items()))
        raise Invalid(f"{place.rstrip(' .')}: {first}", wrong)
    stored = {name: _stored(rule, place) for place, (name, rule) in enumerate(_in_order(found).items())}
    if len(json.dumps(stored).encode()) > MAX_BYTES:
        raise Invalid.of({"dimensions": f"Keep all dimensions together under {MAX_BYTES // 1024} KiB."})
    return stored


def read_dimensions(stored: Mapping[str, Any] | None) -> dict[str, AnyDimension]:
    """Stored dimensions in their order. What no longer fits is left out, and a rule of no known kind is a `select`."""
    return _in_order({name: _salvage(rule) for name, rule in (stored or {}).items()})


def name_errors(name: str) -> dict[str, str]:
    """What is wrong with a dimension's name, under its place."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        return {"": f"Enter a name of up to {MAX_NAME} characters, without spaces around it."}
    return {}


def _parse(name: str, rule: Any, found: dict[str, AnyDimension]) -> dict[str, str]:
    """Add the rule to `found`, or say what is wrong with it, by the place in it."""
    if not isinstance(rule, Mapping):
        return {"": "Send a JSON object."}
    rule = _renamed(rule)
    if rule.get("kind") not in KINDS:
        return {".kind": f"Use one of {', '.join(KINDS)}."}
    errors: dict[str, str] = {}
    try:
        found[name] = _ANY.validate_python(rule)
    except ValidationError as refusal:
        for one in refusal.errors(include_url=False):
            errors.setdefault(_place(one["loc"]), sentence(one))
    return errors


def _place(loc: tuple[Any, ...]) -> str:
    """Where in a rule: `.anchors.3`. The kind, which pydantic puts first, and the branch of a union say nothing."""
    steps = [str(part)[:60] for part in loc[1:]]
    return "".join(f".{step}" for step in (steps[:2] if steps and steps[0] in ("options", "anchors") else steps))


def _renamed(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with today's names. A number as importance was the weight where no weight was given."""
    rule = {OLD_FIELDS.get(name, name): value for name, value in rule.items()}
    kind = rule.get("kind")
    rule["kind"] = OLD_KINDS.get(kind, kind) if isinstance(kind, str) else kind
    if "importance" in rule and _is_number(rule["importance"]):
        rule.setdefault("weight", rule.pop("importance"))
        rule.pop("importance", None)
    return rule


def _salvage(rule: Any) -> AnyDimension:
    """A stored rule without what does not fit."""
    rule = _renamed(rule) if isinstance(rule, Mapping) else {}
    if rule.get("kind") not in KINDS:
        rule["kind"] = "select"
    try:
        return _ANY.validate_python(rule)
    except ValidationError as error:
        wrong = {str(one["loc"][1]) for one in error.errors(include_url=False) if len(one["loc"]) > 1}
    kept = {name: value for name, value in rule.items() if name not in wrong}
    try:
        return _ANY.validate_python(kept)
    except ValidationError:
        return Select(kind="select", label=str(kept.get("label", ""))[:200])


def _in_order(rules: Mapping[str, AnyDimension]) -> dict[str, AnyDimension]:
    """By position; those without one come after the others, as they were given."""
    placed = sorted(rules.items(), key=lambda item: (item[1].position is None, item[1].position or 0))
    return dict(placed)


def _stored(rule: AnyDimension, position: int) -> dict[str, Any]:
    """A rule as it is stored: without what is as usual, but always with its weight, which people read first."""
    values = rule.model_dump(exclude_defaults=True)
    return {"kind": rule.kind, "weight": rule.weight, **values, "position": position}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
