"""Upshot: the whole wiring on one screen."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from flask import Flask

from app.config import Settings

if TYPE_CHECKING:
    from app.db.boot import Opened

VIEWS = (
    "app.views.shell",
    "app.views.auth",
    "app.views.home",
    "app.views.account",
    "app.views.workspace_switch",
    "app.views.settings",
    "app.views.members",
    "app.views.api_keys",
    "app.views.imports",
    "app.views.masking",
    "app.views.agent_review",
    "app.views.conversations",
    "app.views.sessions",
    "app.views.session_bulk",
    "app.views.feedback",
    "app.views.knowledge",
    "app.views.evals",
    "app.views.eval_pages",
    "app.views.eval_diffs",
    "app.views.palette",
    "app.views.saved_views",
    "app.views.agents",
    "app.views.agent_edit",
    "app.views.agent_try",
    "app.views.chat",
    "app.views.chat_live",
    "app.views.own_feedback",
    "app.views.entities",
    "app.views.tasks",
    "app.views.schedules",
)  # fmt: skip
APIS = (
    "app.api.kit.problems",
    "app.api.kit.limits",
    "app.api.ops.health",
    "app.api.ops.metrics",
    "app.api.ops.openapi",
    "app.api.ops.docs",
    "app.api.admin.settings",
    "app.api.members.feedback",
    "app.api.agents.sessions",
    "app.api.members.chats",
    "app.api.agents.imports",
    "app.api.admin.criteria_sets",
    "app.api.members.responses",
    "app.api.admin.shared_context",
    "app.api.agents.context",
    "app.api.kit.cors",
    "app.api.members.signals",
    "app.api.members.feedback_tokens",
    "app.api.members.reactions",
    "app.api.admin.evals",
    "app.api.admin.eval_compare",
    "app.api.admin.eval_runs",
    "app.api.agents.mcp",
)  # fmt: skip


class Upshot(Flask):
    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """No view is a coroutine; Flask would look at each function of each request to find that out."""
        return func


def create_app(settings: Settings | None = None, opened: Opened | None = None, *, demo: bool = False) -> Flask:
    """The app on an open database. Without one it opens the database that the settings name."""
    from app.db.boot import connect_app, open_database

    settings = settings or Settings.from_env()
    opened = opened or open_database(settings)
    app = Upshot(__name__)
    app.config.update(
        SETTINGS=settings,
        SECRET_KEY=opened.secret_key,
        SECURE=settings.secure,
        SESSION_COOKIE_NAME="__Host-upshot_said" if settings.secure else "upshot_said",
        SESSION_COOKIE_SECURE=settings.secure,
        SESSION_COOKIE_SAMESITE="Lax",
        DEMO=demo and settings.on_loopback,
        VERSION=own_version(),
        TRUSTED_HOSTS=settings.trusted_hosts,
        KNOWS_PERSON=set(),
        TAKES_VISITORS=set(),
        TAKES_OPERATOR=set(),
        MAX_CONTENT_LENGTH=1024 * 1024,
        MAX_FORM_MEMORY_SIZE=512 * 1024,
        MAX_FORM_PARTS=1000,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
    )
    connect_app(app, opened, settings)
    from app.security import authentication, flash_cookie, headers
    from app.services.sessions.budget import use_budget

    use_budget(settings.session_bytes)

    app.session_interface = flash_cookie.OnlyWhenSent()

    authentication.install(app)
    headers.install(app)
    for name in (*VIEWS, *APIS):
        import_module(name).register(app)
    return app


def own_version() -> str:
    try:
        return version("upshot")
    except PackageNotFoundError:
        return "0"
