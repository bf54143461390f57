"""What a person types into the filter box: "rating:negative agent:pe-analyst last 7 days EBITDA".

The filters of a list say which names there are and where their values come from; the chips, the form and the
suggestions of the box derive from them as well.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from app.actor import Actor
from app.errors import Invalid
from app.formats.days import OFFERED_SPANS, describe_day, find_span
from app.formats.ids import parse_id
from app.services.lists import menus
from app.services.lists.filters import SPELLED, YES_NO, FilterField, Filters

MAX_SUGGESTED = 20
# Agents and people are suggested for a word that is in their name, so many of each.
BY_NAME = ("agents", "people")
MAX_BY_NAME = 5
# One part of a phrase: `agent:pe-analyst`, `-author:"Sam Okafor"`, or a word; what is in quotes stays together.
PART = re.compile(
    r"""\s*(?P<part>(?P<without>-?)(?P<key>[A-Za-z][A-Za-z_-]*):(?P<minus>-?)(?P<value>"[^"]*"?|\S*)(?!\S)|"[^"]*"?|\S+)""",
)
# The filter at the end of a text that someone is still writing.
UNFINISHED = re.compile(r"""(?:^|\s)-?(?P<key>[A-Za-z][A-Za-z_-]*):-?(?P<value>"[^"]*|[^\s"]*)$""")
DAYS = ("since", "until")
OFFERED_DAYS = ("today", "yesterday", "monday", "month", "7d", "30d")


@dataclass(frozen=True)
class BoxFilter:
    """A filter as people meet it: its name in a query, what they type, and what form and chip call it."""

    name: str
    key: str
    label: str
    field: FilterField

    @property
    def is_day(self) -> bool:
        return self.key in DAYS

    @property
    def options(self) -> list[tuple[str, str]]:
        return [(value, value.replace("_", " ")) for value in self.field.options]

    @property
    def hint(self) -> str:
        """The first few values, where there are such."""
        return ", ".join(label for _, label in self.options[:3])


@dataclass(frozen=True)
class Suggestion:
    """What the text of the box becomes when it is chosen, and whether that is a whole filter."""

    label: str
    text: str
    complete: bool
    hint: str = ""


@dataclass(frozen=True)
class Chip:
    """A filter that is used, its value as the query has it and as people read it."""

    name: str
    label: str
    value: str
    text: str
    excluded: bool
    excludable: bool


def box_filters(kind: type[Filters]) -> list[BoxFilter]:
    """The filters of a list, in the order in which they are declared; the days last."""
    found = []
    for name, field in kind.declared().items():
        if name not in ("q", "sort"):
            query_name = SPELLED.get(name, name)
            label = field.label or (name if name in DAYS else query_name.replace("_", " "))
            key = field.key or "-".join(label.partition(" (")[0].split())
            found.append(BoxFilter(query_name, key, label, field))
    return sorted(found, key=lambda one: one.is_day)


def _by_key(kind: type[Filters]) -> dict[str, BoxFilter]:
    """Each filter by what people may call it: its key and its name in a query."""
    offered = [one for one in box_filters(kind) if one.field.offered]
    return {one.name: one for one in offered} | {one.key: one for one in offered}


def parse_phrase(kind: type[Filters], text: str, *, today: date, actor: Actor) -> dict[str, str]:
    """Read a phrase: each filter under its name in a query, and the words that are left under `q`. A name that no
    filter has is a word like any other; a value that a filter does not have is refused."""
    known, args, words = _by_key(kind), dict[str, str](), list[str]()
    place = 0
    while part := PART.match(text, place):
        span = find_span(text, part.start("part"), today)
        place = span[0] if span else part.end()
        one, value = known.get((part["key"] or "").lower()), (part["value"] or "").strip('"')
        if span:
            args |= span[1]
        elif one and value:
            args[one.name] = _read_value(one, value, part["without"] or part["minus"], actor)
        else:
            words.append(part["part"])
    return args | {"q": " ".join(words)}


def _read_value(one: BoxFilter, value: str, minus: str, actor: Actor) -> str:
    """The value as a query has it. People write what they see: "error category" for `error_category`, a name for an
    id, or how it begins."""
    if minus and not one.field.excludable:
        raise Invalid.of({"q": f"{one.key} cannot be excluded."})
    offered = one.options
    whole = not one.field.menu or one.field.menu in menus.WHOLE
    if one.field.menu and whole:
        offered = [*offered, *menus.find_values(one.field.menu, value, actor=actor)]
    if offered or (one.field.menu and whole):
        value = _match(one, value, offered)
    one.field.parse(one.name, value)
    return minus + value


def _match(one: BoxFilter, value: str, offered: list[tuple[str, str]]) -> str:
    """The offered value that is meant."""
    wanted = value.lower()
    exact = [found for found, label in offered if wanted in (found.lower(), label.lower())]
    near = exact or [found for found, label in offered if label.lower().startswith(wanted)]
    if len(near) == 1 or parse_id(value):
        return near[0] if near else value
    labels = [label for found, label in offered if not near or found in near]
    if not labels:
        raise Invalid.of({"q": f"There is no {one.label} “{value}”."})
    raise Invalid.of({"q": f"{one.key}: use one of {', '.join(labels[:MAX_SUGGESTED])}."})


def suggest(kind: type[Filters], text: str, *, actor: Actor) -> list[Suggestion]:
    """What may follow, by the end of the text: values of the filter that it names, or filters, their values and spans
    of days that begin like its last words, and whose name the last word is part of."""
    known = _by_key(kind)
    end = UNFINISHED.search(text)
    if end and (one := known.get(end["key"].lower())):
        return _suggest_values(one, text[: end.start("value")], end["value"].lstrip('"'), actor)
    head, _, word = text.rpartition(" ")
    head, word = f"{head} " if head else "", word.lower()
    minus, word = ("-", word[1:]) if word.startswith("-") else ("", word)
    filters = [one for one in dict.fromkeys(known.values()) if not minus or one.field.excludable]
    named = [one for one in filters if one.key.startswith(word) or one.label.startswith(word)]
    found = [Suggestion(f"{minus}{one.key}:", f"{head}{minus}{one.key}:", False, one.hint) for one in named]
    if len(word) > 1:
        found += [
            Suggestion(f"{minus}{one.key}:{label}", f"{head}{minus}{one.key}:{_quoted(label)} ", True)
            for one in filters
            for _, label in one.options
            if label.startswith(word) and label not in YES_NO
        ]
        found += [
            Suggestion(f"{minus}{one.key}:{label}", f"{head}{minus}{one.key}:{_quoted(label)} ", True)
            for one in filters
            if one.field.menu in BY_NAME
            for _, label in menus.find_values(one.field.menu, word, actor=actor, most=MAX_BY_NAME)
        ]
    return [*([] if minus else _suggest_spans(text)), *found][:MAX_SUGGESTED]


def _suggest_values(one: BoxFilter, head: str, begun: str, actor: Actor) -> list[Suggestion]:
    labels = [label for _, label in one.options if label.startswith(begun.lower())]
    if one.is_day:
        labels = [day for day in OFFERED_DAYS if day.startswith(begun.lower())]
    elif one.field.menu:
        found = menus.find_values(one.field.menu, begun, actor=actor, most=MAX_SUGGESTED)
        labels += [label for _, label in found]
    return [Suggestion(label, f"{head}{_quoted(label)} ", True) for label in labels[:MAX_SUGGESTED]]


def _suggest_spans(text: str) -> list[Suggestion]:
    """Spans of days that begin like the last words: "la", "last 7", "since mo"."""
    words = text.split(" ")
    for size in range(min(3, len(words)), 0, -1):
        begun = " ".join(words[-size:]).lower()
        counted = re.fullmatch("last ([1-9][0-9]{0,2})", begun)
        spans = dict.fromkeys([*([f"last {counted[1]} days"] if counted else []), *OFFERED_SPANS])
        found = [span for span in spans if begun and span.lower().startswith(begun)]
        if found:
            head = "".join(f"{word} " for word in words[:-size])
            return [Suggestion(span, f"{head}{span} ", True) for span in found]
    return []


def _quoted(label: str) -> str:
    return f'"{label}"' if " " in label else label


def ids_in(kind: type[Filters], args: Mapping[str, str]) -> dict[str, UUID]:
    """The ids in a query, by the menu that knows what they are called."""
    used = ((one, parse_id(args[one.name].removeprefix("-"))) for one in box_filters(kind) if one.name in args)
    return {one.field.menu: row_id for one, row_id in used if one.field.menu and row_id}


def list_chips(kind: type[Filters], args: Mapping[str, str], names: Mapping[str, str]) -> list[Chip]:
    """The filters of a query as people read them, in its order. `names` says what its ids are called, by menu."""
    known = {one.name: one for one in box_filters(kind)}
    return [_make_chip(known[name], value, names) for name, value in args.items() if name in known]


def _make_chip(one: BoxFilter, given: str, names: Mapping[str, str]) -> Chip:
    excluded = one.field.excludable and given.startswith("-")
    value = given[1:] if excluded else given
    label = "" if one.is_day else one.label
    return Chip(one.name, label, value, _read_aloud(one, value, names), excluded, one.field.excludable)


def _read_aloud(one: BoxFilter, value: str, names: Mapping[str, str]) -> str:
    if one.is_day:
        return describe_day(one.name, value)
    if parse_id(value):
        return names.get(one.field.menu, value[-8:])
    return value.replace("_", " ") if one.field.options else value


def form_fields(kind: type[Filters], *, actor: Actor) -> list[tuple[BoxFilter, list[tuple[str, str]]]]:
    """The filters that a form offers, each with its values; none for what is typed. At most one query."""
    offered = [one for one in box_filters(kind) if one.field.offered]
    values = menus.load_menus({one.field.menu for one in offered if one.field.menu}, actor=actor).values
    return [(one, [*one.options, *values.get(one.field.menu, [])]) for one in offered]
