"""A session that is one run of a tool: what came out, and what it changed."""

from collections.abc import Mapping
from typing import Any

from app.evals.compare.dimensions import Dimension, Divergence, leaf_divergences
from app.evals.compare.effects import rename_ids
from app.evals.trace import Run, result_failed, text_of
from app.text.values import Reader, from_json, leaves, likeness

OUTPUT = "output"
WEIGHT = 0.40


def output_dimension(golden: Run, replay: Run, reader: Reader, names: tuple[Mapping[Any, str], ...]) -> Dimension:
    """The result of the last call, leaf by leaf. A failure never equals a success."""
    before, after = (_output(run, reader, renamed) for run, renamed in zip((golden, replay), names, strict=True))
    seqs = (before[2], after[2])
    if before[0] != after[0]:
        text = "the tool failed, which it did not before" if after[0] else "the tool did not fail as before"
        return Dimension(
            OUTPUT, 0.0, WEIGHT, 1.0, text, True, (Divergence(OUTPUT, "", before[1], after[1], text, *seqs),)
        )
    a, b = leaves(before[1]), leaves(after[1])
    found = tuple(leaf_divergences(OUTPUT, a, b, about="the output", seqs=seqs))
    return Dimension(OUTPUT, likeness(a, b), WEIGHT, 1.0, found[0].text if found else "the same output", True, found)


def _output(run: Run, reader: Reader, names: Mapping[Any, str]) -> tuple[bool, Any, int | None]:
    for event in reversed(run.events):
        if event.event_type == "tool.result":
            value = rename_ids(reader.value(from_json(event.payload.get("output"))), names)
            return result_failed(event.payload), {"output": value}, event.sequence
    for event in reversed(run.events):
        if event.event_type == "agent.message":
            return False, {"output": reader.value(from_json(text_of(event)))}, event.sequence
    return False, {}, None
