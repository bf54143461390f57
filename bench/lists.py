"""First page of the Feedback list with 10,000 rows and with 1,000,000: pages must not slow down with the table."""

from __future__ import annotations

from typing import Any

from bench.places import as_superuser, database, folder, median_ms
from bench.search import FILL

SMALL, LARGE = 10_000, 1_000_000
PATHS = (
    "/admin/agent-review/feedback",
    "/admin/agent-review/feedback?status=pending&rating=negative",
    "/admin/agent-review/feedback?q=ebitda",
)


def measure() -> dict[str, Any]:
    from app import create_app, tokens
    from app.actor import Actor
    from app.config import Settings
    from app.db import acting_as, db, transaction
    from app.db.boot import Opened
    from app.services import logins, people, workspaces

    with folder() as place, database(place) as (app_url, owner_url, superuser):
        app = create_app(Settings(data_dir_text=str(place)), Opened(app_url, "x" * 40, owner_url))
        with app.app_context():
            with transaction():
                tenant, system = workspaces.create_workspace(slug="bench", name="Bench")
            with acting_as(system), transaction():
                user = people.create_person(email="b@example.test", name="B", role="admin", actor=system)
                actor = Actor(user.id, tenant.id, "admin", user.name)
                token = logins.begin(actor=actor, user_agent="bench")
        client = app.test_client()
        client.set_cookie("upshot", token, domain="localhost")
        assert tokens.digest(token)
        results: dict[str, Any] = {}
        times: dict[int, list[float]] = {}
        with as_superuser(superuser) as admin:
            for rows in (SMALL, LARGE):
                admin.execute(FILL, (rows if rows == SMALL else rows - SMALL,))
                admin.execute("vacuum analyze feedback")
                times[rows] = [median_ms(lambda path=path: _ok(client, path), 15) for path in PATHS]  # type: ignore[misc]
        for path, small, large in zip(PATHS, times[SMALL], times[LARGE], strict=True):
            results[path] = {"small_ms": round(small, 1), "large_ms": round(large, 1), "ratio": round(large / small, 2)}
        with app.app_context():
            db.engine.dispose()
    return {"rows": [SMALL, LARGE], "pages": results}


def _ok(client: Any, path: str) -> None:
    assert client.get(path).status_code == 200
