"""What it costs to bind a workspace: round trips and time of a bound transaction against a bare one."""

from __future__ import annotations

from uuid import uuid4

from sqlalchemy import event, text

from bench.places import database, folder, median_ms


def measure() -> dict[str, float]:
    from app import create_app
    from app.actor import Actor
    from app.config import Settings
    from app.db import act_as, db, transaction
    from app.db.boot import Opened

    with folder() as place, database(place) as (app_url, owner_url, _):
        app = create_app(Settings(data_dir_text=str(place)), Opened(app_url, "x" * 40, owner_url))
        with app.app_context():
            statements: list[str] = []
            event.listen(db.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))

            def once() -> None:
                with transaction():
                    db.session.execute(text("select 1"))

            bare = median_ms(once, 201)
            statements.clear()
            once()
            bare_trips = len(statements)
            act_as(Actor(uuid4(), uuid4(), "admin"))
            bound = median_ms(once, 201)
            statements.clear()
            once()
            bound_trips = len(statements)
            db.engine.dispose()
    return {
        "extra_round_trips": bound_trips - bare_trips,
        "extra_round_trips_at_most": 1,
        "bare_ms": round(bare, 3),
        "bound_ms": round(bound, 3),
        "ratio": round(bound / bare, 2),
    }
