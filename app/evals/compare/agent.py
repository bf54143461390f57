"""The dimensions that are compared in a session of each type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.evals.compare import response, tool
from app.evals.compare.calls import call_dimensions
from app.evals.compare.dimensions import Dimension
from app.evals.compare.effect_pairs import effect_dimensions
from app.evals.compare.effects import RESPONSE, Effect, effects_of
from app.evals.compare.message import answer_figures_dimension, message_dimension, requested_figures_dimension
from app.evals.expected.corrected_effects import corrected_effects
from app.evals.expected.expectations import Expected
from app.evals.trace import Call, Run, Tool, calls_of, last_message
from app.text.similarity import Nearness
from app.text.values import Reader


@dataclass(frozen=True)
class Golden:
    """A session and what replays of it are compared with. `rejected`: it has a complaint and no correction."""

    run: Run
    expected: Expected = field(default_factory=Expected)
    criteria: Mapping[str, Any] | None = None
    rejected: bool = False


@dataclass(frozen=True)
class Side:
    """A session as it was read. `names` maps the ids of records that it created to shared names; `changed` says that it
    changed something itself, `put_right` that its effects were replaced by expected ones."""

    run: Run
    calls: list[Call]
    effects: list[Effect]
    names: Mapping[Any, str]
    changed: bool = False
    put_right: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether nothing was changed and nothing should have been, so that the answer is all there is."""
        return not self.effects and not self.changed


def read_side(run: Run, tools: Mapping[str, Tool], reader: Reader) -> Side:
    """Read a session once for all that is compared."""
    calls = calls_of(run, tools, reader)
    effects, names = effects_of(run, calls, reader)
    return Side(run, calls, effects, names, bool(effects))


def apply_expectations(golden: Golden, before: Side, after: Side, tools: Mapping[str, Tool], reader: Reader) -> Side:
    """Replace the recorded effects by the expected ones, if there are any."""
    if golden.expected.effects is not None:
        return replace(before, effects=golden.expected.read_effects(reader), put_right=True)
    if not golden.expected.about_calls:
        return before
    found = corrected_effects(golden.expected, (before.run, before.calls), (after.calls, after.names), tools, reader)
    return replace(before, effects=found[0], names=found[1], put_right=True) if found else before


def dimensions_of(
    golden: Golden, before: Side, after: Side, nearness: Nearness | None, reader: Reader
) -> list[Dimension]:
    """What is compared in a session of the golden's type."""
    kind = golden.run.session_type
    names = (before.names, after.names)
    submitted = [response.read_submitted(side.run, side.calls, reader) for side in (before, after)]
    if before.put_right:
        submitted[0] = response.expected_values(before.effects, submitted[0])
    any_values = any(side.values for side in submitted)
    if kind == "tool":
        output = tool.output_dimension(before.run, after.run, reader, names)
        return [
            *effect_dimensions(before.effects, after.effects, put_right=before.put_right),
            output,
            *_expected_dimensions(golden, before, after, nearness),
        ]
    extraction = kind == "agent" and golden.run.output_type in ("field", "fields")
    if any_values and (kind in ("response", "mixed") or extraction):
        values = response.response_dimensions(
            submitted[0], submitted[1], golden.criteria, nearness, put_right=before.put_right
        )
        rest = [[effect for effect in side.effects if effect.kind != RESPONSE] for side in (before, after)]
        if kind == "mixed":
            return [*_agent_dimensions(golden, before, after, rest, nearness), *response.scale_weights(values, 1.0)]
        other = effect_dimensions(*rest, put_right=before.put_right) if any(rest) else []
        other += _expected_dimensions(golden, before, after, nearness)
        if extraction:
            values = response.scale_weights(values, response.VALUES_WEIGHT)
            values += response.extraction_dimensions(*submitted)
        return [*other, *values]
    return _agent_dimensions(golden, before, after, [before.effects, after.effects], nearness)


def _agent_dimensions(
    golden: Golden,
    before: Side,
    after: Side,
    effects: Sequence[Sequence[Effect]],
    nearness: Nearness | None,
) -> list[Dimension]:
    message = message_dimension(last_message(before.run), last_message(after.run), golden.expected, nearness)
    if _message_decides(golden, before):
        message = replace(message, decides=True)
    # Where something else should have happened, the figures of the recording are not what is right.
    if before.changes_nothing and golden.expected == Expected():
        asked = requested_figures_dimension(before.run, after.run, message)
        message = (
            answer_figures_dimension(before.run, after.run, message) if asked is message and message.decides else asked
        )
    elif golden.expected.answer is not None:
        message = answer_figures_dimension(before.run, after.run, message, golden.expected.answer)
    return [
        *effect_dimensions(*effects, put_right=before.put_right),
        *call_dimensions(before.calls, after.calls, golden.expected, (before.names, after.names)),
        message,
    ]


def _message_decides(golden: Golden, before: Side) -> bool:
    """Whether the answer decides: nothing was changed, and there was one question or no tool that writes."""
    if golden.expected.about_answer:
        return True
    turns = sum(event.event_type == "user.message" for event in before.run.events)
    could_write = any(tool.writes for tool in before.run.tools.values()) or any(call.writes for call in before.calls)
    return before.changes_nothing and (turns <= 1 or not could_write)


def _expected_dimensions(golden: Golden, before: Side, after: Side, nearness: Nearness | None) -> list[Dimension]:
    """Dimensions for expected calls and answers, in sessions of every type."""
    found: list[Dimension] = []
    if golden.expected.about_calls:
        names = (before.names, after.names)
        found += call_dimensions(before.calls, after.calls, golden.expected, names)
    if golden.expected.about_answer:
        message = message_dimension(last_message(before.run), last_message(after.run), golden.expected, nearness)
        if golden.expected.answer is not None:
            message = answer_figures_dimension(before.run, after.run, message, golden.expected.answer)
        found.append(message)
    return found
