"""What every page has around it: navigation, tabs with what is waiting, workspaces, theme, keys, toasts."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flask import Flask, Response, current_app, g, redirect, render_template, request, url_for

from app.actor import Actor
from app.formats.glossary import GLOSSARY
from app.security import csrf
from app.security.access import access
from app.services.analytics import tab_counts
from app.services.workspaces import people
from app.services.workspaces.credentials import Credential
from app.text import hidden_characters
from app.views import format, markdown
from app.views.htmx import flashed_toasts, local_path, vary_by_htmx
from app.views.layout import bp, rendering

THEMES = ("light", "dark", "auto")
A_YEAR = 365 * 24 * 3600


@dataclass(frozen=True)
class Section:
    """An entry of the side bar or a tab of Agent Review. `endpoint` is where it leads; pages at or below `paths` belong
    to it. `waiting` names the count beside a tab, `words` what follows the number."""

    title: str
    icon: str
    endpoint: str
    paths: tuple[str, ...]
    role: str = "admin"
    waiting: str = ""
    words: str = ""

    def holds(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self.paths)


@dataclass(frozen=True)
class Group:
    title: str
    sections: tuple[Section, ...]


REVIEW = "/admin/agent-review"
TABS = (
    Section("Conversations", "message-circle", "conversations.index", (f"{REVIEW}/conversations",)),
    Section("Sessions", "activity", "sessions.index", (f"{REVIEW}/sessions", "/sessions")),
    Section(
        "Feedback",
        "thumb-down",
        "feedback.index",
        (f"{REVIEW}/feedback", f"{REVIEW}/patterns", f"{REVIEW}/digest"),
        waiting="feedback",
    ),
    Section(
        "Knowledge",
        "book",
        "knowledge.index",
        (f"{REVIEW}/knowledge", f"{REVIEW}/drafts"),
        waiting="knowledge",
        words="proposed",
    ),
    Section("Evals", "flask", "evals.index", (f"{REVIEW}/evals",)),
)
AGENTS = (
    Section("Agent Review", "checkup-list", "feedback.index", (REVIEW, "/sessions")),
    Section("Agents", "robot", "agents.index", ("/admin/agents",)),
)
WORKSPACE = (
    Section("Home", "building", "home.index", ("/",), role="member"),
    Section("Chat", "message-circle", "chat.index", ("/chat", "/feedback/mine"), role="member"),
    Section("Entities", "database", "entities.index", ("/entities",), role="member"),
    Section("Tasks", "list-check", "tasks.index", ("/tasks",), role="member"),
    Section("Settings", "settings", "settings.index", ("/admin/settings",)),
)


def navigation(actor: Actor | None) -> list[Group]:
    """The groups this actor sees. An admin starts in Agent Review, so the home page is in a member's bar only."""
    if actor is None:
        return []
    if actor.is_admin:
        return [Group("AI & Agents", AGENTS), Group("Workspace", WORKSPACE[1:])]
    return [Group("Workspace", tuple(section for section in WORKSPACE if actor.at_least(section.role)))]


class Shell:
    """What base.html reads. Nothing is asked of the database before a template asks for it, so that a page can be
    drawn while the database is away."""

    all_tabs = TABS

    def __init__(self) -> None:
        self.actor: Actor | None = g.get("actor")
        self.person: Credential | None = g.get("person")
        self.workspace_name = self.person.workspace if self.person else ""
        self.navigation = navigation(self.actor)
        self.is_admin = self.actor is not None and self.actor.is_admin
        # By the path navigation marks where the person is; an unknown address is nowhere.
        self.path = request.path if request.endpoint else ""
        self.tabs = TABS if self.is_admin and any(tab.holds(self.path) for tab in TABS) else ()
        chosen = request.cookies.get("theme", "auto")
        self.theme = chosen if chosen in THEMES else "auto"

    @cached_property
    def workspaces(self) -> list[people.Workspace]:
        """The workspaces this person may switch to."""
        return people.workspaces_of(self.person.user_id) if self.person else []

    @cached_property
    def waiting(self) -> dict[str, Any]:
        """How many rows wait for a decision, by the name that its tab gives the count; and the accuracy."""
        return tab_counts.count_tabs(actor=self.actor) if self.is_admin and self.actor else {}


@bp.post("/theme")
@access("public", also="person")
def theme() -> Response:
    """Remember the theme and go back to where the person was; a script that only wants it kept gets 204."""
    chosen = request.form.get("theme", "auto")
    answer: Any = Response(status=204) if "HX-Request" in request.headers else redirect(own_path(), 303)
    safe = {"secure": current_app.config["SECURE"], "httponly": True, "samesite": "Lax"}
    answer.set_cookie("theme", chosen if chosen in THEMES else "auto", max_age=A_YEAR, **safe)
    return vary_by_htmx(answer)


def own_path() -> str:
    """The page that the form was on."""
    return local_path(request.form.get("next"))


@bp.get("/keys")
@access("signed_in")
def keys() -> str:
    """What each key does, for those without a script."""
    return render_template("layout/keys.html")


@bp.get("/admin/agent-review")
@bp.get("/admin/agent-review/")
@access("admin")
def agent_review() -> Any:
    """The queue is where an admin begins."""
    return redirect(url_for("feedback.index"), 303)


@bp.get("/admin/conversations")
@bp.get("/admin/conversations/")
@bp.get("/admin/conversations/<path:rest>")
@access("admin")
def moved_conversations(rest: str = "") -> Any:
    """Where conversations used to be."""
    target = url_for("conversations.index") + (f"/{rest}" if rest else "")
    query = request.query_string.decode("ascii", "replace")
    return redirect(f"{target}?{query}" if query else target, 301)


def scope_options(rows: Iterable[Any]) -> list[tuple[str, str]]:
    """Agents or entity types as options of a form."""
    return [(str(row.id), row.slug) for row in rows]


def context() -> dict[str, Any]:
    """`shell` for the frame, and the token that every form on the page carries."""
    g.csrf = csrf.csrf_token()
    return {"shell": Shell()}


def register(app: Flask) -> None:
    """Give templates what they read."""
    app.jinja_env.filters.update({**format.FILTERS, "markdown": markdown.render})
    app.jinja_env.globals |= {
        "draw": rendering.draw,
        "glossary": GLOSSARY,
        "flashed_toasts": flashed_toasts,
        "scope_options": scope_options,
        "url_for": rendering.url_for,
    }
    app.jinja_env.finalize = hidden_characters.finalize
    app.context_processor(context)
