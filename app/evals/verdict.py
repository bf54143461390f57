"""From dimensions to a verdict: what decides, how sure it is, and one sentence that says why."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.evals.compare.dimensions import Dimension, Divergence
from app.formats.messages import invalid_values

PASS, FAIL, FLAKY, ERRORED, UNKNOWN = "pass", "fail", "flaky", "errored", "unknown"
MAX_FAILED_ACCURACY = 0.59
MAX_DIVERGENCES = 200


class Policy(BaseModel):
    """What a set of goldens asks for: other thresholds, other deciding dimensions, and what a miss or drift means."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    thresholds: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    decides: dict[str, bool] = {}
    on_miss: Literal["fail", "unknown"] = "fail"
    on_drift: Literal["fail", "unknown"] = "fail"

    def apply_to(self, dimension: Dimension) -> Dimension:
        """The dimension as this set wants it."""
        if dimension.name not in self.thresholds and dimension.name not in self.decides:
            return dimension
        threshold = self.thresholds.get(dimension.name, dimension.threshold)
        other = threshold != dimension.threshold
        return replace(
            dimension,
            threshold=threshold,
            decides=self.decides.get(dimension.name, dimension.decides),
            reason=f"{dimension.reason}; this set asks for {threshold:g}" if other else dimension.reason,
        )


def read_policy(given: Any) -> Policy:
    """A set's policy from plain values; Invalid names what is wrong."""
    try:
        return Policy() if given is None else Policy.model_validate(given)
    except ValidationError as wrong:
        raise invalid_values("policy", wrong) from None


def decide_verdict(dimensions: Sequence[Dimension]) -> tuple[str, str]:
    """Pass or fail by the dimensions that decide, and why; unknown when none does."""
    deciding = [dimension for dimension in dimensions if dimension.decides]
    if not deciding:
        return UNKNOWN, "no dimension decides"
    failed = [dimension for dimension in deciding if not dimension.passed]
    if failed:
        worst = max(failed, key=lambda dimension: (dimension.weight, 1 - dimension.score))
        return FAIL, worst.reason
    return PASS, _pass_reason(dimensions)


def _pass_reason(dimensions: Sequence[Dimension]) -> str:
    by_name = {dimension.name: dimension for dimension in dimensions}
    message = by_name.get("final_message")
    effects = [by_name[name] for name in ("entities_created", "entities_updated") if name in by_name]
    reasons = [effect.reason for effect in effects if not effect.reason.startswith("changed nothing")]
    if effects and not reasons:
        others = any(each.decides for each in dimensions if each not in effects)
        rest = message.reason if message is not None and message.decides else "the rest passes"
        return f"{effects[0].reason}; {rest if others else 'the answer was not judged'}"
    return " and ".join(reasons) if reasons else "the values are the same"


def weighted_accuracy(dimensions: Sequence[Dimension], verdict: str) -> float | None:
    """The weighted mean of the scores; a failure is never shown as nearly right. None when nothing was judged."""
    if verdict in (ERRORED, UNKNOWN):
        return None
    whole = sum(dimension.weight for dimension in dimensions)
    mean = sum(dimension.weight * dimension.score for dimension in dimensions) / whole if whole else 1.0
    return round(mean if verdict == PASS else min(mean, MAX_FAILED_ACCURACY), 6)


def sort_divergences(dimensions: Sequence[Dimension], others: Sequence[Divergence] = ()) -> list[dict[str, Any]]:
    """Divergences: of deciding dimensions first, then by what they cost, then as they happened; at most 200."""
    ranked = [
        (not one.decides, -one.weight * (1 - one.score), each.sequence, each.as_json(one.weight))
        for one in dimensions
        for each in one.divergences
    ]
    ranked += [(True, 0.0, each.sequence, each.as_json(0.0)) for each in others]
    ranked.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in ranked[:MAX_DIVERGENCES]]
