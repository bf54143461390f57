"""Seed the demo workspace once for all its tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from app.config import Settings
from app.db import act_as, db, transaction
from app.db.boot import Opened
from app.demo.seed import seed
from app.services.workspaces import identity
from app.services.workspaces import store as workspace_store


@pytest.fixture(scope="session")
def place(server: Any, template: str) -> Iterator[str]:
    """Give a database of its own, since other tests may have a demo too."""
    with server.database(template, "demo") as name:
        yield name


@pytest.fixture(scope="session")
def demo_app(server: Any, place: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    from app import create_app

    settings = Settings(data_dir_text=str(tmp_path_factory.mktemp("data")), threads=2)
    opened = Opened(server.conninfo("app", place), secrets.token_urlsafe(48), server.conninfo("owner", place))
    app = create_app(settings, opened)
    with app.app_context():
        made = seed()
    app.config["MADE"] = made
    yield app
    with app.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def demo(demo_app: Flask) -> Iterator[Any]:
    """Act as the system user of the demo."""
    with demo_app.app_context():
        with transaction():
            actor = identity.system_in(workspace_store.find_workspace("demo"))
        act_as(actor)
        yield actor
