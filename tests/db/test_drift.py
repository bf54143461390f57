"""The migrated database is what the models and walls.txt say."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text

from app.db.connect import head
from app.db.migrate import check, definitions, differences
from tests.conftest import Server
from tests.db.catalogue import WALLS, walls


@pytest.mark.core
def test_the_database_is_what_the_models_say(owner_url: str) -> None:
    assert check(owner_url) == []


@pytest.mark.core
def test_drift_is_seen(owner_url: str) -> None:
    """What `alembic check` overlooks: predicates, CHECK texts, walls; and what it would see."""
    changes = {
        "DROP INDEX idx_feedback_trace; CREATE INDEX idx_feedback_trace ON feedback (trace_id)"
        " WHERE trace_id <> ''": "idx_feedback_trace",
        "ALTER TABLE feedback DROP CONSTRAINT feedback_rating_known,"
        " ADD CONSTRAINT feedback_rating_known CHECK (rating <> '')": "feedback_rating_known",
        "ALTER TABLE tasks ALTER COLUMN cron DROP NOT NULL": "cron",
        "ALTER TABLE tasks ALTER COLUMN enabled SET DEFAULT true": "enabled",
        "ALTER TABLE tasks ADD COLUMN surprise text": "column surprise of tasks",
        "CREATE TABLE surprise (id uuid)": "column id of surprise",
        "ALTER TABLE tasks NO FORCE ROW LEVEL SECURITY": "tasks has no forced row-level security",
        "DROP POLICY chats_tenant ON chats": "chats has no forced row-level security",
    }
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(owner_url), poolclass=NullPool)
    with engine.connect() as connection:
        for change in changes:
            connection.execute(text(change))
        found = "\n".join(differences(connection))
        connection.rollback()
    assert [told for told in changes.values() if told not in found] == []
    with engine.connect() as connection:
        assert len(definitions(connection, "public")) > 500


def test_policies_rights_functions_and_triggers_are_as_written_down(superuser_url: str) -> None:
    assert walls(superuser_url).splitlines() == WALLS.read_text().splitlines()


@pytest.mark.core
def test_a_database_that_was_not_migrated_says_so(server: Server, empty_database: str) -> None:
    assert check(server.conninfo("owner", empty_database)) == [
        f"The database is at revision none and this code needs {head()}: run upshot db upgrade."
    ]


def test_every_revision_is_a_file_of_the_same_name() -> None:
    folder = Path(__file__).resolve().parents[2] / "migrations/versions"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {"0001_legacy", "0002_feedback", "0003_shared_context", "drop_chat_feedback"} <= names
    for name in names:
        assert f'revision = "{name}"' in (folder / f"{name}.py").read_text(), name
