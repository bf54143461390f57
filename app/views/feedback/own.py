"""Your feedback: what you said, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Flask, g, url_for

from app.formats.ids import parse_id
from app.models import Feedback
from app.security.access import access
from app.services.feedback import own as feedback_own
from app.services.feedback.lists import FeedbackFilters
from app.services.feedback.own import LearnedRule, Place
from app.services.feedback.review import reason_for_author
from app.views import lists as listing
from app.views.feedback import bp
from app.views.htmx import page

REASON_LABELS = {
    "inaccurate": "Not accurate",
    "unsafe": "Unsafe",
    "missing_context": "Something was missing",
    "wrong_context": "Outdated or off topic",
    "ignored_constraints": "Did not do what I asked",
    "hallucination": "Made something up",
    "style_mismatch": "Wrong format or tone",
    "other": "Something else",
}
SIGNAL_LABELS = {
    "helpful": "Helpful",
    "not_helpful": "Not helpful",
    "inaccurate": "Not accurate",
    "unsafe": "Unsafe",
    "edit": "Your edit",
    "regenerate": "Asked for another answer",
}
KIND_LABELS = {
    "response_rejection": "Rejected",
    "extraction_rejection": "Rejected",
    "flag": "Flagged",
    "tool_observation": "About a tool",
}
RATING_LABELS = {"positive": "Good", "negative": "Not good", "neutral": "Neither good nor bad"}
STATUS_SENTENCES = {
    "pending": "Not reviewed yet",
    "reviewed": "Being reviewed",
    "dismissed": "No change",
    "applied": "Handled by an admin",
}
OUTCOME_SENTENCES = {
    "golden": "Led to a test for every new version.",
    "agent_version": "Led to a change: the agent has a new version.",
}
RETRY_SENTENCES = {
    "pending": "A retry with your reason is waiting to start.",
    "running": "A retry with your reason is running.",
    "completed": "A retry submitted nothing.",
    "cancelled": "The retry was stopped.",
}
RESPONSE_SENTENCES = {
    "submitted": "A retry submitted new values, which wait for a decision.",
    "accepted": "A retry submitted new values, which were accepted.",
    "rejected": "A retry submitted new values, which were rejected too. It isn’t retried again.",
}
PLACES = {"chat": "chat.detail", "entity": "entities.detail", "session": "sessions.own_detail"}


@dataclass(frozen=True)
class Outcome:
    """What became of a row: a sentence, the words it is about, and where to look."""

    text: str
    quote: str = ""
    href: str = ""


@bp.get("/feedback/mine")
@access("member")
def list_own() -> Any:
    """Everything one said in this workspace, newest first."""
    asked = listing.read_listing(FeedbackFilters)
    found = feedback_own.list_own(asked.filters, asked.page, actor=g.actor)
    learned = feedback_own.learned_from(found.items, actor=g.actor)
    places = feedback_own.places_of(found.items, actor=g.actor)
    retries = feedback_own.retries_of(found.items, actor=g.actor)
    return page(
        "chat/mine.html",
        "chat/_mine.html",
        rows=[describe_own(row, learned, places.get(row.id), retries) for row in found.items],
        found=found,
        asked=asked,
        fields=[*listing.offer(FeedbackFilters, "status", "rating"), *listing.DAYS],
        **listing.pager_links(found),
    )


def describe_own(
    row: Feedback,
    learned: Mapping[UUID, LearnedRule],
    place: Place | None = None,
    retries: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The row in the words that its author reads."""
    return {
        "id": row.id,
        "rating": row.rating,
        "head": _head(row),
        "comment": "" if row.signal == "edit" else row.comment,
        "tags": [REASON_LABELS[name] for name in row.details.get("error_categories", []) if name in REASON_LABELS],
        "missing": row.details.get("missing_context"),
        "status": row.status,
        "became": _became(row, learned.get(row.id), retries or {}),
        "decided": row.status != "pending" or row.id in learned,
        "at": row.occurred_at,
        "changed": row.details.get("output_review", {}).get("edit_distance") if row.signal == "edit" else None,
        "where": place[2] if place else "",
        "href": _address(row, place) if place else "",
        "retracted": feedback_own.is_retracted(row),
    }


def _head(row: Feedback) -> str:
    if row.details.get("skipped"):
        return "Skipped the rating"
    if row.signal:
        return SIGNAL_LABELS.get(row.signal, row.signal)
    field = row.context.get("field_name")
    word = KIND_LABELS.get(row.kind) or RATING_LABELS[row.rating]
    return f"{word}: {str(field).replace('_', ' ')}" if field else word


def _became(row: Feedback, learned: LearnedRule | None, retries: Mapping[str, Any]) -> Outcome:
    note, kind = reason_for_author(row), row.outcome.get("kind")
    if learned is not None and learned.state == "active":
        href = url_for("knowledge.detail", row_id=learned.id) if g.actor.is_admin else ""
        decided = row.status not in ("pending", "reviewed")
        text = "Led to a change. Agents now get this rule:" if decided else "Being reviewed. An active rule covers it:"
        return Outcome(text, learned.content, href)
    if learned is not None and learned.state == "retired":
        return Outcome("Led to a change. Agents no longer get this rule:", learned.content)
    if kind == "retry":
        session = parse_id(row.outcome.get("id") or row.context.get("retry_ref"))
        href = url_for("sessions.own_detail", session_id=session) if session else ""
        return Outcome(describe_retry(retries.get(str(session))), href=href)
    if kind == "entity_type":
        return Outcome(f"Led to a change: {row.outcome['text']}.", note)
    if kind in OUTCOME_SENTENCES:
        return Outcome(OUTCOME_SENTENCES[kind], note)
    if learned is not None and learned.state == "proposed":
        return Outcome("Being reviewed.")
    if kind == "knowledge":
        return Outcome("Led to a change that is no longer in use.")
    if row.status == "dismissed" and note.startswith("Praise."):
        return Outcome("Thank you. Nothing needs to change.")
    return Outcome(STATUS_SENTENCES[row.status] + (":" if note else "."), note)


def describe_retry(retry: Any) -> str:
    """How it went to ask again."""
    if retry is None:
        return "It was retried with your reason."
    if retry.response is not None:
        return RESPONSE_SENTENCES[retry.response]
    if retry.status == "pending" and retry.kind == "external":
        return f"A retry starts when {retry.agent} picks it up."
    if retry.status == "failed":
        return f"A retry failed: {retry.error or 'no reason recorded.'}"
    return RETRY_SENTENCES[retry.status]


def _address(row: Feedback, place: Place) -> str:
    kind, place_id, _ = place
    index = row.context.get("message_index") if kind == "chat" else None
    values: dict[str, Any] = {f"{kind}_id": place_id, "at": index}
    return url_for(PLACES[kind], _anchor=None if index is None else f"m-{index}", **values)


def register(app: Flask) -> None:
    app.jinja_env.globals["reason_words"] = REASON_LABELS
