"""Chats with an agent: each message starts a run, one at a time, whose answer the runtime adds to the conversation."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.formats.agent_config import AgentConfig, read_config
from app.models import Agent, AgentSession, AgentVersion, Chat, Message, SessionDraft
from app.services.chats import own as chat_own
from app.services.chats import store as chat_store
from app.services.chats.own import Answer
from app.services.chats.store import NewMessage
from app.services.sessions import start
from app.services.sessions.start import OWN_DRAFT, PROGRESS, Progress
from app.services.sessions.store import OPEN_STATUSES, title_of

BUSY = "The answer to what you said before is still being written. Wait for it, or stop it."


@dataclass(frozen=True)
class ChatAgent:
    """An agent that one can talk to, as it is now."""

    slug: str
    name: str
    kind: str
    description: str | None
    config: AgentConfig


@dataclass(frozen=True)
class ChatState:
    """The state of a conversation: its agent, its length, who spoke last, and the latest run."""

    chat: Chat
    last_role: str | None
    agent_name: str | None
    agent_kind: str | None
    archived: bool
    run: Progress | None

    @property
    def chat_id(self) -> UUID:
        return self.chat.id

    @property
    def running(self) -> bool:
        return self.run is not None and self.run.open

    @property
    def mark(self) -> str:
        """Another text whenever there is something new to show."""
        run = self.run
        if run is None:
            return str(self.chat.message_count)
        stopping = "s" if run.stopping else ""
        draft = len(run.draft) if run.open else 0
        return f"{self.chat.message_count}-{str(run.session_id)[:8]}-{run.status}{stopping}-{run.event_count}-{draft}"


def list_chat_agents(*, actor: Actor) -> list[ChatAgent]:
    """The agents that one can talk to. The workspace's own, which work by themselves, are none of them. One query."""
    rows = db.session.execute(
        select(Agent.slug, Agent.name, Agent.kind, Agent.description, AgentVersion.config)
        .join(
            AgentVersion,
            (AgentVersion.tenant_id == Agent.tenant_id)
            & (AgentVersion.agent_id == Agent.id)
            & (AgentVersion.version == Agent.current_version),
        )
        .where(
            Agent.tenant_id == actor.tenant_id,
            Agent.kind != "external",
            Agent.archived_at.is_(None),
            Agent.is_system.is_(False),
        )
        .order_by(Agent.name, Agent.slug)
    )
    return [ChatAgent(slug, name, kind, about, read_config(config)) for slug, name, kind, about, config in rows]


def start_chat(agent: str, text: str, *, actor: Actor) -> Chat:
    """Create a conversation with its first message and the run that answers it."""
    if not agent:
        raise Invalid.of({"agent": "Choose who should answer."})
    found = start.runnable_agent(agent, actor=actor)
    if found.is_system:
        raise Refused(f"{found.name} works by itself; choose another agent to talk to.")
    chat = chat_store.create_chat(actor=actor, agent_slug=found.slug, title=title_of(text))
    _ask(chat, found.slug, text, actor)
    return chat


def send_message(chat_id: UUID, text: str, *, actor: Actor) -> AgentSession:
    """Say something in a conversation of one's own; the run that answers it."""
    chat, agent = _hold(chat_id, actor)
    return _ask(chat, agent, text, actor)


def ask_again(chat_id: UUID, *, actor: Actor) -> AgentSession:
    """Have the last question answered again. That is a weak signal about the answer, unless the person stopped it."""
    chat, agent = _hold(chat_id, actor)
    asked, answer = _last_turn(chat)
    if answer is not None and not answer.details.get("stopped"):
        chat_own.request_another(Answer(chat, answer), actor=actor)
    return start.start_run(
        agent,
        [asked.content],
        actor=actor,
        session_type="chat",
        chat_id=chat.id,
        turn_id=asked.turn_id,
        metadata={"instead_of": answer.message_index} if answer else None,
    )


def stop_answer(chat_id: UUID, *, actor: Actor) -> None:
    """Stop the answer that is being written. One that is there already stays as it is."""
    run = chat_state(chat_id, actor=actor).run
    if run is None or not run.open or run.stopping:
        return
    # It may come to its end in the same moment.
    with suppress(Refused):
        start.stop_run(run.session_id, actor=actor)


def _ask(chat: Chat, agent: str, text: str, actor: Actor) -> AgentSession:
    turn_id = uuid4().hex
    session = start.start_run(agent, [text], actor=actor, session_type="chat", chat_id=chat.id, turn_id=turn_id)
    asked = NewMessage(
        role="user", content=text.strip(), turn_id=turn_id, session_id=session.id, trace_id=session.trace_id
    )
    chat_store.append_messages(chat.id, [asked], actor=actor)
    return session


def _hold(chat_id: UUID, actor: Actor) -> tuple[Chat, str]:
    """A conversation of the actor's in which nobody is answering, locked, and who answers in it."""
    row = db.session.execute(
        select(Chat, Agent.slug)
        .outerjoin(Agent, Agent.id == Chat.agent_id)
        .where(Chat.tenant_id == actor.tenant_id, Chat.user_id == actor.id, Chat.id == chat_id)
        .with_for_update(of=Chat)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if row is None:
        raise NotFound("You have no such conversation in this workspace.")
    chat, agent = row
    if agent is None:
        raise Refused("Nobody answers in this conversation; begin a new one.")
    busy = [*_runs_in(chat.tenant_id, chat.id), AgentSession.status.in_(OPEN_STATUSES)]
    if db.session.scalar(select(AgentSession.id).where(*busy).limit(1)) is not None:
        raise Refused(BUSY)
    return chat, agent


def _runs_in(tenant_id: Any, chat_id: Any) -> list[Any]:
    """Runs of ours: what was only reported about a conversation has no turn that it answers."""
    return [AgentSession.tenant_id == tenant_id, AgentSession.chat_id == chat_id, AgentSession.meta.has_key("turn_id")]


def _last_turn(chat: Chat) -> tuple[Message, Message | None]:
    mine = [Message.tenant_id == chat.tenant_id, Message.chat_id == chat.id]
    latest = Message.message_index.desc()
    asked = db.session.scalar(select(Message).where(*mine, Message.role == "user").order_by(latest).limit(1))
    if asked is None:
        raise Refused("Nothing was asked in this conversation yet.")
    answers = [*mine, Message.role == "agent", Message.message_index > asked.message_index]
    return asked, db.session.scalar(select(Message).where(*answers).order_by(latest).limit(1))


def chat_state(chat_id: UUID, *, actor: Actor) -> ChatState:
    """Return the state of a conversation of the actor's. One query."""
    latest = (
        select(AgentSession.id)
        .where(*_runs_in(Chat.tenant_id, Chat.id))
        .order_by(AgentSession.created_at.desc(), AgentSession.id.desc())
        .limit(1)
        .correlate(Chat)
        .scalar_subquery()
    )
    last = (
        (Message.tenant_id == Chat.tenant_id)
        & (Message.chat_id == Chat.id)
        & (Message.message_index == Chat.message_count - 1)
    )
    row = db.session.execute(
        select(Chat, Message.role, Agent.name, Agent.kind, Agent.archived_at.is_not(None), *PROGRESS)
        .outerjoin(Agent, Agent.id == Chat.agent_id)
        .outerjoin(Message, last)
        .outerjoin(AgentSession, AgentSession.id == latest)
        .outerjoin(SessionDraft, OWN_DRAFT)
        .where(Chat.tenant_id == actor.tenant_id, Chat.user_id == actor.id, Chat.id == chat_id)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if row is None:
        raise NotFound("You have no such conversation in this workspace.")
    chat, last_role, name, kind, archived, *run = row
    return ChatState(chat, last_role, name, kind, archived, Progress(*run) if run[0] else None)
