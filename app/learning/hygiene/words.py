"""Words of a rule: which of them carry meaning, what they name, and which of them exclude each other."""

import re
import unicodedata
from functools import lru_cache


def bag(line: str) -> frozenset[str]:
    """The words of a line."""
    return frozenset(line.split())


# A tool or a field as programs write it; a number with its sign; a word.
TOKEN = re.compile(r"[A-Za-z]\w*(?:_\w+)+|\d+(?:[.,]\d+)*|%|[^\W\d_]+(?:['’][^\W\d_]+)?|[.;:!?,()=\n]")
IDENTIFIER = re.compile(r"\b(?:[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Za-z]\w*_\w+)\b")
PAIR = re.compile(r"\b([A-Za-z]\w*)=(\"[^\"]*\"|[\w./%-]+)")
QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|“[^”\n]{1,200}”|«[^»\n]{1,200}»|(?<!\w)'[^'\n]{2,200}'(?!\w)")
NAME = re.compile(r"(?<![.!?:;\n\"“(] )(?<!^)(?<=\s)(?:[A-Z][\w&-]+)|\b[A-Z]{2,}[A-Z0-9]*\b", re.MULTILINE)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(value) for value, word in enumerate(_COUNTED.split())}

STOP = bag(
    """a an the this that these those it its they them their he she his her we us our you your i my me is are was were
    be been being am do does did done doing have has had having will would shall should may might must can could of
    to in on at by for from into onto as and or but so than then there here also too very just only even still yet
    if when whenever while where which who whom whose what how why because since although though each every any all
    some such both either neither one's own same other another more most much many few about over under between
    within during per via up out off again once s t re ve ll d n't please always ever instead rather unless until
    till except anybody somebody someone anyone everybody"""
)
# Verbs that say little by themselves: "use LTM" and "take LTM" are one rule.
LIGHT = bag("use take make do call prefer apply set give keep get choose pick go put let")
# Words in rules that nobody can follow: they say that something should be good, not what to do.
EMPTY = bag(
    """accurate accurately answer answers appropriate appropriately attention attentive avoid bad better best bug care
    careful carefully cautious check clear clearly common concise consider correct correctly detail detailed details
    diligent double effort ensure error errors everything excellent fine friendly further future good great handle
    hard harder help helpful high idea improve improved improvement information issue issues it job kind know
    knowing look matter matters mind mindful mistake mistakes mistaken need needed nice nicely time number numbers
    ok pay perfect people performance person point polite possible precise precisely problem problems professional
    proper properly quality question questions read really reasonable remember reply respond response responses
    result results right safe sense sensible smart something stuff sure task thing things think thorough thoroughly
    thought try trying understand understanding use useful user users want wants way well work working works write
    wrong enough"""
)
ENDINGS = ("ingly", "edly", "ies", "ing", "ed", "ly", "es", "s", "e")

_OPPOSITES = (
    "formal informal", "include exclude", "before after", "newest oldest", "newer older", "earliest latest",
    "earlier later", "keep remove", "keep delete", "first last", "gross net", "with without", "show hide",
    "allow forbid", "allow deny", "add remove", "open closed", "open close", "ascending descending",
    "internal external", "short long", "higher lower", "highest lowest", "more less", "more fewer", "minimum maximum",
    "accept reject", "approve decline", "approve reject", "enable disable", "public private", "above below",
    "over under", "start end", "early late", "manual automatic", "optional required", "optional mandatory",
    "singular plural", "upper lower", "pre post", "increase decrease", "buy sell",
)  # fmt: skip
# Values of which a rule has one: another of the same line is another rule.
_KINDS = (
    "eur usd gbp chf sek nok dkk jpy pln czk euro dollar pound",
    "monday tuesday wednesday thursday friday saturday sunday",
    "january february march april may june july august september october november december",
    "daily weekly fortnightly biweekly monthly quarterly yearly annually",
    "thousand million billion",
    "hour day week month quarter year minute",
    "pdf word excel csv html markdown spreadsheet docx xlsx",
    "english german french spanish italian swedish dutch polish danish norwegian",
    "ltm ntm fy ytd lfy",
    "low medium high urgent critical",
)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its ending; forms of one word mostly come out alike."""
    word = word.lower().replace("’", "'").removesuffix("'s")
    if word in NUMBERS:
        return NUMBERS[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _stems(words: str) -> list[str]:
    return [stem(word) for word in words.split()]


OPPOSITE: dict[str, frozenset[str]] = {}
for _pair in _OPPOSITES:
    _one, _other = _stems(_pair)
    OPPOSITE[_one] = OPPOSITE.get(_one, frozenset()) | {_other}
    OPPOSITE[_other] = OPPOSITE.get(_other, frozenset()) | {_one}
KIND_OF = {word: number for number, line in enumerate(_KINDS) for word in _stems(line)}
# Small words that turn a rule round are read, unlike the rest of the stop list.
TURNING = bag("before after with without first last above below over under")
LIGHT_STEMS = frozenset(map(stem, LIGHT))
TURNED = ("un", "in", "non", "dis", "im", "ir")


def excludes(left: str, right: str) -> bool:
    """Whether two stems cannot both hold: opposites, or two values of one kind."""
    kind = KIND_OF.get(left)
    if right in OPPOSITE.get(left, ()) or (kind is not None and left != right and kind == KIND_OF.get(right)):
        return True
    return any(left == start + right or right == start + left for start in TURNED)


def normalize_text(text: str) -> str:
    """The text as it is compared for equality: no case, no punctuation, one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"[\w%=]+", folded))


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def is_content_word(word: str) -> bool:
    """Whether a word means something by itself."""
    lower = word.lower()
    return (len(lower) > 1 or lower.isdigit() or lower == "%") and lower not in STOP and word[0].isalnum()


def names(text: str) -> set[str]:
    """Capitalised words within a sentence, and abbreviations."""
    return {found.strip() for found in NAME.findall(text)}


def identifiers(text: str) -> set[str]:
    return set(IDENTIFIER.findall(text))


def without_quotes(text: str) -> str:
    return QUOTED.sub(" ", text)
