"""Upshot: the whole wiring on one screen."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from app.config import Settings

if TYPE_CHECKING:
    from flask import Flask

    from app.db.boot import Opened

# Of two rules that take OPTIONS, the first answers, which is that of cors in `kit`.
FIRST = ("layout", "kit")


def create_app(
    settings: Settings | None = None, opened: Opened | None = None, *, demo: bool = False, routes: bool = True
) -> Flask:
    """Build the app on an open database. Without one, open the database that the settings name."""
    # Commands import this package too, and most of them need no web app.
    from flask import Flask

    from app.db.boot import open_database
    from app.db.engine import connect_app
    from app.security import authentication, cookies, headers, last_used
    from app.services.sessions.events import use_budget

    settings = settings or Settings.from_env()
    opened = opened or open_database(settings)
    app = Flask(__name__)
    app.config.update(
        SETTINGS=settings,
        SECRET_KEY=opened.secret_key,
        SECURE=settings.secure,
        SESSION_COOKIE_NAME="__Host-upshot_flash" if settings.secure else "upshot_flash",
        SESSION_COOKIE_SECURE=settings.secure,
        SESSION_COOKIE_SAMESITE="Lax",
        DEMO=demo and settings.on_loopback,
        VERSION=version("upshot"),
        TRUSTED_HOSTS=settings.trusted_hosts,
        MAX_CONTENT_LENGTH=1024 * 1024,
        MAX_FORM_MEMORY_SIZE=512 * 1024,
        MAX_FORM_PARTS=1000,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
    )
    connect_app(app, opened, settings)
    use_budget(settings.session_max_bytes)
    app.session_interface = cookies.LazyCookieSession()
    # Flask calls the last of these first: installed before all others, the headers see the finished answer.
    app.after_request(headers.add_default_headers)
    app.before_request(authentication.check)
    app.after_request(last_used.note_use)
    if routes:
        add_routes(app)
    return app


def add_routes(app: Flask) -> None:
    """Import every module of `views` and `api`, register their blueprints, and call `register` of each that has one."""
    for room in (import_module("app.views"), import_module("app.api")):
        names = [found.name for found in iter_modules(room.__path__)]
        for name in sorted(names, key=lambda name: name not in FIRST):
            package = import_module(f"{room.__name__}.{name}")
            inside = iter_modules(getattr(package, "__path__", ()))
            modules = [import_module(f"{package.__name__}.{found.name}") for found in inside]
            if hasattr(package, "bp"):
                app.register_blueprint(package.bp)
            for module in (package, *modules):
                if hasattr(module, "register"):
                    module.register(app)
