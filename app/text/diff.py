"""What a person changed in an answer, word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

Part = tuple[str, str]
# Comparing is quadratic in the number of words; beyond this both texts are shown whole.
MOST_WORDS = 1500
# Lines are kept, so that a list or a table still reads as one.
WORD = re.compile(r"\n+|\S+")


def text_diff(before: str, after: str) -> list[Part]:
    """The same for texts of any length: word by word where that is possible, else line by line."""
    old, new = before.strip().splitlines(), after.strip().splitlines()
    words = max(len(before.split()), len(after.split()))
    if words <= MOST_WORDS or max(len(old), len(new)) > MOST_WORDS:
        return word_diff(before, after)
    parts: list[Part] = []
    for step, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if step == "equal":
            parts.append(("same", "\n".join(old[i1:i2]) + "\n"))
        else:
            parts += word_diff("\n".join(old[i1:i2]), "\n".join(new[j1:j2]))
            parts.append(("same", "\n"))
    return parts


def word_diff(before: str, after: str) -> list[Part]:
    """The two texts as parts in reading order: `same`, `gone` and `new` words."""
    old, new = WORD.findall(before.strip()), WORD.findall(after.strip())
    if before.split() == after.split():
        return [("same", " ".join(old))] if old else []
    if len(old) > MOST_WORDS or len(new) > MOST_WORDS:
        return [part for part in (("gone", before.strip()), ("new", after.strip())) if part[1]]
    parts: list[Part] = []
    for step, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if step == "equal":
            parts.append(("same", " ".join(old[i1:i2])))
            continue
        if i2 > i1:
            parts.append(("gone", " ".join(old[i1:i2])))
        if j2 > j1:
            parts.append(("new", " ".join(new[j1:j2])))
    return parts
