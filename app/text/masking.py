"""Secrets and personal details are taken out of texts before they are stored.

Every pattern reads a text once: its parts cannot match the same characters in two ways, repetitions are possessive or
bounded, and a run that was looked at from its start is not looked at again from its middle. A pattern is tried only on
texts that hold one of its hints, which is a search for a few characters.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from math import log2
from typing import Any

Found = re.Match[str]

# A run of these, not continued to the left, is one token.
_START = r"(?<![A-Za-z0-9_\-])"
_KNOWN = re.compile(
    _START + r"(?:"
    r"sk-(?:[\w\-+/=~]|\.(?=\w)){16,}+|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}+|whsec_[A-Za-z0-9+/]{16,}+"
    r"|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+|glpat-[A-Za-z0-9_\-]{16,}+"
    r"|xox[abeoprs]-[A-Za-z0-9\-]{10,}+|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[A-Za-z0-9_\-]{30,}+"
    r"|hf_[A-Za-z0-9]{20,}+|npm_[A-Za-z0-9]{30,}+|up_[A-Za-z0-9_\-]{43}(?![A-Za-z0-9_\-])"
    r")"
)
_JWT = re.compile(_START + r"eyJ[A-Za-z0-9_\-]{6,}+\.[A-Za-z0-9_\-]{6,}+\.[A-Za-z0-9_\-]{6,}+")
_BEARER = re.compile(r"(?i:(bearer|basic)[ \t]{1,4})([A-Za-z0-9._~+/\-]{12,}+={0,2})")
_NAMED = re.compile(
    r"(?i:(key|token|secret|password|passwd|pwd|credential|credentials))(\\?[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\?[\"']?)"
    r"([A-Za-z0-9_\-./+~!@#$%^*]{6,}+={0,2})"
)
_IN_URL = re.compile(r"://([^\s:/@?#]{1,100}+):([^\s/@?#]{1,200}+)@")
_CARD = re.compile(
    r"(?<![0-9.,_\-])(?:[2-6][0-9]{12,18}+"
    r"|[2-6][0-9]{3}([ \-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|3[0-9]{3}[ \-][0-9]{6}[ \-][0-9]{4,5})(?![0-9]|[.,_\-][0-9])"
)
_EMAIL = re.compile(r"(?<![\w.%+\-])[\w.%+\-]{1,64}+@[\w\-]{1,63}+(?:\.[\w\-]{1,63}+){1,5}")
_PHONE = re.compile(
    r"(?<![\w.+\-/])(?:\+[0-9](?:[ ().\-/]{0,2}[0-9]){6,14}+"
    r"|\([0-9]{3}\)[ \-]?[0-9]{3}[ .\-][0-9]{4}|[0-9]{3}[ .\-][0-9]{3}[ .\-][0-9]{4}"
    r"|0[1-9][0-9]{1,3}[ /\-][0-9]{3,8}(?:[ \-][0-9]{2,4}){0,3})(?![\w])"
)
_DIGITS = re.compile(r"[0-9]{7}|[0-9]{3}[^0-9A-Za-z]")
_JOINTS = re.compile(r"[\-_./+=~]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BEGIN, _END = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"), "-----END "

_SHORTEST = 10  # `pwd=` and six characters.

# The name of a field whose text is a secret whatever it looks like, and of one whose text has to look random as well.
_SECRET_NAMES = frozenset({"password", "passwd", "pwd", "client_secret", "private_key", "passphrase"})
_TELLING = ("key", "token", "secret", "authorization", "credential", "credentials", "apikey")
_CARD_NAMES = frozenset({"cvv", "cvc", "card_cvv", "card_cvc", "security_code"})


@dataclass(frozen=True)
class Masking:
    """What is masked: secrets and cards always, the rest where the workspace wants it."""

    emails: bool = False
    phones: bool = False

    def text(self, text: str) -> str:
        """The text with a marker such as `[masked:card]` in place of each secret."""
        if len(text) < _SHORTEST:
            return text
        lower = text.lower()
        for hints, rule in _RULES:
            for hint in hints:
                if hint in lower:
                    text = rule(text)
                    break
        if _DIGITS.search(text):
            text = _CARD.sub(_card, text)
            if self.phones:
                text = _PHONE.sub("[masked:phone]", text)
        if self.emails and "@" in text:
            text = _EMAIL.sub("[masked:email]", text)
        return text

    def may_change(self, json_text: str) -> bool:
        """Whether anything in a JSON text could be masked; much quicker than to look at each part."""
        if self.emails or self.phones:
            return True
        lower = json_text.lower()
        return any(mark in lower for mark in _MARKS) or _LIKE_A_CARD.search(json_text) is not None

    def value(self, value: Any) -> Any:
        """The same for anything that JSON can say, however deep."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self._field(name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, int) and value > 10**12 and _is_card(str(value)):
            return "[masked:card]"
        return value

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value:
            plain = name.lower().replace("-", "_")
            if plain in _SECRET_NAMES:
                return value if value.startswith("[masked:") else "[masked:password]"
            if plain in _CARD_NAMES:
                return "[masked:card]"
            if plain.endswith(_TELLING) and len(value) <= 4096 and not _UUID.fullmatch(value) and _looks_random(value):
                return "[masked:token]"
        return self.value(value)


def _private_keys(text: str) -> str:
    """Whole blocks. One that does not end hides all that follows: better too much than a key."""
    before, *blocks = _BEGIN.split(text)
    # What follows a block is behind the line that ends it.
    after = [block.partition(_END)[2].partition("-----")[2] for block in blocks]
    return before + "".join(f"[masked:private key]{rest}" for rest in after)


def _known(found: Found) -> str:
    """Most keys hold digits, which tells those that begin like an ordinary word from words."""
    token = found[0]
    is_key = _is_sk_key(token[3:]) if token.startswith("sk-") else token[:4] in ("AKIA", "ASIA") or _has_digit(token)
    return "[masked:key]" if is_key else token


def _is_sk_key(rest: str) -> bool:
    """Whether what follows `sk-` is a key, of whatever characters, and not words with hyphens or a path."""
    parts = _JOINTS.split(rest)
    if any(len(part) >= 16 for part in parts):
        return True
    # Small and capital letters in an order that no word has.
    is_mixed = any(part not in (part.lower(), part.upper(), part.capitalize()) for part in parts)
    return (_has_digit(rest) and is_mixed) if "/" in rest or "." in rest else (_has_digit(rest) or is_mixed)


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _bearer(found: Found) -> str:
    return f"{found[1]} [masked:token]" if _has_digit(found[2]) or len(found[2]) >= 32 else found[0]


def _masked_assignment(found: Found) -> str:
    """`token=…` when it looks random, `password=…` always, unless the value is only a word of the language."""
    name, between, value = found[1], found[2], found[3]
    if _UUID.fullmatch(value):
        return found[0]
    is_password = name.lower() in ("password", "passwd", "pwd")
    is_secret = not (value.isalpha() and value.islower()) if is_password else _looks_random(value)
    return f"{name}{between}[masked:token]" if is_secret else found[0]


def _looks_random(value: str) -> bool:
    """Long, of letters and digits without a space, and with as many different characters as chance would give."""
    if len(value) < 16 or any(c.isspace() for c in value):
        return False
    if not _has_digit(value) or not any(c.isalpha() for c in value):
        return False
    size = len(value)
    return -sum(n / size * log2(n / size) for n in Counter(value).values()) >= 3.0


def _card(found: Found) -> str:
    return "[masked:card]" if _is_card(found[0]) and not _is_part_of_an_id(found) else found[0]


def _is_part_of_an_id(found: Found) -> bool:
    """Ids in hexadecimal have long rows of digits too, and other digits among their letters."""
    text, start, end = found.string, found.start(), found.end()
    before, after = reversed(text[max(0, start - 64) : start]), text[end : end + 64]
    return any(_has_digit("".join(takewhile(str.isalnum, side))) for side in (before, after))


def _is_card(text: str) -> bool:
    """A length and a beginning that the card schemes use, and a check digit that fits (Luhn)."""
    digits = [int(c) for c in text if c.isdigit()]
    if not _is_issued(len(digits), digits[0], digits[1]):
        return False
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_issued(length: int, first: int, second: int) -> bool:
    if length == 13:
        return first == 4
    if length in (14, 15):
        return first == 3 and second in (0, 4, 6, 7, 8)
    return 2 <= first <= 6 and (length == 16 or (length in (17, 18, 19) and first in (4, 6)))


_RULES: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("private key",), _private_keys),
    (
        ("sk-", "k_live_", "k_test_", "whsec_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox",
         "akia", "asia", "aiza", "hf_", "npm_", "up_"),
        lambda text: _KNOWN.sub(_known, text),
    ),
    (("eyj",), lambda text: _JWT.sub("[masked:token]", text)),
    (("bearer", "basic"), lambda text: _BEARER.sub(_bearer, text)),
    (("key", "token", "secret", "passw", "pwd", "credential"), lambda text: _NAMED.sub(_masked_assignment, text)),
    (("://",), lambda text: _IN_URL.sub(r"://\1:[masked:password]@", text)),
)  # fmt: skip
# What stands in every JSON text in which a rule or the name of a field finds something: hints, and parts of the names.
_MARKS = tuple(
    {hint for hints, _ in _RULES for hint in hints if "key" not in hint}
    | {"authorization", "passphrase", "cvv", "cvc", "security", "key"}
)
_LIKE_A_CARD = re.compile(r"[0-9]{12}|[0-9]{4}[ \-][0-9]{4}[ \-]|[0-9]{4}[ \-][0-9]{6}[ \-]")
