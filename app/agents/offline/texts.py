"""Values in what a person wrote: `stage to won`, `limit: 5`, `Halden Health`, dates, ids and numbers."""

import re
from collections.abc import Iterator

from app.text.words import STOP, split_name, without_quotations

MAX_WORDS = 12
MAX_STRING = 4000
FORMATS = {
    "uuid": re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])"),
    "date-time": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"),
    "uri": re.compile(r"https?://[^\s<>\"“”]+[^\s<>\"“”.,;:!?)\]]"),
}
FORMAT_ALIASES = {"url": "uri", "uri-reference": "uri", "http-url": "uri", "idn-email": "email"}
NUMBER = re.compile(r"(?<![\w.,-])[-+]?[$€£]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)%?(?![\w-]|[.,]\d)")
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


def values_after(name: str, text: str) -> Iterator[str]:
    """The values that a text gives a name, in the order of `name=…`, `name: …`, `name is …`, `name to …`.

    An unquoted phrase comes whole first, then shorter and shorter, so that the schema can take the first valid one.
    """
    parts = split_name(name)
    if not parts:
        return
    spelled = r"(?<![\w-])" + r"[\s_-]*".join(map(re.escape, parts)) + r"(?!\w)"
    for sign in (r"\s?=\s?(?!=)", r"\s?:(?!//)\s?", r"\s+is\s+", r"(?:\s+(?:of|for)\s+[^,;:=]{1,80}?)?\s+to\s+"):
        for found in re.finditer(spelled + sign, text, re.IGNORECASE):
            yield from _values_in(text[found.end() :], single=sign.startswith(r"\s?="))


def find_fields(text: str) -> Iterator[tuple[str, str]]:
    """Every `X to Y` and `X = Y`, where X is a word in lower case that could be the name of a field."""
    for found in _FIELD.finditer(without_quotations(text)):
        name = found["field"]
        if name in STOP or name in VERBS:
            continue
        value = next(_values_in(text[found.end() :], single="=" in found["sign"]), None)
        if value is not None:
            yield name, value


def capitalised_runs(text: str) -> list[str]:
    """Runs of capitalised words, longest first, without the word that opens the text."""
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


def _values_in(rest: str, *, single: bool) -> Iterator[str]:
    quoted = _QUOTED.match(rest)
    if quoted:
        yield quoted[1] if quoted[1] is not None else quoted[2]
        return
    if single:
        yield rest.split(maxsplit=1)[0].split(";")[0].rstrip(_TRAILING) if rest.strip() else ""
        return
    end = _ENDS.search(rest)
    phrase = (rest[: end.start()] if end else rest).split()[:MAX_WORDS]
    if all(word.lower() in STOP and word.lower() not in SWITCHES for word in phrase):
        return
    for size in range(len(phrase), 0, -1):
        yield " ".join(phrase[:size]).rstrip(_TRAILING)


def find_numbers(text: str) -> list[tuple[int, str]]:
    """The numbers of a text that are not part of a date, an id or an address, each with its position."""
    for pattern in FORMATS.values():
        text = pattern.sub(lambda found: "_" * len(found[0]), text)
    return [(found.start(), found[0]) for found in NUMBER.finditer(text)]


def find_format(name: str, text: str) -> list[str]:
    pattern = FORMATS.get(FORMAT_ALIASES.get(name, name))
    return list(dict.fromkeys(pattern.findall(text[:MAX_STRING]))) if pattern else []
