"""Chat: a person's own conversations, and a say about every answer in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from flask import g, redirect, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.security.access import access
from app.services.chats import own as chat_own
from app.services.chats import ratings
from app.services.chats.own import Answer
from app.services.lists.filters import ChatFilters
from app.services.sessions import chat_turns
from app.views import lists as listing
from app.views.chat import bp
from app.views.chat.live import live_now
from app.views.chat.messages import Form, Wish, moments_of, receive, said_about
from app.views.chat.partners import Opening, partners
from app.views.format import query
from app.views.forms import typed
from app.views.htmx import Toast, page, swap, varied, wants_fragment
from app.views.layout.tabs import agent_menu

FORMS = ("why", "edit")
NOTED = {"helpful": "Marked as helpful.", "not_helpful": "Marked as not helpful. You can say why."}


@bp.get("")
@access("member")
def index() -> Any:
    """One's own conversations, the liveliest first, and who can be asked something new."""
    return _index(Opening(request.args.get("agent", "")))


def _index(opening: Opening, status: int = 200) -> Response:
    asked = listing.read(ChatFilters)
    found = chat_own.list_own(asked.filters, asked.page, actor=g.actor)
    return page(
        "chat/index.html",
        "chat/_list.html",
        status=status,
        rows=found.items,
        found=found,
        asked=asked,
        fields=[agent_menu(), *listing.DAYS],
        opening=opening,
        partners=[] if wants_fragment() else partners(),
        **listing.neighbours(found),
    )


@bp.post("")
@access("member")
def begin() -> Any:
    """A new conversation with what is said first in it."""
    opening = Opening(request.form.get("agent", ""), typed("message"))
    try:
        with transaction():
            chat = chat_turns.begin_talk(opening.agent, opening.message, actor=g.actor)
    except Invalid as refusal:
        return _index(replace(opening, errors=refusal.fields), 422)
    except (NotFound, Refused) as refusal:
        return _index(replace(opening, errors={"agent": refusal.detail}), refusal.status)
    return varied(redirect(url_for(".detail", chat_id=chat.id), 303))


@bp.get("/<uuid:chat_id>")
@access("member")
def detail(chat_id: UUID) -> Any:
    """One conversation: as a page, as the panel of the list, only the say about one answer with a form open, or another
    answer to the same question."""
    wish = _wish()
    if wants_fragment() and wish.index is not None:
        answer = chat_own.get_answer(chat_id, wish.index, actor=g.actor)
        if wish.kind != "answer":
            received = receive(answer, kind=wish.kind)
            return page("chat/_answer_feedback.html", "chat/_answer_feedback.html", received=received)
        beside = chat_own.answers_beside(answer.message, actor=g.actor)
        agent = chat_turns.standing(chat_id, actor=g.actor).agent_name or "Agent"
        found = next(m for m in moments_of(answer.chat, beside, agent, wish) if m.index == wish.index)
        return page("chat/_message.html", "chat/_message.html", moment=found, chat=answer.chat)
    return _shown(chat_id, wish)


def _wish() -> Wish:
    """`?why=3`, `?edit=3` or, to close them again, `?said=3`: which form to open under which answer; `?answer=3`: which
    of several answers to show."""
    for kind in (*FORMS, "said", "answer"):
        place = _place(kind)
        if place is not None:
            return Wish(place, kind)
    return Wish()


def _place(name: str) -> int | None:
    """A place in the conversation from the address."""
    text = request.args.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _shown(chat_id: UUID, wish: Wish, status: int = 200) -> Response:
    template = "chat/detail.html"
    fragment = "chat/_panel.html" if request.args.get("panel") == "1" else template
    return page(template, fragment, status=status, **_read(chat_id, wish))


def _read(chat_id: UUID, wish: Wish) -> dict[str, Any]:
    """What both the page and the panel show."""
    at = wish.index if wish.index is not None else _place("at")
    now = chat_turns.standing(chat_id, actor=g.actor)
    found = chat_own.read_own(now.chat, actor=g.actor, before=_place("before"), at=at)
    agent = now.agent_name or now.agent or "Agent"
    return {
        "chat": now.chat,
        "agent": agent,
        "earlier": found.earlier,
        "moments": moments_of(now.chat, found.said, agent, replace(wish, index=at)),
        "beside": chat_own.list_beside(chat_id, actor=g.actor),
        **live_now(now, found.said[-1].message.message_index if found.said else -1),
    }


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/thumb")
@access("member")
def thumb(chat_id: UUID, index: int) -> Any:
    """Thumb up or down, or take it back. The form says which of the two it wants, so that sending it twice does not
    undo it."""
    signal, wanted = request.form.get("signal", ""), request.form.get("do", "give")
    answer = chat_own.get_answer(chat_id, index, actor=g.actor)
    with transaction():
        if wanted == "retract":
            ratings.take_back(said_about(answer), signal, actor=g.actor)
        else:
            ratings.rate_answer(answer, signal, said_about(answer), actor=g.actor)
    if wanted == "retract":
        return _answer(answer, spoken="Taken back.")
    return _answer(answer, spoken=NOTED[signal], form="why" if signal == "not_helpful" else "")


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/why")
@access("member")
def why(chat_id: UUID, index: int) -> Any:
    """What was wrong with an answer."""
    form = Form("why", frozenset(request.form.getlist("reasons")), typed("missing"), typed("comment"))
    answer = chat_own.get_answer(chat_id, index, actor=g.actor)
    try:
        with transaction():
            ratings.explain_answer(
                answer,
                said_about(answer),
                reasons=form.reasons,
                missing=form.missing,
                comment=form.comment,
                actor=g.actor,
            )
    except Invalid as refusal:
        return _refused(answer, form, refusal)
    return _answer(answer, Toast("Thank you. The admins of this workspace see it."))


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/edit")
@access("member")
def edit(chat_id: UUID, index: int) -> Any:
    """The answer that was wanted."""
    form = Form("edit", text=typed("text"))
    answer = chat_own.get_answer(chat_id, index, actor=g.actor)
    try:
        with transaction():
            changed = ratings.prefer_answer(answer, said_about(answer), form.text, actor=g.actor)
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
        return _shown(answer.chat.id, Wish(index, form=filled), 422)
    received = receive(answer, filled=filled)
    return page("chat/_answer_feedback.html", "chat/_answer_feedback.html", status=422, received=received)


def _answer(answer: Answer, *toasts: Toast, spoken: str = "", form: str = "", status: int = 200) -> Response:
    """The say about the answer as it is now; without a script, the conversation at that place."""
    index = answer.message.message_index
    opened = {form or "at": index}
    back = query(url_for(".detail", chat_id=answer.chat.id), opened) + f"#m-{index}"
    if not wants_fragment():
        return swap("chat/_answer_feedback.html", fallback=back, status=status, toasts=toasts)
    return swap(
        "chat/_feedback.html",
        fallback=back,
        status=status,
        toasts=toasts,
        received=receive(answer, kind=form),
        spoken=spoken,
    )
