"""Names of tools as somebody wrote them: the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from app.text.words import split_name

MIN_RATIO = 0.6
TYPO_RATIO = 0.9
MAX_CHARS = 120


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name that is not known, if one is."""
    squeezed = {_normalize(one): one for one in sorted(known)}
    found = get_close_matches(_normalize(name), list(squeezed), n=1, cutoff=MIN_RATIO)
    return squeezed[found[0]] if found else None


def is_typo(name: str, other: str) -> bool:
    """Whether a name is another one with a slip of the pen in it. One thing and several are two names, and so are two
    that begin with other letters, such as get and set."""
    one, two = _normalize(name), _normalize(other)
    if one == two:
        return True
    if one[:1] != two[:1] or one.rstrip("s") == two.rstrip("s"):
        return False
    return SequenceMatcher(None, one, two, autojunk=False).ratio() >= TYPO_RATIO


def _normalize(name: str) -> str:
    """A name without what people leave out: case and what stands between its words."""
    return "".join(split_name(name[:MAX_CHARS])).lower()
