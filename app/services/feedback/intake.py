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
from app.formats.feedback_details import RETRACTED, read_context, read_details
from app.learning.edits import edit_distance
from app.learning.signals import OPPOSITE, SIGNAL_RATINGS
from app.models import Feedback, Membership, SharedContextFeedback
from app.models.feedback import KINDS, ORIGINS, RATINGS, SIGNALS, SOURCES
from app.services import audit
from app.services.feedback import volume
from app.services.feedback.store import LinkRow, resolve_links, write_row
from app.services.workspaces.store import masking_of_words

MAX_CLOCK_SKEW = timedelta(minutes=5)
MAX_COMMENT_LENGTH = 4096
MAX_ID_LENGTH = 256
# The ids that a visitor may read back besides that of the message.
VISITOR_IDS = ("chat_id", "trace_id")
MIN_CONFIDENCE = 0.70
NOT_RETRACTED = ~Feedback.details.has_key(RETRACTED)
HAS_KNOWLEDGE = exists().where(
    SharedContextFeedback.tenant_id == Feedback.tenant_id, SharedContextFeedback.feedback_id == Feedback.id
)
ALLOWED = {"kind": KINDS, "origin": ORIGINS, "signal": SIGNALS, "rating": RATINGS, "source_type": SOURCES}
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
    new = sent = _mask(new, actor)
    new, found = resolve_links(new, actor)
    if new.kind == "reaction" and new.origin == "user" and new.chat_id is None:
        raise Invalid.of({"chat_id": "Send the id of the turn's conversation."})
    values = _values(new, found, actor)
    if actor.vouched_by is not None:
        # Visitors read back what they sent. What it was found to be about is not theirs to know.
        values["details"]["sent"] = {name: value for name in VISITOR_IDS if (value := getattr(sent, name)) is not None}
    with _as_the_product(new.origin):
        alone = commit and new.origin == "user" and not (found.thumbed or actor.vouched_by)
        row, opposite_id = write_row(values, actor=actor, opposite=new.opposite, commit=alone)
    if row is None:
        raise Forbidden("This feedback belongs to someone else.")
    if opposite_id is not None:
        retract_feedback(Feedback.id == opposite_id, actor=actor)
    volume.mark_stale(actor.tenant_id)
    return StoredFeedback(row, row.id == values["id"])


def _check(new: NewFeedback, actor: Actor) -> None:
    wrong: dict[str, str] = {}
    for name, sentence in (*_wrong_values(new), *_wrong_for_its_kind(new)):
        wrong.setdefault(name, sentence)
    if wrong:
        raise Invalid.of(wrong)
    if new.kind == "flag" and not actor.is_admin:
        raise Forbidden("Only admins can flag other people’s work. Give feedback instead.")


def _wrong_values(new: NewFeedback) -> Iterator[tuple[str, str]]:
    for name, allowed in ALLOWED.items():
        if getattr(new, name) not in (*allowed, None):
            yield name, f"Use one of {', '.join(allowed)}."
    for name in ("message_id", "chat_id", "turn_id", "trace_id", "project"):
        if len(getattr(new, name) or "") > MAX_ID_LENGTH:
            yield name, f"At most {MAX_ID_LENGTH} characters."
    if len(new.comment or "") > MAX_COMMENT_LENGTH:
        yield "comment", f"At most {MAX_COMMENT_LENGTH:,} characters."
    index = new.context.get("message_index")
    if isinstance(index, bool) or (isinstance(index, int) and not 0 <= index < 2**31):
        yield "context.message_index", f"Send a whole number from 0 to {2**31 - 1:,}."
    if new.occurred_at is not None and new.occurred_at.tzinfo is None:
        yield "occurred_at", "Say the offset, as in 2026-03-31T09:30:00+02:00."
    elif new.occurred_at is not None and new.occurred_at > datetime.now(UTC) + MAX_CLOCK_SKEW:
        yield "occurred_at", "This is more than five minutes ahead of our clock."


def _wrong_for_its_kind(new: NewFeedback) -> Iterator[tuple[str, str]]:
    if (new.kind == "signal") != (new.signal is not None):
        yield "signal", "Only signals have a `signal`."
    if new.signal is None and new.rating is None:
        yield "rating", f"Use one of {', '.join(RATINGS)}."
    if new.status != "pending" and not (new.status == "applied" and new.context.get("retry_ref")):
        yield "status", "Feedback starts pending. Only a rejection with its retry starts applied."
    if new.kind == "signal" and not (new.message_id or new.trace_id or new.session_id):
        yield "message_id", "Send the message or trace this is about."
    if new.kind == "reaction" and new.origin == "user" and not (new.turn_id or new.message_id):
        yield "turn_id", "Send the turn this is about."
    if new.kind == "flag" and not (new.comment or "").strip():
        yield "comment", "Enter what was right or wrong."
    if new.origin == "machine" and not MIN_CONFIDENCE <= new.confidence <= 1.0:
        yield "confidence", f"From {MIN_CONFIDENCE:.2f} to 1 for a machine."


def _mask(new: NewFeedback, actor: Actor) -> NewFeedback:
    masking = masking_of_words(new.comment, new.details, actor=actor)
    comment = masking.text(new.comment) if new.comment else new.comment
    if comment == new.comment and not new.details and not new.context:
        return new
    return replace(new, comment=comment, details=masking.value(new.details), context=masking.value(new.context))


def _values(new: NewFeedback, found: LinkRow, actor: Actor) -> dict[str, Any]:
    """Return the columns of the row. An edit's comment is the answer that was wanted."""
    now = datetime.now(UTC)
    by_user = new.origin == "user"
    source = new.source_type or _source_type(new, found)
    details = _details(new, found.content)
    created_at = new.created_at or now
    return vars(new) | {
        "id": new.id or uuid4(),
        "tenant_id": actor.tenant_id,
        "source_type": source,
        "rating": SIGNAL_RATINGS[new.signal] if new.signal else new.rating,
        "confidence": 1.0 if by_user else new.confidence,
        "comment": details.get("preferred_answer", new.comment) if new.signal == "edit" else new.comment,
        "project": new.project or "default",
        "context": read_context(source, new.kind, _known_context(new, found, source) | new.context),
        "details": details,
        "error_categories": details.get("error_categories", []),
        "created_by": actor.id if by_user else _system_user(actor),
        "created_at": created_at,
        "occurred_at": new.occurred_at or created_at,
        **_status(new, actor, created_at),
    }


def _source_type(new: NewFeedback, found: LinkRow) -> str:
    """Where nothing was said: a flag is an observation, the rest belongs to its chat, else to its session."""
    if new.kind == "flag":
        return "observation"
    return "chat" if new.chat_id or found.message_index is not None else "session"


def _known_context(new: NewFeedback, found: LinkRow, source: str) -> dict[str, Any]:
    """Return what the server knows of a source's context."""
    known = {"chat_id": new.chat_id, "message_index": found.message_index} if source in ("chat", "observation") else {}
    return {name: value for name, value in known.items() if value is not None}


def _status(new: NewFeedback, actor: Actor, at: datetime) -> dict[str, Any]:
    if new.status == "pending":
        return {"outcome": {}}
    retry = {"kind": "retry", "id": new.context["retry_ref"], "text": "Retried with the reason as instruction."}
    return {"outcome": new.outcome or retry, "reviewed_at": at, "reviewed_by_user_id": actor.id}


def _details(new: NewFeedback, answer: str | None) -> dict[str, Any]:
    """Check the details. An edit also keeps the preferred answer and its distance from the given one."""
    details = read_details(new.details, new.origin)
    wanted = details.get("preferred_answer") or new.comment
    if new.signal != "edit" or not wanted:
        return details
    details["preferred_answer"] = wanted
    if answer is not None:
        edited = edit_distance(answer, wanted)
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
