"""What replays of the demo's goldens came to, as it is kept in a file, and how it is taken into a workspace."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.db import db
from app.demo.goldens import date_failures, start
from app.demo.recording import Names
from app.demo.timeline import timed
from app.demo.world import HERE, World
from app.models import AgentSession
from app.services.evals import replays as eval_replays
from app.services.evals.results import by_golden, cases_of, finish_if_done, verdict_of
from app.services.knowledge.prompt import load_shared_context_prompt
from app.services.sessions.bulk_events import add_rows_of
from app.services.sessions.events import NewEvent, events_of, rows_of
from app.services.workspaces.masking import masking_for

FILE = "replayed.ndjson"
MODEL = "offline"
# Replays begin one after the other.
APART = timedelta(seconds=2)


@dataclass
class Case:
    """How one golden went: its events, and the verdict on them."""

    status: str
    events: list[tuple[str, dict[str, Any]]]
    result: dict[str, Any]


@dataclass
class Replayed:
    """How a run went, case by case."""

    run: str
    cases: dict[str, Case] = field(default_factory=dict)

    def line(self) -> str:
        cases = {talk: [case.status, case.events, case.result] for talk, case in self.cases.items()}
        return json.dumps({"run": self.run, "cases": cases}, ensure_ascii=False, separators=(",", ":"))


def read_replayed() -> dict[str, Replayed]:
    """Every recorded run by its key."""
    found = {}
    for line in (HERE / FILE).read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        cases = {
            talk: Case(status, [(kind, payload) for kind, payload in events], result)
            for talk, (status, events, result) in given["cases"].items()
        }
        found[given["run"]] = Replayed(given["run"], cases)
    return found


def take_in(world: World, entry: dict[str, Any], recorded: Replayed) -> None:
    """A recorded run: its cases at once, then what verdicts set off and the run's figures as ever."""
    started = start(world, entry)
    at, rows = world.at(entry["when"]), {}
    for talk, session in started.cases.items():
        events = _end(world, entry, session, recorded.cases[talk], at)
        rows[session.id] = rows_of(events, masking_for(world.system))
        at = rows[session.id][-1].occurred_at + APART
    db.session.flush()
    add_rows_of(rows, tenant_id=world.system.tenant_id)
    sessions = {str(session.eval_source): session for session in started.cases.values()}
    for golden_id, group in by_golden(cases_of(started.run.id, actor=world.system, divergences=True)).items():
        eval_replays.report_verdict(
            verdict_of(group), group, sessions[golden_id], started.run.context_mode, actor=world.system
        )
    finish_if_done(started.run, actor=world.system, at=at)
    date_failures(world, entry, [session.id for session in started.cases.values()])


def _end(world: World, entry: dict[str, Any], session: AgentSession, kept: Case, at: datetime) -> list[NewEvent]:
    """One replay as it ended; its events."""
    moments, work = timed(kept.events, at)
    names = Names(world, entry["key"])
    own = {"sha256": _hash(session, entry)}
    events = []
    for (kind, payload), moment in zip(kept.events, moments, strict=True):
        told = names.resolved(payload)
        events.append(NewEvent(kind, told | own if kind == "context.loaded" else told, moment))
    session.status, session.event_count, session.attempt = kept.status, len(events), 1
    session.created_at, session.started_at, session.finished_at, session.duration_ms = at, at, moments[-1], work
    session.model, session.input_tokens, session.output_tokens, session.cost = MODEL, 0, 0, Decimal(0)
    result = names.resolved(kept.result) | {"judged_at": moments[-1].isoformat()}
    session.meta = {**session.meta, "eval_result": result}
    return events


def _hash(session: AgentSession, entry: dict[str, Any]) -> str:
    """The hash of the knowledge in the prompt is the workspace's own: that of the golden, or of the moment."""
    snapshot = session.meta["eval_golden"]["snapshot"]
    if entry.get("context") != "live":
        return str(snapshot["shared_context"]["sha256"])
    record = snapshot["entity"]
    type_id = UUID(record["type_id"]) if record else None
    return load_shared_context_prompt(session.tenant_id, session.agent_id, type_id).sha256


def recorded_case(world: World, session: AgentSession, name: str) -> Case:
    """A replay that has ended, as it is kept."""
    found = sorted(events_of(session.id, actor=world.system), key=lambda one: one.sequence)
    names = Names(world, name)
    events = names.named([(event.event_type, event.payload) for event in found])
    result = {key: value for key, value in session.meta["eval_result"].items() if key != "judged_at"}
    return Case(session.status, events, names.named([("", result)])[0][1])
