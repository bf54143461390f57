"""A workspace with something in it, written through the product's own services."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from flask import Flask

from app.db import acting_as, transaction
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.entities import store as entity_store
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.ingest import imports as ingest_imports
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent
from app.services.sessions.store import NewSession

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"


@dataclass
class Filled:
    """The ids of what was written."""

    chat: UUID
    session: UUID
    failed: UUID
    rows: list[UUID] = field(default_factory=list)
    ids: dict[str, UUID] = field(default_factory=dict)


def fill(app: Flask, workspace: Any) -> Filled:
    """One conversation with a session behind it, one failed session, feedback of several kinds, two knowledge rows."""
    admin, member, owner = (workspace.actor(role) for role in ("admin", "member", "owner"))
    begin = datetime.now(UTC) - timedelta(hours=3)
    with app.app_context():
        with acting_as(admin), transaction():
            row = knowledge_rows.add_row(
                NewRow(
                    type="correction", content="Use LTM EBITDA when comparing deals.", context="comparing valuations"
                ),
                actor=admin,
            )
            entity_store.create_type(slug="deal", name="Deal", fields={"valuation": {"type": "number"}}, actor=admin)
            deal = entity_store.create_entity(entity_type="deal", name="Halden", fields={"valuation": 8.2}, actor=admin)
            ids = {"correction": row.id, "deal": deal.id}
        with acting_as(member), transaction():
            chat = chat_store.create_chat(
                actor=member, agent_slug="deal-analyst", title="Compare Kestrel and Bluefin", created_at=begin
            )
            session, _ = session_store.create_session(_session(chat.id, begin, ids), actor=member)
            messages = chat_store.append_messages(chat.id, _messages(session.id, begin), actor=member)
            ids["answer"] = messages[1].id
            failed, _ = session_store.create_session(
                NewSession(agent="sales-ops", title="Find accounts", status="failed", error="searchAccounts timed out"),
                actor=member,
            )
            ids["reaction"] = _feedback(member, chat.id, "Used last year's EBITDA again").id
            ids["edit"] = feedback_intake.record_feedback(
                NewFeedback(
                    kind="signal",
                    signal="edit",
                    message_id=str(messages[1].id),
                    details={"preferred_answer": "Kestrel is at 9.6× LTM EBITDA, Bluefin at 12.6×."},
                ),
                actor=member,
            ).id
        with acting_as(owner), transaction():
            ids["hostile"] = _feedback(owner, chat.id, HOSTILE).id
        with acting_as(admin), transaction():
            proposed = knowledge_rows.add_row(
                NewRow(type="lesson", content="Say which period a multiple is for.", feedback_ids=[ids["reaction"]]),
                actor=workspace.actor("system"),
            )
            ids["proposed"] = proposed.id
    return Filled(chat.id, session.id, failed.id, ids=ids)


def _feedback(actor: Any, chat_id: UUID, comment: str) -> Any:
    new = NewFeedback(
        source_type="chat",
        kind="reaction",
        rating="negative",
        comment=comment,
        context={"chat_id": str(chat_id), "message_index": 1},
        turn_id="t1",
    )
    return feedback_intake.record_feedback(new, actor=actor).row


def _messages(session_id: UUID, begin: datetime) -> list[NewMessage]:
    text = "Kestrel is at **11.2×** EBITDA, Bluefin at 12.6×."
    return [
        NewMessage(role="user", content="Compare Kestrel and Bluefin on EV/EBITDA.", turn_id="t1", created_at=begin),
        NewMessage(
            role="agent",
            content=text + HOSTILE,
            turn_id="t1",
            session_id=session_id,
            created_at=begin + timedelta(seconds=8),
        ),
    ]


def _session(chat_id: UUID, begin: datetime, ids: dict[str, UUID]) -> NewSession:
    def at(seconds: float) -> datetime:
        return begin + timedelta(seconds=seconds)

    events = [
        NewEvent("context.loaded", {"row_ids": [str(ids["correction"])], "sha256": "0", "token_count": 61}, at(0)),
        NewEvent("user.message", {"text": "Compare Kestrel and Bluefin on EV/EBITDA."}, at(0.1)),
        NewEvent("tool.call", {"id": "c1", "name": "searchDeals", "arguments": {"q": "Kestrel"}}, at(2)),
        NewEvent("tool.result", {"call_id": "c1", "name": "searchDeals", "output": [{"id": 1}, {"id": 2}]}, at(2.34)),
        NewEvent(
            "entity.updated",
            {
                "entity_id": str(ids["deal"]),
                "entity_type": "deal",
                "name": "Halden",
                "changes": {"valuation": {"from": 8.2, "to": 14.5}},
            },
            at(3),
        ),
        NewEvent("agent.message", {"text": "Kestrel is at **11.2×** EBITDA." + HOSTILE}, at(7.9)),
        NewEvent("session.completed", {}, at(8)),
    ]
    return NewSession(
        agent="deal-analyst",
        title="Compare Kestrel and Bluefin on EV/EBITDA",
        session_type="chat",
        status="completed",
        chat_id=chat_id,
        model="offline",
        input_tokens=6214,
        output_tokens=812,
        cost=Decimal("0.0042"),
        duration_ms=8000,
        environment="production",
        tags=("ic-pack",),
        created_at=begin,
        started_at=begin,
        finished_at=at(8),
        events=events,
    )


def several(app: Flask, workspace: Any) -> tuple[dict[str, UUID], UUID]:
    """Sessions that differ in what they can be filtered by, and the import that brought one of them."""
    admin = workspace.actor()
    made: dict[str, UUID] = {}
    with app.app_context(), acting_as(admin), transaction():
        import_id = ingest_imports._begin("runs.ndjson", admin)
        for name, more in {
            "quick": {"duration_ms": 900, "tags": ("test", "a")},
            "slow": {"duration_ms": 60_000, "session_type": "chat", "tags": ("b",)},
            "failed": {"status": "failed", "error": "no answer"},
            "brought": {"import_id": import_id, "agent_version": 1},
        }.items():
            new = NewSession(**{"agent": "deal-analyst", "title": name, "status": "completed", **more})  # type: ignore[arg-type]
            made[name] = session_store.create_session(new, actor=admin)[0].id
    return made, import_id
