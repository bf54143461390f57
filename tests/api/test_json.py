"""JSON as it comes in: what is read, what is refused, and that a refusal never repeats what was sent."""

from __future__ import annotations

import pytest

from app.errors import Invalid
from app.formats.strict_json import MAX_DEPTH, MAX_DIGITS, parse


def refusal(raw: bytes) -> str:
    with pytest.raises(Invalid) as caught:
        parse(raw)
    assert caught.value.status == 400
    return caught.value.detail


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_what_is_well_formed_is_read_as_it_is() -> None:
    assert parse(b'{"a": [1, -2.5, 1e3, true, null, "\\u00e9\xc3\xa9"], "": {}}') == {
        "a": [1, -2.5, 1000.0, True, None, "éé"],
        "": {},
    }
    assert parse(b'"\\ud83d\\ude00"') == "😀"


def test_what_is_not_json_is_a_sentence_with_its_place() -> None:
    for raw in (
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b"[1] [2]",
        b"\xef\xbb\xbf{}",
        b'{"a": "\x01"}',
        b'"\x00"',
        b"01",
        b"nope",
    ):
        assert "line 1, column" in refusal(raw), raw
    assert "empty" in refusal(b"")
    assert "empty" in refusal(b"  \n")


def test_only_utf_8_is_read() -> None:
    for raw in (b'"\xff"', '{"a": "é"}'.encode("latin-1"), b'"\xed\xa0\x80"', '{"a": 1}'.encode("utf-16")):
        assert "UTF-8" in refusal(raw)


def test_a_key_comes_once_at_any_depth() -> None:
    assert "twice" in refusal(b'{"a": 1, "a": 1}')
    assert "twice" in refusal(b'[{"b": {"a": 1, "\\u0061": 2}}]')


def test_numbers_are_finite_and_of_a_size_one_can_store() -> None:
    for raw in (b"NaN", b"Infinity", b"-Infinity", b'{"a": [NaN]}'):
        assert "not JSON" in refusal(raw)
    for raw in (b"1e999", b"-1e999", b"1e200000"):
        assert "too large" in refusal(raw)
    assert parse(b"9" * MAX_DIGITS) == int("9" * MAX_DIGITS)
    for raw in (b"9" * (MAX_DIGITS + 1), b"9" * 5000, b"0." + b"1" * MAX_DIGITS):
        assert "digits" in refusal(raw)


def test_depth_is_limited_however_it_is_made() -> None:
    assert parse(nested(MAX_DEPTH))
    assert parse(b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)
    for raw in (nested(MAX_DEPTH + 1), nested(3_000), nested(400_000), b'{"a":' * 65 + b"1" + b"}" * 65):
        assert "deep" in refusal(raw)
    assert parse(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


def test_text_that_cannot_be_stored_is_refused_in_values_and_keys() -> None:
    for raw in (b'"\\u0000"', b'{"a": ["x\\u0000"]}', b'{"\\u0000": 1}'):
        assert "NUL" in refusal(raw)
    for raw in (b'"\\ud800"', b'{"a": {"b": "\\udc00x"}}', b'{"\\udfff": 1}', b'"\\ude00\\ud83d"'):
        assert "surrogate" in refusal(raw)


def test_no_refusal_repeats_what_was_sent() -> None:
    for raw in (
        b'{"sekret": }',
        b'{"sekret": 1, "sekret": 2}',
        b'{"sekret": NaN}',
        b'{"sekret": "\\u0000"}',
        b"sekret",
    ):
        assert "sekret" not in refusal(raw)
