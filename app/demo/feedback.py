"""What people do after a conversation of the demo: feedback, comments, reviews, decisions and their own responses."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.db import db
from app.demo.playback import PlayedTalk
from app.demo.script import Remark, Talk, parse_remark
from app.demo.world import World
from app.learning.signals import REACTIONS
from app.models import Feedback
from app.models.feedback import SIGNALS
from app.services.entities import responses as entity_responses
from app.services.entities.responses import NewResponse
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback

REVIEWED_AFTER = timedelta(hours=26)
SCORES = ("accuracy", "completeness", "style_match")


def follow_up(world: World, talk: Talk, played: PlayedTalk) -> list[tuple[UUID, datetime]]:
    """Do what the script says after each turn. Returns the sessions that try again after a rejection, with the time."""
    turn, retries, feedback_id = -1, [], None
    for line, following in zip(talk.lines, [*talk.lines[1:], None], strict=True):
        if line.mark == ">":
            turn += 1
        elif line.mark == "~":
            wanted = world.text(following.text) if following and following.mark == "~>" else None
            feedback_id = _give(world, parse_remark(line.text), played, turn, wanted)
        elif line.mark == "~#" and feedback_id:
            _comment(world, line.text, feedback_id, played.answers[turn][0])
        elif line.mark == "%" and line.text.startswith("answer "):
            played.response_id = _submit(world, talk, played, line.text)
        elif line.mark == "%":
            retry = _decide(world, line.text, played.response_id, played.answers[turn][0])
            retries += [retry] if retry else []
    return retries


def _give(world: World, remark: Remark, played: PlayedTalk, turn: int, wanted: str | None) -> UUID:
    """Give feedback on the answer of this turn, and review or assign it where the script says so."""
    answered_at, message_id = played.answers[turn]
    at = world.past(answered_at + remark.after)
    row = record_feedback(
        NewFeedback(
            **_kind(remark.what, played.call_id),
            origin=remark.who if remark.who in ("machine", "system") else "user",
            confidence=float(remark.options.get("conf", "1")),
            comment=world.text(remark.text) if remark.text else None,
            session_id=played.session_id,
            message_id=str(message_id) if message_id else None,
            details=_details(remark.options, wanted),
            created_at=at,
        ),
        actor=world.people.get(remark.who, world.system),
    )
    _label(world, remark, row.id)
    _review(world, remark, row.id, at)
    if "to" in remark.options:
        teamwork.assign([row.id], world.people[remark.options["to"]].id, actor=world.people["admin"])
    return row.id


def _comment(world: World, text: str, feedback_id: UUID, given_at: datetime) -> None:
    remark = parse_remark(text.replace(" +", " - +", 1))
    at = world.past(given_at + remark.after)
    teamwork.add_comment(feedback_id, remark.text or "", actor=world.people[remark.who], at=at)


def _kind(what: str, call_id: str) -> dict[str, Any]:
    if what in SIGNALS:
        return {"kind": "signal", "signal": what}
    kind, *rest = what.split(":")
    if kind == "reaction":
        return {"kind": "reaction", "rating": REACTIONS[rest[0]].rating}
    if kind == "tool":
        context = {"tool_slug": rest[0], "tool_run_id": call_id}
        return {"kind": "tool_observation", "source_type": "tool", "rating": rest[1], "context": context}
    return {"kind": kind, "rating": rest[0]}


def _details(options: dict[str, str], wanted: str | None) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if "cat" in options:
        details["error_categories"] = options["cat"].split(",")
    if "scores" in options:
        details["quality_scores"] = dict(zip(SCORES, map(int, options["scores"].split("/")), strict=True))
    if "verdict" in options:
        details["output_review"] = {"verdict": options["verdict"]}
    if "skipped" in options:
        details["skipped"] = True
    if wanted:
        details["preferred_answer"] = wanted
    return details


def _label(world: World, remark: Remark, feedback_id: UUID) -> None:
    """Name the row for recordings, and note which rule will refer to it or apply it."""
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


def _submit(world: World, talk: Talk, played: PlayedTalk, text: str) -> UUID:
    """Submit the values that a person gives after the answer."""
    _, who, criteria, values = text.split(" ", 3)
    return entity_responses.submit_response(
        NewResponse(
            entity_id=world.refs[f"record.{talk.options['entity']}"],
            values={name: {"value": value} for name, value in json.loads(values).items()},
            criteria_set_id=world.refs[f"criteria.{criteria}"],
            session_id=played.session_id,
            created_at=world.past(played.answers[-1][0]),
        ),
        actor=world.people[who],
    ).id


def _decide(world: World, text: str, response_id: UUID | None, submitted: datetime) -> tuple[UUID, datetime] | None:
    """Accept or reject a response. Returns the session that tries again, if there is one, and when it starts."""
    if response_id is None:
        raise ValueError(f"There is nothing to decide: {text}")
    verdict, rest = text.split(" ", 1)
    who, *more = rest.split(" ", 1)
    remark = parse_remark(rest if verdict == "reject" else f"{who} - {' '.join(more)}")
    actor = world.people[remark.who]
    at = world.past(submitted + remark.after)
    if verdict == "accept":
        entity_responses.decide_response(response_id, "accepted", actor=actor, at=at)
        return None
    field = None if remark.what == "-" else remark.what
    reason = world.text(remark.text or "")
    entity_responses.decide_response(response_id, "rejected", actor=actor, reason=reason, field_name=field, at=at)
    row = db.session.scalars(
        select(Feedback).where(
            Feedback.tenant_id == world.system.tenant_id, Feedback.context["response_id"].astext == str(response_id)
        )
    ).one()
    _label(world, remark, row.id)
    retry = row.context.get("retry_ref")
    return (UUID(retry), at) if retry else None
