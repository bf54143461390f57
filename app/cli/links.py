"""The link that lets the operator in for the first time."""

from __future__ import annotations

from datetime import timedelta

from app.config import Settings

FIRST_DAY = timedelta(hours=24)
DEMO_ADMIN = "admin@demo.test"


def first_link(settings: Settings) -> str | None:
    """A one-time sign-in link for the demo's admin, when there is a demo."""
    from app.db import transaction
    from app.errors import Problem
    from app.services.workspaces import logins

    try:
        with transaction():
            token = logins.make_link(DEMO_ADMIN, lifetime=FIRST_DAY)
    except Problem:
        return None
    return f"{settings.url}/sign-in/link/{token}"
