"""The context of each source and the details of any row."""

from typing import Any
from uuid import uuid4

import pytest

from app.errors import Invalid
from app.formats.feedback_details import CONTEXTS, read_context, read_details
from app.learning.ranking import rank
from app.models.feedback import SOURCES


def test_every_source_has_a_shape() -> None:
    assert set(CONTEXTS) == set(SOURCES)


def test_contexts_that_fit_are_kept_and_others_refused() -> None:
    some = str(uuid4())
    good: list[tuple[str, dict[str, Any]]] = [
        ("chat", {"chat_id": "c-1", "message_index": 3}),
        ("response", {"response_id": some, "field_name": "valuation"}),
        ("extraction", {"field_name": "close_date", "rejected_value": [1, "x"], "retry_ref": some}),
        ("tool", {"tool_slug": "searchDeals", "tool_run_id": "r-9"}),
        ("session", {"failure_reason": "timed out"}),
        ("observation", {}),
    ]
    for source, context in good:
        assert read_context(source, "comment", context) == context
    bad: list[tuple[str, dict[str, Any]]] = [
        ("chat", {"message_index": -1}),
        ("chat", {"tool_slug": "x"}),
        ("response", {}),
        ("response", {"response_id": "not an id"}),
        ("tool", {}),
        ("tool", {"tool_slug": ""}),
        ("session", {"failure_reason": "x" * 5000}),
    ]
    for source, context in bad:
        with pytest.raises(Invalid) as refused:
            read_context(source, "comment", context)
        assert all(name.startswith("context.") for name in refused.value.fields)


def test_a_failed_replay_names_both_sides() -> None:
    ids = [str(uuid4()), str(uuid4())]
    context = {"golden_session_id": ids[0], "replay_session_ids": [ids[1]], "divergences": [{"path": "x"}]}
    assert read_context("session", "replay_failure", context) == context
    with pytest.raises(Invalid):
        read_context("session", "replay_failure", {"golden_session_id": ids[0], "replay_session_ids": []})


def test_details_know_their_words_and_ranges() -> None:
    details = {
        "error_categories": ["wrong_context"],
        "quality_scores": {"accuracy": 0, "completeness": 100},
        "output_review": {"verdict": "approved", "edit_distance": 24, "issues": ["style_issue"]},
        "preferred_answer": "Better",
        "skipped": True,
    }
    assert read_details(details) == details
    assert read_details({}) == {}
    for wrong in (
        {"error_categories": ["bad_mood"]},
        {"quality_scores": {"accuracy": 101}},
        {"quality_scores": {"charm": 1}},
        {"output_review": {"verdict": "fine"}},
        {"mood": "good"},
    ):
        with pytest.raises(Invalid, match="details"):
            read_details(wrong)


def test_rank_prefers_the_new_the_helpful_and_the_pinned() -> None:
    assert rank(0) == 1.0
    assert rank(90) == 0.5
    assert rank(-3) == 1.0
    assert rank(0, pinned=True) == 3.0
    assert rank(0, helpful=4) == 1.25
    assert rank(0, harmful=4) == 0.75
