"""The form with which an admin flags a turn: read from the address when it opens, from the form when it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flask import g, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid
from app.models import Feedback
from app.services.feedback.intake import NewFeedback, record_feedback
from app.views.format import value_line
from app.views.htmx import Toast, swap
from app.views.transcript.notes import MAX_NOTE_LENGTH, Note

FLAGGED = "Flagged. Saved as pending feedback."


@dataclass(frozen=True)
class FlagForm:
    """`at` is the anchor of the turn whose form is open; empty when none is, `whole` for the thing itself. `args` is
    the rest of the page's query."""

    url: str
    post: str
    at: str = ""
    rating: str = "negative"
    comment: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_query(cls, detail: str, post: str, **ids: Any) -> FlagForm:
        at = request.args.get("flag", "")[:60]
        return cls(url_for(detail, **ids), url_for(post, **ids), at=at, args=_place(request.args))

    @property
    def put_away(self) -> bool:
        """The open form was closed again."""
        return request.args.get("put") == "away"

    @classmethod
    def from_post(cls, detail: str, post: str, **ids: Any) -> FlagForm:
        form = request.form
        return cls(
            url_for(detail, **ids),
            url_for(post, **ids),
            at=form.get("at", "")[:60] or "whole",
            rating=form.get("rating", ""),
            comment=form.get("comment", "").strip(),
            args=_place(form),
        )

    def record(self, **about: Any) -> Any:
        """Write the flag and return its row, or raise Invalid."""
        new = NewFeedback(source_type="observation", kind="flag", rating=self.rating, comment=self.comment, **about)
        with transaction():
            return record_feedback(new, actor=g.actor).row

    def with_errors(self, refusal: Invalid) -> FlagForm:
        return replace(self, errors=refusal.fields or {"comment": refusal.detail})


def flagged(row: Feedback, form: FlagForm, back: str) -> Response:
    """Answer with the new flag as a note in the margin; without a script, with the page at its place."""
    href, text = url_for("feedback.detail", feedback_id=row.id), value_line(form.comment, MAX_NOTE_LENGTH)
    note = Note(form.rating, text, g.actor.name or "you", row.created_at, href, "pending")
    return swap("sessions/_flagged.html", fallback=back, toasts=[Toast(FLAGGED)], flag=form, note=note)


def _place(given: Mapping[str, str]) -> dict[str, str]:
    """Which part of a long transcript the page shows, so that the form stays on it."""
    return {"after": given["after"][:200]} if given.get("after") else {}
