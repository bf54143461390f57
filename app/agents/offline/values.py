"""Values in what a person wrote (`stage to won`, `limit: 5`, dates, ids, numbers), valid under a JSON schema."""

import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from app.agents.offline.rules import TRAILING
from app.formats.json_schema import fits_schema
from app.text.words import STOP, split_name, stems

Schema = dict[str, Any]
NOTHING = object()
MAX_DEPTH = 8
MAX_WORDS = 12
MAX_STRING = 4000
FORMATS = {
    "uuid": re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])"),
    "date-time": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"),
    "uri": re.compile(r"https?://[^\s<>\"“”]+[^\s<>\"“”.,;:!?)\]]"),
}
NUMBER = re.compile(r"(?<![\w.,-])[-+]?[$€£]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)%?(?![\w-]|[.,]\d)")
MAX_DIGITS = 30
PARSERS = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# After the name of an argument, its value follows one of these.
SIGNS = (r"\s?=\s?(?!=)", r"\s?:(?!//)\s?", r"\s+is\s+", r"(?:\s+(?:of|for)\s+[^,;:=]{1,80}?)?\s+to\s+")
_QUOTED = re.compile(r'"([^"\n]*)"|“([^”\n]*)”')
_ENDS = re.compile(
    r",(?!\d{3}(?!\d))|[;\n]|[.!?](?=\s|$)|\s(?:and|for|where|when|with|because|but|then)\s|\s\w+\s*[=:]\s*\S",
    re.IGNORECASE,
)
# A pattern with nested repetition can take exponential time.
_RISKY = re.compile(r"[+*}][)\]]*[+*{]|\([^)]*[+*][^)]*\)[+*{]")
_TOKEN = re.compile(r"[^\W_](?:[\w&’'-]*[^\W_])?")


def values_after(name: str, text: str) -> Iterator[str]:
    """The values that a text gives a name, in the order of `name=…`, `name: …`, `name is …`, `name to …`.

    An unquoted phrase comes whole first, then shorter and shorter, so that the schema can take the first valid one.
    """
    spelled = r"(?<![\w-])" + r"[\s_-]*".join(map(re.escape, split_name(name))) + r"(?!\w)"
    for sign in SIGNS:
        for found in re.finditer(spelled + sign, text, re.IGNORECASE):
            yield from _values_in(text[found.end() :], one_word=sign == SIGNS[0])


def _values_in(rest: str, *, one_word: bool) -> Iterator[str]:
    if quoted := _QUOTED.match(rest):
        yield quoted[1] or quoted[2] or ""
        return
    end = _ENDS.search(rest)
    phrase = (rest[: end.start()] if end else rest).split()[:MAX_WORDS]
    if one_word:
        yield rest.split(maxsplit=1)[0].split(";")[0].rstrip(TRAILING) if rest.strip() else ""
    elif any(word.lower() not in STOP or word.lower() in BOOLEANS for word in phrase):
        yield from (" ".join(phrase[:size]).rstrip(TRAILING) for size in range(len(phrase), 0, -1))


def capitalised_runs(text: str) -> list[str]:
    """Runs of capitalised words, longest first, without the word that opens the text."""
    found: list[list[str]] = []
    end = -1
    for token in list(_TOKEN.finditer(text))[1:]:
        word = re.sub(r"['’]s$", "", token[0])
        if not word[0].isupper():
            continue
        if end >= 0 and not text[end : token.start()].strip(" "):
            found[-1].append(word)
        else:
            found.append([word])
        end = token.end() if word == token[0] else -1
    return [" ".join(run) for run in sorted(found, key=len, reverse=True)]


def find_numbers(text: str) -> list[tuple[int, str]]:
    """The numbers of a text that are not part of a date, an id or an address, each with its position."""
    for pattern in FORMATS.values():
        text = pattern.sub(lambda found: "_" * len(found[0]), text)
    return [(found.start(), found[0]) for found in NUMBER.finditer(text)]


def find_format(name: str, text: str) -> list[str]:
    return list(dict.fromkeys(FORMATS[name].findall(text[:MAX_STRING])))


def choices(schema: Any, root: Schema, depth: int = 0) -> list[Schema]:
    """The schemas of which a value must match one: references followed, alternatives side by side, null left out."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return [{}]
    if isinstance(ref := schema.get("$ref"), str):
        target: Any = root
        for part in ref.lstrip("#/").split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return choices(target, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(several := schema.get(key), list):
            rest = {name: value for name, value in schema.items() if name != key}
            found = [choice for one in several for choice in choices(one, root, depth + 1)]
            return [{**choice, **rest} for choice in found if choice.get("type") != "null"] or [{}]
    return [schema]


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    kinds = [one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str) and one != "null"]
    return kinds[0] if kinds else "object" if isinstance(schema.get("properties"), dict) else "string"


def enum_of(schema: Schema) -> list[Any]:
    """The values that an enumeration allows."""
    found = [schema["const"]] if "const" in schema else schema.get("enum")
    return [one for one in found if one is not None] if isinstance(found, list) else []


def format_of(schema: Schema) -> str:
    given = {"url": "uri", "http-url": "uri"}.get(schema.get("format", ""), schema.get("format"))
    return given if given in FORMATS else ""


def convert(text: str, schema: Any, root: Schema) -> Any:
    """Convert a text to a value that is valid under the schema, or `NOTHING`."""
    found = ((_read_as(text.strip(), choice, root), choice) for choice in choices(schema, root))
    return next((value for value, choice in found if value is not NOTHING and is_valid(value, choice, root)), NOTHING)


def is_valid(value: Any, schema: Any, root: Schema) -> bool:
    """Whether a value, such as a default or an id from a result, is valid."""
    return any(_fits(value, choice) for choice in choices(schema, root))


def _fits(value: Any, schema: Schema) -> bool:
    if allowed := enum_of(schema):
        return value in allowed
    wanted = format_of(schema)
    if isinstance(value, str) and wanted:
        try:
            PARSERS.get(wanted, str)(value)
        except ValueError:
            return False
        return FORMATS[wanted].fullmatch(value) is not None
    return value != "" and _has_pattern(value, schema) and fits_schema(value, {**schema, "type": type_of(schema)})


def _has_pattern(value: Any, schema: Schema) -> bool:
    pattern = schema.get("pattern")
    if not isinstance(value, str) or not isinstance(pattern, str) or _RISKY.search(pattern) or len(value) > MAX_STRING:
        return True
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return False


def _read_as(text: str, schema: Schema, root: Schema) -> Any:
    if allowed := enum_of(schema):
        exact = (value for value in allowed if str(value) == text)
        alike = (value for value in allowed if stems(text) and stems(str(value)) == stems(text))
        return next(exact, next(alike, NOTHING))
    kind = type_of(schema)
    if kind in ("integer", "number"):
        return _read_number(text)
    if kind == "boolean":
        return BOOLEANS.get(text.lower(), NOTHING)
    if kind == "array":
        found = [convert(part, schema.get("items") or {}, root) for part in re.split(r",|\sand\s", text)]
        return NOTHING if NOTHING in found else found
    return text if kind == "string" else NOTHING


def _read_number(text: str) -> Any:
    found = NUMBER.fullmatch(text)
    if not found or len(found[1]) > MAX_DIGITS:
        return NOTHING
    value = float(found[1].replace(",", "")) * (-1 if text.startswith("-") else 1)
    return int(value) if value.is_integer() else value
