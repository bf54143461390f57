"""Plays the demo from its recordings: sessions, their effects and runs, written through the services."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.actor import Actor
from app.db import db
from app.demo.world import Events, Recorded, Talk, World, assign_times, read_runs, read_talks, to_ids
from app.models import Agent, AgentSession, Chat, Entity, EntityResponse, EvalRun, Feedback, SharedContext
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.evals import replays as eval_replays
from app.services.evals import runs as eval_runs
from app.services.evals.results import cases_of, finish_if_done, group_by_golden, verdict_of
from app.services.evals.runs import NewRun
from app.services.knowledge import memories
from app.services.knowledge.prompt import load_shared_context_prompt
from app.services.sessions import store as session_store
from app.services.sessions.events import NewEvent, add_rows, lock_for_events, rows_of, write_events
from app.services.sessions.store import NewSession, create_sessions
from app.services.workspaces.store import masking_for
from app.tools import Tool, ToolScope, find_tool
from app.tools.run import read_arguments

USAGE: dict[str, Any] = {"model": "offline", "input_tokens": 0, "output_tokens": 0, "cost": Decimal(0)}
BETWEEN_REPLAYS = timedelta(seconds=2)
TITLE_LENGTH = 120


@dataclass
class PlayedTalk:
    """What feedback on a conversation refers to. `answers` has the time and message id of each turn's answer."""

    session_id: UUID
    answers: list[tuple[datetime, UUID | None]] = field(default_factory=list)
    call_id: str = "call_1"
    response_id: UUID | None = None


class Player:
    """Plays conversations and runs from the recording. `record.LivePlayer` has agents answer some of them instead."""

    def __init__(self, world: World, talks: Sequence[Talk]) -> None:
        self.world = world
        self.recorded_talks, self.recorded_runs = read_talks(), read_runs()
        self.chats: dict[str, Chat] = {}
        with self.transaction():
            self.sessions = self._create_sessions(talks)

    def transaction(self) -> AbstractContextManager[Any]:
        """The seed is one transaction, which its caller opens."""
        return nullcontext()

    def reserve(self, session_id: UUID) -> None:
        """Keep workers away from a session. In the seed's transaction none of them sees it."""

    def play(self, talk: Talk) -> PlayedTalk:
        world, recorded = self.world, self.recorded_talks[talk.key]
        session = self.sessions[talk.key]
        world.refs[f"session.{talk.key}"] = session.id
        events = self._apply(recorded, world.at(talk.when), talk, session)
        write_events(session, events, actor=world.system)
        messages = store_messages(world, self.chats.get(talk.key), session, events)
        return summarize(world, talk, session.id, recorded["events"], messages)

    def retry(self, talk: Talk, session_id: UUID, at: datetime) -> None:
        """Play the second attempt at what a person rejected, if the recording has one."""
        recorded = self.recorded_talks[talk.key].get("again")
        if recorded is None:
            return
        session = lock_for_events(session_id, actor=self.world.system)
        _, work = assign_times(recorded["events"], at)
        _set(session, status="running", started_at=at, duration_ms=work, tags=[talk.persona], **USAGE)
        events = self._apply(recorded, at, talk, session)
        session_store.append_events(session_id, events, actor=self.world.system)

    def replay(self, entry: dict[str, Any]) -> None:
        """Play a run: store its cases, then report verdicts and finish it as a real run does."""
        world, recorded = self.world, self.recorded_runs[entry["key"]]
        run, cases = start_run(world, entry)
        at, rows = world.at(entry["when"]), []
        for talk, session in cases.items():
            events = _end_replay(world, entry, session, recorded["cases"][talk], at)
            rows += rows_of(session.id, events, masking_for(world.system))
            at = rows[-1].occurred_at + BETWEEN_REPLAYS
        db.session.flush()
        add_rows(rows, tenant_id=world.system.tenant_id)
        sessions = {str(session.eval_source): session for session in cases.values()}
        for golden_id, group in group_by_golden(cases_of(run.id, actor=world.system, divergences=True)).items():
            golden = sessions[golden_id]
            eval_replays.report_verdict(verdict_of(group), group, golden, run.context_mode, actor=world.system)
        finish_if_done(run, actor=world.system, at=at)
        date_failures(world, entry, [session.id for session in cases.values()])

    def _create_sessions(self, talks: Sequence[Talk]) -> dict[str, AgentSession]:
        """Create every session at once, still without events."""
        create_sessions([self._new_session(talk) for talk in talks], actor=self.world.system)
        found = db.session.scalars(
            select(AgentSession).where(
                AgentSession.tenant_id == self.world.system.tenant_id, AgentSession.external_id.is_not(None)
            )
        )
        by_name = {row.external_id: row for row in found}
        return {talk.key: by_name[f"demo:{talk.key}"] for talk in talks}

    def _new_session(self, talk: Talk) -> NewSession:
        world, recorded = self.world, self.recorded_talks[talk.key]
        times, work = assign_times(recorded["events"], world.at(talk.when))
        chat = create_chat(world, talk, times[0])
        if chat:
            self.chats[talk.key] = chat
        return NewSession(
            **session_fields(world, talk),
            external_id=f"demo:{talk.key}",
            title=_title(world.text(talk.prompts[0])),
            status=recorded["status"],
            error=recorded["error"],
            chat_id=chat.id if chat else None,
            duration_ms=work,
            environment="production",
            tags=(talk.persona,),
            created_at=times[0],
            started_at=times[0],
            finished_at=times[-1],
            **USAGE,
        )

    def _apply(self, recorded: Recorded, began: datetime, talk: Talk, session: AgentSession) -> list[NewEvent]:
        """Repeat what the agent changed, and return its events with the ids and times of this workspace."""
        events = recorded["events"]
        times, _ = assign_times(events, began)
        apply_effects(self.world, events, times, self.world.actor(talk), session.id)
        return new_events(self.world, events, times, lambda at: self._loaded(session, at))

    def _loaded(self, session: AgentSession, at: datetime) -> dict[str, Any]:
        """The knowledge in a prompt at this moment. Its hash differs in every workspace, so it is not recorded."""
        world = self.world
        ref = next((name for name, value in world.refs.items() if value == session.entity_id), None)
        type_id = world.refs[f"type.{world.record_types[ref]}"] if ref else None
        prompt = load_shared_context_prompt(session.tenant_id, session.agent_id, type_id)
        for row_id in prompt.row_ids:
            world.used.setdefault(row_id, []).append(at)
        row_ids = [str(row_id) for row_id in prompt.row_ids]
        return {"row_ids": row_ids, "versions": [row.version for row in prompt.rows], "sha256": prompt.sha256}


def session_fields(world: World, talk: Talk) -> dict[str, Any]:
    """What a session of this conversation has, whether it is recorded or run."""
    return {
        "agent": talk.agent,
        "agent_version": world.version_at(talk.agent, talk.when),
        "session_type": talk.type,
        "output_type": talk.output,
        "entity_id": world.refs[f"record.{talk.entity}"] if talk.entity else None,
        "person_id": world.people[talk.person].id,
    }


def summarize(world: World, talk: Talk, session_id: UUID, events: Events, messages: Sequence[UUID]) -> PlayedTalk:
    """Collect what feedback on the conversation will refer to."""
    times, _ = assign_times(events, world.at(talk.when))
    played, message_ids = PlayedTalk(session_id), iter(messages)
    for (kind, payload), at in zip(events, times, strict=True):
        if kind == "agent.message":
            played.answers.append((at, next(message_ids, None)))
        elif kind == "tool.call":
            played.call_id = payload["id"]
        elif kind == "response.submitted":
            played.response_id = UUID(to_ids(world, payload["response_id"]))
    played.answers += [(times[-1], None)] * (len(talk.prompts) - len(played.answers))
    return played


def create_chat(world: World, talk: Talk, began: datetime) -> Chat | None:
    """Create the chat of a conversation, if it is one."""
    if talk.type != "chat":
        return None
    return chat_store.create_chat(
        actor=world.system,
        agent_slug=talk.agent,
        title=world.text(talk.prompts[0]),
        user_id=world.people[talk.person].id,
        created_at=began,
    )


def store_messages(world: World, chat: Chat | None, session: AgentSession, events: Sequence[NewEvent]) -> list[UUID]:
    """Store the messages of the chat. Returns the ids of the agent's."""
    if chat is None:
        return []
    new = [
        NewMessage(
            role="user" if event.event_type == "user.message" else "agent",
            content=event.payload["text"],
            session_id=session.id,
            trace_id=session.trace_id,
            details={name: value for name, value in event.payload.items() if name.endswith("_rules")},
            created_at=event.occurred_at,
        )
        for event in events
        if event.event_type in ("user.message", "agent.message")
    ]
    stored = chat_store.append_messages(chat.id, new, actor=world.system)
    # The demo's feedback is written for it. Nothing is to be detected in old conversations.
    chat.checked_count = chat.message_count
    return [message.id for message in stored if message.role == "agent"]


def start_run(world: World, entry: dict[str, Any]) -> tuple[EvalRun, dict[str, AgentSession]]:
    """Start a run with the versions that were current then. Returns it with its replays by conversation."""
    new = NewRun(
        set_name=entry["set"],
        context_mode=entry.get("context", "frozen"),
        triggered_by=entry.get("trigger", "manual"),
        ref=entry.get("ref"),
    )
    with _versions_at(world, entry["when"]):
        run = eval_runs.start_run(new, actor=world.people["admin"])
    at = world.at(entry["when"])
    _set(run, name=f"{run.set_name} {at:%Y-%m-%d %H:%M}", created_at=at, started_at=at)
    talks = {str(session_id): name.removeprefix("session.") for name, session_id in world.refs.items()}
    replays = db.session.scalars(
        select(AgentSession)
        .where(AgentSession.tenant_id == world.system.tenant_id, AgentSession.eval_run_id == run.id)
        .order_by(AgentSession.eval_source)
    )
    cases = {talks[str(replay.eval_source)]: replay for replay in replays}
    world.refs[f"run.{entry['key']}"] = run.id
    world.refs |= {f"replay.{entry['key']}.{talk}": replay.id for talk, replay in cases.items()}
    return run, dict(sorted(cases.items()))


@contextmanager
def _versions_at(world: World, when: str) -> Iterator[None]:
    """Set agents back to their versions of that moment: a run that names no version takes the current ones."""
    agents = db.session.scalars(select(Agent).where(Agent.slug.in_(world.versions))).all()
    current = [agent.current_version for agent in agents]
    for agent in agents:
        agent.current_version = world.version_at(agent.slug, when)
    db.session.flush()
    yield
    for agent, version in zip(agents, current, strict=True):
        agent.current_version = version
    db.session.flush()


def date_failures(world: World, entry: dict[str, Any], replays: list[UUID]) -> None:
    """Date the feedback of failed replays to the time of their run."""
    db.session.execute(
        update(Feedback)
        .where(
            Feedback.tenant_id == world.system.tenant_id,
            Feedback.kind == "replay_failure",
            Feedback.session_id.in_(replays),
        )
        .values(created_at=world.at(entry["when"]))
        .execution_options(synchronize_session=False)
    )


def _end_replay(
    world: World, entry: dict[str, Any], session: AgentSession, case: list[Any], at: datetime
) -> list[NewEvent]:
    """Complete a replay as it was recorded; returns its events."""
    status, recorded, verdict = case
    times, work = assign_times(recorded, at)
    events = new_events(world, recorded, times, lambda _: {"sha256": _prompt_hash(session, entry)})
    # It did not run here, so it has no attempt, and no estimate of how long things take rests on it.
    _set(session, status=status, duration_ms=work, **USAGE)
    _set(session, created_at=at, started_at=at, finished_at=times[-1])
    result = to_ids(world, verdict) | {"judged_at": times[-1].isoformat()}
    session.meta = {**session.meta, "eval_result": result}
    return events


def _prompt_hash(session: AgentSession, entry: dict[str, Any]) -> str:
    """The hash of the knowledge in the prompt: the golden's, or that of the moment."""
    snapshot = session.meta["eval_golden"]["snapshot"]
    if entry.get("context") != "live":
        return str(snapshot["shared_context"]["sha256"])
    record = snapshot["entity"]
    type_id = UUID(record["type_id"]) if record else None
    return load_shared_context_prompt(session.tenant_id, session.agent_id, type_id).sha256


def new_events(
    world: World, events: Events, times: list[datetime], loaded: Callable[[datetime], dict[str, Any]] = lambda _: {}
) -> list[NewEvent]:
    """Recorded events with the ids of this workspace. `loaded` adds to `context.loaded` what is not recorded."""
    return [
        NewEvent(kind, to_ids(world, payload) | (loaded(at) if kind == "context.loaded" else {}), at)
        for (kind, payload), at in zip(events, times, strict=True)
    ]


def _set(row: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _title(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def apply_effects(world: World, events: Events, times: list[datetime], actor: Actor, session_id: UUID) -> None:
    """Call every tool again that changed something. What it creates gets the name that the recording has for it."""
    calls: dict[str, Any] = {}
    for (kind, payload), at in zip(events, times, strict=True):
        if kind == "tool.call":
            calls[payload["id"]] = payload["arguments"]
        elif kind == "tool.result" and not payload["is_error"] and find_tool(payload["name"]).writes:
            arguments = to_ids(world, calls[payload["call_id"]])
            created = _call_again(find_tool(payload["name"]), arguments, ToolScope(actor, session_id), at)
            world.refs[payload["output"]["id"].removeprefix("ref:")] = created


def _call_again(tool: Tool, arguments: dict[str, Any], scope: ToolScope, at: datetime) -> UUID:
    if tool.name == "saveMemory":  # Memories cannot be changed, so this one is dated at once.
        return memories.save_memory(arguments["content"], actor=scope.actor, session_id=scope.session_id, at=at).id
    outcome = tool.call(read_arguments(tool, arguments), scope)
    for event in outcome.events:
        date_effect(event.event_type, event.payload, at)
    return UUID(outcome.output["id"])


def date_effect(kind: str, payload: dict[str, Any], at: datetime) -> None:
    """Date what an agent changed to the time of the conversation: lists show what changed last first."""
    if kind == "entity.created":
        _update(Entity, payload["entity_id"], created_at=at, updated_at=at)
    elif kind == "entity.updated" and payload["changes"]:
        _update(Entity, payload["entity_id"], updated_at=at)
    elif kind == "response.submitted":
        _update(EntityResponse, payload["response_id"], created_at=at)
    elif kind == "knowledge.changed":
        _update(SharedContext, payload["shared_context_id"], created_at=at, updated_at=at)


def _update(model: Any, row_id: str, **values: datetime) -> None:
    db.session.execute(update(model).where(model.id == UUID(row_id)).values(**values))
