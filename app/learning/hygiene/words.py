"""Words of a rule: which of them carry meaning, what they name, and which of them exclude each other."""

import re
from functools import lru_cache

from app.text import words


def bag(line: str) -> frozenset[str]:
    """The words of a line."""
    return frozenset(line.split())


# In a rule these verbs say what to do.
STOP = words.STOP - bag("avoid give let like need prefer say tell use used uses using want")
# Capitalised words within a sentence, and abbreviations.
NAME = re.compile(r"(?<![.!?:;\n\"“(] )(?<!^)(?<=\s)(?:[A-Z][\w&-]+)|\b[A-Z]{2,}[A-Z0-9]*\b", re.MULTILINE)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(value) for value, word in enumerate(_COUNTED.split())}
# Words in rules that nobody can follow: they say that something should be good, not what to do.
EMPTY = bag(
    """accurate answer appropriate attention attentive avoid bad best better bug care careful cautious check clear
    common concise consider correct detail diligent double effort enough ensure error everything excellent fine
    friendly further future good great handle hard harder help helpful high idea improve improvement information
    issue it job kind know look matter mind mindful mistake mistaken need nice number ok pay people perfect
    performance person point polite possible precise problem professional proper quality question read really
    reasonable remember reply respond response result right safe sense sensible smart something stuff sure task
    thing think thorough thought time try understand use useful user want way well work write wrong"""
)
LAST_LETTER = re.compile(r"(?<=\w{3})[ey]$")
_OPPOSITES = """formal informal, include exclude, before after, newest oldest, newer older, earliest latest,
    earlier later, keep remove, keep delete, first last, gross net, with without, show hide, allow forbid, allow deny,
    add remove, open closed, open close, ascending descending, internal external, short long, higher lower,
    highest lowest, more less, more fewer, minimum maximum, accept reject, approve decline, approve reject,
    enable disable, public private, above below, over under, start end, early late, manual automatic,
    optional required, optional mandatory, singular plural, upper lower, pre post, increase decrease, buy sell"""
# Values of which a rule has one: another of the same line is another rule.
_KINDS = """eur usd gbp chf sek nok dkk jpy pln czk euro dollar pound
    monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december
    daily weekly fortnightly biweekly monthly quarterly yearly annually
    thousand million billion
    hour day week month quarter year minute
    pdf word excel csv html markdown spreadsheet docx xlsx
    english german french spanish italian swedish dutch polish danish norwegian
    ltm ntm fy ytd lfy
    low medium high urgent critical"""


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """The stem of a word without the last letter that its forms do not share: compan(y), compan(ies)."""
    word = word.lower().replace("’", "'").removesuffix("'s")
    return NUMBERS.get(word) or LAST_LETTER.sub("", words.stem(word))


OPPOSITES = {frozenset(map(stem, pair.split())) for pair in _OPPOSITES.split(",")}
KIND_OF = {stem(word): number for number, line in enumerate(_KINDS.splitlines()) for word in line.split()}


def excludes(left: str, right: str) -> bool:
    """Whether two stems cannot both hold: opposites, or two values of one kind."""
    if {left, right} in OPPOSITES or left in (f"un{right}", f"in{right}") or right in (f"un{left}", f"in{left}"):
        return True
    return left != right and left in KIND_OF and KIND_OF[left] == KIND_OF.get(right)


def is_content_word(word: str) -> bool:
    """Whether a word means something by itself."""
    return (len(word) > 1 or word.isdigit()) and word[0].isalnum() and word.lower() not in STOP


def content_stems(text: str) -> set[str]:
    return {stem(word) for word in words.TOKEN.findall(text) if is_content_word(word)}
