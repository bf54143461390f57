"""Settings, Audit: who did what. `member.role_changed` reads "changed a member's role", details are on one line."""

from collections.abc import Mapping
from typing import Any

from flask import g

from app.db.paging import Page
from app.security.access import access
from app.services import audit
from app.views.format import value_line
from app.views.htmx import page
from app.views.lists import page_cursor, pager_links
from app.views.settings import bp

PAIRS = (("from", "to"), ("before", "after"))
NOUNS = {"key": "API key", "shared_context": "knowledge row", "knowledge": "knowledge row", "view": "saved view"}
UNCOUNTED = ("feedback", "settings")
# Actions that are more than a verb and a noun.
SENTENCES = {
    "agent.version_restored": "restored an agent version",
    "agent.version_saved": "saved an agent version",
    "candidate.run_again": "ran a candidate again",
    "feedback.comment_deleted": "deleted a comment on feedback",
    "feedback.commented": "commented on feedback",
    "feedback.read": "read a person's feedback",
    "golden_set.policy_changed": "changed the policy of a golden set",
    "import.undone": "undid an import",
    "invitation.withdrawn": "withdrew an invitation",
    "knowledge.active": "activated a knowledge row",
    "knowledge.inactive": "deactivated a knowledge row",
    "knowledge.rolled_back": "rolled back a knowledge row",
    "knowledge.signal_added": "added feedback to a proposed rule",
    "login.began": "signed in",
    "login.ended": "signed out",
    "logins.ended": "ended a person's logins",
    "member.role_changed": "changed a member's role",
    "memory.all_deleted": "deleted all their memories",
    "password.changed": "changed their password",
    "person.renamed": "changed their name",
    "session.filled": "sent more events than a session may hold",
    "session.promoted": "made a session golden",
    "session.stop_requested": "stopped a run",
    "settings.changed": "changed the settings",
    "workspace.renamed": "renamed the workspace",
}


@bp.get("/audit")
@access("admin")
def audit_trail() -> Any:
    found = audit.list_entries(Page(50, page_cursor()), actor=g.actor)
    shown = {"found": found, "sentence": sentence, "details_line": details_line, **pager_links(found)}
    return page("settings/audit.html", "settings/_audit.html", **shown)


def sentence(action: str) -> str:
    """What was done: `agent.archived` is "archived an agent"."""
    if action in SENTENCES:
        return SENTENCES[action]
    subject, _, verb = action.partition(".")
    noun = NOUNS.get(subject, subject.replace("_", " "))
    article = "" if subject in UNCOUNTED else "an " if noun[0] in "aeiouA" else "a "
    return f"{verb.replace('_', ' ')} {article}{noun}"


def details_line(details: Mapping[str, Any]) -> str:
    """`member → admin`, `email: sam@example.com`: what was recorded beside it, on one line."""
    pair = next((pair for pair in PAIRS if all(isinstance(details.get(name), str | int | float) for name in pair)), ())
    change = [_change(*(details[name] for name in pair))] if pair else []
    rest = [_pair(name, value) for name, value in details.items() if name not in pair and value not in (None, {})]
    return " · ".join(change + rest)


def _pair(name: str, value: Any) -> str:
    if isinstance(value, Mapping) and value and all(_is_change(item) for item in value.values()):
        return ", ".join(f"{key.replace('_', ' ')}: {_change(item['from'], item['to'])}" for key, item in value.items())
    return f"{name.replace('_', ' ')}: {_words(value)}"


def _words(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(item.replace("_", " ") for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items())
    return value_line(value)


def _is_change(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"from", "to"}


def _change(before: Any, after: Any) -> str:
    return f"{value_line(before)} → {value_line(after)}"
