"""The database: how it is reached and prepared, and the app's session on it. What `app.db.engine` offers is loaded on
first use. SQLAlchemy takes longer to load than a short command takes to run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.db.engine import act_as, acting_as, db, get_own, run, transaction

__all__ = ["act_as", "acting_as", "db", "get_own", "run", "transaction"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"app.db has no {name}")
        return getattr(import_module("app.db.engine"), name)
