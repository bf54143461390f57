"""What people, machines and the product said about the demo's sessions, and what became of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.db import db
from app.demo.talks import Remark, read_remark
from app.demo.world import World
from app.learning.signals import REACTIONS
from app.models import Feedback
from app.models.feedback import SIGNALS
from app.services.entities import store as entity_store
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback

REVIEWED_AFTER = timedelta(hours=26)


def give(
    world: World,
    remark: Remark,
    session_id: UUID,
    last: tuple[datetime, UUID | None],
    call_id: str,
    wanted: str | None,
) -> UUID:
    """Feedback on the last answer, and its review when it had one; its id."""
    at = world.past(last[0] + remark.after)
    origin = remark.who if remark.who in ("machine", "system") else "user"
    actor = world.people.get(remark.who, world.system)
    message = last[1]
    row = record_feedback(
        NewFeedback(
            **_what(remark.what, call_id),
            origin=origin,
            confidence=float(remark.options.get("conf", "1")),
            comment=world.text(remark.words) if remark.words else None,
            session_id=session_id,
            message_id=str(message) if message else None,
            details=_details(remark, wanted),
            created_at=at,
        ),
        actor=actor,
    )
    _label(world, remark, row.id)
    _review(world, remark, row.id, at)
    if "to" in remark.options:
        teamwork.assign([row.id], world.people[remark.options["to"]].id, actor=world.people["admin"])
    return row.id


def discuss(world: World, text: str, feedback_id: UUID, given: datetime) -> None:
    """What admins said to each other about a row."""
    remark = read_remark(text.replace(" +", " - +", 1))
    at = world.past(given + remark.after)
    teamwork.add_comment(feedback_id, remark.words or "", actor=world.people[remark.who], at=at)


def _what(what: str, call_id: str) -> dict[str, Any]:
    if what in SIGNALS:
        return {"kind": "signal", "signal": what}
    kind, *rest = what.split(":")
    if kind == "reaction":
        return {"kind": "reaction", "rating": REACTIONS[rest[0]].rating}
    if kind == "tool":
        context = {"tool_slug": rest[0], "tool_run_id": call_id}
        return {"kind": "tool_observation", "source_type": "tool", "rating": rest[1], "context": context}
    return {"kind": kind, "rating": rest[0]}


def _details(remark: Remark, wanted: str | None) -> dict[str, Any]:
    options = remark.options
    details: dict[str, Any] = {}
    if "cat" in options:
        details["error_categories"] = options["cat"].split(",")
    if "scores" in options:
        names = ("accuracy", "completeness", "style_match")
        details["quality_scores"] = dict(zip(names, map(int, options["scores"].split("/")), strict=True))
    if "verdict" in options:
        details["output_review"] = {"verdict": options["verdict"]}
    if "skipped" in options:
        details["skipped"] = True
    if wanted:
        details["preferred_answer"] = wanted
    return details


def _label(world: World, remark: Remark, feedback_id: UUID) -> None:
    """Remember what knowledge will point back to, and what lists of it may show."""
    world.refs[f"feedback.{sum(name.startswith('feedback.') for name in world.refs) + 1}"] = feedback_id
    if "id" in remark.options:
        world.labels[remark.options["id"]] = feedback_id
    if remark.options.get("applied"):
        world.waiting.setdefault(remark.options["applied"], []).append(feedback_id)


def _review(world: World, remark: Remark, feedback_id: UUID, at: datetime) -> None:
    for action in ("reviewed", "dismissed", "applied"):
        if remark.options.get(action) == "":
            moment = world.past(at + REVIEWED_AFTER)
            feedback_review.review([feedback_id], action, actor=world.people["admin"], notes=remark.note, at=moment)


def decide(world: World, text: str, response_id: UUID | None, submitted: datetime) -> tuple[UUID, datetime] | None:
    """Accept or reject what was submitted; the session of the second try, if there is one, and when it begins."""
    if response_id is None:
        raise ValueError(f"There is nothing to decide: {text}")
    verdict, rest = text.split(" ", 1)
    who, *more = rest.split(" ", 1)
    remark = read_remark(rest if verdict == "reject" else f"{who} - {' '.join(more)}")
    actor = world.people[remark.who]
    at = world.past(submitted + remark.after)
    if verdict == "accept":
        entity_store.decide_response(response_id, "accepted", actor=actor, at=at)
        return None
    field = None if remark.what == "-" else remark.what
    reason = world.text(remark.words or "")
    entity_store.decide_response(response_id, "rejected", actor=actor, reason=reason, field_name=field, at=at)
    row = _rejection(world, response_id)
    _label(world, remark, row.id)
    retry = row.context.get("retry_ref")
    return (UUID(retry), at) if retry else None


def _rejection(world: World, response_id: UUID) -> Feedback:
    return db.session.scalars(
        select(Feedback).where(
            Feedback.tenant_id == world.system.tenant_id, Feedback.context["response_id"].astext == str(response_id)
        )
    ).one()
