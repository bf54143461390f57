"""Characters that nobody sees, or that turn a line around, made harmless on every page.

What people and agents send is stored as it came. Shown as it came, one such character makes a comment read backwards,
hides words from whoever reviews them, or runs past the end of its own line into ours.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "\N{REPLACEMENT CHARACTER}"
# Never seen and never needed on a page: control characters but tab and line ends, what overrides or embeds a direction,
# tag characters, and fillers that look like a space or like nothing (Hangul, Khmer, zero-width spaces and the like).
_HIDDEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u034f\u115f\u1160\u17b4\u17b5\u200b\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Part of a script or of an emoji behind certain characters, a hiding place behind all others: joiners behind Latin or
# nothing, Mongolian selectors outside Mongolian, the blank of Braille outside Braille, and variation selectors behind
# what has no variants or has got one already.
_MISPLACED = (
    r"(?<![^\x00-\u02ff])[\u200c\u200d]",
    r"(?<=[\u200c\u200d])[\u200c\u200d]",
    r"(?<![\u1820-\u18aa])[\u180b-\u180f]",
    r"(?<![\u2801-\u28ff])\u2800",
    r"(?<![#*0-9\u00a9\u00ae\u203c-\ufdff\ufe10-\U0010ffff])[\ufe00-\ufe0f]",
)
# What follows a hidden character hides with it.
MARKED = re.compile(f"(?:[{_HIDDEN}][\u200c\u200d\ufe00-\ufe0f]*|{'|'.join(_MISPLACED)})+")
# Of no width and harmless: hints for hyphenation and direction.
DROPPED = re.compile("[\u00ad\u061c\u200e\u200f]")
EITHER = re.compile(f"{MARKED.pattern}|{DROPPED.pattern}")


def visible(text: str) -> str:
    """The text with one mark for each run of characters that turn it or hide in it, and without hints for hyphenation
    and direction."""
    if EITHER.search(text) is None:
        return text
    return DROPPED.sub("", MARKED.sub(MARK, text))


def shown(value: Any) -> Any:
    """What templates write: texts made visible, everything else, and HTML that is made already, as it is."""
    return visible(value) if type(value) is str else value
