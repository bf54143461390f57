"""Everything that happens in the demo, in order: conversations, feedback, rules, golden sets and their runs."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, select

from app.actor import Actor
from app.db import db
from app.demo.playback import PlayedTalk, Player
from app.demo.world import Talk, World, load_data, load_talks, sort_key
from app.models import Feedback
from app.services.agents import versions
from app.services.entities import responses as entity_responses
from app.services.entities.responses import NewResponse
from app.services.evals import promotion
from app.services.evals.promotion import Promotion
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.review import drafts

REVIEWED_AFTER = timedelta(hours=26)


def build_history(world: World, player: Player) -> list[Callable[[], None]]:
    """Every step of the demo, sorted by time. Steps at the same moment keep the order in which they are added here."""
    steps: list[tuple[tuple[int, float], Callable[[], None]]] = []

    def add(when: str, step: Callable[..., None], *args: Any) -> None:
        steps.append((sort_key(when), partial(step, *args)))

    def add_admin_step(step: Callable[..., None], entry: dict[str, Any], *more: Any) -> None:
        add(entry["when"], _in_transaction, player, step, world, entry, *more)

    for entry in load_data("knowledge"):
        add_admin_step(_add_rule, entry)
        for change in entry.get("then", ()):
            add_admin_step(_change_rule, change, entry["key"])
    for entry in load_data("drafts"):
        add_admin_step(_add_draft, entry)
    for entry in load_data("triage"):
        add_admin_step(_dismiss_weekly, entry)
    goldens = load_data("goldens")
    for entry in goldens["goldens"]:
        add_admin_step(_promote, entry)
    for entry in goldens["runs"]:
        add(entry["when"], player.replay, entry)
    for entry in goldens["settled"]:
        add_admin_step(_dismiss_failures, entry)
    for talk in load_talks():
        add(talk.when, _play, world, talk, player)
    return [step for _, step in sorted(steps, key=lambda item: item[0])]


def _in_transaction(player: Player, step: Callable[..., None], *args: Any) -> None:
    with player.transaction():
        step(*args)


def _play(world: World, talk: Talk, player: Player) -> None:
    """Have the conversation, then the feedback on it, then the second attempts that a rejection asks for."""
    played = player.play(talk)
    with player.transaction():
        retries = follow_up(world, talk, played)
        for session_id, _ in retries:
            player.reserve(session_id)
    for session_id, at in retries:
        player.retry(talk, session_id, at)


def _add_rule(world: World, entry: dict[str, Any]) -> None:
    author, at = world.people[entry["by"]], world.past(world.at(entry["when"]))
    applied = world.waiting.pop(entry["key"], [])
    behind = [*applied, *(world.labels[label] for label in entry.get("from", ()))]
    row = knowledge_rows.add_row(
        NewRow(
            type=entry["type"],
            content=entry["content"],
            context=entry.get("context"),
            agent_id=world.refs[f"agent.{entry['agent']}"] if "agent" in entry else None,
            entity_type_id=world.refs[f"type.{entry['entity_type']}"] if "entity_type" in entry else None,
            feedback_ids=behind,
            pinned=entry.get("pinned", False),
            created_at=at,
        ),
        actor=author,
    )
    world.refs[f"row.{entry['key']}"] = row.id
    if applied:
        outcome = {"kind": "knowledge", "id": str(row.id), "text": row.content}
        feedback_review.review(applied, "applied", actor=author, outcome=outcome, at=at)
    if "reviewed" in entry:
        feedback_review.review(behind, "reviewed", actor=author, notes=entry["reviewed"], at=at)


def _change_rule(world: World, change: dict[str, Any], key: str) -> None:
    row = proposals.get_model(world.refs[f"row.{key}"], actor=world.system)
    author, at = world.people[change["by"]], world.past(world.at(change["when"]))
    if "propose" in change:
        _propose_change(row.id, change["propose"], author, at)
        return
    if "edit" in change:
        knowledge_rows.edit_row(row.id, change["edit"], row.version, actor=author, reason=change["reason"], at=at)
        return
    heir = world.refs[f"row.{change['superseded_by']}"] if "superseded_by" in change else None
    knowledge_rows.set_state(row.id, change["state"], actor=author, reason=change["reason"], superseded_by=heir, at=at)


def _propose_change(row_id: UUID, wanted: dict[str, str], author: Actor, at: datetime) -> None:
    if "retire" in wanted:
        proposals.propose_retirement(row_id, wanted["retire"], actor=author, at=at)
    else:
        proposals.propose_edit(row_id, wanted, actor=author, at=at)


def _add_draft(world: World, entry: dict[str, Any]) -> None:
    """A change that an agent would like, and that waits for a person."""
    given = {"actor": world.people[entry["by"]], "reason": entry["reason"], "at": world.past(world.at(entry["when"]))}
    if "agent" in entry:
        drafts.draft_agent(world.refs[f"agent.{entry['agent']}"], entry["changes"], **given)
    else:
        drafts.draft_type(world.refs[f"type.{entry['entity_type']}"], entry["fields"], **given)


def _dismiss_weekly(world: World, entry: dict[str, Any]) -> None:
    """Dismiss, with one note, what was given until then and leads to no rule."""
    taken = {*world.labels.values(), *(row_id for ids in world.waiting.values() for row_id in ids)}
    pending = _pending(
        world,
        Feedback.kind != "replay_failure",
        Feedback.rating.in_(entry["ratings"]),
        Feedback.created_at < world.at(entry.get("before", entry["when"])),
    )
    ids = [row_id for row_id in pending if row_id not in taken]
    if len(ids) > 1:
        _dismiss(world, ids, entry)


def _promote(world: World, entry: dict[str, Any]) -> None:
    """Sets are named after the persona whose conversations they hold."""
    given = Promotion(set_name=entry["talk"].rpartition("-")[0], note=entry["note"], expected=entry.get("expected"))
    session_id = world.refs[f"session.{entry['talk']}"]
    promotion.promote_session(session_id, given, actor=world.people["admin"], at=world.at(entry["when"]))


def _dismiss_failures(world: World, entry: dict[str, Any]) -> None:
    """Dismiss what failed with a version that is no longer used."""
    agent = versions.resolve_agent(entry["agent"], actor=world.system)
    version_id = versions.version_id(agent, entry["version"])
    failed_with = Feedback.context["agent_version_id"].astext == str(version_id)
    ids = _pending(world, Feedback.kind == "replay_failure", failed_with)
    if ids:
        _dismiss(world, ids, entry)


def _pending(world: World, *conditions: ColumnElement[bool]) -> list[UUID]:
    mine = (Feedback.tenant_id == world.system.tenant_id, Feedback.status == "pending")
    return list(db.session.scalars(select(Feedback.id).where(*mine, *conditions)))


def _dismiss(world: World, ids: list[UUID], entry: dict[str, Any]) -> None:
    at = world.at(entry["when"])
    feedback_review.review(ids, "dismissed", actor=world.people["admin"], notes=entry["note"], at=at)


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
