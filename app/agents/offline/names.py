"""Names and pairs in what a person wrote: `stage to won`, `limit: 5`, `Halden Health`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.text.words import STOP, split_name, without_quotations

MOST_WORDS = 12
_QUOTED = re.compile(r'"([^"\n]*)"|“([^”\n]*)”')
_ENDS = re.compile(
    r",(?!\d{3}(?!\d))|[;\n]|[.!?](?=\s|$)|\s(?:and|for|where|when|with|because|but|then)\s|\s\w+\s*[=:]\s*\S",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[^\W_](?:[\w&’'-]*[^\W_])?")
_POSSESSIVE = re.compile(r"['’]s$")
_TRAILING = ".,;:!?)]}"
_FIELD = re.compile(
    r"(?<![\w-])(?P<field>[a-z][a-z0-9_]*)(?:\s+(?:of|for)\s+[^,;:=]{1,80}?)?(?P<sign>\s*=\s*|\s+to\s+)(?=\S)"
)
SWITCHES = frozenset(("yes", "no", "on", "off"))
VERBS = frozenset(("add", "assign", "change", "correct", "mark", "move", "rename", "set", "update"))


def pair_values(name: str, text: str) -> Iterator[str]:
    """What a text sets a name to, in the order of `name=…`, `name: …`, `name is …`, `name to …`.

    Of an unquoted phrase the whole is offered first, then less and less of it, for a schema to take what fits.
    """
    parts = split_name(name)
    if not parts:
        return
    spelled = r"(?<![\w-])" + r"[\s_-]*".join(map(re.escape, parts)) + r"(?!\w)"
    for sign in (r"\s?=\s?(?!=)", r"\s?:(?!//)\s?", r"\s+is\s+", r"(?:\s+(?:of|for)\s+[^,;:=]{1,80}?)?\s+to\s+"):
        for found in re.finditer(spelled + sign, text, re.IGNORECASE):
            yield from _values(text[found.end() :], single=sign.startswith(r"\s?="))


def spoken_fields(text: str) -> Iterator[tuple[str, str]]:
    """Every `X to Y` and `X = Y`, where X is a word in lower case that could be the name of a field."""
    for found in _FIELD.finditer(without_quotations(text)):
        name = found["field"]
        if name in STOP or name in VERBS:
            continue
        value = next(_values(text[found.end() :], single="=" in found["sign"]), None)
        if value is not None:
            yield name, value


def runs(text: str) -> list[str]:
    """Runs of capitalised words, the longest first. The word that opens the text does not count: it always is one."""
    found: list[list[str]] = []
    end = None
    for place, token in enumerate(_TOKEN.finditer(text)):
        word = _POSSESSIVE.sub("", token[0])
        if place and word[:1].isupper():
            if end is not None and not text[end : token.start()].strip(" "):
                found[-1].append(word)
            else:
                found.append([word])
            end = token.end() if word == token[0] else None
        else:
            end = None
    return [" ".join(run) for run in sorted(found, key=len, reverse=True)]


def _values(rest: str, *, single: bool) -> Iterator[str]:
    quoted = _QUOTED.match(rest)
    if quoted:
        yield quoted[1] if quoted[1] is not None else quoted[2]
        return
    if single:
        yield rest.split(maxsplit=1)[0].split(";")[0].rstrip(_TRAILING) if rest.strip() else ""
        return
    end = _ENDS.search(rest)
    phrase = (rest[: end.start()] if end else rest).split()[:MOST_WORDS]
    if all(word.lower() in STOP and word.lower() not in SWITCHES for word in phrase):
        return
    for size in range(len(phrase), 0, -1):
        yield " ".join(phrase[:size]).rstrip(_TRAILING)
