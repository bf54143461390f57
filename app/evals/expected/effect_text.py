"""Changes as people write them, one per line: `update Halden: stage = won`, `create deal: name = Norrland`,
`submit Deal terms for Halden: valuation = 12`, or a tool with what it is given: `cancel_order A12`,
`book_trip {"seats": 2}`."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from app.evals.compare import builtin_tools
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, change_of_call
from app.evals.trace import Call, Tool
from app.text.values import Reader

UPDATE, CREATE, SUBMIT = "update", "create", "submit"
OF = " for "
_SAME = {f"{verb}{end}": verb for verb in (UPDATE, CREATE) for end in ("d", "s")}
_WORD = re.compile(r"[\w.$-]+")
_SET = re.compile(r"\s*([\w.$-]+)\s*=\s*")
_NEXT = re.compile(r",\s*[\w.$-]+\s*=")
_HOW = "Write it like “update Halden: stage = won”."
_WHICH = {
    UPDATE: f"Say which record. {_HOW}",
    CREATE: "Say what kind of record is created.",
    SUBMIT: "Say which criteria. Write it like “submit Deal terms for Halden: valuation = 12”.",
}


@dataclass(frozen=True)
class Line:
    """One change: `verb` is `update`, `create`, `submit` or the name of a tool, `subject` what it is done to."""

    verb: str
    subject: str | int | None
    fields: dict[str, Any]


def read_line(text: str) -> Line:
    """Parse a line; ValueError says what is wrong with it."""
    text = text.strip()
    verb = _WORD.match(text)
    if verb is None:
        raise ValueError(f"It begins with update, create, submit or the name of a tool. {_HOW}")
    name, rest = _SAME.get(verb[0], verb[0]), text[verb.end() :].strip()
    if rest.startswith("{"):
        return Line(name, None, _object(rest))
    subject, rest = _subject(rest)
    if rest and not rest.startswith(":"):
        raise ValueError(f"A colon comes before what is changed. {_HOW}")
    line = Line(name, subject, _fields(rest[1:].strip()))
    if name in _WHICH and subject is None:
        raise ValueError(_WHICH[name])
    if name in (UPDATE, SUBMIT) and not line.fields:
        raise ValueError(f"Say what is changed. {_HOW}")
    return line


def _subject(rest: str) -> tuple[str | None, str]:
    if rest.startswith('"'):
        found, after = _value_at(rest)
        return str(found), after.strip()
    head, colon, tail = rest.partition(":")
    return head.strip() or None, colon + tail


def _fields(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        return _object(text)
    found: dict[str, Any] = {}
    while text:
        named = _SET.match(text)
        if named is None:
            raise ValueError(f"“{text[:40]}” is no field with a value. {_HOW}")
        found[named[1]], text = _assigned(text[named.end() :])
    return found


def _assigned(text: str) -> tuple[Any, str]:
    """The value at the beginning, and what follows it."""
    if text[:1] in ("[", "{", '"'):
        value, rest = _value_at(text)
        if rest.strip() and not rest.strip().startswith(","):
            raise ValueError(f"A comma comes before “{rest.strip()[:40]}”.")
        return value, rest.strip()[1:]
    following = _NEXT.search(text)
    value, rest = (text[: following.start()], text[following.start() + 1 :]) if following else (text, "")
    if not value.strip():
        raise ValueError("A value is missing after “=”; write null to clear a field.")
    return _parse_word(value.strip()), rest


def _parse_word(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _value_at(text: str) -> tuple[Any, str]:
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text)
    except (ValueError, RecursionError):
        raise ValueError(f"“{text[:40]}” is no JSON.") from None
    return value, text[end:]


def _object(text: str) -> dict[str, Any]:
    value, rest = _value_at(text)
    if not isinstance(value, dict) or rest.strip():
        raise ValueError(f"“{text[:40]}” is no JSON object.")
    return value


def write_line(line: Line) -> str:
    """The line as one would write it; `read_line` gives the same."""
    if line.subject is None:
        return f"{line.verb}: {_written(line.fields)}" if line.fields else line.verb
    subject = str(line.subject)
    if subject != " ".join(subject.split()) or not subject or subject[0] == "{" or set(subject) & set(':"'):
        subject = _json(subject)
    return f"{line.verb} {subject}" + (f": {_written(line.fields)}" if line.fields else "")


def _written(fields: Mapping[str, Any]) -> str:
    if not all(_WORD.fullmatch(name) for name in fields):
        return _json(fields)
    return ", ".join(f"{name} = {_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return _json(value)
    bare = value and value == " ".join(value.split()) and value[0] not in '[{"' and not _NEXT.search(value)
    return value if bare and _parse_word(value) == value else _json(value)


def _json(value: Any) -> str:
    """JSON on one line, also where a text has unusual line ends."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text.splitlines()) == 1 else json.dumps(value, default=str)


def line_of(effect: Mapping[str, Any], kinds: Collection[str], names: Mapping[str, str] | None = None) -> Line:
    """The line for a change. `kinds` are the record types; `names` are the names of records, by id."""
    kind, of, target, fields = effect["kind"], effect["type"], effect.get("target"), effect.get("fields") or {}
    known = names or {}
    # A tool that is not built in makes changes of its own name.
    tool = builtin_tools.tools_that_make(kind, of)[0]
    if kind == RESPONSE and of in known and OF not in known[of] and (target is None or str(target) in known):
        return Line(SUBMIT, known[of] if target is None else f"{known[of]}{OF}{known[str(target)]}", fields)
    if kind == RESPONSE:
        whole = {"criteriaSetId": of or None, "entityId": target, "values": fields}
        return Line("submitResponse", None, {name: value for name, value in whole.items() if value is not None})
    if kind == CREATED:
        return Line(CREATE, of, fields) if of in kinds else Line(tool, None, fields)
    if of == "entity":
        return Line(UPDATE, known.get(str(target), target), fields)
    return Line(tool, target, fields)


def effect_of(line: Line, tool: Tool) -> dict[str, Any]:
    """The change that a line describes, as `expected.effects` has it. Its record or type is named as it is stored."""
    if line.verb == UPDATE:
        return {"kind": UPDATED, "type": "entity", "target": line.subject, "fields": line.fields}
    if line.verb == CREATE:
        return {"kind": CREATED, "type": line.subject, "target": None, "fields": line.fields}
    if line.verb == SUBMIT:
        criteria, _, record = str(line.subject).partition(OF)
        return {"kind": RESPONSE, "type": criteria, "target": record or None, "fields": line.fields}
    if line.subject is not None and tool.name not in builtin_tools.WRITES:
        return {"kind": UPDATED, "type": tool.name, "target": line.subject, "fields": line.fields}
    given = line.fields if line.subject is None else {"id": line.subject, **line.fields}
    found = change_of_call(Call("", tool.name, Reader().arguments(given, tool.schema), None, False, True, 0, tool))
    return {"kind": found.kind, "type": found.type, "target": found.target, "fields": found.fields}
