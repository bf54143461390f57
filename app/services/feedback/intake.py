"""Write and retract feedback. Every channel uses `record_feedback`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, delete, exists, select, text, update

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid
from app.formats.feedback_details import read_context, read_details
from app.learning.edits import edit_distance
from app.learning.signals import OPPOSITE, rating_of
from app.models import Feedback, Membership, SharedContextFeedback
from app.models.feedback import KINDS, ORIGINS, RATINGS, SIGNALS, SOURCES
from app.services import audit
from app.services.feedback import store, volume
from app.services.feedback.links import Links, resolve_links
from app.services.workspaces.masking import masking_of_words

MAX_CLOCK_SKEW = timedelta(minutes=5)
MAX_COMMENT_LENGTH = 4096
MAX_ID_LENGTH = 256
# The ids that a visitor may read back besides that of the message.
VISITOR_IDS = ("chat_id", "trace_id")
MIN_CONFIDENCE = 0.70
RETRACTED = "retracted_at"
NOT_RETRACTED = ~Feedback.details.has_key(RETRACTED)
HAS_KNOWLEDGE = exists().where(
    SharedContextFeedback.tenant_id == Feedback.tenant_id, SharedContextFeedback.feedback_id == Feedback.id
)
SET_ROLE = text("select set_config('app.role', :role, true)")


@dataclass(frozen=True, kw_only=True)
class NewFeedback:
    """Feedback about an agent's work, from a person, the product or a model.

    `id`, `status`, `outcome` and `created_at` are for the product's own channels; no client supplies them. Missing
    links are filled in from the message, the session or the trace.
    """

    id: UUID | None = None
    source_type: str | None = None
    rating: str | None = None
    kind: str = "comment"
    origin: str = "user"
    confidence: float = 1.0
    signal: str | None = None
    comment: str | None = None
    session_id: UUID | None = None
    entity_id: UUID | None = None
    agent_id: UUID | None = None
    message_id: str | None = None
    chat_id: str | None = None
    turn_id: str | None = None
    trace_id: str | None = None
    project: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    occurred_at: datetime | None = None
    status: str = "pending"
    outcome: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None

    @property
    def opposite(self) -> str | None:
        """The signal that this one replaces."""
        return OPPOSITE.get(self.signal or "") if self.origin == "user" else None


@dataclass(frozen=True)
class StoredFeedback:
    """A row that was written, and whether it is new."""

    row: Any
    created: bool

    @property
    def id(self) -> UUID:
        found: UUID = self.row.id
        return found


def record_feedback(new: NewFeedback, *, actor: Actor, commit: bool = False) -> StoredFeedback:
    """Write one row of feedback. Chat pages, the API, reactions, tools and imports all use this function.

    The same signal by the same person on the same message changes the existing row, and so does a second reaction to a
    turn. A thumb retracts its opposite, also one that is given at the same moment. A session fails once, however often
    that is reported. `commit=True` may commit with the insert, which saves a round trip; it is only for callers that
    write nothing else.
    """
    _check(new, actor)
    new = _mask(new, actor)
    links = resolve_links(new, actor)
    if new.kind == "reaction" and new.origin == "user" and links.chat_id is None:
        raise Invalid.of({"chat_id": "Send the id of the turn's conversation."})
    values = _values(new, links, actor)
    with _as_the_product(values["origin"]):
        alone = commit and new.origin == "user" and not links.thumbed
        row, opposite_id = store.write_row(values, actor=actor, opposite=new.opposite, commit=alone)
    if row is None:
        raise Forbidden("This feedback belongs to somebody else.")
    if opposite_id is not None:
        retract_feedback(Feedback.id == opposite_id, actor=actor)
    volume.mark_stale(actor.tenant_id)
    return StoredFeedback(row, row.id == values["id"])


def _check(new: NewFeedback, actor: Actor) -> None:
    wrong: dict[str, str] = {}
    for name, allowed in (("kind", KINDS), ("origin", ORIGINS)):
        if getattr(new, name) not in allowed:
            wrong[name] = f"Use one of {', '.join(allowed)}."
    for name, optional in (("signal", SIGNALS), ("rating", RATINGS), ("source_type", SOURCES)):
        if getattr(new, name) is not None and getattr(new, name) not in optional:
            wrong[name] = f"Use one of {', '.join(optional)}."
    if (new.kind == "signal") != (new.signal is not None):
        wrong.setdefault("signal", "A signal names what it is; nothing else has one.")
    if new.signal is None and new.rating is None:
        wrong.setdefault("rating", f"Use one of {', '.join(RATINGS)}.")
    for name in ("message_id", "chat_id", "turn_id", "trace_id", "project"):
        if len(getattr(new, name) or "") > MAX_ID_LENGTH:
            wrong[name] = f"At most {MAX_ID_LENGTH} characters."
    wrong |= _check_words(new) | _check_time(new) | _check_kind(new)
    if wrong:
        raise Invalid.of(wrong)
    if new.kind == "flag" and not actor.is_admin:
        raise Forbidden("Only an admin flags somebody else's work; give feedback instead.")


def _mask(new: NewFeedback, actor: Actor) -> NewFeedback:
    masking = masking_of_words(new.comment, new.details, actor=actor)
    comment = masking.text(new.comment) if new.comment else new.comment
    if comment == new.comment and not new.details and not new.context:
        return new
    return replace(new, comment=comment, details=masking.value(new.details), context=masking.value(new.context))


def _check_words(new: NewFeedback) -> dict[str, str]:
    if len(new.comment or "") > MAX_COMMENT_LENGTH:
        return {"comment": f"At most {MAX_COMMENT_LENGTH:,} characters."}
    index = new.context.get("message_index")
    if isinstance(index, bool) or (isinstance(index, int) and not 0 <= index < 2**31):
        return {"context.message_index": f"Send a whole number from 0 to {2**31 - 1:,}."}
    if new.kind == "flag" and not (new.comment or "").strip():
        return {"comment": "Say what is wrong or right; a flag needs a sentence."}
    return {}


def _check_time(new: NewFeedback) -> dict[str, str]:
    if new.occurred_at is None:
        return {}
    if new.occurred_at.tzinfo is None:
        return {"occurred_at": "Say the offset, as in 2026-03-31T09:30:00+02:00."}
    if new.occurred_at > datetime.now(UTC) + MAX_CLOCK_SKEW:
        return {"occurred_at": "This is more than five minutes ahead of our clock."}
    return {}


def _check_kind(new: NewFeedback) -> dict[str, str]:
    if new.status != "pending" and not (new.status == "applied" and new.context.get("retry_ref")):
        return {"status": "Feedback starts pending; only a rejection with its retry starts applied."}
    if new.kind == "signal" and not (new.message_id or new.trace_id or new.session_id):
        return {"message_id": "Say which message or which trace this is about."}
    if new.kind == "reaction" and new.origin == "user" and not (new.turn_id or new.message_id):
        return {"turn_id": "Say which turn this is about."}
    sure = 1.0 if new.origin == "user" else new.confidence
    if not (MIN_CONFIDENCE if new.origin == "machine" else 0.0) <= sure <= 1.0:
        return {"confidence": f"From {MIN_CONFIDENCE:.2f} to 1 for a machine."}
    return {}


def _values(new: NewFeedback, links: Links, actor: Actor) -> dict[str, Any]:
    now = datetime.now(UTC)
    source = new.source_type or links.source_type(new.kind)
    details = _details(new, links)
    if actor.vouched_by is not None:
        # Visitors read back what they sent. What it was found to be about is not theirs to know.
        details["sent"] = {name: getattr(new, name) for name in VISITOR_IDS if getattr(new, name) is not None}
    return {
        "id": new.id or uuid4(),
        "tenant_id": actor.tenant_id,
        "source_type": source,
        "rating": rating_of(new.signal) if new.signal else new.rating,
        "kind": new.kind,
        "origin": new.origin,
        "confidence": 1.0 if new.origin == "user" else new.confidence,
        "signal": new.signal,
        "comment": details.get("preferred_answer", new.comment) if new.signal == "edit" else new.comment,
        "session_id": links.session_id,
        "entity_id": links.entity_id,
        "agent_id": links.agent_id,
        "message_id": links.message_id,
        "chat_id": links.chat_id,
        "turn_id": links.turn_id,
        "trace_id": links.trace_id,
        "project": links.project,
        "context": read_context(source, new.kind, {**links.context(source), **new.context}),
        "details": details,
        "error_categories": details.get("error_categories", []),
        "created_by": actor.id if new.origin == "user" else _system_user(actor),
        "created_at": new.created_at or now,
        "occurred_at": new.occurred_at or new.created_at or now,
        **_status(new, actor, now),
    }


def _status(new: NewFeedback, actor: Actor, now: datetime) -> dict[str, Any]:
    if new.status == "pending":
        return {"status": "pending", "outcome": {}}
    retry = {"kind": "retry", "id": new.context["retry_ref"], "text": "Asked again with the reason as instruction."}
    return {
        "status": new.status,
        "outcome": new.outcome or retry,
        "reviewed_at": new.created_at or now,
        "reviewed_by_user_id": actor.id,
        "reviewed_by_agent_id": None,
    }


def _details(new: NewFeedback, links: Links) -> dict[str, Any]:
    """Check the details. An edit also keeps the preferred answer and its distance from the given one."""
    details = read_details(new.details)
    if new.signal != "edit":
        return details
    wanted = details.get("preferred_answer") or new.comment
    if not wanted:
        return details
    details["preferred_answer"] = wanted
    if links.message_text is not None:
        edited = edit_distance(links.message_text, wanted)
        review = {"verdict": "changes_requested", "edit_distance": edited.percent}
        details["output_review"] = details.get("output_review", {}) | review
        if edited.approximate:
            details["output_review"]["approximate"] = True
    return details


def _system_user(actor: Actor) -> UUID:
    """Return the author of feedback that no person gave."""
    if actor.role == "system":
        return actor.id
    return db.session.execute(
        select(Membership.user_id).where(Membership.tenant_id == actor.tenant_id, Membership.role == "system")
    ).scalar_one()


@contextmanager
def _as_the_product(origin: str) -> Iterator[None]:
    """Write the product's own reports with its role, also in a member's transaction."""
    bound: Actor | None = db.session().info.get("actor")
    if origin == "user" or bound is None or bound.bound_role != "member":
        yield
        return
    db.session.execute(SET_ROLE, {"role": "system"})
    yield
    db.session.execute(SET_ROLE, {"role": bound.bound_role})


def retract_feedback(*which: ColumnElement[bool], actor: Actor) -> None:
    """Delete the actor's own rows that nobody acted on; mark the others, which explain a decision, as retracted."""
    rows = db.session.execute(
        select(Feedback.id, Feedback.kind, Feedback.rating, Feedback.details, is_untouched().label("untouched"))
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.created_by == actor.id, NOT_RETRACTED, *which)
        .with_for_update(of=Feedback)
    ).all()
    for row in rows:
        if row.untouched:
            db.session.execute(delete(Feedback).where(Feedback.id == row.id))
        else:
            marked = row.details | {RETRACTED: datetime.now(UTC).isoformat()}
            db.session.execute(update(Feedback).where(Feedback.id == row.id).values(details=marked))
        audit.record(actor, "feedback.retracted", "feedback", row.id, kind=row.kind, rating=row.rating)
        volume.mark_stale(actor.tenant_id)


def is_untouched() -> ColumnElement[bool]:
    """Match rows that nobody acted on."""
    return (Feedback.status == "pending") & ~HAS_KNOWLEDGE
