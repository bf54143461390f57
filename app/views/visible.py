"""Characters that nobody sees, or that turn a line around, made harmless on every page.

What people and agents send is stored as it came. Shown as it came, one such character makes a comment read backwards,
hides words from whoever reviews them, or runs past the end of its own line into ours.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "\N{REPLACEMENT CHARACTER}"
# Control characters but tab and line ends; what overrides or embeds a direction; tag characters; the like.
MARKED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
# Of no width, and of no use outside the scripts and the emoji that join letters with the last two.
DROPPED = re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2065\ufeff]|(?<![^\x00-\u02ff])[\u200c\u200d]")
EITHER = re.compile(f"{MARKED.pattern}|{DROPPED.pattern}")


def visible(text: str) -> str:
    """The text with one mark for each run of characters that would turn it or hide in it, and without those that are
    merely invisible."""
    if EITHER.search(text) is None:
        return text
    return DROPPED.sub("", MARKED.sub(MARK, text))


def shown(value: Any) -> Any:
    """What templates write: texts made visible, everything else, and HTML that is made already, as it is."""
    return visible(value) if type(value) is str else value
