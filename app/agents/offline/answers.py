"""How the offline model phrases its answer: a sentence or two for each step, as a colleague would write them.

It can only repeat what tools returned. Where a step mentions a field ("who leads Corvus?"), the answer is about that
field and about the records that have it; otherwise it says what was found, with the first fields.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from app.agents.offline.arguments import capitalised_runs
from app.agents.offline.conversation import Call, OfflineTool, is_id, record_name, records_in
from app.agents.offline.wording import (
    KIND_KEYS,
    Field,
    end_sentence,
    is_text,
    join_and,
    kind_of,
    lower_first,
    make_field,
    name_object,
    past_tense,
    plural,
    plural_kind,
    quote,
    quote_long,
    say_count,
    say_equation,
    say_field,
    say_value,
    scalars_of,
    singular,
    spell_kind,
    upper_first,
    with_article,
)
from app.learning.prompt import ParsedRow
from app.learning.rules import Rules
from app.text.values import from_json
from app.text.words import sentences, split_name, words

MAX_DESCRIBED, MAX_NAMED = 3, 12
MAX_FIELDS, MAX_BRIEF = 3, 2
MAX_TOOLS = 5
MAX_CHOICES = 4
NOTHING_LEFT = "I am not allowed to say anything about this."
UNABLE = "I can't do that with the tools I have."
ERROR_KEYS = ("error", "detail", "message", "reason")
# The field that an error is about, as programs write it.
PATH = re.compile(r"^\w+(?:\.\w+)+: ")
UNASKED = frozenset(("id", "name", "title", *KIND_KEYS))
ADDING = ("add", "create")
# Verbs of tools that deal with one record at a time.
SINGLE = ("get", "update", "delete", "submit", "review", "deactivate", "withdraw", *ADDING)
WHOLE = ("getContext",)
# What people write at length is quoted.
TEXT_KEYS = frozenset(("content", "text", "comment", "message", "note", "notes", "reason"))
QUESTIONS = {
    "query": "What should I look for?", "changes": "What should I change?", "fields": "What should I change?",
    "values": "Which values should I submit?", "content": "What exactly should it say?", "reason": "Why?",
    "name": "What should it be called?", "title": "What should it be called?",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step as its answer sees it: its text, and the fields that tools describe."""

    text: str
    fields: dict[str, Field]

    def asks_for(self, key: str) -> bool:
        return self.field(key).is_mentioned(words(self.text))

    def field(self, key: str) -> Field:
        return self.fields.get(key) or make_field(key)


def describe_read(tool: OfflineTool, call: Call, step: Step) -> str:
    """What was found: `I found two deals: Halden (stage won) and Tessera (stage lost).`, or the single value."""
    result = from_json(call.result)
    items = records_in(result)
    if (not items and result in (None, "", [])) or items == []:
        return _say_nothing(tool, call, step)
    if items:
        more = isinstance(result, dict) and bool(result.get("nextCursor")) and "id" not in result
        return _describe_records(tool, call, step, items, more=more)
    if isinstance(result, list):
        shown = _list([say_value(one) for one in result[:MAX_DESCRIBED]], len(result))
        return end_sentence(f"I found {say_count(len(result), name_object(tool))}: {shown}")
    if isinstance(result, dict):
        return _describe_values(tool, result, step)
    said = say_value(result)
    return end_sentence(upper_first(said) if isinstance(result, str) else f"The result is {said}")


def found_nothing(call: Call) -> bool:
    return records_in(call.result) == [] or call.result in (None, "", [], {})


def _describe_values(tool: OfflineTool, result: dict[str, Any], step: Step) -> str:
    values = scalars_of(result)
    asked = [key for key in values if step.asks_for(key)]
    keys = [*asked, *(key for key in values if key not in asked)][:MAX_FIELDS]
    parts = [say_equation(key, values[key], step.fields) for key in keys]
    return end_sentence(upper_first(join_and(parts))) if parts else f"I found no {name_object(tool)}."


def _describe_records(tool: OfflineTool, call: Call, step: Step, items: list[dict[str, Any]], *, more: bool) -> str:
    asked, chosen = _choose(items, step)
    if len(chosen) == 1 and not is_text(_name(chosen[0])):
        return _describe_one(chosen[0], asked, step)
    noun = _noun(tool, call, chosen)
    if all(is_text(_name(item)) for item in chosen):
        return _quote_records(call, chosen, noun)
    mixed, brief = len({kind_of(item) for item in chosen}) > 1, len(chosen) > MAX_DESCRIBED
    told = asked[:MAX_BRIEF] if brief else asked
    shown = [_in_brackets(item, told, step, mixed=mixed, brief=brief) for item in chosen[:MAX_NAMED]]
    listed = _list([one for one in shown if one], len(chosen))
    found = f"I found {'at least ' if more else ''}{say_count(len(chosen), noun)}"
    return end_sentence(f"{found}: {listed}" if listed else found)


def _choose(items: list[dict[str, Any]], step: Step) -> tuple[list[str], list[dict[str, Any]]]:
    """The fields that the step asks for, and the records that answer it: those that have most of these fields, without
    those that only share a word with one that the step calls by its full name."""
    keys = list(dict.fromkeys(key for item in items for key in item if key not in UNASKED))
    asked = [key for key in keys if step.asks_for(key)]
    counts = [sum(_has(item, key) for key in asked) for item in items]
    chosen = [item for item, count in zip(items, counts, strict=True) if count == max(counts)]
    return [key for key in asked if any(_has(item, key) for item in chosen)], _drop_namesakes(chosen, step)


def _drop_namesakes(items: list[dict[str, Any]], step: Step) -> list[dict[str, Any]]:
    said = set(words(step.text))
    names = [set(words(_name(item))) for item in items]
    full = [name for name in names if name and name <= said]
    full = [name for name in full if not any(name < other for other in full)]
    covered = {word for name in full for word in name}
    pairs = zip(items, names, strict=True)
    return [item for item, name in pairs if not full or name in full or (name & said) - covered]


def _has(item: dict[str, Any], key: str) -> bool:
    return item.get(key) not in (None, "", [], {})


def _describe_one(item: dict[str, Any], asked: list[str], step: Step) -> str:
    """`The lead of Corvus is Ana Souza.`, or the first fields of the record."""
    name, scalars = say_value(_name(item)), scalars_of(item)
    about = next((value for value in scalars.values() if isinstance(value, str) and is_text(value)), None)
    if about and not asked:
        return end_sentence(_attach(name, say_value(about)))
    keys = [key for key in asked if _has(item, key)] or list(scalars)
    if not keys:
        return end_sentence(f"I found {name or 'one'}")
    if len(keys) == 1:
        of = f" of {name}" if name else ""
        return end_sentence(upper_first(say_equation(keys[0], item[keys[0]], step.fields, of)))
    parts = join_and([say_equation(key, item[key], step.fields) for key in keys[:MAX_FIELDS]])
    return end_sentence(f"For {name}, {parts}" if name else upper_first(parts))


def _attach(name: str, about: str) -> str:
    """`Sales Ops keeps companies tidy.` from a description that opens with such a verb."""
    verb = about.split()[0]
    if not name:
        return about
    return f"{name} {lower_first(about)}" if verb.isalpha() and verb.endswith("s") else f"{name}: {about}"


def _in_brackets(item: dict[str, Any], asked: list[str], step: Step, *, mixed: bool, brief: bool) -> str:
    """A record in a list: its name, and in brackets what was asked for, else its first fields."""
    scalars = scalars_of(item)
    keys = [key for key in asked if _has(item, key)]
    if not keys and not brief:
        keys = [key for key in scalars if key not in TEXT_KEYS and not is_text(str(scalars[key]))]
    told = [say_field(key, item[key], step.fields, labelled=key in asked) for key in keys[:MAX_FIELDS]]
    kind = [spell_kind(kind_of(item))] if mixed and kind_of(item) else []
    name, details = say_value(_name(item)), ", ".join([*kind, *told])
    return f"{name} ({details})" if name and details else name or details


def _quote_records(call: Call, items: list[dict[str, Any]], noun: str) -> str:
    """Records that are texts, such as rules: `One proposed rule mentions Heron: …`."""
    query = call.arguments.get("query")
    count, single = say_count(len(items), noun), len(items) == 1
    opening = f"I found {count}"
    if isinstance(query, str) and query:
        opening = f"{upper_first(count)} mention{'s' if single else ''} {query}"
    texts = [say_value(_name(item)) for item in items[:MAX_DESCRIBED]]
    return end_sentence(f"{opening}: {texts[0] if single else _list(list(map(quote, texts)), len(items))}")


def _list(shown: Sequence[str], total: int) -> str:
    rest = total - len(shown)
    return join_and([*shown, say_count(rest, "more")] if rest > 0 and shown else list(shown))


def _noun(tool: OfflineTool, call: Call, items: Sequence[dict[str, Any]]) -> str:
    """What the records are, in the plural: by their kind if they share one, with the choices that were made."""
    kinds = {kind_of(item) for item in items} or {kind_of(call.arguments)}
    kind = kinds.pop() if len(kinds) == 1 else ""
    chosen = {
        name: value
        for name, value in call.arguments.items()
        if isinstance(value, str) and name not in KIND_KEYS and "enum" in _as_object(tool.arguments.get(name))
    }
    if chosen.get("type", "ing").endswith("ing") or kind:
        return " ".join([*chosen.values(), plural_kind(kind) if kind else name_object(tool)])
    kind = chosen.pop("type")
    return " ".join([*chosen.values(), plural_kind(kind)])


def _as_object(schema: Any) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _say_nothing(tool: OfflineTool, call: Call, step: Step) -> str:
    names = [name for name in capitalised_runs(step.text) if any(letter.islower() for letter in name)]
    noun = _noun(tool, call, [])
    return f"I found no {noun} for {join_and(names[:MAX_DESCRIBED])}." if names else f"I found no matching {noun}."


def _name(item: dict[str, Any]) -> str:
    return record_name(item) or ""


def describe_write(tool: OfflineTool, call: Call, names: dict[str, str], step: Step) -> str:
    """`I set the stage of Halden to won.` `names` are of the records read so far, by id; ids are never said."""
    verb, (target, titles) = tool.verb, _target_of(call, names)
    changes = next((value for value in call.arguments.values() if isinstance(value, dict)), {})
    pairs = {key: inner.get("value") if isinstance(inner, dict) else inner for key, inner in changes.items()}
    if verb == "update" and pairs:
        return end_sentence(f"I {_say_changes(target or 'the record', pairs, step)}")
    pairs |= {
        name: value
        for name, value in call.arguments.items()
        if not isinstance(value, dict) and name not in (*titles, *KIND_KEYS) and not is_id(name)
    }
    texts = [key for key, value in pairs.items() if isinstance(value, str) and (key in TEXT_KEYS or is_text(value))]
    rest = [key for key in pairs if key not in texts]
    details = [say_field(key, pairs[key], step.fields, labelled=verb not in ADDING) for key in rest]
    line = f"I {_past_of(verb, call)} {_object_of(tool, call, target)}"
    if details:
        line += f" ({', '.join(details)})" if verb in ADDING else f" with {join_and(details)}"
    return end_sentence(f"{line}: {' '.join(quote(str(pairs[key])) for key in texts)}" if texts else line)


def _say_changes(target: str, pairs: dict[str, Any], step: Step) -> str:
    """The new values; a single one in the person's own verb, `moved Halden to won`."""
    own = next((verb for verb in ("move", "mark") if verb in split_name(step.text)), None)
    if own and len(pairs) == 1 and isinstance(value := next(iter(pairs.values())), str):
        return f"moved {target} to {value}" if own == "move" else f"marked {target} as {value}"
    labels = {key: f"the {step.field(key).label}" + (f" of {target}" if len(pairs) == 1 else "") for key in pairs}
    values = {key: quote_long(value, step.field(key).unit) for key, value in pairs.items() if value is not None}
    new = [f"{labels[key]} to {value}" for key, value in values.items()]
    gone = [labels[key] for key in pairs if key not in values]
    done = [f"{verb} {join_and(parts)}" for verb, parts in (("set", new), ("cleared", gone)) if parts]
    return join_and(done) + (f" for {target}" if len(pairs) > 1 else "")


def _past_of(verb: str, call: Call) -> str:
    """What was done. A proposal is one, whatever the tool is called."""
    result = from_json(call.result)
    if isinstance(result, dict) and result.get("state") == "proposed":
        return "proposed"
    return "added" if verb in ADDING else past_tense(verb)


def _object_of(tool: OfflineTool, call: Call, target: str) -> str:
    noun = _kind_noun(call) or singular(name_object(tool))
    if tool.verb in ADDING and target:
        return f"{target} as {with_article(noun)}"
    if tool.verb == "submit" and target:
        return f"{with_article(noun)} for {target}"
    return target or (f"the {noun}" if tool.verb in ("update", "delete") else with_article(noun))


def _kind_noun(call: Call) -> str:
    kind = kind_of(call.arguments)
    return singular(plural_kind(kind)) if kind else ""


def _target_of(call: Call, names: dict[str, str]) -> tuple[str, list[str]]:
    """What a call changed, and the arguments that name it. An id that belongs to no known record says nothing."""
    result = from_json(call.result)
    returned = record_name(result) if isinstance(result, dict) else None
    titles = [name for name in ("name", "title") if isinstance(call.arguments.get(name), str)]
    ids = [str(value) for name, value in call.arguments.items() if is_id(name)]
    known = returned or next((names[one] for one in ids if one in names), None)
    return say_value(known or next((call.arguments[name] for name in titles), "")), titles


def describe_error(tool: OfflineTool, call: Call) -> str:
    """What could not be done, and the first clause of why."""
    result = from_json(call.result)
    if isinstance(result, dict):
        result = next((result[key] for key in ERROR_KEYS if isinstance(result.get(key), str) and result[key]), result)
    why = PATH.sub("", say_value(result or "there was no result")).split("; ")[0].replace(tool.name, "this")
    target, _ = _target_of(call, {})
    noun = _kind_noun(call)
    adding = f"add {target}" + (f" as {with_article(noun)}" if noun else "")
    return end_sentence(f"I could not {adding if target and tool.verb in ADDING else _say_tool(tool)}: {why}")


def _say_tool(tool: OfflineTool) -> str:
    """`search deals`, as something one does."""
    if len(split_name(tool.name)) < 2:
        return tool.verb
    noun = name_object(tool)
    single = tool.verb in SINGLE and tool.name not in WHOLE
    return f"{tool.verb} {with_article(singular(noun)) if single else noun}"


def ask_for(argument: str, found: Sequence[dict[str, Any]] = ()) -> str:
    """The question for a missing argument. `found` are records that may be meant."""
    if argument in QUESTIONS:
        return QUESTIONS[argument]
    parts = split_name(argument)
    noun = " ".join(parts[:-1] if is_id(argument) and len(parts) > 1 else parts) or argument
    noun = {"entity": "record", "entity type": "kind of record", "id": "one"}.get(noun, noun)
    names = list(dict.fromkeys(say_value(_name(item)) for item in found if _name(item)))[:MAX_CHOICES]
    if len(names) > 1:
        return f"Which {noun} do you mean: {join_and(names, 'or')}?"
    if names and len(found) > 1:
        return f"There are {say_count(len(found), plural(noun))} called {names[0]}. Which one do you mean?"
    return f"Do you mean {names[0]}?" if names else f"Which {noun} do you mean?"


def find_choices(argument: str, calls: Sequence[Call], step: Step) -> list[dict[str, Any]]:
    """The records among which a look-up could not decide: those with a name of the step in theirs that have the field
    in question. A name that contains another one is left out."""
    noun = " ".join(split_name(argument)[:-1])
    if not calls or not is_id(argument) or not {*words(plural(noun))} <= {*words(calls[-1].name)}:
        return []
    said = {word for name in capitalised_runs(step.text) for word in words(name)}
    found = [item for item in records_in(calls[-1].result) or [] if said & set(words(_name(item)))]
    twins = _drop_namesakes(found, step)
    if len({_name(item) for item in twins}) == 1:
        return twins
    chosen = _choose(found, step)[1] if found else []
    names = [set(words(_name(item))) for item in chosen]
    return [item for item, own in zip(chosen, names, strict=True) if not any(other < own for other in names)]


def quote_knowledge(step: str, rows: Sequence[ParsedRow]) -> str | None:
    """The knowledge row that has at least half of the step's words."""
    asked = words(step)

    def shared(row: ParsedRow) -> int:
        known = words(f"{row.content} {row.context or ''}")
        return sum(word in known for word in asked)

    best = max(rows, key=shared, default=None)
    if best is not None and shared(best) and 2 * shared(best) >= len(asked):
        return f"Our notes say: {quote(best.content)}"
    return None


def describe_tools(tools: Sequence[OfflineTool]) -> str:
    """What can be done instead of a step that no tool fits."""
    offer = list(dict.fromkeys(map(_say_tool, tools)))[:MAX_TOOLS]
    return UNABLE + (f" I can {join_and(offer, 'or')}." if offer else "")


def compose_answer(lines: Sequence[str], rules: Sequence[Rules]) -> str:
    """Join the lines and the `say` texts, without sentences that contain a `never say` text."""
    texts = dict.fromkeys(text for step in rules for text in step.contents("says"))
    banned = {text.casefold() for step in rules for text in step.contents("never_says")}
    kept = [_remove_banned(line, banned) for line in [*lines, *texts]]
    return "\n".join(line for line in kept if line) or NOTHING_LEFT


def _remove_banned(line: str, banned: Collection[str]) -> str:
    def is_banned(text: str) -> bool:
        return any(one in text.casefold() for one in banned)

    if not is_banned(line):
        return line
    rest = " ".join(part for part in sentences(line) if not is_banned(part))
    return "" if is_banned(rest) else rest
