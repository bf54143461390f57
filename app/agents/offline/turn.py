"""One turn of the offline model: cut the message into steps and do them in order, one call after the other.

Each request plays the turn from its beginning: calls that already have a result get it, and the first call without one
is the next move.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.agents.offline import answers
from app.agents.offline.arguments import Filling, capitalised_runs, find_named_record, is_valid
from app.agents.offline.conversation import Call, Conversation, OfflineTool, is_id, record_name, records_in
from app.agents.offline.wording import Field, read_fields
from app.learning.prompt import ParsedRow, parse_prompt
from app.learning.rules import Rules, read_rules
from app.text.values import from_json
from app.text.words import split_name, stem, steps, words

MIN_SCORE = 0.2
PREFERRED_BONUS = 1.0
WRITE_BONUS = 0.5
IN_NAME, IN_DESCRIPTION = 1.0, 0.5
WRITE_VERBS = {
    "create": ("add", "create", "log", "new", "book", "record", "submit"),
    "update": ("update", "set", "change", "move", "rename", "assign", "mark", "correct"),
    "delete": ("delete", "remove", "cancel", "archive"),
}
CLASS_OF = {stem(verb): kind for kind, verbs in WRITE_VERBS.items() for verb in verbs}
ANY_OBJECT = frozenset(map(stem, ("entity", "record", "item", "row")))
COURTESY = frozenset(words("good morning afternoon evening hi thanks cheers great perfect sorry"))
MAX_STEPS = 4
MAX_CALLS = 6
MAX_MESSAGE = 20_000
LISTING_VERBS = frozenset(("list", "search", "find", "browse", "query", "lookup"))


@dataclass(frozen=True)
class Move:
    """What the model does next: a call, or its answer. `applied` and `unread` are places of rows in the prompt."""

    call: Call | None
    text: str
    applied: tuple[int, ...]
    unread: tuple[int, ...]


class _Stop(Exception):
    """The turn ends here, with a last line or without."""


class _NeedsResult(Exception):
    """The call in its argument must be made before the turn can go further."""


def next_move(conversation: Conversation, tools: Sequence[OfflineTool]) -> Move:
    """The next call of this turn, or the answer that ends it."""
    arguments = [name for tool in tools for name in tool.arguments]
    rows = parse_prompt(conversation.prompt)
    rules, unread = read_rules(conversation.instructions, rows, [tool.name for tool in tools], arguments)
    turn = _Turn(conversation, tools, rules, rows)
    call, text = None, ""
    try:
        turn.play()
        text = answers.compose_answer(turn.lines, turn.step_rules)
    except _NeedsResult as needed:
        call = needed.args[0]
    applied = dict.fromkeys(place for rules_of_step in turn.step_rules for place in rules_of_step.rows)
    return Move(call, text, tuple(applied), tuple(unread))


@dataclass
class _Turn:
    """The state of a turn while it is played: lines of the answer, rules of each step, and calls made. `fillers` are
    lines that say only that nothing came of a step; they are left out beside better ones."""

    conversation: Conversation
    tools: Sequence[OfflineTool]
    rules: Rules
    rows: Sequence[ParsedRow]
    lines: list[str] = field(default_factory=list)
    fillers: list[str] = field(default_factory=list)
    step_rules: list[Rules] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def play(self) -> None:
        for step in self._steps():
            rules = self.rules.for_step(words(step))
            self.step_rules.append(rules)
            try:
                self.lines.append(self._do(step, rules))
            except _Stop as stop:
                self.lines += stop.args
                break
        self.lines = [line for line in self.lines if line not in self.fillers] or self.fillers[:1]

    def _steps(self) -> list[str]:
        """The steps of the message, without a greeting or thanks beside them."""
        asked = steps(self.conversation.current.text[:MAX_MESSAGE])
        return [step for step in asked if not COURTESY.issuperset(words(step))][:MAX_STEPS] or asked[:1] or [""]

    def _do(self, step: str, rules: Rules) -> str:
        """Do one step and return its line of the answer."""
        tool = choose_tool(words(step), self.tools, rules)
        if tool is None:
            return answers.quote_knowledge(step, self.rows) or self._fill_in(answers.describe_tools(self.tools))
        filled = Filling(tool, rules, step, self._past()).fill()
        if filled.missing:
            filled = self._look_up(tool, step, rules, filled)
        asked = answers.Step(step, self.fields)
        if filled.missing:
            raise _Stop(answers.ask_for(filled.missing[0], answers.find_choices(filled.missing[0], self.calls, asked)))
        call = self._call(tool, filled.arguments)
        if tool.writes:
            return answers.describe_write(tool, call, self._names(), asked)
        line = answers.describe_read(tool, call, asked)
        return self._fill_in(line) if answers.found_nothing(call) and not capitalised_runs(step) else line

    def _fill_in(self, line: str) -> str:
        self.fillers.append(line)
        return line

    @cached_property
    def fields(self) -> dict[str, Field]:
        return read_fields(self.tools)

    def _call(self, tool: OfflineTool, arguments: dict[str, Any]) -> Call:
        """Return the call with its result, taken from the conversation, or ask for it."""
        made = len(self.calls)
        if made >= MAX_CALLS or any((call.name, call.arguments) == (tool.name, arguments) for call in self.calls):
            raise _Stop
        if made >= len(self.conversation.current.calls):
            raise _NeedsResult(Call(tool.name, arguments))
        call = self.conversation.current.calls[made]
        self.calls.append(call)
        if call.is_error:
            raise _Stop(answers.describe_error(tool, call))
        return call

    def _look_up(self, tool: OfflineTool, step: str, rules: Rules, filled: Filling) -> Filling:
        """Fill a missing id with that of the record that the step names, if a read finds exactly one."""
        argument = next((name for name in filled.missing if is_id(name)), None)
        finder = self._choose_finder(tool, step, rules) if argument else None
        if argument is None or finder is None:
            return filled
        call = self._call(*finder)
        record = find_named_record([item for item in records_in(call.result) or [] if "id" in item], step)
        if record is None or not is_valid(record["id"], tool.arguments.get(argument), tool.schema):
            return filled
        return Filling(tool, rules, step, self._past(), {**filled.done, argument: record["id"]}).fill()

    def _choose_finder(self, tool: OfflineTool, step: str, rules: Rules) -> tuple[OfflineTool, dict[str, Any]] | None:
        """The best-scoring tool that reads a list of records, with its arguments."""
        ranked = sorted(score_tools(words(step), self.tools, rules), key=lambda pair: -pair[1])
        for finder, _ in ranked:
            if finder.writes or finder.name == tool.name or not self._returns_records(finder):
                continue
            filled = Filling(finder, rules, step, self._past(), looking_up=True).fill()
            if not filled.missing:
                return finder, filled.arguments
        return None

    def _returns_records(self, tool: OfflineTool) -> bool:
        """Whether a tool returns records with an id: it did before, or its name says so."""
        past = [call for turn in self.conversation.turns for call in turn.calls if call.name == tool.name]
        found = [records for call in past if not call.is_error and (records := records_in(call.result))]
        if found:
            return any("id" in record for records in found for record in records)
        return any(part in LISTING_VERBS for part in split_name(tool.name))

    def _past(self) -> list[Any]:
        """The results of this turn, then the results and texts of earlier turns; newest first."""
        past = [call.result for call in reversed(self.calls)]
        for turn in reversed(self.conversation.turns[:-1]):
            past += [call.result for call in reversed(turn.calls) if not call.is_error]
            past += [turn.text, turn.answer]
        return [from_json(one) for one in past]

    def _names(self) -> dict[str, str]:
        """The names of the records that this turn has read, by id."""
        records = [record for call in self.calls for record in records_in(call.result) or []]
        return {str(record["id"]): name for record in records if "id" in record and (name := record_name(record))}


def choose_tool(step_words: Sequence[str], tools: Sequence[OfflineTool], rules: Rules) -> OfflineTool | None:
    """The allowed tool with the highest score; of equals, the first in the list."""
    best, best_score = None, 0.0
    for tool, score in score_tools(step_words, tools, rules):
        if score >= MIN_SCORE and score > best_score:
            best, best_score = tool, score
    return best


def score_tools(
    step_words: Sequence[str], tools: Sequence[OfflineTool], rules: Rules
) -> list[tuple[OfflineTool, float]]:
    """Every tool allowed for a step with its score, in the order of the list."""
    weights = _idf(step_words, tools)
    found = []
    for tool in tools:
        stance = rules.stance(tool.name)
        asked = tool.writes and asks_to_write(step_words, tool)
        if stance < 0 or (tool.writes and stance <= 0 and not asked):
            continue
        gained = sum(weight * _share(word, tool) for word, weight in weights.items())
        extra = (PREFERRED_BONUS if stance > 0 else 0.0) + (WRITE_BONUS if asked else 0.0)
        found.append((tool, gained / (sum(weights.values()) or 1.0) + extra))
    return found


def asks_to_write(step_words: Sequence[str], tool: OfflineTool) -> bool:
    """Whether the step has a verb of the tool's class and names what the tool changes."""
    name = words(tool.name)
    acting = next((word for word in name if word in CLASS_OF), None)
    if acting is None:
        return False
    return any(CLASS_OF.get(word) == CLASS_OF[acting] for word in step_words) and all(
        word in step_words or word in ANY_OBJECT for word in name if word != acting
    )


def _idf(step_words: Sequence[str], tools: Sequence[OfflineTool]) -> dict[str, float]:
    """Inverse document frequency: a word that many tools have says little about which one is meant."""
    knowing = {word: sum(word in tool.known_words for tool in tools) for word in step_words}
    return {word: math.log(1 + len(tools) / (1 + count)) for word, count in knowing.items() if count}


def _share(word: str, tool: OfflineTool) -> float:
    return IN_NAME if word in tool.name_words else IN_DESCRIPTION if word in tool.known_words else 0.0
