"""Sessions from before conversations belonged to people get their owners, and names go back to being unique."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from app.db.migrate import downgrade, upgrade
from tests.conftest import Server, golden_mark

pytestmark = pytest.mark.core
AFTER = "0027_conversations"
BEFORE = import_module(f"migrations.versions.{AFTER}").down_revision


class Old:
    """A workspace as it was, written past the walls."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.tenant, self.ann, self.ben, self.agent, self.chat = (uuid4() for _ in range(5))
        run = connection.execute
        run("INSERT INTO tenants (id, slug, name) VALUES (%s, 'w', 'W')", (self.tenant,))
        for person in (self.ann, self.ben):
            run("INSERT INTO users (id, email, name) VALUES (%s, %s, 'P')", (person, f"{person}@example.test"))
        run("INSERT INTO agents (id, tenant_id, slug, name) VALUES (%s, %s, 'a', 'A')", (self.agent, self.tenant))
        run(
            "INSERT INTO chats (id, tenant_id, title, user_id) VALUES (%s, %s, 'T', %s)",
            (self.chat, self.tenant, self.ann),
        )

    def session(self, *, chat: UUID | None = None, meta: dict[str, Any] | None = None, kind: str = "agent") -> UUID:
        row = self.connection.execute(
            "INSERT INTO sessions (tenant_id, title, agent_id, created_by, chat_id, metadata, session_type, status)"
            " VALUES (%s, 'S', %s, %s, %s, %s, %s, 'completed') RETURNING id",
            (self.tenant, self.agent, self.ben, chat, json.dumps(meta or {}), kind),
        ).fetchone()
        assert row is not None
        found: UUID = row[0]
        return found

    def response(self, session: UUID) -> UUID:
        kind, entity, made = uuid4(), uuid4(), uuid4()
        run = self.connection.execute
        run("INSERT INTO entity_types (id, tenant_id, slug, name) VALUES (%s, %s, 'd', 'D')", (kind, self.tenant))
        run(
            "INSERT INTO entities (id, tenant_id, entity_type_id, name) VALUES (%s, %s, %s, 'E')",
            (entity, self.tenant, kind),
        )
        run(
            "INSERT INTO entity_responses (id, tenant_id, entity_id, session_id) VALUES (%s, %s, %s, %s)",
            (made, self.tenant, entity, session),
        )
        return made

    def call(self, session: UUID, tool: str) -> None:
        self.connection.execute(
            "INSERT INTO session_events (tenant_id, session_id, sequence, event_type, payload)"
            " VALUES (%s, %s, 1, 'tool.call', %s)",
            (self.tenant, session, json.dumps({"id": "c", "name": tool})),
        )


def test_owners_are_found_for_what_was_there_before(server: Server, empty_database: str) -> None:
    owner, superuser = server.conninfo("owner", empty_database), server.conninfo("superuser", empty_database)
    upgrade(owner, BEFORE)
    with psycopg.connect(superuser) as connection:
        old = Old(connection)
        said = old.session(chat=old.chat, kind="mixed", meta=golden_mark())
        replay = old.session(meta={"eval_source": str(said)})
        copy = old.session(meta={"copied_from": str(replay)})
        response = old.response(said)
        retry = old.session(meta={"retry_of": str(response)})
        typed = old.session(kind="chat")
        remembering, shared = old.session(), old.session(meta={"retry_of": "no id"})
        old.call(remembering, "saveMemory")
        old.call(shared, "searchEntities")
    upgrade(owner, AFTER)
    with psycopg.connect(superuser) as connection:
        found: dict[UUID, UUID | None] = dict(connection.execute("SELECT id, owner_id FROM sessions").fetchall())
        assert [found[one] for one in (said, replay, copy, retry)] == [old.ann] * 4
        assert [found[one] for one in (typed, remembering, shared)] == [old.ben, old.ben, None]
        assert connection.execute("SELECT id, owner_id FROM entity_responses").fetchall() == [(response, old.ann)]
        for person in (old.ann, old.ben):
            connection.execute(
                "INSERT INTO chats (tenant_id, title, user_id, external_id) VALUES (%s, 'T', %s, 'same')",
                (old.tenant, person),
            )
    downgrade(owner, BEFORE)
    with psycopg.connect(superuser) as connection:
        names = {row[0] for row in connection.execute("SELECT external_id FROM chats WHERE external_id IS NOT NULL")}
        assert "same" in names
        assert len(names) == 2
