"""Equality of values: one canonical form, and likeness counted over the leaves of both.

A value that is too large, too deep or not finite is truncated: it equals nothing, itself included, and `Reader.cut`
says so. All work is linear in what is read, and what is read is bounded.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

MAX_DEPTH = 64
MAX_BYTES = 262_144
# Both sides of one comparison together; 32 characters of text count as one. About a second of work.
MAX_NODES = 400_000

Path = tuple[str | int, ...]
Leaves = dict[Path, Any]

_NUMBER = re.compile(r"[-+]?\d{1,30}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?")
_NO_SCHEMA: Mapping[str, Any] = {}
_SHORT = 64


# A list of ids: its name ends so, and it holds scalars. `x-upshot-ordered` in its schema says that order matters.
ID_LISTS = ("_ids", "Ids")
ORDERED = "x-upshot-ordered"


class Truncated:
    """Replaces a value that was not read to its end."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "(too large to compare)"


TRUNCATED: Final = Truncated()


class Clipped(str):
    """Replaces a long value of a large session: its beginning and its hash. Equal values have equal replacements."""

    __slots__ = ()


class Unordered(list[Any]):
    """A list that is compared without its order. It keeps the order in which it came, for pages and messages."""

    __slots__ = ()


class Ids(Unordered):
    """A list of ids. Those of one length in one object belong together: their items are compared as tuples."""

    __slots__ = ()


class _TooLarge(Exception):
    pass


class Reader:
    """Reads values into their canonical form, and remembers whether any had to be cut."""

    def __init__(self, nodes: int = MAX_NODES) -> None:
        self.nodes = nodes
        self.cut = False
        self._left = 0

    def value(self, value: Any, schema: Any = None) -> Any:
        """The canonical form: keys sorted, texts in one spelling, moments in UTC, lists without an order marked."""
        self._left = MAX_BYTES
        try:
            return self._read(value, _as_schema(schema), 0)
        except _TooLarge:
            self.cut = True
            return TRUNCATED

    def member(self, name: str, value: Any) -> Any:
        """The canonical form of one member of an object; its name may say what kind of list it is."""
        read = self.value({name: value})
        return read[name] if isinstance(read, dict) else read

    def arguments(self, given: Any, schema: Any = None) -> Any:
        """Arguments of a call: an object, also when it came as text; a null argument is one that was left out."""
        parsed = from_json(given)
        if not isinstance(parsed, dict):
            parsed = {} if parsed in (None, "") else {"value": parsed}
        return self.value({name: from_json(value) for name, value in parsed.items() if value is not None}, schema)

    def _read(self, value: Any, schema: Mapping[str, Any], depth: int) -> Any:
        self.nodes -= 1
        self._left -= 4
        if depth > MAX_DEPTH or self.nodes < 0 or self._left < 0:
            raise _TooLarge
        kind = type(value)
        if kind is str:
            return self._text(value, schema)
        if kind is dict:
            return self._object(value, schema, depth + 1)
        if kind in (int, bool, Clipped) or value is None:
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _TooLarge
            return value
        if isinstance(value, list | tuple):
            return self._list(value, schema, depth)
        return self._read(dict(value), schema, depth) if isinstance(value, Mapping) else self._text(str(value), schema)

    def _object(self, value: dict[Any, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        known = _as_schema(schema.get("properties"))
        read: dict[str, Any] = {}
        for key in sorted(value, key=str):
            name, inner, kind = str(key), value[key], type(value[key])
            self._left -= len(name)
            # Most leaves are short texts and numbers. Read here they cost half as much; they are counted too.
            if kind is str and len(inner) <= _SHORT and name not in known:
                self.nodes -= 1
                self._left -= 4 + 2 * len(inner)
                read[name] = _canonical_short(inner)
            elif kind is int or kind is bool:
                self.nodes -= 1
                self._left -= 4
                read[name] = inner
            else:
                about = _as_schema(known.get(name))
                held = self._read(inner, about, depth)
                read[name] = _as_ids(held, about) if isinstance(held, list) and name.endswith(ID_LISTS) else held
        return read

    def _list(self, value: list[Any] | tuple[Any, ...], schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = _as_schema(schema.get("items"))
        read = [self._read(item, items, depth + 1) for item in value]
        return Unordered(read) if schema.get("uniqueItems") is True and _holds_scalars(read) else read

    def _text(self, text: str, schema: Mapping[str, Any]) -> Any:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self._left -= size
        self.nodes -= size // 32
        if self._left < 0 or self.nodes < 0:
            raise _TooLarge
        if schema and schema.get("type") in ("number", "integer"):
            number = as_number(text.strip())
            return canonical(text) if number is None else number
        return _canonical_short(text) if size <= _SHORT else canonical(text)


def _as_schema(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else _NO_SCHEMA


def _holds_scalars(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def _as_ids(items: list[Any], schema: Mapping[str, Any]) -> list[Any]:
    """A list of ids as one without order, unless its schema says that order matters or gives each place a meaning."""
    ordered = schema.get(ORDERED) is True or "prefixItems" in schema or isinstance(schema.get("items"), list)
    return items if ordered or not _holds_scalars(items) else Ids(items)


def _sort_key(scalar: Any) -> tuple[int, float, str]:
    """The sort key of a scalar in a list without order, the same for equal numbers, however they are written."""
    if isinstance(scalar, bool) or scalar is None:
        return (0, 0.0, str(scalar))
    number = as_number(scalar) if isinstance(scalar, str) else scalar
    return (1, number, "") if isinstance(number, int | float) else (2, 0.0, str(scalar))


def _row_key(row: Iterable[Any]) -> tuple[Any, ...]:
    """The sort key of scalars that belong together. How a number is written decides last, after all columns."""
    row = tuple(row)
    return [_sort_key(scalar) for scalar in row], [str(scalar) for scalar in row]


def _in_order(value: dict[str, Any]) -> dict[str, Any]:
    """An object with its lists of ids in an order that is the same for both sides: together where they are as long."""
    tied: dict[int, list[str]] = {}
    for name, held in value.items():
        if type(held) is Ids and len(held) > 1:
            tied.setdefault(len(held), []).append(name)
    if not tied:
        return value
    put = dict(value)
    for names in tied.values():
        rows = sorted(zip(*(value[name] for name in names), strict=True), key=_row_key)
        put |= {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return put


def canonical(text: str) -> str:
    """A text in one spelling: composed characters, single spaces, none at the ends."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


@lru_cache(16_384)
def _canonical_short(text: str) -> str:
    """A short text in one spelling, and a moment in UTC. Both sessions hold mostly the same ones."""
    return as_moment(canonical(text))


def as_number(text: str) -> int | float | None:
    """The number that a text writes, if it writes nothing else."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return number if math.isfinite(number) else None


def as_moment(text: str) -> str:
    """A date with a time as an instant in UTC; without an offset it stays where it is. Other text is left alone."""
    if not 16 <= len(text) <= 32 or text[4] != "-" or not _MOMENT.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text)
        return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()
    except (ValueError, OverflowError):
        return text


def from_json(value: Any) -> Any:
    """An object or a list that came as text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[") or len(value) > MAX_BYTES:
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, dict | list) else value


def leaves(value: Any, under: Path = (), found: Leaves | None = None) -> Leaves:
    """Every leaf of a canonical value by its path. An empty object or list is a leaf; so is what was cut."""
    found = {} if found is None else found
    if not value or not isinstance(value, dict | list):
        found[under] = value
        return found
    if isinstance(value, dict):
        parts: Iterable[tuple[str | int, Any]] = _in_order(value).items()
    else:
        parts = enumerate(sorted(value, key=lambda one: _row_key((one,))) if isinstance(value, Unordered) else value)
    for key, inner in parts:
        leaves(inner, (*under, key), found)
    return found


def same_leaf(a: Any, b: Any) -> bool:
    """Whether two leaves are the same. A text equals the number it writes when the other side is a number."""
    if type(a) is type(b) and a == b:
        return True
    if isinstance(a, bool) or isinstance(b, bool) or (isinstance(a, str) and isinstance(b, str)):
        return False
    a, b = (as_number(one) if isinstance(one, str) else one for one in (a, b))
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return False
    try:
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    except OverflowError:
        return a == b


def likeness(a: Leaves, b: Leaves) -> float:
    """Equal leaf paths ÷ all leaf paths of both; 1 for two that have none."""
    shared = [path for path in a if path in b]
    alike = sum(same_leaf(a[path], b[path]) for path in shared)
    everything = len(a) + len(b) - len(shared)
    return alike / everything if everything else 1.0


def equal(a: Any, b: Any) -> bool:
    """Whether two canonical values are the same."""
    return likeness(leaves(a), leaves(b)) == 1.0


def differences(a: Leaves, b: Leaves) -> list[Path]:
    """The leaf paths that only one has or on which they differ, in the order of the first, then the second."""
    first = [path for path, leaf in a.items() if path not in b or not same_leaf(leaf, b[path])]
    return first + [path for path in b if path not in a]


def format_path(path: Path) -> str:
    """A path as people write it: `flights[0].date`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def holds_truncated(value: Any) -> bool:
    """Whether a canonical value, or anything in it, was not read or kept to its end."""
    if isinstance(value, dict | list):
        return any(map(holds_truncated, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Truncated | Clipped)


def shorten(value: Any, most: int = 500) -> Any:
    """A value that is short enough to be shown in a list of differences."""
    if isinstance(value, Truncated):
        return repr(value)
    if not isinstance(value, str | dict | list):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return value if len(text) <= most else text[:most] + "…"
