"""Chat: a person's own conversations, and a say about every answer in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from flask import Blueprint, Flask, g, request, url_for
from werkzeug.wrappers import Response

from app.access import access
from app.db import transaction
from app.errors import Invalid
from app.services import answers, chat_pages, own_feedback, transcripts
from app.services.chat_pages import Answer
from app.services.filters import ChatFilters
from app.services.own_feedback import Learned, OwnRow
from app.views import filters as listing
from app.views import transcript
from app.views.agent_review import agent_menu
from app.views.htmx import Toast, page, swap, wants_fragment
from app.views.own_feedback import Own, as_own
from app.views.texts import query
from app.views.typed import typed
from app.views.worddiff import Part, word_diff

FORMS = ("why", "edit")
NOTED = {"helpful": "Marked as helpful.", "not_helpful": "Marked as not helpful. You can say why."}

bp = Blueprint("chat", __name__, url_prefix="/chat")


@dataclass(frozen=True)
class Form:
    """The form that is open under an answer: `why` it was not helpful, or the `edit` of it."""

    kind: str
    reasons: frozenset[str] = frozenset()
    missing: str = ""
    comment: str = ""
    text: str = ""
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """How one answer was received by the person it was for."""

    chat_id: UUID
    index: int
    up: bool
    down: bool
    explained: bool
    rows: list[Own]
    edit: Own | None
    diff: list[Part]
    form: Form | None = None

    @property
    def anchor(self) -> str:
        return f"m-{self.index}"


@bp.get("")
@access("member")
def index() -> Any:
    """One's own conversations, the liveliest first."""
    asked = listing.read(ChatFilters)
    found = chat_pages.list_own(asked.filters, asked.page, actor=g.actor)
    return page(
        "chat/index.html",
        "chat/_list.html",
        rows=found.items,
        found=found,
        asked=asked,
        fields=[agent_menu(), *listing.DAYS],
        **listing.neighbours(found),
    )


@bp.get("/<uuid:chat_id>")
@access("member")
def detail(chat_id: UUID) -> Any:
    """One conversation: as a page, as the panel of the list, or only the say about one answer with a form open."""
    kind, index = _asked_form()
    if wants_fragment() and index is not None:
        answer = chat_pages.get_answer(chat_id, index, actor=g.actor)
        return page("chat/_received.html", "chat/_received.html", received=_received(answer, form=kind))
    return _shown(chat_id, kind, index)


def _asked_form() -> tuple[str, int | None]:
    """`?why=3`, `?edit=3` or, to close them again, `?said=3`: which form to open under which answer."""
    for kind in (*FORMS, "said"):
        place = _place(kind)
        if place is not None:
            return kind, place
    return "", None


def _place(name: str) -> int | None:
    """A place in the conversation from the address."""
    text = request.args.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _shown(
    chat_id: UUID, kind: str = "", index: int | None = None, form: Form | None = None, status: int = 200
) -> Response:
    template = "chat/detail.html"
    fragment = "chat/_panel.html" if request.args.get("panel") == "1" else template
    return page(template, fragment, status=status, **_read(chat_id, kind, index, form))


def _read(chat_id: UUID, kind: str, index: int | None, form: Form | None) -> dict[str, Any]:
    """What both the page and the panel show."""
    at = index if index is not None else _place("at")
    found = chat_pages.get_own(chat_id, actor=g.actor, before=_place("before"), at=at)
    work = transcripts.work_of({m.session_id for m in found.messages if m.session_id}, actor=g.actor)
    turns = transcript.of_messages(
        found.messages, person=g.actor.name or "You", agent=found.agent_name or found.agent or "Agent", work=work
    )
    rows = [row for row in own_feedback.rows_in_chat(found.chat, actor=g.actor) if row.stands]
    learned = own_feedback.learned_from(rows, actor=g.actor)
    said = _by_answer(turns, rows)
    received = {
        turn.key: _received(
            Answer(found.chat, message),
            said.get(turn.key, []),
            learned,
            form=kind if message.message_index == index else "",
            filled=form if message.message_index == index else None,
        )
        for turn, message in zip(turns, found.messages, strict=True)
        if message.role == "agent"
    }
    return {
        "found": found,
        "chat": found.chat,
        "turns": turns,
        "received": received,
        "beside": chat_pages.list_beside(chat_id, actor=g.actor),
    }


def _by_answer(turns: list[transcript.Turn], rows: list[OwnRow]) -> dict[str, list[OwnRow]]:
    """One's rows by the answer they mean. What means the whole conversation is with its last answer."""
    last = next((turn for turn in reversed(turns) if turn.agent), None)
    found: dict[str, list[OwnRow]] = {}
    for row in rows:
        turn = transcript.find(turns, row.marks) or (None if row.marks else last)
        if turn is not None:
            found.setdefault(turn.key, []).append(row)
    return found


def _said_about(answer: Answer) -> list[OwnRow]:
    """One's rows about one answer."""
    turn = transcript.of_messages([answer.message], person="", agent="")[0]
    rows = own_feedback.rows_in_chat(answer.chat, actor=g.actor)
    return [row for row in rows if row.stands and transcript.find([turn], row.marks)]


def _received(
    answer: Answer,
    said: list[OwnRow] | None = None,
    learned: Mapping[UUID, Learned] | None = None,
    *,
    form: str = "",
    filled: Form | None = None,
) -> Received:
    if said is None:
        said = _said_about(answer)
        learned = own_feedback.learned_from(said, actor=g.actor)
    thumbs = [row for row in said if row.signal in (*answers.UP, *answers.DOWN)]
    latest = max(thumbs, key=lambda row: row.occurred_at, default=None)
    edit = next((row for row in said if row.signal == "edit"), None)
    wanted = str(edit.details.get("preferred_answer") or edit.comment or "") if edit else ""
    return Received(
        chat_id=answer.chat.id,
        index=answer.message.message_index,
        up=latest is not None and latest.signal in answers.UP,
        down=latest is not None and latest.signal in answers.DOWN,
        explained=any(row.comment or row.details for row in thumbs),
        rows=[as_own(row, learned or {}) for row in said if row is not edit],
        edit=as_own(edit, learned or {}) if edit else None,
        diff=word_diff(answer.message.content, wanted) if edit else [],
        form=filled or _form(form, answer, said, wanted),
    )


def _form(kind: str, answer: Answer, said: list[OwnRow], wanted: str) -> Form | None:
    """The form with what was said so far."""
    if kind == "edit":
        return Form("edit", text=wanted or answer.message.content)
    if kind != "why":
        return None
    thumbs = [row for row in said if row.signal in answers.DOWN]
    down = max(thumbs, key=lambda row: row.signal == "not_helpful", default=None)
    details = down.details if down else {}
    sharper = {row.signal for row in said if row.signal in answers.SHARPER}
    return Form(
        "why",
        frozenset({*details.get("error_categories", []), *sharper}),
        str(details.get("missing_context") or ""),
        (down.comment or "") if down else "",
    )


@bp.post("/<uuid:chat_id>/messages/<int:index>/thumb")
@access("member")
def thumb(chat_id: UUID, index: int) -> Any:
    """Thumb up or down, or take it back. The form says which of the two it wants, so that sending it twice does not
    undo it."""
    signal, wanted = request.form.get("signal", ""), request.form.get("do", "give")
    answer = chat_pages.get_answer(chat_id, index, actor=g.actor)
    with transaction():
        if wanted == "retract":
            answers.take_back(_said_about(answer), signal, actor=g.actor)
        else:
            answers.rate_answer(answer, signal, _said_about(answer), actor=g.actor)
    if wanted == "retract":
        return _answer(answer, spoken="Taken back.")
    return _answer(answer, spoken=NOTED[signal], form="why" if signal == "not_helpful" else "")


@bp.post("/<uuid:chat_id>/messages/<int:index>/why")
@access("member")
def why(chat_id: UUID, index: int) -> Any:
    """What was wrong with an answer."""
    form = Form("why", frozenset(request.form.getlist("reasons")), typed("missing"), typed("comment"))
    answer = chat_pages.get_answer(chat_id, index, actor=g.actor)
    try:
        with transaction():
            answers.explain_answer(
                answer,
                _said_about(answer),
                reasons=form.reasons,
                missing=form.missing,
                comment=form.comment,
                actor=g.actor,
            )
    except Invalid as refusal:
        return _refused(answer, form, refusal)
    return _answer(answer, Toast("Thank you. The admins of this workspace see it."))


@bp.post("/<uuid:chat_id>/messages/<int:index>/edit")
@access("member")
def edit(chat_id: UUID, index: int) -> Any:
    """The answer that was wanted."""
    form = Form("edit", text=typed("text"))
    answer = chat_pages.get_answer(chat_id, index, actor=g.actor)
    try:
        with transaction():
            changed = answers.prefer_answer(answer, _said_about(answer), form.text, actor=g.actor)
    except Invalid as refusal:
        return _refused(answer, form, refusal)
    undo = Toast(
        f"Your answer is kept, {changed} % of it changed.",
        undo=url_for(".thumb", chat_id=chat_id, index=index),
        target=f"#received-m-{index}",
        fields=(("signal", "edit"), ("do", "retract")),
    )
    return _answer(answer, undo)


def _refused(answer: Answer, form: Form, refusal: Invalid) -> Response:
    """The same form with its text kept and a sentence under what does not fit."""
    fields = {name.rsplit(".", 1)[-1]: sentence for name, sentence in refusal.fields.items()}
    renamed = {"preferred_answer": "text", "missing_context": "missing"}
    errors = {renamed.get(name, name): sentence for name, sentence in fields.items()}
    filled = Form(form.kind, form.reasons, form.missing, form.comment, form.text, errors or {"text": refusal.detail})
    index = answer.message.message_index
    if not wants_fragment():
        return _shown(answer.chat.id, index=index, form=filled, status=422)
    received = _received(answer, filled=filled)
    return page("chat/_received.html", "chat/_received.html", status=422, received=received)


def _answer(answer: Answer, *toasts: Toast, spoken: str = "", form: str = "", status: int = 200) -> Response:
    """The say about the answer as it is now; without a script, the conversation at that place."""
    index = answer.message.message_index
    opened = {form or "at": index}
    back = query(url_for(".detail", chat_id=answer.chat.id), opened) + f"#m-{index}"
    if not wants_fragment():
        return swap("chat/_received.html", fallback=back, status=status, toasts=toasts)
    return swap(
        "chat/_said.html",
        fallback=back,
        status=status,
        toasts=toasts,
        received=_received(answer, form=form),
        spoken=spoken,
    )


def register(app: Flask) -> None:
    app.register_blueprint(bp)
