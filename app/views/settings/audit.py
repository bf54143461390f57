"""How the audit trail reads: `member.role_changed` as "changed a member's role", details on one line."""

from collections.abc import Mapping
from typing import Any

from app.views.format import value_line

PAIRS = (("from", "to"), ("before", "after"))
SENTENCES = {
    "agent.archived": "archived an agent",
    "agent.changed": "changed an agent",
    "agent.created": "made an agent",
    "agent.merged": "merged an agent into another",
    "agent.renamed": "renamed an agent",
    "agent.restored": "put an archived agent back to work",
    "agent.version_restored": "made an earlier version of an agent current",
    "agent.version_saved": "had a new version of an agent written",
    "feedback.assessed": "assessed an answer",
    "feedback.assigned": "assigned feedback",
    "feedback.comment_deleted": "deleted a comment on feedback",
    "feedback.commented": "commented on feedback",
    "feedback.read": "read a person's feedback",
    "feedback.unassigned": "gave feedback back",
    "import.began": "began an import",
    "import.finished": "finished an import",
    "eval_run.cancelled": "cancelled an eval run",
    "eval_run.deleted": "deleted an eval run with its replays",
    "eval_run.finished": "finished an eval run",
    "candidate.run_again": "ran a candidate’s prompt again",
    "eval_run.retried": "had errored replays tried again",
    "eval_run.started": "started an eval run",
    "golden.edited": "changed a golden",
    "golden.revoked": "revoked a golden",
    "golden_set.policy_changed": "changed what decides in a golden set",
    "import.undone": "undid an import",
    "invitation.accepted": "accepted an invitation",
    "invitation.withdrawn": "withdrew an invitation",
    "knowledge.active": "brought a knowledge row into use",
    "knowledge.created": "wrote a knowledge row",
    "knowledge.deleted": "deleted a knowledge row",
    "knowledge.edited": "edited a knowledge row",
    "knowledge.inactive": "took a knowledge row out of use",
    "knowledge.merged": "merged a proposed rule into another",
    "knowledge.reopened": "took back the decision about a proposed rule",
    "knowledge.rolled_back": "took a knowledge row back to an earlier version",
    "knowledge.superseded": "let another knowledge row take one's place",
    "knowledge.signal_added": "put more feedback behind a proposed rule",
    "key.created": "made an API key",
    "key.revoked": "revoked an API key",
    "login.began": "signed in",
    "login.ended": "signed out",
    "logins.ended": "ended a person's logins",
    "member.added": "added a member",
    "member.invited": "invited somebody",
    "member.removed": "removed a member",
    "member.role_changed": "changed a member's role",
    "memory.all_deleted": "deleted what agents remember about them",
    "memory.deleted": "deleted a memory of theirs",
    "memory.saved": "had an agent remember something about them",
    "password.changed": "changed their password",
    "person.renamed": "changed their name",
    "session.copied": "copied a replay into a session",
    "session.filled": "sent more events than a session may hold",
    "session.promoted": "made a session golden",
    "settings.changed": "changed the settings",
    "sign_in_link.made": "made a sign-in link",
    "session.stop_requested": "stopped a run",
    "task.changed": "changed a scheduled task",
    "task.created": "scheduled a task",
    "task.deleted": "deleted a scheduled task",
    "task.disabled": "turned a scheduled task off",
    "task.enabled": "turned a scheduled task on",
    "task.started": "ran a scheduled task now",
    "view.changed": "changed a saved view",
    "view.deleted": "deleted a saved view",
    "view.saved": "saved a view",
    "workspace.created": "made the workspace",
    "workspace.renamed": "renamed the workspace",
}


def sentence(action: str) -> str:
    """What was done. An action without a sentence of its own is read out: `agent.saved` is "agent saved"."""
    return SENTENCES.get(action) or action.replace(".", " ").replace("_", " ")


def details_line(details: Mapping[str, Any]) -> str:
    """`member → admin`, `email: sam@example.com`: what was recorded beside it, on one line."""
    pair = next((pair for pair in PAIRS if set(pair) <= set(details) and _is_plain(details, pair)), ())
    rest = [_pair(name, value) for name, value in details.items() if name not in pair and value not in (None, {})]
    return " · ".join(
        [_change(dict(zip(("from", "to"), map(details.get, pair), strict=True))), *rest] if pair else rest
    )


def _is_plain(details: Mapping[str, Any], pair: tuple[str, str]) -> bool:
    return all(isinstance(details[name], str | int | float) for name in pair)


def _pair(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if isinstance(value, Mapping) and value and all(_is_change(item) for item in value.values()):
        return ", ".join(f"{key.replace('_', ' ')}: {_change(item)}" for key, item in value.items())
    return f"{words}: {_words(value)}"


def _words(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(item.replace("_", " ") for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items())
    return value_line(value)


def _is_change(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"from", "to"}


def _change(value: Mapping[str, Any]) -> str:
    return f"{value_line(value['from'])} → {value_line(value['to'])}"
