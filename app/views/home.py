"""The start page: an admin goes to work, a member sees what is there for them."""

from typing import Any

from flask import Blueprint, g, redirect, render_template, url_for

from app.security.access import access

bp = Blueprint("home", __name__)

# What a member may open, with the sentence that says what it is for.
OFFERS = (
    ("chat.index", "Chat", "Your conversations with the agents; say which answers were good and which were not."),
    ("feedback.list_own", "Your feedback", "What you said, and what became of it."),
    ("entities.index", "Entities", "Look at the records that the agents work on."),
    ("tasks.index", "Tasks", "See what the agents do by themselves and what they work on now."),
    ("account.index", "Your account", "Change your name and password, and see where you are signed in."),
)


@bp.get("/")
@access("signed_in")
def index() -> Any:
    if g.actor.is_admin:
        return redirect(url_for("feedback.index"), 303)
    return render_template("home/index.html", offers=OFFERS)
