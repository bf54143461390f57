"""Rate an answer: a thumb, the reasons for it, or the answer that the person wanted."""

from collections.abc import Collection
from typing import Any, get_args
from uuid import UUID

from app.actor import Actor
from app.errors import Invalid
from app.formats.feedback_details import ErrorCategory
from app.learning.edits import edit_distance
from app.models import Feedback
from app.services.chats.own import Answer, get_answer
from app.services.feedback.intake import NewFeedback, record_feedback, retract_feedback
from app.services.feedback.store import lock_thumbs

UP = ("helpful",)
# Two of the reasons are signals of their own; they come and go with a thumb down.
SHARPER = ("inaccurate", "unsafe")
DOWN = ("not_helpful", *SHARPER)
CATEGORIES: tuple[str, ...] = get_args(ErrorCategory)
REASONS = (*SHARPER, *CATEGORIES)


def rate_answer(chat_id: UUID, index: int, signal: str, *, actor: Actor) -> None:
    """Give a thumb, which removes the other one. Reasons given with it before are kept."""
    if signal not in ("helpful", "not_helpful"):
        raise Invalid.of({"signal": "Use helpful or not_helpful."})
    answer = get_answer(chat_id, index, actor=actor)
    # The lock comes before any row lock everywhere, so that two requests never wait for each other.
    lock_thumbs(actor.id, _message_name(answer, signal))
    _retract(answer, DOWN if signal in UP else UP, actor)
    if not any(row.signal == signal for row in answer.rows):
        _record(answer, signal, actor)


def retract_rating(chat_id: UUID, index: int, signal: str, *, actor: Actor) -> None:
    """Retract a thumb with its reasons, or an edit."""
    answer = get_answer(chat_id, index, actor=actor)
    _retract(answer, DOWN if signal == "not_helpful" else (signal,), actor)


def explain_rating(
    chat_id: UUID, index: int, *, reasons: Collection[str], missing: str, comment: str, actor: Actor
) -> None:
    """Set the reasons for a thumb down, in place of those given before.

    The comment is stored with the thumb; a reason that is a signal of its own is only a mark beside it.
    """
    unknown = set(reasons) - set(REASONS)
    if unknown:
        raise Invalid("Choose the reasons from the list.", {"reasons": f"Use {', '.join(REASONS)}."})
    answer = get_answer(chat_id, index, actor=actor)
    lock_thumbs(actor.id, _message_name(answer, "not_helpful"))
    _retract(answer, UP, actor)
    details: dict[str, Any] = {"error_categories": [name for name in CATEGORIES if name in reasons] or None}
    details["missing_context"] = missing or None
    _record(answer, "not_helpful", actor, comment=comment or None, details=details)
    known = {row.signal for row in answer.rows}
    for signal in SHARPER:
        if signal in reasons and signal not in known:
            _record(answer, signal, actor)
    _retract(answer, [name for name in SHARPER if name not in reasons], actor)


def prefer_answer(chat_id: UUID, index: int, text: str, *, actor: Actor) -> int:
    """Store the answer that the person wanted and return by how many percent it differs."""
    answer = get_answer(chat_id, index, actor=actor)
    if not text.strip():
        raise Invalid("Write the answer that you wanted.", {"text": "Write the answer that you wanted."})
    changed = edit_distance(answer.message.content, text).percent
    if answer.message.content.split() == text.split():
        raise Invalid("Nothing was changed.", {"text": "This is the answer as it was. Change it, or cancel."})
    _record(answer, "edit", actor, details={"preferred_answer": text})
    return changed


def request_another(answer: Answer, *, actor: Actor) -> None:
    """Record that the person asked for another answer to the same question."""
    _record(answer, "regenerate", actor)


def _record(
    answer: Answer, signal: str, actor: Actor, *, comment: str | None = None, details: dict[str, Any] | None = None
) -> None:
    record_feedback(
        NewFeedback(
            kind="signal",
            signal=signal,
            message_id=_message_name(answer, signal),
            chat_id=str(answer.chat.id),
            comment=comment,
            details={name: value for name, value in (details or {}).items() if value is not None},
        ),
        actor=actor,
    )


def _message_name(answer: Answer, signal: str) -> str:
    """Return the message id to store. A product's own widget may have written a row under another name; using that name
    changes the row instead of adding a second one."""
    known = next((row.message_id for row in answer.rows if row.signal == signal and row.message_id), None)
    return known or str(answer.message.id)


def _retract(answer: Answer, names: Collection[str], actor: Actor) -> None:
    ids = [row.id for row in answer.rows if row.signal in names]
    if ids:
        retract_feedback(Feedback.id.in_(ids), actor=actor)
