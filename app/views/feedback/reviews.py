"""Review now: ask for a review of what is pending, and follow it."""

from typing import Any

from flask import g, request, url_for

from app.db import transaction
from app.errors import Refused
from app.security.access import access
from app.services.review import runs as review_runs
from app.views.feedback import bp
from app.views.htmx import Toast, leave, render, swap, vary_by_htmx, wants_fragment


@bp.post("/admin/agent-review/feedback/reviews")
@access("admin")
def start_review() -> Any:
    """Start a review; one that is under way is followed."""
    toasts: list[Toast] = []
    try:
        with transaction():
            review_runs.start_review(actor=g.actor)
    except Refused as refusal:
        toasts = [Toast(refusal.detail, "error")]
    review = review_runs.last_review(actor=g.actor)
    return swap("feedback/_reviewing.html", fallback=url_for(".index"), toasts=toasts, review=review, ended=False)


@bp.get("/admin/agent-review/feedback/reviews")
@access("admin")
def follow_review() -> Any:
    """How far the review is; asked again and again until it has ended. A page that was just `opened` shows no earlier
    one."""
    if not wants_fragment():
        return leave(url_for(".index"))
    review = review_runs.last_review(actor=g.actor)
    ended = review is not None and not review.open and "opened" not in request.args
    return vary_by_htmx(render("feedback/_reviewing.html", review=review, ended=ended))
