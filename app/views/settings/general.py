"""Settings: General, Masking, Imports and Audit."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flask import Response, current_app, g, request, url_for

from app.db import transaction
from app.db.paging import Page
from app.errors import Invalid, Refused
from app.formats.agent_config import OFFLINE
from app.formats.workspace_settings import WorkspaceSettings, timezones
from app.security.access import access
from app.services import audit
from app.services.ingest import imports as ingest_imports
from app.services.workspaces import store as workspace_store
from app.text.masking import Masking
from app.views.format import value_line
from app.views.htmx import Toast, leave, page, render
from app.views.lists import page_cursor, pager_links
from app.views.settings import bp

MAX_LENGTH = 65_536
EXAMPLE = (
    "Use api_key=9f8a7b6c5d4e3f2a1b0c and pay with 4242 4242 4242 4242. Questions: sam@example.com, +49 30 1234567."
)


@bp.get("")
@access("admin")
def index() -> Any:
    tenant = workspace_store.get_workspace(actor=g.actor)
    return _page(tenant.name, workspace_store.get_settings(g.actor).model_dump(), {})


def _page(name: str, values: Mapping[str, Any], errors: dict[str, str], status: int = 200) -> Response:
    zones = sorted(timezones())
    return render(
        "settings/index.html",
        status=status,
        name=name,
        form=values,
        errors=errors,
        timezones=zones,
        default_model=_default_model(),
    )


def _default_model() -> str:
    """The model that judges where the workspace names none."""
    model: str = current_app.config["SETTINGS"].model
    return "none" if model == OFFLINE else model


@bp.post("")
@access("admin")
def save() -> Any:
    """All or nothing: the name and the settings are one form."""
    name, changes = request.form.get("name", ""), _read_form(request.form)
    errors: dict[str, str] = {}
    try:
        with transaction():
            for change in (
                lambda: workspace_store.rename_workspace(name, actor=g.actor),
                lambda: workspace_store.change_settings(changes, actor=g.actor),
            ):
                try:
                    change()
                except Invalid as wrong:
                    errors |= wrong.fields
            if errors:
                raise Invalid.of(errors)
    except Invalid:
        return _page(name, WorkspaceSettings().model_dump() | changes, errors, 422)
    return leave(url_for(".index"), "Saved the settings.")


def _read_form(form: Mapping[str, str]) -> dict[str, Any]:
    """The settings of this page in their own types; what is no number stays a text, and is refused as such. The other
    settings are changed over the API and come to this page with what they decide."""
    numbers = ("context_top_n", "judge_concurrency", "judge_seconds", "judge_daily_tokens")
    return {
        "author_private": form.get("author_private") == "1",
        "machine_feedback": form.get("machine_feedback") == "1",
        "timezone": form.get("timezone", "").strip(),
        "feedback_origins": form.get("feedback_origins", "").split(),
        **{name: _read_number(form[name].strip()) for name in numbers if name in form},
        **{name: form[name].strip() for name in ("knowledge_gate", "judge_model") if name in form},
    }


def _read_number(text: str) -> Any:
    count = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    return (text or None) if count is None else count


@bp.get("/masking")
@access("admin")
def show_masking() -> Any:
    return _masking_page()


def _masking_page(text: str = "", status: int = 200) -> Any:
    settings = workspace_store.get_settings(g.actor)
    return page(
        "settings/masking.html",
        "settings/_masking.html",
        status=status,
        settings=settings,
        text=text or EXAMPLE,
        tried=bool(text),
        masked=Masking(settings.mask_emails, settings.mask_phones).text(text or EXAMPLE),
        errors={"text": f"Enter up to {MAX_LENGTH:,} characters."} if status == 422 else {},
        longest=MAX_LENGTH,
    )


@bp.post("/masking")
@access("admin")
def save_masking() -> Any:
    changes = {name: request.form.get(name) == "1" for name in ("mask_emails", "mask_phones")}
    with transaction():
        workspace_store.change_settings(changes, actor=g.actor)
    return leave(url_for(".show_masking"), "Saved. New data is masked with these settings.")


@bp.post("/masking/try")
@access("admin")
def try_masking() -> Any:
    """Nothing of it is stored or logged."""
    text = request.form.get("text", "").replace("\r\n", "\n")
    return _masking_page(text[:MAX_LENGTH], 422 if len(text) > MAX_LENGTH else 200)


@bp.get("/imports")
@access("admin")
def list_imports() -> Any:
    found = ingest_imports.list_imports(Page(50, page_cursor()), actor=g.actor)
    return page("settings/imports.html", "settings/_imports.html", found=found, **pager_links(found))


@bp.post("/imports/<uuid:import_id>/undo")
@access("admin")
def undo_import(import_id: UUID) -> Any:
    try:
        with transaction():
            removed = ingest_imports.undo_import(import_id, actor=g.actor)
    except Refused as refusal:
        return leave(url_for(".list_imports"), Toast(refusal.detail, "error"))
    return leave(
        url_for(".list_imports"), f"Undid the import and deleted {removed:,} session{'' if removed == 1 else 's'}."
    )


# Audit: `member.role_changed` reads "changed a member's role", details are on one line

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
    "logins.ended": "signed a person out",
    "member.role_changed": "changed a member's role",
    "memory.all_deleted": "deleted all their memories",
    "password.changed": "changed their password",
    "person.renamed": "changed their name",
    "session.filled": "sent too many events to a session",
    "session.promoted": "promoted a session",
    "session.stop_requested": "stopped a run",
    "settings.changed": "changed the settings",
    "webhook.tested": "sent a test event to a webhook",
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
