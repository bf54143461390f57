"""A conversation as its owner reads it: the messages, and the feedback under every answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from flask import g

from app.models import Chat, Feedback, Message
from app.services.chats import own as chat_own
from app.services.chats.own import Answer, ChatMessage
from app.services.feedback import own as feedback_own
from app.services.sessions import transcript as session_transcript
from app.text.diff import word_diff
from app.views.feedback.own import describe_own
from app.views.transcript import turns as transcript_turns

OFFLINE_NOTE = "offline model: follows rules, no language model"


@dataclass(frozen=True)
class Form:
    """Which answer to show, and the form that is open under it: `why` it was not helpful, or the `edit` of it."""

    kind: str = ""
    index: int | None = None
    reasons: frozenset[str] = frozenset()
    missing: str = ""
    comment: str = ""
    text: str = ""
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MessageView:
    """A message on the page. `places` are all answers to the same question, when there are several; `marks` say
    what to know about this one, `trouble` why a question has no answer."""

    turn: transcript_turns.Turn
    index: int
    received: dict[str, Any] | None = None
    places: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def at(self) -> int:
        """Which of the answers this is, counted from 1."""
        return self.places.index(self.index) + 1

    @property
    def before(self) -> int | None:
        return self.places[self.at - 2] if self.at > 1 else None

    @property
    def after(self) -> int | None:
        return self.places[self.at] if self.at < len(self.places) else None


def build_messages(
    chat: Chat, window: Sequence[ChatMessage], agent: str, form: Form | None = None, *, fresh: bool = False
) -> list[MessageView]:
    """The messages as the page shows them. Of several answers to one question that is the latest, or the one that the
    form is about. What is `fresh` has no feedback yet. At most three queries."""
    form = form or Form()
    messages = [one.message for one in window]
    groups = group_alternatives(messages)
    visible = {form.index if form.index in places else places[-1] for places in groups.values()}
    hidden = {index for places in groups.values() for index in places} - visible
    sessions = {message.session_id for message in messages if message.session_id}
    work = session_transcript.load_work_events(sessions, actor=g.actor)
    steps = transcript_turns.chat_steps(messages, work=work)
    turns = transcript_turns.build_turns(steps, person=g.actor.name or "You", agent=agent)
    rows, learned = ({}, {}) if fresh else _own_rows(chat, messages)
    places = {index: tuple(group) for group in groups.values() for index in group if len(group) > 1}
    answered = {message.turn_id for message in messages if message.role == "agent"}
    last = max((m.message_index for m in messages if m.role == "user"), default=-1)
    found = []
    for turn, one in zip(turns, window, strict=True):
        message, index = one.message, one.message.message_index
        if index in hidden:
            continue
        received = None
        if message.role == "agent":
            answer = Answer(chat, message, rows.get(message.id, []))
            received = answer_feedback(answer, learned, form if index == form.index else Form())
        unanswered = message.role == "user" and message.turn_id not in answered and index != last
        trouble = _failure(one) if unanswered else ""
        found.append(MessageView(turn, index, received, places.get(index, ()), _marks(one), trouble))
    return found


def group_alternatives(messages: Sequence[Message]) -> dict[int, list[int]]:
    """The places of the answers to one question, by the place of the first."""
    first: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for message in messages:
        if message.role != "agent":
            continue
        before = message.details.get("instead_of")
        root = first.get(before, message.message_index) if isinstance(before, int) else message.message_index
        first[message.message_index] = root
        groups.setdefault(root, []).append(message.message_index)
    return groups


def _marks(one: ChatMessage) -> tuple[str, ...]:
    if one.message.role != "agent":
        return ()
    details = one.message.details
    found = {
        OFFLINE_NOTE: one.model == "offline",
        "stopped": details.get("stopped"),
        "cut off": details.get("truncated"),
    }
    return tuple(word for word, true in found.items() if true)


def _failure(one: ChatMessage) -> str:
    if one.status == "failed":
        return f"No answer: {one.error or 'the session failed.'}"
    return "No answer: it was stopped." if one.status == "cancelled" else ""


def _own_rows(chat: Chat, messages: Sequence[Message]) -> tuple[dict[UUID | None, list[Feedback]], Mapping[UUID, Any]]:
    """Return the person's rows by message. Those about the whole conversation are with its last answer."""
    rows = feedback_own.rows_in_chat(chat, actor=g.actor)
    found = feedback_own.group_by_message(rows, messages)
    last = next((message.id for message in reversed(messages) if message.role != "user"), None)
    if last and None in found:
        found[last] = sorted([*found.get(last, []), *found[None]], key=lambda row: (row.created_at, row.id))
    return found, feedback_own.learned_from(rows, actor=g.actor)


def load_answer_feedback(chat_id: UUID, index: int, form: Form) -> dict[str, Any]:
    """Read an answer with the person's feedback on it."""
    answer = chat_own.get_answer(chat_id, index, actor=g.actor)
    return answer_feedback(answer, feedback_own.learned_from(answer.rows, actor=g.actor), form)


def answer_feedback(answer: Answer, learned: Mapping[UUID, Any], form: Form) -> dict[str, Any]:
    """Describe the feedback on an answer, with a form of this kind under it, or the one that was refused."""
    thumbs = [row for row in answer.rows if row.signal in (*chat_own.UP, *chat_own.DOWN)]
    latest = max(thumbs, key=lambda row: row.occurred_at, default=None)
    edit = next((row for row in answer.rows if row.signal == "edit"), None)
    wanted = str(edit.details.get("preferred_answer") or edit.comment or "") if edit else ""
    return {
        "chat_id": answer.chat.id,
        "index": answer.message.message_index,
        "anchor": f"m-{answer.message.message_index}",
        "up": latest is not None and latest.signal in chat_own.UP,
        "down": latest is not None and latest.signal in chat_own.DOWN,
        "explained": any(row.comment or row.details for row in thumbs),
        "rows": [describe_own(row, learned) for row in answer.rows if row is not edit],
        "edit": describe_own(edit, learned) if edit else None,
        "diff": word_diff(answer.message.content, wanted) if edit else [],
        "form": form if form.errors else _form(form.kind, answer, wanted),
    }


def _form(kind: str, answer: Answer, wanted: str) -> Form | None:
    """Return the form, filled with the feedback given so far."""
    if kind == "edit":
        return Form("edit", text=wanted or answer.message.content)
    if kind != "why":
        return None
    thumbs = [row for row in answer.rows if row.signal in chat_own.DOWN]
    down = max(thumbs, key=lambda row: row.signal == "not_helpful", default=None)
    details = down.details if down else {}
    sharper = {row.signal for row in answer.rows if row.signal in chat_own.SHARPER}
    reasons = frozenset({*details.get("error_categories", []), *sharper})
    missing, comment = details.get("missing_context") or "", (down.comment or "") if down else ""
    return Form("why", reasons=reasons, missing=missing, comment=comment)
