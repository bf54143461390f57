"""Machine feedback: messages in which a person judges an earlier answer become feedback on that answer.

A chat knows how many of its messages were checked. Whoever checks claims chats with new messages for a while, reads
them without a transaction, and stores what was found with the new count. A claim of a process that died runs out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, exists, func, or_, select, text, update
from sqlalchemy.orm import aliased

from app.actor import Actor
from app.db import db
from app.learning.gate.classify import Verdict
from app.learning.gate.reading import Turn
from app.learning.gate.targets import DAYS, MAX_TURNS, Candidate, as_details
from app.learning.signals import REACTIONS
from app.models import Chat, Feedback, Message
from app.services.feedback.intake import MAX_COMMENT_LENGTH, NewFeedback, record_feedback

WAITING = text("SELECT door_unchecked()")
# Of a long import, so many messages at once.
MAX_MESSAGES = 500
# The turns before a message that say what it is about.
EARLIER_TURNS = 8
# A turn has a question and an answer; some have more.
EARLIER_MESSAGES = 4 * EARLIER_TURNS
MAX_TEXT = 8000
TURNS = text("""
    WITH own AS (
        SELECT c.id FROM chats AS c
         WHERE c.tenant_id = app_tenant() AND c.user_id = :user_id AND c.project = :project
           AND c.last_message_at >= :since
         ORDER BY c.last_message_at DESC LIMIT :most
    )
    SELECT answer.chat_id, answer.turn_id, answer.created_at, left(answer.content, :longest) AS agent,
           left(coalesce(asked.content, ''), :longest) AS question
      FROM own CROSS JOIN LATERAL (
           SELECT m.chat_id, m.turn_id, m.created_at, m.content, m.message_index FROM messages AS m
            WHERE m.tenant_id = app_tenant() AND m.chat_id = own.id AND m.role = 'agent'
              AND (CAST(:chat_id AS uuid) <> m.chat_id OR m.message_index < :before_index)
              AND m.created_at <= :before AND m.created_at >= :since
              AND NOT EXISTS (SELECT FROM messages AS later
                   WHERE later.tenant_id = m.tenant_id AND later.chat_id = m.chat_id AND later.turn_id = m.turn_id
                     AND later.role = 'agent' AND later.message_index > m.message_index)
            ORDER BY m.message_index DESC LIMIT :most
           ) AS answer
      LEFT JOIN LATERAL (
           SELECT u.content FROM messages AS u
            WHERE u.tenant_id = app_tenant() AND u.chat_id = answer.chat_id AND u.turn_id = answer.turn_id
              AND u.role = 'user'
            ORDER BY u.message_index LIMIT 1
           ) AS asked ON true
     ORDER BY answer.created_at DESC, answer.message_index DESC LIMIT :most
""")


@dataclass(frozen=True)
class NewMessage:
    """A person's message that nobody has checked, with the turns before it in its conversation, oldest first."""

    id: UUID
    chat_id: UUID
    user_id: UUID
    project: str
    index: int
    content: str
    created_at: datetime
    turns: list[Turn]


@dataclass(frozen=True)
class ClaimedChat:
    """A chat that is being checked, up to its first `seen` messages."""

    id: UUID
    seen: int
    messages: list[NewMessage]


@dataclass(frozen=True)
class PersonTurn:
    """One turn of a person in a project, in whichever conversation."""

    chat_id: UUID
    turn_id: str
    at: datetime
    turn: Turn

    def age_in_days(self, at: datetime) -> float:
        return max(0.0, (at - self.at).total_seconds() / 86400)


@dataclass(frozen=True)
class Located:
    """The turn that a message is about, and all that were compared, with their scores, best first."""

    turn: PersonTurn
    ranked: Sequence[Candidate]
    turns: Sequence[PersonTurn]


@dataclass(frozen=True)
class Detection:
    """A judgement found in a message, and by whom if not by the gate alone."""

    message: NewMessage
    verdict: Verdict
    target: Located
    decided_by: str | None = None


def waiting_workspaces() -> list[UUID]:
    """The workspaces with messages that nobody has checked."""
    return list(db.session.scalars(WAITING))


def claim_chats(most: int, lease: timedelta, *, actor: Actor) -> list[ClaimedChat]:
    """Claim chats with new messages, those that wait longest first, and read their new messages."""
    now = datetime.now(UTC)
    free = or_(Chat.check_lease_until.is_(None), Chat.check_lease_until < now)
    waiting = (
        select(Chat.id)
        .where(Chat.tenant_id == actor.tenant_id, Chat.checked_count < Chat.message_count, free)
        .order_by(Chat.last_message_at)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    claimed = (
        update(Chat)
        .where(Chat.id.in_(waiting.scalar_subquery()))
        .values(check_lease_until=now + lease)
        .returning(Chat.id, Chat.user_id, Chat.project, Chat.checked_count, Chat.message_count)
        .execution_options(synchronize_session=False)
    )
    return [_read_chat(row) for row in db.session.execute(claimed).all()]


def _read_chat(chat: Any) -> ClaimedChat:
    seen = min(chat.message_count, chat.checked_count + MAX_MESSAGES)
    rows = db.session.execute(
        select(Message.id, Message.message_index, Message.turn_id, Message.role, Message.content, Message.created_at)
        .where(
            Message.chat_id == chat.id,
            Message.message_index.between(chat.checked_count - EARLIER_MESSAGES, seen - 1),
            Message.role.in_(("user", "agent")),
        )
        .order_by(Message.message_index)
    ).all()
    found = [
        NewMessage(
            row.id, chat.id, chat.user_id, chat.project, row.message_index, row.content, row.created_at,
            _turns_before(rows, row),
        )
        for row in rows
        if row.role == "user" and row.message_index >= chat.checked_count
    ]  # fmt: skip
    return ClaimedChat(chat.id, seen, found)


def _turns_before(rows: Sequence[Any], message: Any) -> list[Turn]:
    """The answered turns before a message. Of several answers the last counts: it replaced the others."""
    asked: dict[str, str] = {}
    answers: dict[str, str] = {}
    for row in rows:
        if row.message_index >= message.message_index or row.turn_id == message.turn_id:
            continue
        if row.role == "agent":
            answers[row.turn_id] = row.content
        else:
            asked.setdefault(row.turn_id, row.content)
    return [Turn(asked.get(turn_id, ""), answer) for turn_id, answer in answers.items()][-EARLIER_TURNS:]


def turns_of_person(message: NewMessage) -> list[PersonTurn]:
    """The newest turns of the person in the project before this message, oldest first. One query."""
    rows = db.session.execute(
        TURNS,
        {
            "user_id": message.user_id,
            "project": message.project,
            "chat_id": message.chat_id,
            "before": message.created_at,
            "before_index": message.index,
            "since": message.created_at - timedelta(days=DAYS),
            "most": MAX_TURNS,
            "longest": MAX_TEXT,
        },
    )
    return [
        PersonTurn(row.chat_id, row.turn_id, row.created_at, Turn(row.question, row.agent))
        for row in reversed(rows.all())
    ]


def store_checked(chat: ClaimedChat, found: Iterable[Detection], *, actor: Actor) -> int:
    """Store what was found in a chat and that it was checked. Returns how many rows are new. Doing it again changes
    nothing: a message has one row for a turn."""
    new = sum(record_feedback(_as_feedback(one), actor=actor).created for one in found)
    db.session.execute(
        update(Chat)
        .where(Chat.tenant_id == actor.tenant_id, Chat.id == chat.id)
        .values(checked_count=func.greatest(Chat.checked_count, chat.seen), check_lease_until=None)
        .execution_options(synchronize_session=False)
    )
    return new


def _as_feedback(one: Detection) -> NewFeedback:
    details: dict[str, Any] = {
        "detected_in": str(one.message.id),
        "targets": as_details(one.target.ranked, one.target.turn.turn_id, [turn.turn_id for turn in one.target.turns]),
    }
    return NewFeedback(
        kind="reaction",
        origin="machine",
        source_type="chat",
        rating=REACTIONS[one.verdict.reaction],
        confidence=one.verdict.confidence,
        comment=one.message.content[:MAX_COMMENT_LENGTH],
        chat_id=str(one.target.turn.chat_id),
        turn_id=one.target.turn.turn_id,
        project=one.message.project,
        details=details | ({"decided_by": one.decided_by} if one.decided_by else {}),
        occurred_at=min(one.message.created_at, datetime.now(UTC)),
    )


def not_outvoted() -> ColumnElement[bool]:
    """Match all feedback but what was detected about a turn on which a person gave feedback: the person is right."""
    by_person = aliased(Feedback)
    said = exists().where(
        by_person.tenant_id == Feedback.tenant_id,
        by_person.chat_id == Feedback.chat_id,
        by_person.turn_id == Feedback.turn_id,
        by_person.origin == "user",
        ~by_person.details.has_key("retracted_at"),
    )
    return or_(Feedback.origin != "machine", ~said)
