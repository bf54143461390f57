"""Which sentences of a complaint can stand as a rule: those that say what to do, or how things are. What happened once,
and to whom, stays out."""

import re

from app.learning.review.clarity import OPENERS, split_sentences
from app.learning.review.moments import content_words

MIN_ORDER, MIN_FACT = 2, 3
INSTANCE = re.compile(r"\b[A-Z]{1,4}-?\d{2,}\w*|\S+@\S+|\+?\d[\d ]{7,}|https?:\S*|\bwww\.\S+")
MOOD = re.compile(r"(?:!{2,}|\?{2,}|[:;]-?[()D]|\b(?:omg|wtf|lol|ffs|damn|why on earth|who on earth)\b)", re.IGNORECASE)
MUST = re.compile(
    r"\b(?:should(?!(?:['’]ve| have) (?:\w+(?:ed|en)|been|gone|done|had|said|told|come|made|got|put)\b)|must|shall"
    r"|ought to|(?:needs?|ha(?:s|ve)) to|needs?|supposed to|instead of|rather than|no longer|only then"
    r"|belongs? (?:in|on|to|before)"
    # "We don't say that here": how it is done, said as an order.
    r"|we (?:always|never|only|don['’]?t|do not)(?! (?:have|know|need|get|want|see|think|understand|care)\b))\b",
    re.IGNORECASE,
)
# An order may come after what it is about: "For guests, use gross".
OPENING = re.compile(
    r"(?:^|[,:–—-]\s+|\b(?:and|so|then|but|please|pls|or)\s+)"
    r"(?:(?:please|pls|just|only|first|also|then|so|and|but|always|never|rather|better)\s+)*"
    r"(?P<verb>don['’]?t|do not|always|never|[a-z]+)\b(?=(?P<rest>(?:\W+\w+){2}))",
    re.IGNORECASE,
)
PAST = re.compile(
    r"\b(?:was|were|wasn['’]?t|weren['’]?t|had|did|didn['’]?t|told|said|sent|gave|went|came|took|made|got|saw|asked"
    r"|wrote|paid|knew|thought|rang|lost|kept|found|stood|(?:has|have|['’]ve|['’]s) (?:been|gone|had|\w+ed)"
    r"|never (?:got|reached|get))\b"
    r"|\b(?:you|he|she|they|it|we|i|nobody|somebody|guests?)\s+(?:(?:just|only|never|already|also)\s+)?\w+ed\b|^\w+ed\b",
    re.IGNORECASE,
)
ONESELF = re.compile(r"\b(?:I|I['’]\w+|me|my|mine|myself|we['’](?:ve|re))\b")
THIRD = re.compile(r"\b(?:he|she|him|her|his|hers|shes|hes)\b|^you\b(?! (?:must|should|need|have to))", re.IGNORECASE)
# What was the case at one time.
ONCE = re.compile(
    r"\b(?:again|today|yesterday|tonight|now|this (?:time|morning|one|number|figure)|last (?:week|night|time|\w+day)"
    r"|since \w+day)\b",
    re.IGNORECASE,
)
# How a fact sounds that holds at any time, and how one does that judges or leans on another sentence.
HOLDS = re.compile(
    r"\b(?:is|are|isn['’]?t|aren['’]?t|has|have|goes|go|comes?|counts?|means?|stops?|sits?|contains?|holds?|gives?|takes?"
    r"|belongs?|wants?|includes?|excludes?|starts?|ends?|runs?|lies?|uses?|pays?|hears?|reports?|trades?|keeps?|only|first"
    r"|before|after|without|not)\b",
    re.IGNORECASE,
)
LEANS = re.compile(
    r"^(?:it|its|they|this|that|that['’]?s|thats|these|those|there|theres|same|reads?|looks?)\b|\bthere\W*$",
    re.IGNORECASE,
)
JUDGES = re.compile(
    r"\b(?:nonsense|rubbish|wrong|useless|worse|anyway|still|exactly|whole point|failed|fails|nobody|fiction|fyi|but"
    r"|fine|no (?:help|use|good)|is right)\b|\bthere\W*$",
    re.IGNORECASE,
)
# An order that only says that it should be good.
VAGUE = re.compile(r"\b(?:be|get it) (?:right|correct|accurate|better|good|careful)\b", re.IGNORECASE)
# "Take it out": what to do about this one case.
THIS_CASE = re.compile(r"^(?:\w+ )?\w+ (?:it|that|this|them|these|those)\b", re.IGNORECASE)
PLEASE = re.compile(r"\b(?:please|pls)\b", re.IGNORECASE)
SHOUT = re.compile(r"\b[A-Z]{5,}\b")
# "…, so nobody came": what followed from it.
TAIL = re.compile(r"(?:,| -| –| —)\s+(?:so|and|but|which|because|as|since)\b(?P<tail>.*)$", re.IGNORECASE)
GREETING = re.compile(r"^(?:(?:no|yes|ok|okay|hi|hey|sorry|well|please note)[,.!]?\s+)+", re.IGNORECASE)


def says_what_to_do(sentence: str) -> bool:
    """Whether a sentence orders: it opens with a verb, perhaps after what it is about, or says what must be."""
    return bool(MUST.search(sentence)) or any(found["verb"].lower() in OPENERS for found in OPENING.finditer(sentence))


def count_circumstances(sentence: str) -> int:
    """How many signs there are that a sentence tells of one case."""
    signs = (PAST, ONESELF, THIRD, ONCE, MOOD, SHOUT, INSTANCE, THIS_CASE)
    asks = bool(THIS_CASE.search(sentence) and PLEASE.search(sentence))
    return sum(bool(sign.search(sentence)) for sign in signs) + asks + sentence.rstrip().endswith("?")


def is_instruction(sentence: str) -> bool:
    """Whether a sentence can stand in a rule: an order with little about one case in it, or a fact with nothing."""
    signs, words = count_circumstances(sentence), set(content_words(sentence))
    if says_what_to_do(sentence):
        return signs <= 1 and not VAGUE.search(sentence) and not PAST.search(sentence) and len(words) >= MIN_ORDER
    holds = HOLDS.search(sentence) and not LEANS.search(sentence) and not JUDGES.search(sentence)
    return bool(holds) and signs == 0 and len(words) >= MIN_FACT


def instructions_of(text: str) -> list[str]:
    """The sentences of a text that can stand in a rule, and what they go on to say, without what followed from the
    fault."""
    kept: list[str] = []
    for sentence in split_sentences(text):
        own = _without_tail(GREETING.sub("", sentence)).rstrip(" ;,")
        if is_instruction(own) or (kept and count_circumstances(own) == 0):
            kept.append(own)
    return kept


def statements_of(text: str) -> list[str]:
    """The sentences of a text that tell nothing that happened, for want of an instruction."""
    return [one for one in split_sentences(text) if _states(one)]


def _states(sentence: str) -> bool:
    signs = (LEANS, JUDGES, PAST, ONESELF, INSTANCE, THIS_CASE)
    tells = any(sign.search(sentence) for sign in signs) or sentence.endswith("?")
    return not tells and len(set(content_words(sentence))) >= MIN_ORDER


def _without_tail(sentence: str) -> str:
    tail = TAIL.search(sentence)
    if tail and PAST.search(tail["tail"].strip()) and not says_what_to_do(tail["tail"].strip()):
        return sentence[: tail.start()]
    return sentence
