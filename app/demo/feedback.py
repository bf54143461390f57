"""What people do after an answer of the demo: feedback, comments, reviews, decisions and their own responses."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.db import db
from app.demo.playback import PlayedTalk
from app.demo.world import Talk, World
from app.models import Feedback
from app.services.entities import responses as entity_responses
from app.services.entities.responses import NewResponse
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback

REVIEWED_AFTER = timedelta(hours=26)


def follow_up(world: World, talk: Talk, played: PlayedTalk) -> list[tuple[UUID, datetime]]:
    """Do what people do after each turn. Returns the sessions that try again after a rejection, with the time."""
    retries, feedback_id = [], None
    for turn, (answered_at, message_id) in zip(talk.turns, played.answers, strict=True):
        for act in turn.get("then", ()):
            at = world.past(answered_at + timedelta(minutes=act.get("after", 0)))
            if act["do"] == "feedback":
                feedback_id = _give(world, act, played, message_id, at)
            elif act["do"] == "comment" and feedback_id:
                teamwork.add_comment(feedback_id, act["text"], actor=world.people[act["by"]], at=at)
            elif act["do"] == "submit":
                played.response_id = _submit(world, act, talk, played, at)
            elif played.response_id:
                retries += _decide(world, act, played.response_id, at)
    return retries


def _give(world: World, act: dict[str, Any], played: PlayedTalk, message_id: UUID | None, at: datetime) -> UUID:
    """Give feedback on the answer, and review or assign it where the data says so."""
    given, admin = act["feedback"], world.people["admin"]
    if "context" in given:
        given = given | {"context": given["context"] | {"tool_run_id": played.call_id}}
    row = record_feedback(
        NewFeedback(
            **given, session_id=played.session_id, message_id=str(message_id) if message_id else None, created_at=at
        ),
        actor=world.people.get(act["by"], world.system),
    )
    _label(world, act, row.id)
    if "status" in act:
        moment = world.past(at + REVIEWED_AFTER)
        feedback_review.review([row.id], act["status"], actor=admin, notes=act.get("notes"), at=moment)
    if "to" in act:
        teamwork.assign([row.id], world.people[act["to"]].id, actor=admin)
    return row.id


def _label(world: World, act: dict[str, Any], feedback_id: UUID) -> None:
    """Name the row for recordings, and note which rule will refer to it or apply it."""
    world.add_ref("feedback", feedback_id)
    if "id" in act:
        world.labels[act["id"]] = feedback_id
    if "applied_by" in act:
        world.waiting.setdefault(act["applied_by"], []).append(feedback_id)


def _submit(world: World, act: dict[str, Any], talk: Talk, played: PlayedTalk, at: datetime) -> UUID:
    """Submit the values that a person gives after the answer."""
    new = NewResponse(
        entity_id=world.refs[f"record.{talk.entity}"],
        values={name: {"value": value} for name, value in act["values"].items()},
        criteria_set_id=world.refs[f"criteria.{act['criteria']}"],
        session_id=played.session_id,
        created_at=at,
    )
    return entity_responses.submit_response(new, actor=world.people[act["by"]]).id


def _decide(world: World, act: dict[str, Any], response_id: UUID, at: datetime) -> list[tuple[UUID, datetime]]:
    """Accept or reject a response. Returns the session that tries again, if there is one, and when it starts."""
    actor = world.people[act["by"]]
    if act["do"] == "accept":
        entity_responses.decide_response(response_id, "accepted", actor=actor, at=at)
        return []
    entity_responses.decide_response(
        response_id, "rejected", actor=actor, reason=act["reason"], field_name=act["field"], at=at
    )
    row = db.session.scalars(
        select(Feedback).where(
            Feedback.tenant_id == world.system.tenant_id, Feedback.context["response_id"].astext == str(response_id)
        )
    ).one()
    _label(world, act, row.id)
    retry = row.context.get("retry_ref")
    return [(UUID(retry), at)] if retry else []
