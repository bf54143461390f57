"""Talking to an agent: what a person says starts a run, and the runtime adds the answer to the conversation.

One run at a time in a conversation: whoever wants to say something holds the conversation's row and sees whether an
answer is still being written.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid, NotFound, Refused
from app.formats.agent_config import AgentConfig, read_config
from app.models import Agent, AgentSession, AgentVersion, Chat, Message, SessionDraft
from app.services.chats import ratings
from app.services.chats import store as chat_store
from app.services.chats.own import Answer
from app.services.chats.store import NewMessage
from app.services.sessions import start

OPEN_STATUSES = ("pending", "running")
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
class ChatRun:
    """The latest run in a conversation."""

    session_id: UUID
    status: str
    event_count: int
    error: str | None
    stopping: bool
    created_at: datetime
    draft: str

    @property
    def open(self) -> bool:
        return self.status in OPEN_STATUSES


@dataclass(frozen=True)
class ChatState:
    """The state of a conversation: its agent, its length, who spoke last, and the latest run."""

    chat: Chat
    last_role: str | None
    agent: str | None
    agent_name: str | None
    agent_kind: str | None
    archived: bool
    run: ChatRun | None

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
    return [ChatAgent(row[0], row[1], row[2], row[3], read_config(row[4])) for row in rows]


def start_chat(agent: str, text: str, *, actor: Actor) -> Chat:
    """Create a conversation with its first message and the run that answers it."""
    if not agent:
        raise Invalid.of({"agent": "Choose who should answer."})
    found = start.runnable_agent(agent, actor=actor)
    if found.is_system:
        raise Refused(f"{found.name} works by itself; choose another agent to talk to.")
    chat = chat_store.create_chat(actor=actor, agent_slug=found.slug, title=start.title_of(text))
    _ask(chat, found.slug, text, actor)
    return chat


def send_message(chat_id: UUID, text: str, *, actor: Actor) -> AgentSession:
    """Say something in a conversation of one's own; the run that answers it."""
    chat, agent = _hold(chat_id, actor)
    return _ask(chat, agent, text, actor)


def ask_again(chat_id: UUID, *, actor: Actor) -> AgentSession:
    """Have the last question answered once more. The answer so far stays; wanting another one is a weak signal
    about it, unless it was the person who cut it short."""
    chat, agent = _hold(chat_id, actor)
    asked, answer = _last_turn(chat)
    if answer is not None and not answer.details.get("stopped"):
        ratings.request_another(Answer(chat, answer), actor=actor)
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
    try:
        start.stop_run(run.session_id, actor=actor)
    except Refused:
        # It came to its end in the same moment.
        return


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
    busy = (
        select(AgentSession.id)
        .where(*_runs_in(chat.tenant_id, chat.id), AgentSession.status.in_(OPEN_STATUSES))
        .limit(1)
    )
    if db.session.scalar(busy) is not None:
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
    answer = db.session.scalar(
        select(Message)
        .where(*mine, Message.role == "agent", Message.message_index > asked.message_index)
        .order_by(latest)
        .limit(1)
    )
    return asked, answer


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
    row = db.session.execute(
        select(
            Chat, Message.role, Agent.slug, Agent.name, Agent.kind, Agent.archived_at, AgentSession.id,
            AgentSession.status, AgentSession.event_count, AgentSession.error,
            AgentSession.cancel_requested_at, AgentSession.created_at, SessionDraft.text,
        )
        .outerjoin(Agent, Agent.id == Chat.agent_id)
        .outerjoin(
            Message,
            (Message.tenant_id == Chat.tenant_id)
            & (Message.chat_id == Chat.id)
            & (Message.message_index == Chat.message_count - 1),
        )
        .outerjoin(AgentSession, AgentSession.id == latest)
        .outerjoin(
            SessionDraft,
            (SessionDraft.tenant_id == AgentSession.tenant_id) & (SessionDraft.session_id == AgentSession.id),
        )
        .where(Chat.tenant_id == actor.tenant_id, Chat.user_id == actor.id, Chat.id == chat_id)
        .execution_options(populate_existing=True)
    ).one_or_none()  # fmt: skip
    if row is None:
        raise NotFound("You have no such conversation in this workspace.")
    chat, last_role, agent, name, kind, archived_at, session_id, *rest = row
    return ChatState(chat, last_role, agent, name, kind, archived_at is not None, _run(session_id, *rest))


def _run(
    session_id: UUID | None, status: str, events: int, error: str | None, stop: Any, at: datetime, draft: str | None
) -> ChatRun | None:
    if session_id is None:
        return None
    return ChatRun(session_id, status, events, error, stop is not None and status == "running", at, draft or "")
