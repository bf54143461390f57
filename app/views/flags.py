"""The form with which an admin flags a turn: read from the address when it opens, from the form when it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from flask import request, url_for

from app.errors import Invalid
from app.models.feedback import RATINGS


@dataclass(frozen=True)
class FlagForm:
    """`at` is the anchor of the turn whose form is open; empty when none is, `whole` for the thing itself."""

    url: str
    post: str
    at: str = ""
    rating: str = "negative"
    comment: str = ""
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def asked(cls, detail: str, post: str, **ids: UUID) -> FlagForm:
        return cls(url_for(detail, **_plain(ids)), url_for(post, **_plain(ids)), at=request.args.get("flag", "")[:60])

    @classmethod
    def posted(cls, detail: str, post: str, **ids: UUID) -> FlagForm:
        form = request.form
        return cls(
            url_for(detail, **_plain(ids)),
            url_for(post, **_plain(ids)),
            at=form.get("at", "")[:60] or "whole",
            rating=form.get("rating", ""),
            comment=form.get("comment", "").strip(),
        )

    def check(self) -> None:
        """An admin's flag can make a rule by itself, so it has to say something."""
        errors = {}
        if self.rating not in RATINGS:
            errors["rating"] = f"Choose one of {', '.join(RATINGS)}."
        if not self.comment:
            errors["comment"] = "Say what was right or wrong about it."
        if errors:
            raise Invalid("Something in the form does not fit.", errors)

    def with_errors(self, refusal: Invalid) -> FlagForm:
        return replace(self, errors=refusal.fields or {"comment": refusal.detail})


def _plain(ids: dict[str, UUID]) -> dict[str, Any]:
    return dict(ids)
