"""The parts of a diff that stand side by side: effects, steps and answers, in two columns or, with an earlier replay,
in three."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from app.evals.compare import align
from app.evals.compare.align import Row, Step, TwoRows
from app.evals.compare.effects import Effect
from app.services.evals import compare as eval_compare
from app.services.evals.compare import EffectPair
from app.text.diff import GONE, NEW, SAME, Part, exact_diff
from app.views.format import result_line, value_line

MAX_CHARS = 400
ANSWERED = {
    "nearest": "answered from the closest recorded call",
    "read": "not recorded, read from the workspace",
    "simulated": "not recorded, not executed",
    "miss": "no recorded answer",
    "live": "called live",
    "refused": "rejected by this run",
}
CHANGES = {
    align.SAME: ("same", "pass", "✓ same"),
    align.CHANGED: ("changed", "warn", "~ changed"),
    align.MOVED: ("changed", "warn", "↕ moved"),
    align.REMOVED: ("missing", "fail", "− missing"),
    align.INSERTED: ("missing", "fail", "+ added"),
}


# How an effect compares with the golden's: its class, state and sign.
SAME_EFFECT, LOST, ADDED = ("", "pass", "✓ same"), ("missing", "fail", "− missing"), ("missing", "fail", "+ added")


@dataclass(frozen=True)
class Mark:
    """How one replay compares with the golden: the class of its cell, the state of its sign, the sign, and which of two
    replays it is."""

    css: str
    state: str
    word: str
    label: str = ""


@dataclass(frozen=True)
class Cell:
    """A step as one side shows it: its words in pieces, those that differ marked, and what came back."""

    lead: str
    pieces: list[tuple[bool, str]] = field(default_factory=list)
    tail: str = ""
    result: str = ""
    failed: bool = False
    via: str = ""


@dataclass(frozen=True)
class EffectRow:
    """An effect of the golden and what the replays did instead, each with the names of the fields that differ."""

    golden: tuple[Effect | None, list[str]]
    others: list[tuple[Effect | None, list[str]]]
    marks: list[Mark]


@dataclass(frozen=True)
class StepRow:
    """A step of the golden and of the replays; or several that are all the same, folded into a summary."""

    cells: list[Cell | None] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    summary: str = ""


def effect_rows(now: Sequence[EffectPair], before: Sequence[EffectPair] | None = None) -> list[EffectRow]:
    """What each side changed; what an earlier replay changed goes between them."""
    if before is None:
        return [EffectRow((one.golden, one.differs), [(one.replay, one.differs)], [_effect_mark(one)]) for one in now]
    return list(_joined_effects(now, before))


def _joined_effects(now: Sequence[EffectPair], before: Sequence[EffectPair]) -> Iterator[EffectRow]:
    earlier = list(before)
    nothing = EffectPair(None, None, [])
    for one in now:
        match = next((other for other in earlier if other.key == one.key), None)
        if match is not None:
            earlier.remove(match)
        yield _effect_row(match or nothing, one)
    yield from (_effect_row(one, nothing) for one in earlier)


def _effect_row(before: EffectPair, now: EffectPair) -> EffectRow:
    differs = list(dict.fromkeys([*now.differs, *before.differs]))
    return EffectRow(
        (now.golden or before.golden, differs),
        [(before.replay, before.differs), (now.replay, now.differs)],
        [_effect_mark(before, "before"), _effect_mark(now, "now")],
    )


def _effect_mark(pair: EffectPair, label: str = "") -> Mark:
    if pair.golden is None and pair.replay is None:
        return Mark("", "none", "–", label)
    if pair.same:
        return Mark(*SAME_EFFECT, label)
    if pair.replay is None:
        return Mark(*LOST, label)
    if pair.golden is None:
        return Mark(*ADDED, label)
    word = value_line(pair.differs[0], 12) if len(pair.differs) == 1 else "differs"
    return Mark("wrong", "fail", f"✗ {word}", label)


def answer_marks(now: tuple[str, str], before: tuple[str, str] | None) -> list[Mark]:
    """Whether the answers are the golden's."""
    sides = [("", now)] if before is None else [("before", before), ("now", now)]
    marks = {True: ("", "pass", "✓ same"), False: ("", "warn", "~ differs")}
    return [Mark(*marks[golden == replay], label) for label, (golden, replay) in sides]


def mark_answers(golden: str, replay: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both last answers in pieces, those that only one has marked."""
    parts = exact_diff(golden, replay)
    return _marked(parts, GONE), _marked(parts, NEW)


def _marked(parts: Sequence[Part], mine: str) -> list[tuple[bool, str]]:
    """One side of a word diff. A space between two marked words is marked with them."""
    found: list[tuple[bool, str]] = []
    for kind, text in parts:
        if kind not in (SAME, mine):
            continue
        marked = kind == mine
        if marked and len(found) > 1 and found[-2][0] and not found[-1][1].strip(" "):
            space = found.pop()[1]
            found[-1] = (True, found[-1][1] + space + text)
        elif found and found[-1][0] == marked:
            found[-1] = (marked, found[-1][1] + text)
        else:
            found.append((marked, text))
    return found


def count_steps(rows: Sequence[Row]) -> str:
    """`5 same, 2 changed, 1 missing`."""
    counted = Counter(row.change for row in rows)
    words = {change: label.split()[1] for change, (_, _, label) in CHANGES.items()}
    return ", ".join(f"{counted[change]:,} {word}" for change, word in words.items() if counted[change])


def step_rows(rows: Sequence[Row | TwoRows]) -> list[StepRow]:
    """Steps as lines; those that are the same on all sides are folded into one."""
    found: list[StepRow] = []
    for same, group in groupby(rows, key=_is_same):
        if same:
            lines = [_step_line(row.golden) for row in group if row.golden]
            summary = value_line(", ".join(line.split(" → ")[0] for line in lines[:4]), 160)
            found.append(StepRow(lines=lines, summary=summary))
        else:
            found += [_three_cells(row) if isinstance(row, TwoRows) else _two_cells(row) for row in group]
    return found


def _is_same(row: Row | TwoRows) -> bool:
    return row.same if isinstance(row, TwoRows) else row.change == align.SAME


def _two_cells(row: Row) -> StepRow:
    return StepRow([*_cells(row)], [Mark(*CHANGES[row.change])])


def _three_cells(row: TwoRows) -> StepRow:
    """The golden's cell marks what is different now, or else what was different before."""
    pairs = [_cells(one) if one else (None, None) for one in (row.before, row.now)]
    telling = pairs[1][0] if row.now and row.now.change != align.SAME else pairs[0][0]
    marks = [
        Mark(*CHANGES[one.change], label) if one else Mark("", "none", "–", label)
        for one, label in ((row.before, "before"), (row.now, "now"))
    ]
    return StepRow([telling or pairs[1][0], pairs[0][1], pairs[1][1]], marks)


def _cells(row: Row) -> tuple[Cell | None, Cell | None]:
    a, b = row.golden, row.replay
    if a is None or b is None or row.change == align.MOVED:
        return _cell(a) if a else None, _cell(b) if b else None
    if a.kind == "message":
        parts = exact_diff(str(a.content)[: 2 * MAX_CHARS], str(b.content)[: 2 * MAX_CHARS])
        return Cell(_speaker(a), _marked(parts, GONE)), Cell(_speaker(b), _marked(parts, NEW))
    changed = eval_compare.changed_arguments(a.content, b.content)
    return _cell(a, changed), _cell(b, changed)


def _cell(step: Step, changed: set[str] | None = None) -> Cell:
    if step.kind == "message":
        return Cell(_speaker(step), [(False, value_line(step.content, MAX_CHARS))])
    args = step.content if isinstance(step.content, Mapping) else {"": step.content}
    pieces: list[tuple[bool, str]] = []
    for number, (name, value) in enumerate(args.items()):
        pieces.append((False, (", " if number else "") + (f"{name}=" if name else "")))
        text = f'"{value_line(value, MAX_CHARS)}"' if isinstance(value, str) else value_line(value, MAX_CHARS)
        pieces.append((changed is not None and name in changed, text))
    result = result_line(step.output) if step.kind == "call" else ""
    return Cell(f"{step.name}(", pieces, ")", result, step.failed, ANSWERED.get(step.answered or "", ""))


def _step_line(step: Step) -> str:
    cell = _cell(step)
    text = cell.lead + "".join(text for _, text in cell.pieces) + cell.tail
    return value_line(text, MAX_CHARS // 2) + (f" → {value_line(cell.result, 80)}" if cell.result else "")


def _speaker(step: Step) -> str:
    return "user: " if step.name == "user.message" else "agent: "
