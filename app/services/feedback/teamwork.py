"""How admins share the work on feedback: who takes which row, what they say to each other, and what is like it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy import Text, cast, delete, func, literal, select, text, union_all, update
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound
from app.models import Agent, Feedback, FeedbackComment, Membership, User
from app.services import audit
from app.services.privacy import A_MEMBER
from app.services.workspaces.masking import masking_of_words
from app.services.workspaces.store import get_settings

MAX_AT_ONCE = 200
MAX_OPTIONS = 200
MAX_COMMENT_LENGTH = 4096
TAKERS = ("admin", "owner")
ALIKE = 5
# Among how many of the newest rows with one of the words the most alike are looked for.
SCAN_LIMIT = 200
MAX_WORDS = 6
WORD = re.compile(r"[^\W\d_]{4,}|\d+(?:[.,]\d+)?", re.UNICODE)
COMMON = frozenset(
    WORD.findall(
        "about after again also always because been before being both could does doing done down each even every from"
        " have here into just like made make many more most much must need never next only other over same should"
        " since some such than that their them then there these they this those thus used uses using very want wants"
        " were what when where which while will with without would your"
    )
)


@dataclass(frozen=True)
class Colleague:
    """A person whom feedback can be assigned to."""

    id: UUID
    name: str


@dataclass(frozen=True)
class Comment:
    """What an admin said to the others about a row."""

    id: UUID
    who: str | None
    body: str
    created_at: datetime
    mine: bool


@dataclass(frozen=True)
class Alike:
    """Feedback about the same agent in much the same words."""

    id: UUID
    rating: str
    status: str
    comment: str
    created_at: datetime


@dataclass
class Menus:
    """What the list can be narrowed to: agents by slug, admins by id; `author` is what the chosen one is called."""

    agents: list[tuple[str, str]] = field(default_factory=list)
    admins: list[tuple[str, str]] = field(default_factory=list)
    author: str = "somebody"


def menus_of(author_id: UUID | None, *, actor: Actor) -> Menus:
    """All of it in one query."""
    agents = (
        select(literal("agents"), Agent.slug, Agent.slug)
        .where(Agent.tenant_id == actor.tenant_id, Agent.archived_at.is_(None), Agent.merged_into.is_(None))
        .order_by(Agent.is_system, Agent.slug)
        .limit(MAX_OPTIONS)
    )
    admins = (
        select(literal("admins"), cast(User.id, Text), User.name)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.tenant_id == actor.tenant_id, Membership.role.in_(TAKERS))
        .order_by(func.lower(User.name), User.id)
        .limit(MAX_OPTIONS)
    )
    author = select(literal("author"), cast(User.id, Text), User.name).where(User.id == author_id)
    menus = Menus()
    for kind, value, name in db.session.execute(union_all(agents, admins, author)):
        if kind == "author":
            menus.author = A_MEMBER if get_settings(actor).author_private and author_id != actor.id else name
        else:
            getattr(menus, kind).append((value, name))
    return menus


def colleagues(*, actor: Actor) -> list[Colleague]:
    """The admins of the workspace by name. One query."""
    rows = db.session.execute(
        select(User.id, User.name)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.tenant_id == actor.tenant_id, Membership.role.in_(TAKERS))
        .order_by(func.lower(User.name), User.id)
    )
    return [Colleague(*row) for row in rows]


def assign(ids: Sequence[UUID], assignee_id: UUID | None, *, actor: Actor) -> dict[UUID, UUID | None]:
    """Give rows to an admin, or to nobody. Gives back who had each row that changed hands."""
    _only_admins(actor)
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        raise Invalid("Select at least one row first.")
    if len(wanted) > MAX_AT_ONCE:
        raise Invalid(f"At most {MAX_AT_ONCE} rows at once.", {"ids": f"At most {MAX_AT_ONCE}."})
    if assignee_id is not None:
        _check_taker(assignee_id, actor)
    before = _hand_over(wanted, assignee_id, actor)
    if not before and len(wanted) == 1 and not _exists(wanted[0], actor):
        raise NotFound("There is no such feedback in this workspace.")
    for row_id, had in before.items():
        action = "feedback.assigned" if assignee_id else "feedback.unassigned"
        audit.record(actor, action, "feedback", row_id, before=had, after=assignee_id)
    return before


def give_back(before: Mapping[UUID, UUID | None], *, actor: Actor) -> int:
    """Undo an assignment: every row returns to its earlier assignee."""
    moved = 0
    for holder in dict.fromkeys(before.values()):
        moved += len(assign([row for row, had in before.items() if had == holder], holder, actor=actor))
    return moved


def _hand_over(ids: list[UUID], assignee_id: UUID | None, actor: Actor) -> dict[UUID, UUID | None]:
    """One UPDATE; rows are locked in the order of their ids, so that two of these never wait in a circle."""
    changing = (
        select(Feedback.id, Feedback.assignee_id.label("had"))
        .where(
            Feedback.tenant_id == actor.tenant_id,
            Feedback.id.in_(ids),
            Feedback.assignee_id.is_distinct_from(assignee_id),
        )
        .order_by(Feedback.id)
        .with_for_update()
        .cte("changing")
    )
    rows = db.session.execute(
        update(Feedback)
        .where(Feedback.id == changing.c.id)
        .values(assignee_id=assignee_id)
        .returning(Feedback.id, changing.c.had)
        .execution_options(synchronize_session=False)
    ).all()
    db.session.expire_all()
    return {row[0]: row[1] for row in rows}


def _check_taker(user_id: UUID, actor: Actor) -> None:
    role = db.session.scalar(
        select(Membership.role).where(Membership.tenant_id == actor.tenant_id, Membership.user_id == user_id)
    )
    if role not in TAKERS:
        sentence = "Only an admin of this workspace can take feedback on."
        raise Invalid(sentence, {"assignee": sentence})


def is_assigned_to(who: str, *, actor: Actor) -> ColumnElement[bool]:
    """Return the condition of the assignee filter: `me`, `nobody` or a person's id."""
    if who == "nobody":
        return Feedback.assignee_id.is_(None)
    return Feedback.assignee_id == (actor.id if who == "me" else UUID(who))


def comments_of(feedback_id: UUID, *, actor: Actor) -> list[Comment]:
    """What admins said about a row, oldest first."""
    _only_admins(actor)
    rows = db.session.execute(
        select(FeedbackComment.id, User.name, FeedbackComment.body, FeedbackComment.created_at, FeedbackComment.user_id)
        .outerjoin(User, User.id == FeedbackComment.user_id)
        .where(FeedbackComment.tenant_id == actor.tenant_id, FeedbackComment.feedback_id == feedback_id)
        .order_by(FeedbackComment.created_at, FeedbackComment.id)
    )
    return [Comment(*row[:4], mine=row[4] == actor.id) for row in rows]


def add_comment(feedback_id: UUID, body: str, *, actor: Actor, at: datetime | None = None) -> UUID:
    """Say something to the other admins about a row."""
    _only_admins(actor)
    body = body.strip()
    if not body or len(body) > MAX_COMMENT_LENGTH or "\x00" in body:
        sentence = f"Say something, in at most {MAX_COMMENT_LENGTH:,} characters."
        raise Invalid(sentence, {"body": sentence})
    if not _exists(feedback_id, actor):
        raise NotFound("There is no such feedback in this workspace.")
    body = masking_of_words(body, None, actor=actor).text(body)
    comment = FeedbackComment(tenant_id=actor.tenant_id, feedback_id=feedback_id, user_id=actor.id, body=body)
    if at:
        comment.created_at = at
    db.session.add(comment)
    db.session.flush()
    audit.record(actor, "feedback.commented", "feedback", feedback_id)
    return comment.id


def delete_comment(feedback_id: UUID, comment_id: UUID, *, actor: Actor) -> str:
    """Take back what one said oneself. Gives back the words."""
    _only_admins(actor)
    body = db.session.scalar(
        delete(FeedbackComment)
        .where(
            FeedbackComment.tenant_id == actor.tenant_id,
            FeedbackComment.feedback_id == feedback_id,
            FeedbackComment.id == comment_id,
            FeedbackComment.user_id == actor.id,
        )
        .returning(FeedbackComment.body)
    )
    if body is None:
        raise NotFound("There is no such comment of yours.")
    audit.record(actor, "feedback.comment_deleted", "feedback", feedback_id)
    return str(body)


def alike(feedback_id: UUID, comment: str | None, agent_id: UUID | None, *, actor: Actor) -> list[Alike]:
    """Feedback about the same agent that shares the most words, at least two of them or all there are. One query."""
    words = distinctive_words(comment or "")
    if not words or agent_id is None:
        return []
    found = text("SELECT id FROM door_search('feedback', :query, :most)").columns(Feedback.id)
    rows = db.session.execute(
        select(Feedback.id, Feedback.rating, Feedback.status, Feedback.comment, Feedback.created_at)
        .where(
            Feedback.tenant_id == actor.tenant_id,
            Feedback.id.in_(found.bindparams(query=" or ".join(words), most=SCAN_LIMIT).scalar_subquery()),
            Feedback.agent_id == agent_id,
            Feedback.id != feedback_id,
        )
        .order_by(Feedback.created_at.desc(), Feedback.id)
    )
    needed = min(2, len(words))
    shared = [
        (
            len(set(words) & set(distinctive_words(row.comment or "", most=50))),
            Alike(*row[:3], row.comment or "", row[4]),
        )
        for row in rows
    ]
    shared = [pair for pair in shared if pair[0] >= needed]
    return [row for _, row in sorted(shared, key=lambda pair: -pair[0])[:ALIKE]]


def distinctive_words(said: str, most: int = MAX_WORDS) -> list[str]:
    """The words that say what a comment is about: the longest, since those are the rarest."""
    words = dict.fromkeys(word.lower() for word in WORD.findall(said[:2000]))
    return sorted((word for word in words if word not in COMMON), key=lambda word: -len(word))[:most]


def _exists(feedback_id: UUID, actor: Actor) -> bool:
    statement = select(Feedback.id).where(Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
    return db.session.scalar(statement) is not None


def _only_admins(actor: Actor) -> None:
    if not actor.is_admin:
        raise Forbidden("Only admins work on feedback.")
