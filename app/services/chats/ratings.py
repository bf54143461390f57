"""What a person says about an answer they got: a thumb, the reasons for it, the answer they would have liked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, get_args

from app.actor import Actor
from app.errors import Invalid
from app.formats.feedback_details import ErrorCategory
from app.learning.edits import edit_distance
from app.models import Feedback
from app.services.chats.own import Answer
from app.services.feedback import intake as feedback_intake
from app.services.feedback import retractions
from app.services.feedback.intake import NewFeedback
from app.services.feedback.links import hold_thumbs
from app.services.feedback.own import OwnRow

UP = ("helpful",)
# Two of the reasons are signals of their own; they come with a thumb down and go with it.
SHARPER = ("inaccurate", "unsafe")
DOWN = ("not_helpful", *SHARPER)
CATEGORIES: tuple[str, ...] = get_args(ErrorCategory)
REASONS = (*SHARPER, *CATEGORIES)


def rate_answer(answer: Answer, signal: str, said: Sequence[OwnRow], *, actor: Actor) -> None:
    """Thumb up or down; the other thumb goes. What was said with it before is kept."""
    if signal not in ("helpful", "not_helpful"):
        raise Invalid.of({"signal": "Use helpful or not_helpful."})
    # Everybody holds the thumbs first and rows after that, so that nobody waits in a circle.
    hold_thumbs(actor.id, _name(answer, signal, said))
    _drop(said, DOWN if signal in UP else UP, actor)
    if not any(row.signal == signal for row in said):
        _give(answer, signal, said, actor)


def take_back(said: Sequence[OwnRow], signal: str, *, actor: Actor) -> None:
    """Withdraw a thumb with its reasons, or an edit."""
    _drop(said, DOWN if signal == "not_helpful" else (signal,), actor)


def explain_answer(
    answer: Answer, said: Sequence[OwnRow], *, reasons: Collection[str], missing: str, comment: str, actor: Actor
) -> None:
    """Say why the thumb is down: reasons from the list, what was missing, and own words. What was said before is
    replaced. The words are with the thumb; a reason that is a signal is only a mark beside it."""
    unknown = set(reasons) - set(REASONS)
    if unknown:
        raise Invalid("Choose the reasons from the list.", {"reasons": f"Use {', '.join(REASONS)}."})
    hold_thumbs(actor.id, _name(answer, "not_helpful", said))
    _drop(said, UP, actor)
    details: dict[str, Any] = {"error_categories": [name for name in CATEGORIES if name in reasons] or None}
    details["missing_context"] = missing or None
    _give(answer, "not_helpful", said, actor, comment=comment or None, details=details)
    known = {row.signal for row in said}
    for signal in SHARPER:
        if signal in reasons and signal not in known:
            _give(answer, signal, said, actor)
    _drop(said, [name for name in SHARPER if name not in reasons], actor)


def prefer_answer(answer: Answer, said: Sequence[OwnRow], text: str, *, actor: Actor) -> int:
    """Store the answer that was wanted; give back how many percent it differs."""
    if not text.strip():
        raise Invalid("Write the answer that you wanted.", {"text": "Write the answer that you wanted."})
    changed = edit_distance(answer.message.content, text).percent
    if answer.message.content.split() == text.split():
        raise Invalid("Nothing was changed.", {"text": "This is the answer as it was. Change it, or cancel."})
    _give(answer, "edit", said, actor, details={"preferred_answer": text})
    return changed


def want_another(answer: Answer, *, actor: Actor) -> None:
    """The person asks for another answer to the same question."""
    _give(answer, "regenerate", (), actor)


def _give(
    answer: Answer,
    signal: str,
    said: Sequence[OwnRow],
    actor: Actor,
    *,
    comment: str | None = None,
    details: dict[str, Any] | None = None,
) -> None:
    feedback_intake.give_feedback(
        NewFeedback(
            kind="signal",
            signal=signal,
            message_id=_name(answer, signal, said),
            chat_id=str(answer.chat.id),
            comment=comment,
            details={name: value for name, value in (details or {}).items() if value is not None},
        ),
        actor=actor,
    )


def _name(answer: Answer, signal: str, said: Sequence[OwnRow]) -> str:
    """What the signal calls the message. A row that a product's own widget wrote calls it by another name than ours; it
    is changed, not doubled."""
    known = next((row.message_id for row in said if row.signal == signal and row.message_id), None)
    return known or str(answer.message.id)


def _drop(said: Sequence[OwnRow], names: Collection[str], actor: Actor) -> None:
    ids = [row.id for row in said if row.signal in names]
    if ids:
        retractions.take_back(Feedback.id.in_(ids), actor=actor)
