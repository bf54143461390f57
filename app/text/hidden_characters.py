"""Characters that nobody sees or that reverse a line: shown as marks on pages, found and named in knowledge.

What people and agents send is stored as it came. Shown as it came, one such character makes a comment read backwards,
hides words from reviewers, or runs past the end of its own line into ours.
"""

import re
import unicodedata
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
# Whatever the two begin with, wherever it stands: most texts have none of it, and a single set is quick to look for.
_CONCERNED = re.compile(f"[{_HIDDEN}\u200c\u200d\u180b-\u180f\u2800\ufe00-\ufe0f\u00ad\u061c\u200e\u200f]")


def visible(text: str) -> str:
    """The text with a mark for each run of hidden or turning characters, and without hints for hyphenation."""
    if (text.isascii() and text.isprintable()) or _CONCERNED.search(text) is None:
        return text
    return DROPPED.sub("", MARKED.sub(MARK, text))


def finalize(value: Any) -> Any:
    """What templates write: texts made visible, everything else, and HTML that is made already, as it is."""
    return visible(value) if type(value) is str else value


# What a text hides from its reader: unseen characters, and letters of another script that look Latin

# Letters that look like Latin ones. A word that mixes them with Latin letters reads as something it is not; a Greek
# sign such as Δ or β beside Latin letters is ordinary notation and looks like itself.
LOOKS_LIKE = str.maketrans(
    "аеорсухіјѕԁһԛԝкмтвгАВЕЅІЈКМНОРСТХУοανιρτυκΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwkmtbrABESIJKMHOPCTXYoaviptukABEZHIKMNOPTYX",
)
# Letters of no width and signs that print as nothing, which Unicode does not count among its format characters.
MONGOLIAN_SIGNS = "\u180b\u180c\u180d\u180f"
UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180e\u2800\u3164\uffa0" + MONGOLIAN_SIGNS)
# Controls, formats, unassigned and private codes, and the two line ends that no editor shows as such.
UNSEEN_KINDS = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
# Everything that can be unseen at all; ordinary text is not looked at sign by sign.
SUSPECT = re.compile(r"[^ -~\n\t\r]")
JOINERS = "\u200c\u200d"
EMOJI_SIGN = "\ufe0f"
WORD = re.compile(r"[^\W\d_]+")


def hidden_signs(text: str) -> list[int]:
    """Where the characters are that nobody sees. Those that belong to an emoji or to a script's spelling stay; tag
    characters never do, although three flags are spelled with them, because they can spell anything else too."""
    return [found.start() for found in SUSPECT.finditer(text) if _hides(found[0]) and not _belongs(text, found.start())]


def strip_hidden(text: str) -> str:
    """The text without the characters that nobody sees."""
    gone = set(hidden_signs(text))
    return "".join(sign for place, sign in enumerate(text) if place not in gone) if gone else text


def describe_hidden(text: str) -> str:
    """Which characters of a text cannot be seen, in a sentence; nothing when all can."""
    places = hidden_signs(text)
    if not places:
        return ""
    kinds = sorted({name_of(text[place]) for place in places})
    number = f"{len(places)} hidden characters" if len(places) > 1 else "a hidden character"
    return f"It contains {number}: {', '.join(kinds[:3])}{' …' if len(kinds) > 3 else ''}."


def mixed_words(text: str) -> list[str]:
    """Words in which letters of another script stand in for Latin ones."""
    return [word for word in WORD.findall(text) if not word.isascii() and _mixes(word)]


def name_of(sign: str) -> str:
    return f"U+{ord(sign):04X} {unicodedata.name(sign, 'control character').lower()}"


def fold(text: str) -> str:
    """The text as a reader would take it: no hidden signs, styled and foreign look-alike letters as plain ones."""
    plain = unicodedata.normalize("NFKC", strip_hidden(text))
    words = WORD.sub(lambda word: word[0].translate(LOOKS_LIKE) if _mixes(word[0]) else word[0], plain)
    return re.sub(r"[^\S\n]+", " ", words)


def _hides(sign: str) -> bool:
    code = ord(sign)
    selector = 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF
    return selector or sign in UNSEEN or unicodedata.category(sign) in UNSEEN_KINDS


def _belongs(text: str, place: int) -> bool:
    sign = text[place]
    before = text[place - 1] if place else ""
    after = text[place + 1] if place + 1 < len(text) else ""
    if sign == EMOJI_SIGN:
        return _is_symbol(before) or before in "0123456789#*"
    if sign in JOINERS:
        between_symbols = (_is_symbol(before) or before == EMOJI_SIGN) and _is_symbol(after)
        return between_symbols or (_joins(before) and _joins(after))
    return sign in MONGOLIAN_SIGNS and bool(before) and 0x1820 <= ord(before) <= 0x18AA


def _is_symbol(sign: str) -> bool:
    return bool(sign) and unicodedata.category(sign) in ("So", "Sk")


def _joins(sign: str) -> bool:
    """Arabic and Indic scripts are spelled with joiners."""
    return bool(sign) and 0x0600 <= ord(sign) <= 0x0DFF


def _mixes(word: str) -> bool:
    latin = any(sign.isascii() or "LATIN" in unicodedata.name(sign, "") for sign in word)
    return latin and word.translate(LOOKS_LIKE) != word
