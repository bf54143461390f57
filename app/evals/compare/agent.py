"""Compare two sessions: expectations in place of the recording, and the dimensions of each type of session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.evals.compare import response
from app.evals.compare.calls import call_dimensions, covered_share, effect_dimensions
from app.evals.compare.dimensions import OUTPUT, Dimension, Divergence, leaf_divergences, standard_dimension
from app.evals.compare.effects import (
    RESPONSE,
    UPDATED,
    Effect,
    change_of_call,
    changes_of,
    effects_of,
    final_effects,
    overlay,
    rename_effects,
    rename_ids,
)
from app.evals.compare.message import (
    answer_figures_dimension,
    message_dimension,
    reported_figures_dimension,
    requested_figures_dimension,
)
from app.evals.expected.expectations import Expected
from app.evals.trace import Call, Run, Tool, calls_of, find_tool, last_message, result_failed, text_of
from app.text.similarity import Nearness
from app.text.values import Reader, from_json, leaves, likeness

WantedCall = tuple[str, Any]


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

    @property
    def ends_on_change(self) -> bool:
        """Whether the session wrote something after its last message, and so never said what came of it."""
        wrote = max((call.sequence for call in self.calls if call.writes and not call.failed), default=0)
        return wrote > (last_message(self.run)[1] or 0)


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
    return _with_expected_calls(golden.expected, before, after, tools, reader)


def names_writes(expected: Expected, calls: Sequence[Call]) -> bool:
    """Whether what is expected of the calls says something about what the recording changed."""
    made = {call.name for call in calls if call.writes and not call.failed}
    return bool(made & set(expected.no_calls or ())) or bool(made & {name for name, _ in expected.calls or ()})


def _with_expected_calls(
    expected: Expected, before: Side, after: Side, tools: Mapping[str, Tool], reader: Reader
) -> Side:
    """Replace effects by those of expected calls, and drop those of forbidden tools. An expected call replaces a
    recorded call of the same tool: arguments that are not given stay as recorded."""
    wanted = [
        (name, reader.arguments(given, find_tool(name, tools).schema))
        for name, given in expected.calls or ()
        if find_tool(name, tools).writes
    ]
    made = [call for call in before.calls if call.writes and not call.failed]
    gone = {call.sequence for call in made if call.name in (expected.no_calls or ())}
    if not wanted and not gone:
        return before
    instead, more = _pair_calls(wanted, [call for call in made if call.sequence not in gone])
    recorded = changes_of(before.run, before.calls, reader)
    called = {call.sequence for call in made}
    lost = {str(one.returned) for one in recorded if one.sequence in gone and one.returned is not None}
    kept = [
        instead.get(one.sequence, one) if one.sequence in called else one
        for one in recorded
        if one.sequence not in gone and not (one.kind == UPDATED and str(one.target) in lost)
    ]
    effects, names = final_effects([*kept, *_new_effects(more, after.calls, after.names)])
    return replace(before, effects=effects, names=names, put_right=True)


def _pair_calls(wanted: Sequence[WantedCall], made: Sequence[Call]) -> tuple[dict[int, Effect], list[WantedCall]]:
    """Effects that replace recorded calls, by sequence; and the expected calls that were never made. An expected call
    replaces the recorded call that already meets it, else one with the same target, else the next."""
    instead: dict[int, Effect] = {}
    waiting, free = list(wanted), list(made)
    for fit in (3, 2, 1):
        for one in list(waiting):
            call = next((call for call in free if _fit(one, call) >= fit), None)
            if call is not None:
                waiting.remove(one)
                free.remove(call)
                instead[call.sequence] = change_of_call(_with_arguments(call, one))
    return instead, waiting


def _fit(wanted: WantedCall, call: Call) -> int:
    """3 where a call already is as expected, 2 where it changes the same thing, 1 where it is of the same tool."""
    if call.name != wanted[0]:
        return 0
    if covered_share(call.name, wanted[1], call.arguments) == 1.0:
        return 3
    # An expected call that does not name what it changes leaves that as it was.
    return 2 if change_of_call(call).target == change_of_call(_with_arguments(call, wanted)).target else 1


def _with_arguments(call: Call, wanted: WantedCall) -> Call:
    if covered_share(call.name, wanted[1], call.arguments) == 1.0:
        return call
    return replace(call, arguments=overlay(call.arguments, wanted[1]))


def _new_effects(wanted: Sequence[WantedCall], replay: Sequence[Call], names: Mapping[Any, str]) -> list[Effect]:
    """Effects of expected calls that the recording never made. Other arguments are taken from the replay's best match,
    so they count as right. A call that the replay lacks as well is reported with the calls."""
    found: list[Effect] = []
    free = [call for call in replay if call.writes and not call.failed]
    for one in wanted:
        among = [call for call in free if call.name == one[0]]
        if among:
            best_match = max(among, key=lambda call: covered_share(call.name, one[1], call.arguments))
            free.remove(best_match)
            found.append(replace(change_of_call(_with_arguments(best_match, one)), sequence=0, call_id=None))
    return rename_effects(found, names)


def dimensions_of(
    golden: Golden, before: Side, after: Side, nearness: Nearness | None, reader: Reader
) -> list[Dimension]:
    """What is compared in a session of the golden's type."""
    kind = golden.run.session_type
    if kind == "tool":
        return [
            *effect_dimensions(before.effects, after.effects, put_right=before.put_right),
            _output_dimension(before, after, reader),
            *_expected_dimensions(golden, before, after, nearness),
        ]
    mine, theirs = (response.read_submitted(side.run, side.calls, reader) for side in (before, after))
    if before.put_right:
        mine = response.expected_values(before.effects, mine)
    extraction = kind == "agent" and golden.run.output_type in ("field", "fields")
    if not (mine.values or theirs.values) or not (kind in ("response", "mixed") or extraction):
        return _agent_dimensions(golden, before, after, [before.effects, after.effects], nearness)
    values = response.response_dimensions(mine, theirs, golden.criteria, nearness, put_right=before.put_right)
    rest = [[effect for effect in side.effects if effect.kind != RESPONSE] for side in (before, after)]
    if kind == "mixed":
        return [*_agent_dimensions(golden, before, after, rest, nearness), *response.scale_weights(values, 1.0)]
    if extraction:
        values = response.scale_weights(values, response.VALUES_WEIGHT)
        values += response.extraction_dimensions(mine, theirs)
    other = effect_dimensions(*rest, put_right=before.put_right) if any(rest) else []
    return [*other, *_expected_dimensions(golden, before, after, nearness), *values]


def _agent_dimensions(
    golden: Golden, before: Side, after: Side, effects: Sequence[Sequence[Effect]], nearness: Nearness | None
) -> list[Dimension]:
    message = _message(golden, before, after, nearness)
    if _message_decides(golden, before):
        message = replace(message, decides=True)
    # Where something else should have happened, the figures of the recording are not what is right.
    if golden.expected == Expected():
        message = _figures(before, after, message)
    return [
        *effect_dimensions(*effects, put_right=before.put_right),
        *call_dimensions(before.calls, after.calls, golden.expected, (before.names, after.names)),
        message,
    ]


def _figures(before: Side, after: Side, message: Dimension) -> Dimension:
    """The answer, held to the figures that the user asked for."""
    if before.changes_nothing:
        asked = requested_figures_dimension(before.run, after.run, message)
        if asked is message and message.decides:
            return answer_figures_dimension(before.run, after.run, message)
        return asked
    if before.ends_on_change:
        return message
    return reported_figures_dimension(before.run, after.run, message, unanswered=after.ends_on_change)


def _message(golden: Golden, before: Side, after: Side, nearness: Nearness | None) -> Dimension:
    message, wanted = message_dimension(before.run, after.run, golden.expected, nearness), golden.expected.answer
    return message if wanted is None else answer_figures_dimension(before.run, after.run, message, wanted)


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
        found += call_dimensions(before.calls, after.calls, golden.expected, (before.names, after.names))
    if golden.expected.about_answer:
        found.append(_message(golden, before, after, nearness))
    return found


def _output_dimension(golden: Side, replay: Side, reader: Reader) -> Dimension:
    """The result of a tool's last call, leaf by leaf. A failure never equals a success."""
    (failed, before, seq), (fails, after, other_seq) = _output(golden, reader), _output(replay, reader)
    seqs = (seq, other_seq)
    if failed != fails:
        text = "the tool failed, which it did not before" if fails else "the tool did not fail as before"
        return standard_dimension(OUTPUT, 0.0, "", [Divergence(OUTPUT, "", before, after, text, *seqs)], decides=True)
    a, b = leaves(before), leaves(after)
    found = leaf_divergences(OUTPUT, a, b, about="the output", seqs=seqs)
    return standard_dimension(OUTPUT, likeness(a, b), "the same output", found, decides=True)


def _output(side: Side, reader: Reader) -> tuple[bool, Any, int | None]:
    """Whether the last call failed, and what it gave; the last message where there was no call."""
    events = side.run.events
    result = next((one for one in reversed(events) if one.event_type == "tool.result"), None)
    if result is not None:
        value = rename_ids(reader.value(from_json(result.payload.get("output"))), side.names)
        return result_failed(result.payload), {"output": value}, result.sequence
    answer = next((one for one in reversed(events) if one.event_type == "agent.message"), None)
    if answer is None:
        return False, {}, None
    return False, {"output": reader.value(from_json(text_of(answer)))}, answer.sequence
