"""Differences between two texts, word by word, and between any two sequences."""

import re
from collections.abc import Hashable, Sequence

SAME, GONE, NEW = "same", "gone", "new"
Part = tuple[str, str]
# Work and memory grow with the product of both lengths. What comes after this many words is compared as one word.
MAX_WORDS = 5_000
# Line breaks are words, so that a list or a table still reads as one.
WORD = re.compile(r"\n+|\S+")
WORD_OR_SPACE = re.compile(r"\s+|\S+")


def word_diff(before: str, after: str) -> list[Part]:
    """Two texts as parts in reading order: `same`, `gone` and `new` words. Other white space than lines is ignored."""
    old, new = WORD.findall(before.strip()), WORD.findall(after.strip())
    if before.split() == after.split():
        return [(SAME, " ".join(old))] if old else []
    return _diff_words(old, new, " ")


def exact_diff(before: str, after: str) -> list[Part]:
    """The same with every space kept: the parts of one side together are its text."""
    return _diff_words(WORD_OR_SPACE.findall(before), WORD_OR_SPACE.findall(after), "")


def text_diff(before: str, after: str) -> list[Part]:
    """The same as `word_diff` for texts of any length: by words where they are few enough, else line by line first."""
    old, new = before.strip().splitlines(), after.strip().splitlines()
    words = max(len(before.split()), len(after.split()))
    if words <= MAX_WORDS or max(len(old), len(new)) > MAX_WORDS:
        return word_diff(before, after)
    parts: list[Part] = []
    for equal, i1, i2, j1, j2 in match_runs(old, new):
        if equal:
            parts.append((SAME, "\n".join(old[i1:i2]) + "\n"))
        else:
            parts += [*word_diff("\n".join(old[i1:i2]), "\n".join(new[j1:j2])), (SAME, "\n")]
    return parts


def _diff_words(old: list[str], new: list[str], space: str) -> list[Part]:
    old, new = _joined_tail(old, space), _joined_tail(new, space)
    parts: list[Part] = []
    for equal, i1, i2, j1, j2 in match_runs(old, new):
        gone, added = space.join(old[i1:i2]), space.join(new[j1:j2])
        parts += [(SAME, gone)] if equal else [(GONE, gone), (NEW, added)]
    return [part for part in parts if part[1]]


def _joined_tail(words: list[str], space: str) -> list[str]:
    return words if len(words) <= MAX_WORDS else [*words[:MAX_WORDS], space.join(words[MAX_WORDS:])]


def match_runs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[bool, int, int, int, int]]:
    """Where two sequences agree, by their longest common subsequence, and the gaps between, as ranges of both."""
    from rapidfuzz.distance import LCSseq

    runs: list[tuple[bool, int, int, int, int]] = []
    for code in LCSseq.opcodes(a, b):
        equal = code.tag == "equal"
        if runs and runs[-1][0] == equal:
            _, start, _, other_start, _ = runs.pop()
            runs.append((equal, start, code.src_end, other_start, code.dest_end))
        else:
            runs.append((equal, code.src_start, code.src_end, code.dest_start, code.dest_end))
    return runs
