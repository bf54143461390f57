"""Failed calls are recognised once, when their result arrives."""

from typing import Any

from app.formats.tool_results import looks_failed, with_error_mark

FAILED: list[Any] = [
    None,
    "Error: no such deal",
    "  exception in thread main",
    "TRACEBACK (most recent call last)",
    {"error": "not found"},
    {"ok": False},
    {"success": False, "data": []},
    {"status": "error"},
    {"status": "FAILED"},
    {"status": 404},
    {"status": "503"},
    '{"error": "locked"}',
    '{"status": 500}',
]
FINE: list[Any] = [
    "",
    "errors were corrected in the report",
    "No error occurred",
    "The exception proves the rule",
    {},
    [],
    [{"error": "in a list of rows"}],
    {"error": None},
    {"error": ""},
    {"ok": True},
    {"status": "open"},
    {"status": 200},
    {"status": True},
    {"status": "12345"},
    '{"ok": true}',
    "{not json",
    0,
    False,
]


def test_what_failed_and_what_did_not() -> None:
    assert [output for output in FAILED if not looks_failed(output)] == []
    assert [output for output in FINE if looks_failed(output)] == []


def test_what_the_sender_reports_counts() -> None:
    said = {"call_id": "1", "output": {"error": "expected"}, "is_error": False}
    assert with_error_mark(said) == said
    marked = with_error_mark({"call_id": "1", "output": "Error: x", "is_error": None})
    assert (marked["is_error"], marked["is_error_inferred"]) == (True, True)
    assert with_error_mark({"call_id": "1"})["is_error"] is True


def test_hostile_texts_are_only_texts() -> None:
    assert looks_failed('{"a":' * 5000) is False
    assert looks_failed('{"error": "' + "x" * 300_000 + '"}') is False, "too long to look into"
