"""What the demo's admins did with feedback: the rules they wrote and changed, and their weekly round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import select

from app.db import db
from app.demo.play import Player
from app.demo.talks import place_of
from app.demo.world import World, load
from app.models import Feedback
from app.services.feedback import review as feedback_review
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.rows import NewRow

Step = tuple[tuple[int, float], Callable[[], None]]


def learning_steps(world: World, player: Player) -> list[Step]:
    """Every rule, every change to one and every round, each with its place in time."""
    found: list[tuple[str, Callable[[], None]]] = []
    for entry in load("knowledge"):
        found.append((entry["when"], partial(_learn, world, entry)))
        found += [(change["when"], partial(_relearn, world, entry["key"], change)) for change in entry.get("then", ())]
    found += [(entry["when"], partial(_triage, world, entry)) for entry in load("triage")]
    return [(place_of(when), partial(_within, player, step)) for when, step in found]


def _within(player: Player, step: Callable[[], None]) -> None:
    with player.within():
        step()


def _learn(world: World, entry: dict[str, Any]) -> None:
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


def _relearn(world: World, key: str, change: dict[str, Any]) -> None:
    row = proposals.get(world.refs[f"row.{key}"], actor=world.system)
    author, at = world.people[change["by"]], world.past(world.at(change["when"]))
    if "edit" in change:
        knowledge_rows.edit_row(row.id, change["edit"], row.version, actor=author, reason=change["reason"], at=at)
    else:
        heir = world.refs[f"row.{change['superseded_by']}"] if "superseded_by" in change else None
        knowledge_rows.set_state(
            row.id, change["state"], actor=author, reason=change["reason"], superseded_by=heir, at=at
        )


def _triage(world: World, entry: dict[str, Any]) -> None:
    """The weekly round: what was said by then and leads to no rule is dismissed together, with one note."""
    spoken_for = {*world.labels.values(), *(row_id for ids in world.waiting.values() for row_id in ids)}
    at = world.at(entry["when"])
    before = world.at(entry.get("before", entry["when"]))
    ids = db.session.scalars(
        select(Feedback.id).where(
            Feedback.tenant_id == world.system.tenant_id,
            Feedback.status == "pending",
            Feedback.kind != "replay_failure",
            Feedback.rating.in_(entry["ratings"]),
            Feedback.created_at < before,
        )
    )
    wanted = [row_id for row_id in ids if row_id not in spoken_for]
    if len(wanted) > 1:
        feedback_review.review(wanted, "dismissed", actor=world.people["admin"], notes=entry["note"], at=at)


def note_usage(world: World) -> None:
    """What the sessions had in their prompts, counted once for all."""
    knowledge_usage.note_injections(
        {row_id: (len(times), max(times)) for row_id, times in world.used.items()}, actor=world.system
    )
