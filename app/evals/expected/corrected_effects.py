"""Derive what a golden should have changed from the calls that were marked as wrong or missing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.evals.compare.calls import covered_share
from app.evals.compare.effects import (
    UPDATED,
    Effect,
    change_of_call,
    changes_of,
    final_effects,
    overlay,
    rename_effects,
)
from app.evals.expected.expectations import Expected
from app.evals.trace import Call, Run, Tool, find_tool
from app.text.values import Reader

WantedCall = tuple[str, Any]


def names_writes(expected: Expected, calls: Sequence[Call]) -> bool:
    """Whether what is expected of the calls says something about what the recording changed."""
    made = {call.name for call in calls if call.writes and not call.failed}
    return bool(made & set(expected.no_calls or ())) or bool(made & {name for name, _ in expected.calls or ()})


def corrected_effects(
    expected: Expected,
    golden: tuple[Run, Sequence[Call]],
    replay: tuple[Sequence[Call], Mapping[Any, str]],
    tools: Mapping[str, Tool],
    reader: Reader,
) -> tuple[list[Effect], dict[Any, str]] | None:
    """Expected effects in place of the recorded ones, and names for what they create; None if all stay as recorded.
    Changes of a forbidden tool are dropped. Expected calls replace recorded calls of the same tool, pair by pair:
    arguments that are not given stay as recorded."""
    run, calls = golden
    wanted = [
        (name, reader.arguments(given, find_tool(name, tools).schema))
        for name, given in expected.calls or ()
        if find_tool(name, tools).writes
    ]
    made = [call for call in calls if call.writes and not call.failed]
    gone = {call.sequence for call in made if call.name in (expected.no_calls or ())}
    if not wanted and not gone:
        return None
    instead, more = _pair_calls(wanted, [call for call in made if call.sequence not in gone])
    recorded = changes_of(run, calls, reader)
    called = {call.sequence for call in made}
    lost = {str(one.returned) for one in recorded if one.sequence in gone and one.returned is not None}
    kept = [
        instead.get(one.sequence, one) if one.sequence in called else one
        for one in recorded
        if one.sequence not in gone and not (one.kind == UPDATED and str(one.target) in lost)
    ]
    return final_effects([*kept, *_new_effects(more, *replay)])


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
            likest = max(among, key=lambda call: covered_share(call.name, one[1], call.arguments))
            free.remove(likest)
            found.append(replace(change_of_call(_with_arguments(likest, one)), sequence=0, call_id=None))
    return rename_effects(found, names)
