"""The demo's golden sets: what its admins promoted, which runs went over it, and what they did about failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import select, update

from app.db import db
from app.demo.talks import place_of
from app.demo.world import World, load
from app.models import Agent, AgentSession, AgentVersion, EvalRun, Feedback
from app.services.evals import promotion
from app.services.evals import runs as eval_runs
from app.services.evals.promotion import Promotion
from app.services.evals.runs import NewRun
from app.services.feedback import review as feedback_review

if TYPE_CHECKING:
    from app.demo.play import Player

Step = tuple[tuple[int, float], Callable[[], None]]


@dataclass(frozen=True)
class Started:
    """A run of the demo and its cases: the replays, by the conversations that are replayed."""

    run: EvalRun
    cases: dict[str, AgentSession]


def golden_steps(world: World, player: Player) -> list[Step]:
    """Every promotion, run and decision about a failure, each with its place in time."""
    data = load("goldens")
    found: list[tuple[str, Callable[[], None]]] = []
    found += [(entry["when"], partial(_within, player, _promote, world, entry)) for entry in data["goldens"]]
    found += [(entry["when"], partial(player.replay, entry)) for entry in data["runs"]]
    found += [(entry["when"], partial(_within, player, _settle, world, entry)) for entry in data["settled"]]
    return [(place_of(when), step) for when, step in found]


def _within(player: Player, step: Callable[..., None], *given: Any) -> None:
    with player.within():
        step(*given)


def _promote(world: World, entry: dict[str, Any]) -> None:
    """Sets are named after the persona whose conversations they hold."""
    given = Promotion(set_name=entry["talk"].rpartition("-")[0], note=entry["note"], expected=entry.get("expected"))
    session_id = world.refs[f"session.{entry['talk']}"]
    promotion.promote_session(session_id, given, actor=world.people["admin"], at=world.at(entry["when"]))


def start(world: World, entry: dict[str, Any]) -> Started:
    """Start a run with the versions that were current then."""
    new = NewRun(
        set_name=entry["set"],
        context_mode=entry.get("context", "frozen"),
        triggered_by=entry.get("trigger", "manual"),
        ref=entry.get("ref"),
    )
    with _as_of(world, entry["when"]):
        run = eval_runs.start_run(new, actor=world.people["admin"])
    at = world.at(entry["when"])
    run.name, run.created_at, run.started_at = f"{run.set_name} {at:%Y-%m-%d %H:%M}", at, at
    talks = {str(session_id): name.removeprefix("session.") for name, session_id in world.refs.items()}
    cases = db.session.scalars(
        select(AgentSession)
        .where(AgentSession.tenant_id == world.system.tenant_id, AgentSession.eval_run_id == run.id)
        .order_by(AgentSession.eval_source)
    )
    named = {talks[str(case.eval_source)]: case for case in cases}
    world.refs[f"run.{entry['key']}"] = run.id
    world.refs |= {f"replay.{entry['key']}.{talk}": case.id for talk, case in named.items()}
    return Started(run, dict(sorted(named.items())))


@contextmanager
def _as_of(world: World, when: str) -> Iterator[None]:
    """Agents as they were at that moment: a run that names no version takes the current ones."""
    rows = {row.slug: row for row in db.session.scalars(select(Agent).where(Agent.slug.in_(world.versions)))}
    now = {slug: row.current_version for slug, row in rows.items()}
    for slug, row in rows.items():
        row.current_version = sum(place_of(since) <= place_of(when) for since in world.versions[slug])
    db.session.flush()
    yield
    for slug, row in rows.items():
        row.current_version = now[slug]
    db.session.flush()


def date_failures(world: World, entry: dict[str, Any], cases: list[UUID]) -> None:
    """What a failed replay says is said when its run ended."""
    db.session.execute(
        update(Feedback)
        .where(
            Feedback.tenant_id == world.system.tenant_id,
            Feedback.kind == "replay_failure",
            Feedback.session_id.in_(cases),
        )
        .values(created_at=world.at(entry["when"]))
        .execution_options(synchronize_session=False)
    )


def _settle(world: World, entry: dict[str, Any]) -> None:
    """What failed with a version that nobody uses any more is dismissed together."""
    version = (
        select(AgentVersion.id)
        .join(Agent, Agent.id == AgentVersion.agent_id)
        .where(Agent.slug == entry["agent"], AgentVersion.version == entry["version"])
        .where(Agent.tenant_id == world.system.tenant_id)
    )
    ids = db.session.scalars(
        select(Feedback.id).where(
            Feedback.tenant_id == world.system.tenant_id,
            Feedback.kind == "replay_failure",
            Feedback.status == "pending",
            Feedback.context["agent_version_id"].astext == str(db.session.scalars(version).one()),
        )
    ).all()
    if ids:
        at = world.at(entry["when"])
        feedback_review.review(ids, "dismissed", actor=world.people["admin"], notes=entry["note"], at=at)
