"""Work for agents that run here, in chats and elsewhere: started, stopped and followed.

A run is a pending session, with the messages to its agent in its metadata as `turns`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.formats import session_limits as limits
from app.models import Agent, AgentSession, AgentVersion, Chat, Message, SessionDraft
from app.services import audit
from app.services.agents import versions
from app.services.chats import own as chat_own
from app.services.chats import store as chat_store
from app.services.chats.own import Answer
from app.services.chats.store import NewMessage
from app.services.sessions.events import lock_for_events
from app.services.sessions.store import OPEN_STATUSES, NewSession, create_session, finish_session, title_of

MAX_TURNS = 50
BUSY = "An answer is still in progress. Wait for it or stop it."


@dataclass(frozen=True)
class Progress:
    """How far a run is: its status, how many events it has, why it failed, and the answer so far."""

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


# The columns of a Progress, and the draft that belongs to the session.
PROGRESS: tuple[Any, ...] = (
    AgentSession.id, AgentSession.status, AgentSession.event_count, AgentSession.error,
    AgentSession.cancel_requested_at.is_not(None) & (AgentSession.status == "running"), AgentSession.created_at,
    func.coalesce(SessionDraft.text, ""),
)  # fmt: skip
OWN_DRAFT = (SessionDraft.tenant_id == AgentSession.tenant_id) & (SessionDraft.session_id == AgentSession.id)


def start_run(
    agent: str,
    turns: Sequence[str],
    *,
    actor: Actor,
    turn_id: str | None = None,
    title: str | None = None,
    metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> AgentSession:
    """Ask an agent to answer these messages, one after the other. In a chat, `turn_id` names the turn that is
    answered: earlier turns are what the agent knows, and its answer joins the chat. `fields` are of the session."""
    texts = [text.strip() for text in turns if text.strip()]
    if not texts or len(texts) > MAX_TURNS:
        raise Invalid.of({"message": "Enter a message."})
    if any(len(text) > limits.MESSAGE // 4 for text in texts):
        raise Invalid.of({"message": f"At most {limits.MESSAGE // 4:,} characters."})
    marks = (metadata or {}) | {"turns": texts} | ({"turn_id": turn_id} if turn_id else {})
    slug = runnable_agent(agent, actor=actor).slug
    new = NewSession(agent=slug, title=title or title_of(texts[0]), marks=marks, **fields)
    return create_session(new, actor=actor)[0]


def runnable_agent(agent: str, *, actor: Actor) -> Agent:
    """The agent of that name, if it can be started from here."""
    found = versions.find_agent(agent, actor=actor)
    if found is None:
        raise NotFound(f"There is no agent {agent[:120]} in this workspace.")
    if found.archived_at is not None:
        raise Refused(f"{found.name} is archived. Restore it first.")
    if found.kind == "external":
        raise Refused(f"{found.name} runs outside Upshot and can’t be started from here.")
    return found


def stop_run(session_id: UUID, *, actor: Actor) -> AgentSession:
    """Stop a run: at once while it waits, at its next step while it runs. Its person or an admin may."""
    session = lock_for_events(session_id, actor=actor)
    if session.created_by != actor.id and not actor.is_admin:
        raise Forbidden("Only the person who started this or an admin can stop it.")
    if session.status == "pending" or (session.status == "running" and session.lease_owner is None):
        return finish_session(session_id, "cancelled", actor=actor)
    if session.status != "running":
        raise Refused(f"This session is already {session.status}.", current=session.status)
    if session.cancel_requested_at is None:
        session.cancel_requested_at = datetime.now(UTC)
        db.session.flush()
        audit.record(actor, "session.stop_requested", "session", session.id)
    return session


def progress_of(session_id: UUID, *, actor: Actor) -> Progress:
    """How far a run is. One query."""
    row = db.session.execute(
        select(*PROGRESS)
        .outerjoin(SessionDraft, OWN_DRAFT)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id == session_id)
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such session in this workspace.")
    return Progress(*row)


# Chats: each message starts a run, one at a time, whose answer the runtime adds to the conversation.


@dataclass(frozen=True)
class ChatState:
    """The state of a conversation: its agent, its length, whose message is last, and the latest run."""

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


def list_chat_agents(*, actor: Actor) -> Sequence[Any]:
    """The agents that one can talk to. The workspace's own, which work by themselves, are none of them. One query."""
    return db.session.execute(
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
    ).all()


def start_chat(agent: str, text: str, *, actor: Actor) -> Chat:
    """Create a conversation with its first message and the run that answers it."""
    if not agent:
        raise Invalid.of({"agent": "Choose an agent."})
    found = runnable_agent(agent, actor=actor)
    if found.is_system:
        raise Refused(f"{found.name} can’t chat. Choose another agent.")
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
    return start_run(
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
        stop_run(run.session_id, actor=actor)


def _ask(chat: Chat, agent: str, text: str, actor: Actor) -> AgentSession:
    turn_id = uuid4().hex
    session = start_run(agent, [text], actor=actor, session_type="chat", chat_id=chat.id, turn_id=turn_id)
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
        raise Refused("No agent answers in this conversation. Start a new one.")
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
        raise Refused("This conversation has no question yet.")
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
