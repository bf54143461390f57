"""How admins share the work on feedback: who takes which row, their comments, their assessment, and similar rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, text, update

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound
from app.formats.feedback_details import ASSESSMENT, read_assessment
from app.models import Feedback, FeedbackComment, Membership, User
from app.services import audit
from app.services.feedback.review import MAX_AT_ONCE, NO_FEEDBACK, change_rows
from app.services.workspaces.store import masking_of_words
from app.text.words import STOP, split_name

MAX_OPTIONS = 200
MAX_COMMENT_LENGTH = 4096
TAKERS = ("admin", "owner")
ALIKE = 5
# Among how many of the newest rows with one of the words the most alike are looked for.
SCAN_LIMIT = 200
MAX_WORDS = 6
MIN_LETTERS = 4
ADMINS_ONLY = "Only admins can work on feedback."


def colleagues(*, actor: Actor) -> Sequence[Any]:
    """Return id and name of the workspace's admins, by name. One query."""
    return db.session.execute(_admins(actor, User.id, User.name)).all()


def _admins(actor: Actor, *columns: Any) -> Any:
    return (
        select(*columns)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.tenant_id == actor.tenant_id, Membership.role.in_(TAKERS))
        .order_by(func.lower(User.name), User.id)
    )


def assign(ids: Sequence[UUID], assignee_id: UUID | None, *, actor: Actor) -> dict[UUID, UUID | None]:
    """Give rows to an admin, or to nobody. Returns the earlier assignee of each row that changed hands."""
    actor.check_admin(ADMINS_ONLY)
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        raise Invalid("Select at least one row first.")
    if len(wanted) > MAX_AT_ONCE:
        raise Invalid(f"At most {MAX_AT_ONCE} rows at once.", {"ids": f"At most {MAX_AT_ONCE}."})
    if assignee_id is not None:
        _check_taker(assignee_id, actor)
    differs = Feedback.assignee_id.is_distinct_from(assignee_id)
    before = change_rows(wanted, {"assignee_id": assignee_id}, Feedback.assignee_id, differs, actor=actor)
    if not before and len(wanted) == 1:
        _check_exists(wanted[0], actor)
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


def _check_taker(user_id: UUID, actor: Actor) -> None:
    role = db.session.scalar(
        select(Membership.role).where(Membership.tenant_id == actor.tenant_id, Membership.user_id == user_id)
    )
    if role not in TAKERS:
        raise Invalid.at("assignee", "Feedback can only be assigned to admins of this workspace.")


def comments_of(feedback_id: UUID, *, actor: Actor) -> Sequence[Any]:
    """Return admins' comments on a row, oldest first: id, who, body, created_at, and whether it is the actor's."""
    actor.check_admin(ADMINS_ONLY)
    mine = (FeedbackComment.user_id == actor.id).label("mine")
    return db.session.execute(
        select(FeedbackComment.id, User.name.label("who"), FeedbackComment.body, FeedbackComment.created_at, mine)
        .outerjoin(User, User.id == FeedbackComment.user_id)
        .where(FeedbackComment.tenant_id == actor.tenant_id, FeedbackComment.feedback_id == feedback_id)
        .order_by(FeedbackComment.created_at, FeedbackComment.id)
    ).all()


def add_comment(feedback_id: UUID, body: str, *, actor: Actor, at: datetime | None = None) -> UUID:
    """Say something to the other admins about a row."""
    actor.check_admin(ADMINS_ONLY)
    body = body.strip()
    if not body or len(body) > MAX_COMMENT_LENGTH or "\x00" in body:
        raise Invalid.at("body", f"Enter a comment of up to {MAX_COMMENT_LENGTH:,} characters.")
    _check_exists(feedback_id, actor)
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
    actor.check_admin(ADMINS_ONLY)
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


def alike(feedback_id: UUID, comment: str | None, agent_id: UUID | None, *, actor: Actor) -> list[Any]:
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
    ).all()
    shared = {row.id: len(set(words) & set(distinctive_words(row.comment or "", most=50))) for row in rows}
    alike = [row for row in rows if shared[row.id] >= min(2, len(words))]
    return sorted(alike, key=lambda row: -shared[row.id])[:ALIKE]


def distinctive_words(text: str, most: int = MAX_WORDS) -> list[str]:
    """The words that say what a comment is about: the longest, since those are the rarest."""
    found = dict.fromkeys(
        word for word in split_name(text[:2000]) if (len(word) >= MIN_LETTERS or word.isdigit()) and word not in STOP
    )
    return sorted(found, key=lambda word: -len(word))[:most]


def assess_feedback(feedback_id: UUID, given: dict[str, Any], *, actor: Actor) -> dict[str, Any]:
    """Store what an admin thinks of the answer, or remove it when it is empty, and return the assessment before.

    It has a key of its own in `details`, beside what the author said, and stays when the author says something else.
    """
    actor.check_admin(ADMINS_ONLY)
    wanted = read_assessment(given)
    row = (Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
    # The row is locked first: its author may be changing it right now.
    details = db.session.scalar(select(Feedback.details).where(*row).with_for_update())
    if details is None:
        raise NotFound(NO_FEEDBACK)
    stored = details.get(ASSESSMENT, {})
    before = {name: value for name, value in stored.items() if name not in ("by", "at")}
    if before == wanted:
        return before
    details = {name: value for name, value in details.items() if name != ASSESSMENT}
    categories = dict.fromkeys([*details.get("error_categories", []), *wanted.get("error_categories", [])])
    if wanted:
        details[ASSESSMENT] = wanted | {"by": str(actor.id), "at": datetime.now(UTC).isoformat()}
    db.session.execute(
        update(Feedback)
        .where(*row)
        .values(details=details, error_categories=list(categories))
        .execution_options(synchronize_session=False)
    )
    db.session.expire_all()
    audit.record(actor, "feedback.assessed", "feedback", feedback_id, before=before, after=wanted)
    return before


def _check_exists(feedback_id: UUID, actor: Actor) -> None:
    statement = select(Feedback.id).where(Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
    if db.session.scalar(statement) is None:
        raise NotFound(NO_FEEDBACK)
