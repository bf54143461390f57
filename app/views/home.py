"""The start page: an admin goes to work, a member sees what is there for them."""

from typing import Any

from flask import Blueprint, g, redirect, render_template, url_for

from app.security.access import access

bp = Blueprint("home", __name__)

# What a member may open, with the sentence that says what it is for.
OFFERS = (
    ("chat.index", "Chat", "Talk to agents and rate their answers."),
    ("feedback.list_own", "Your feedback", "Your ratings and edits, and what they led to."),
    ("entities.index", "Entities", "Records your agents work on."),
    ("tasks.index", "Tasks", "Scheduled work, current runs and recent results."),
    ("account.index", "Your account", "Your name, password, sign-ins and agent memories."),
)


@bp.get("/")
@access("signed_in")
def index() -> Any:
    if g.actor.is_admin:
        return redirect(url_for("feedback.index"), 303)
    return render_template("home/index.html", offers=OFFERS)
