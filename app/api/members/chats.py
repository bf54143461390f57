"""Conversations over the API: create, add messages, read."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.kit.fields import Answer, Body, Id, Moment, Page
from app.api.kit.route import route
from app.api.members import bp
from app.db import paging
from app.formats import session_limits as limits
from app.ingest.fields import Name, PastMoment, Slug
from app.services.chats import lists as chat_lists
from app.services.chats import store as chat_store
from app.services.chats.lists import ChatFilters

Text = Annotated[str, Field(max_length=limits.MESSAGE)]


class NewMessageBody(Body):
    """One message. Without a `turn_id`, each user message starts a turn that includes the messages after it."""

    role: Literal["user", "agent", "system", "tool"]
    content: Text
    turn_id: Name | None = None
    session_id: Id | None = Field(None, description="The session that produced the answer.")
    external_id: Name | None = Field(None, description="Your message ID. Feedback can refer to it.")
    trace_id: Name | None = None
    details: dict[str, Any] = {}
    created_at: PastMoment | None = None


class NewChatBody(Body):
    """A conversation."""

    agent: Slug = Field(description="The agent's slug. An unknown agent is created.")
    title: str | None = Field(None, min_length=1, max_length=limits.TITLE, description="Defaults to the first words.")
    external_id: Name | None = Field(None, description="Your ID. Sending it again returns the stored conversation.")
    project: Name = "default"
    created_at: PastMoment | None = None
    messages: list[NewMessageBody] = Field([], max_length=limits.MESSAGES_AT_ONCE)


class NewMessagesBody(Body):
    """Messages in order."""

    messages: list[NewMessageBody] = Field(min_length=1, max_length=limits.MESSAGES_AT_ONCE)


class ChatQuery(Page):
    agent: str | None = Field(None, max_length=120, description="The agent's slug.")
    project: Name | None = None
    external_id: Name | None = None


class ChatAnswer(Answer):
    """A conversation."""

    id: UUID
    external_id: str | None
    project: str
    title: str
    agent: str | None
    agent_id: UUID | None
    message_count: int
    created_at: Moment
    last_message_at: Moment


class ChatPage(Answer):
    """One page, by last activity."""

    items: list[ChatAnswer]
    next_cursor: str | None


class MessageAnswer(Answer):
    """One message and its position."""

    id: UUID
    message_index: int
    role: str
    content: str
    turn_id: str
    session_id: UUID | None
    external_id: str | None
    trace_id: str | None
    details: dict[str, Any]
    created_at: Moment


class MessagePage(Answer):
    """One page, oldest first."""

    items: list[MessageAnswer]
    next_cursor: str | None


class MessagesAdded(Answer):
    """The stored messages."""

    items: list[MessageAnswer]


def new_messages(given: list[NewMessageBody]) -> list[chat_store.NewMessage]:
    return [chat_store.NewMessage(**dict(message)) for message in given]


@route(
    bp,
    "POST",
    "/api/v1/chats",
    access=("member", "ingest"),
    status=201,
    idempotent=True,
    also={200: "A conversation with this `external_id` exists. Returns it unchanged."},
)
def create_chat(body: NewChatBody) -> tuple[ChatAnswer, int]:
    """Create a conversation. It belongs to the key's owner, and so does its `external_id`. Send messages with it or
    add them later."""
    known = chat_store.find_chat(body.external_id, actor=g.actor) if body.external_id else None
    if known is not None:
        return show_chat(known.id), 200
    chat = chat_store.create_chat(
        actor=g.actor,
        agent_slug=body.agent,
        # Cutting the first words is left to the service, after masking.
        title=body.title or next((message.content for message in body.messages if message.role == "user"), ""),
        external_id=body.external_id,
        project=body.project,
        created_at=body.created_at,
    )
    if body.messages:
        chat_store.append_messages(chat.id, new_messages(body.messages), actor=g.actor)
    return show_chat(chat.id), 201


def show_chat(chat_id: UUID) -> ChatAnswer:
    found = chat_store.get_chat(g.actor, chat_id, messages=False)
    return ChatAnswer.model_validate(vars(found.chat) | {"agent": found.agent})


@route(bp, "GET", "/api/v1/chats", access=("member", "ingest"))
def list_chats(query: ChatQuery) -> ChatPage:
    """List conversations. By last activity. Returns your own, or the whole workspace's with the scope `admin`."""
    wanted = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    page = paging.Page(query.limit, query.cursor)
    own = not g.actor.is_admin
    return ChatPage.model_validate(chat_lists.list_chats(ChatFilters(**wanted), page, actor=g.actor, own=own))


@route(bp, "GET", "/api/v1/chats/<uuid:chat_id>", access=("member", "ingest"))
def read_chat(chat_id: UUID) -> ChatAnswer:
    """Get a conversation. Its messages are at `/messages`."""
    return show_chat(chat_id)


@route(bp, "POST", "/api/v1/chats/<uuid:chat_id>/messages", access=("member", "ingest"), status=201, idempotent=True)
def add_messages(chat_id: UUID, body: NewMessagesBody) -> MessagesAdded:
    """Add messages. All or none are stored, at the end of the conversation. The server numbers them."""
    added = chat_store.append_messages(chat_id, new_messages(body.messages), actor=g.actor)
    return MessagesAdded.model_validate({"items": added})


@route(bp, "GET", "/api/v1/chats/<uuid:chat_id>/messages", access=("member", "ingest"))
def list_messages(chat_id: UUID, query: Page) -> MessagePage:
    """List a conversation's messages. Oldest first."""
    chat_store.get_chat(g.actor, chat_id, messages=False)
    found, cursor = chat_store.page_of_messages(chat_id, query.limit, query.cursor, actor=g.actor)
    return MessagePage.model_validate({"items": found, "next_cursor": cursor})
