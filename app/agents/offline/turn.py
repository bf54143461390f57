"""One turn of the offline model, played from its beginning each time: all its state is what it is given."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agents.offline.answers import error_line, finished, question, read_line, unanswered, write_line
from app.agents.offline.arguments import Filled, Known, fill, is_id, named_item
from app.agents.offline.choice import choose, scored
from app.agents.offline.conversation import Call, OfferedTool, Talk
from app.agents.offline.rules import Rulebook, Rules, read_rules
from app.agents.offline.values import fits, items_of, name_of, resolved
from app.learning.prompt import parse_prompt
from app.text.words import split_name, steps, words

MOST_STEPS = 4
MOST_CALLS = 6
LONGEST_MESSAGE = 20_000
LISTING = frozenset(("list", "search", "find", "browse", "query", "lookup"))

Calls = Generator[Call, Call, Any]


@dataclass(frozen=True)
class Move:
    """What the model does next: a call, or, without one, its answer. `applied` and `unread` are places of rows."""

    call: Call | None
    text: str
    applied: tuple[int, ...]
    unread: tuple[int, ...]


class _Stop(Exception):
    """Nothing more is to be done in this turn."""


@dataclass
class _Play:
    talk: Talk
    tools: Sequence[OfferedTool]
    rules: Rules
    lines: list[str] = field(default_factory=list)
    books: list[Rulebook] = field(default_factory=list)
    made: list[Call] = field(default_factory=list)

    def turn(self) -> Calls:
        """Every step in order. Gives the calls to make, and takes them back with their results."""
        for step in steps(self.talk.now.text[:LONGEST_MESSAGE])[:MOST_STEPS] or [""]:
            self.books.append(self.rules.at(words(step)))
            try:
                yield from self._step(step)
            except _Stop:
                return

    def _step(self, step: str) -> Calls:
        book = self.books[-1]
        tool = choose(words(step), self.tools, book)
        if tool is None:
            self.lines.append(unanswered(step, self.rules.rows, self.tools))
            return
        filled = fill(tool, self._known(step), book)
        if filled.missing and (looked := self._lookup_id(tool, filled)):
            filled = yield from self._looked_up(tool, looked, step, book, filled)
        if filled.missing:
            self.lines.append(question(filled.missing[0]))
            raise _Stop
        call = yield from self._make(tool, filled.arguments)
        self.lines.append(write_line(tool, call, self._names()) if tool.writes else read_line(tool, call))

    def _make(self, tool: OfferedTool, arguments: dict[str, Any]) -> Generator[Call, Call, Call]:
        wanted = Call(tool.name, arguments)
        if len(self.made) >= MOST_CALLS or any(wanted.same_as(call) for call in self.made):
            raise _Stop
        call = yield wanted
        self.made.append(call)
        if call.is_error:
            self.lines.append(error_line(tool, call))
            raise _Stop
        return call

    def _lookup_id(self, tool: OfferedTool, filled: Filled) -> str | None:
        schemas = {name: resolved(tool.arguments.get(name) or {}, tool.schema) for name in filled.missing}
        return next((name for name, schema in schemas.items() if is_id(name, schema)), None)

    def _looked_up(
        self, tool: OfferedTool, argument: str, step: str, book: Rulebook, filled: Filled
    ) -> Generator[Call, Call, Filled]:
        """The arguments with the id of the record that the step names, if reading finds exactly one."""
        finder = self._finder(tool, step, book)
        if finder is None:
            return filled
        call = yield from self._make(*finder)
        item = named_item([item for item in items_of(call.result) or [] if "id" in item], step)
        if item is None or not fits(item["id"], tool.arguments.get(argument) or {}, tool.schema):
            return filled
        return fill(tool, self._known(step), book, {**filled.arguments, argument: item["id"]})

    def _finder(self, tool: OfferedTool, step: str, book: Rulebook) -> tuple[OfferedTool, dict[str, Any]] | None:
        """The best-scoring tool that reads a list of records, and what to call it with."""
        ranked = sorted(scored(words(step), self.tools, book), key=lambda pair: -pair[1])
        for finder, _ in ranked:
            if finder.writes or finder.name == tool.name or not self._lists(finder):
                continue
            filled = fill(finder, self._known(step, looking_up=True), book)
            if not filled.missing:
                return finder, filled.arguments
        return None

    def _lists(self, tool: OfferedTool) -> bool:
        """Whether a tool gives records with an id: it did before, its schema says so, or its name does."""
        told = [call for turn in self.talk.turns for call in turn.calls if call.name == tool.name and not call.is_error]
        found = [items for call in told if (items := items_of(call.result))]
        if found:
            return any("id" in item for items in found for item in items)
        return "'id'" in repr(tool.returns) or any(part in LISTING for part in split_name(tool.name))

    def _known(self, step: str, *, looking_up: bool = False) -> Known:
        results = tuple(call.result for call in reversed(self.made))
        return Known(step, results, tuple(reversed(self.talk.turns[:-1])), looking_up)

    def _names(self) -> dict[str, str]:
        items = [item for call in self.made for item in items_of(call.result) or []]
        return {str(item["id"]): name for item in items if "id" in item and (name := name_of(item))}


def next_move(talk: Talk, tools: Sequence[OfferedTool]) -> Move:
    """The next call of this turn, or the answer that ends it."""
    arguments = [name for tool in tools for name in tool.arguments]
    rules = read_rules(talk.instructions, parse_prompt(talk.prompt), [tool.name for tool in tools], arguments)
    play = _Play(talk, tools, rules)
    wanted = _play_back(play.turn(), talk.now.calls)
    applied = tuple(dict.fromkeys(place for book in play.books for place in book.rows))
    text = "" if wanted else finished(play.lines, play.books)
    return Move(wanted, text, applied, rules.unread)


def _play_back(calls: Calls, recorded: Sequence[Call]) -> Call | None:
    """Hand every recorded call back to the turn; the first call that is wanted beyond them, if any."""
    try:
        wanted = next(calls)
        for call in recorded:
            wanted = calls.send(call)
    except StopIteration:
        return None
    return wanted
