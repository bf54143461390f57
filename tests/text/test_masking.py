"""Masking: what is a secret goes, what only looks a little like one stays, and hostile texts are read once."""

from __future__ import annotations

import json
import re
from typing import Any

from app.text import masking
from app.text.masking import Masking

SECRETS = Masking()
ALL = Masking(emails=True, phones=True)
DIGITS = "9f8a7b6c5d4e3f2a1b0c"

MASKED = {
    f"use sk-proj-{DIGITS} now": "use [masked:key] now",
    "key sk-abcdefghijklmnopqrst, and": "key [masked:key], and",
    "sk-ABCDEFGHIJKLMNOPQRST": "[masked:key]",
    "sk-AbCdEfGh-IjKlMnOp": "[masked:key]",
    "sk-proj-abcdefghijklmnop_qrst.": "[masked:key].",
    "sk-1234567890123456": "[masked:key]",
    "sk-Ab1+cD2/eF3+gH4/iJ5==": "[masked:key]",
    "sk-abcdefghijklmnopqr.stuvwxyz~": "[masked:key]",
    "sk-ключключключключ": "[masked:key]",
    f"sk_live_{DIGITS}": "[masked:key]",
    "ghp_" + "a1B2" * 9: "[masked:key]",
    "github_pat_" + "a1B2_" * 8: "[masked:key]",
    "AKIAABCDEFGHIJKLMNOP": "[masked:key]",
    "xoxb-1234567890-abcdef": "[masked:key]",
    "up_" + "aB3_-" * 8 + "xyz": "[masked:key]",
    "Authorization: Bearer abc.def123456789": "Authorization: Bearer [masked:token]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123456": "[masked:token]",
    f"api_key={DIGITS}&x=1": "api_key=[masked:token]&x=1",
    f'{{"access_token": "{DIGITS}"}}': '{"access_token": "[masked:token]"}',
    f'{{\\"token\\": \\"{DIGITS}\\"}}': '{\\"token\\": \\"[masked:token]\\"}',
    "password=hunter2": "password=[masked:token]",
    "postgresql://app:s3cr3t@db/x": "postgresql://app:[masked:password]@db/x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nbye": "[masked:private key]\nbye",
    "-----BEGIN PRIVATE KEY-----\ncut off": "[masked:private key]",
    "pay with 4242 4242 4242 4242.": "pay with [masked:card].",
    "4111-1111-1111-1111": "[masked:card]",
    "Visa4242424242424242": "Visa[masked:card]",
    "3782 822463 10005 and 378282246310005": "[masked:card] and [masked:card]",
}
KEPT = [
    "order 4242424242424241 has a wrong check digit",
    "at 1700000000000 ms, or 1700000000000000000 ns",
    "token: required, key: optional, password: required",
    "the sk-folding-cube-wrapper of the page",
    "see sk-learn/stable/modules/linear_model.html, and sk-learn/docs/v1.2/index",
    "bearer responsibilities of the holder",
    "key=123e4567-e89b-12d3-a456-426614174000",
    "1.4242424242424242 and 0.4111111111111111",
    "credit_card_4421486, reservation JG7FMM, user omar_davis_3817",
    "runs 9a08e5966f554d4581291707409a30a8 and ca05006dfedc4351973014639129a086",
    "see https://example.com/a:b and http://[::1]:8000/",
    "use up_to_date_libraries_for_everything_that_we_have_here",
]


def test_secrets_go_and_a_second_time_changes_nothing() -> None:
    for text, wanted in MASKED.items():
        assert SECRETS.text(text) == wanted
        assert ALL.text(wanted) == wanted


def test_what_only_looks_like_a_secret_stays() -> None:
    for text in KEPT:
        assert SECRETS.text(text) == text


def test_addresses_and_numbers_go_where_that_is_wanted() -> None:
    told = "Write to sam.o'neil+x@mail.example.com or müller@example.de, call +49 (30) 123-4567, (415) 555-2671"
    assert SECRETS.text(told) == told
    assert Masking(emails=True).text(told).count("[masked:email]") == 2
    assert "@" not in Masking(emails=True).text(told)
    assert Masking(phones=True).text(told).endswith("call [masked:phone], [masked:phone]")
    for text in ("on 2024-05-15 at 15:00:00", "version 1.22.333", "12 345 678 rows", "@here and a@b"):
        assert ALL.text(text) == text


def test_nested_values_keep_their_shape() -> None:
    given: dict[str, Any] = {
        "arguments": {"card": 4242424242424242, "cvv": "123", "password": "a", "n": 3, "ok": True, "none": None},
        "list": [f"api_key={DIGITS}", {"api-key": DIGITS, "key": "blue", "key_id": DIGITS}],
    }
    wanted = {
        "arguments": {
            "card": "[masked:card]",
            "cvv": "[masked:card]",
            "password": "[masked:password]",
            "n": 3,
            "ok": True,
            "none": None,
        },
        "list": ["api_key=[masked:token]", {"api-key": "[masked:token]", "key": "blue", "key_id": DIGITS}],
    }
    assert SECRETS.value(given) == wanted
    assert SECRETS.value(wanted) == wanted
    assert given["arguments"]["card"] == 4242424242424242


def test_a_look_at_the_whole_misses_nothing() -> None:
    """What is masked in a text is noticed in the JSON that holds it, whatever stands beside it."""
    fields = {"cvc": "123", "Security-Code": "123", "passphrase": "blue", "Authorization": f"a{DIGITS}b", "n": 10**15}
    for inner in [*MASKED, *({name: value} for name, value in fields.items())]:
        for given in (
            {"text": inner},
            {"list": ["plain", [inner]]},
            {"text": f"\n{inner}\t" if isinstance(inner, str) else inner},
        ):
            assert SECRETS.may_change(json.dumps(given, ensure_ascii=False, separators=(",", ":"))), given
    assert not SECRETS.may_change('{"text":"Bluefin has 22.1 m in 2024.","arguments":{"year":2024}}')
    assert ALL.may_change("{}")


def test_patterns_cannot_be_led_astray() -> None:
    """No pattern repeats a group that may be left without end, which is what makes reading back and forth costly."""
    patterns = [value for value in vars(masking).values() if isinstance(value, re.Pattern)]
    assert len(patterns) > 8
    for pattern in patterns:
        without_bounded = re.sub(r"\{\d+,\d+\}\+?|\{\d+,?\}\+|\{\d+\}", "", pattern.pattern)
        without_escapes = re.sub(r"\\.|\[[^\]]*\]", "", without_bounded)
        assert "*" not in without_escapes, pattern.pattern
        assert "+" not in without_escapes, pattern.pattern
        assert not re.search(r"\{\d+,\}(?!\+)", pattern.pattern), pattern.pattern


def test_hostile_texts_are_masked_or_kept() -> None:
    size = 65_536
    for unit in (
        "a",
        "4",
        "4444 ",
        "sk-a-",
        "bearer ",
        "key=",
        "a@a.",
        "eyJ-",
        "://a:b",
        "+1 ",
        "-----BEGIN PRIVATE KEY-----",
    ):
        text = (unit * (size // len(unit) + 1))[:size]
        assert len(ALL.text(text)) <= size * 2
