"""What every page shares: shell, navigation, search, saved views and errors."""

from flask import Blueprint, Flask

from app.views.layout import rendering

bp = Blueprint("layout", __name__)


def register(app: Flask) -> None:
    """Set how templates are rendered, before any other module reads `jinja_env`, which makes it."""
    app.jinja_environment = rendering.Templates
