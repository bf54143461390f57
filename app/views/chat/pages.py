"""Chat pages: a person's own conversations, their feedback on each answer, and the answer that is being written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from flask import current_app, g, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.db import transaction
from app.errors import Invalid, NotFound, Refused
from app.formats.agent_config import read_config
from app.security.access import access
from app.services.chats import own as chat_own
from app.services.chats.lists import ChatFilters, list_chats
from app.services.chats.own import ChatMessage
from app.services.sessions import start as session_start
from app.services.sessions import transcript as session_transcript
from app.services.sessions.start import ChatState
from app.views import lists as listing
from app.views.chat import bp
from app.views.chat.messages import Form, MessageView, build_messages, group_alternatives, load_answer_feedback
from app.views.format import query
from app.views.forms import form_text, parse_count
from app.views.htmx import Toast, page, swap, vary_by_htmx, wants_fragment
from app.views.transcript import turns as transcript_turns

FORMS = ("why", "edit")
CONFIRMATIONS = {"helpful": "Marked as helpful.", "not_helpful": "Marked as not helpful. You can add reasons."}

TOOL_GROUP_LABELS = {
    "context": "workspace knowledge",
    "entities-read": "reads records",
    "entities-write": "changes records",
    "feedback-review": "reads feedback",
    "agents-admin": "changes agents",
}


@bp.get("")
@access("member")
def index() -> Any:
    """One's own conversations, the liveliest first, and who can be asked something new."""
    return _index(request.args.get("agent", ""))


def _index(agent: str, message: str = "", errors: Mapping[str, str] | None = None, status: int = 200) -> Response:
    asked = listing.read_listing(ChatFilters)
    found = list_chats(asked.filters, asked.page, actor=g.actor, own=True)
    return page(
        "chat/index.html",
        "chat/_list.html",
        status=status,
        rows=found.items,
        found=found,
        asked=asked,
        fields=[listing.agent_menu(), *listing.DAYS],
        opening={"agent": agent, "message": message, "errors": errors or {}},
        partners=[] if wants_fragment() else agent_options(),
        **listing.pager_links(found),
    )


@bp.post("")
@access("member")
def begin() -> Any:
    """Start a conversation with its first message."""
    agent, message = request.form.get("agent", ""), form_text("message")
    try:
        with transaction():
            chat = session_start.start_chat(agent, message, actor=g.actor)
    except Invalid as refusal:
        return _index(agent, message, refusal.fields, 422)
    except (NotFound, Refused) as refusal:
        return _index(agent, message, {"agent": refusal.detail}, refusal.status)
    return vary_by_htmx(redirect(url_for(".detail", chat_id=chat.id), 303))


@bp.get("/<uuid:chat_id>")
@access("member")
def detail(chat_id: UUID) -> Any:
    """One conversation: as a page, as the panel of the list, only the feedback on one answer with a form open, or
    another answer to the same question."""
    form = _open_form()
    if wants_fragment() and form.index is not None:
        if form.kind != "answer":
            received = load_answer_feedback(chat_id, form.index, form)
            return page("chat/_answer_feedback.html", "chat/_answer_feedback.html", received=received)
        answer = chat_own.get_answer(chat_id, form.index, actor=g.actor)
        beside = chat_own.answers_in_turn(answer.message, actor=g.actor)
        agent = session_start.chat_state(chat_id, actor=g.actor).agent_name or "Agent"
        found = next(m for m in build_messages(answer.chat, beside, agent, form) if m.index == form.index)
        return page("chat/_message.html", "chat/_message.html", message=found, chat=answer.chat)
    return _chat_page(chat_id, form)


def _open_form() -> Form:
    """`?why=3` or `?edit=3`: which form to open under which answer; `?closed=3`: none; `?answer=3`: which of several
    answers to show."""
    for kind in (*FORMS, "closed", "answer"):
        place = parse_count(request.args.get(kind))
        if place is not None:
            return Form(kind, place)
    return Form()


def _chat_page(chat_id: UUID, form: Form, status: int = 200) -> Response:
    template = "chat/detail.html"
    fragment = "chat/_panel.html" if request.args.get("panel") == "1" else template
    return page(template, fragment, status=status, **_load(chat_id, form))


def _load(chat_id: UUID, form: Form) -> dict[str, Any]:
    """What both the page and the panel show."""
    at = form.index if form.index is not None else parse_count(request.args.get("at"))
    before = parse_count(request.args.get("before"))
    now = session_start.chat_state(chat_id, actor=g.actor)
    window, earlier = chat_own.read_messages(now.chat, actor=g.actor, before=before, at=at)
    agent = now.agent_name or "Agent"
    return {
        "chat": now.chat,
        "agent": agent,
        "earlier": earlier,
        "messages": build_messages(now.chat, window, agent, replace(form, index=at)),
        "beside": chat_own.list_recent(chat_id, actor=g.actor),
        **live_now(now, window[-1].message.message_index if window else -1),
    }


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/thumb")
@access("member")
def thumb(chat_id: UUID, index: int) -> Any:
    """Give or retract a thumb. The form says which of the two it wants, so sending it twice does not undo it."""
    signal, wanted = request.form.get("signal", ""), request.form.get("do", "give")
    with transaction():
        if wanted == "retract":
            chat_own.retract_rating(chat_id, index, signal, actor=g.actor)
        else:
            chat_own.rate_answer(chat_id, index, signal, actor=g.actor)
    if wanted == "retract":
        return _answer(chat_id, index, spoken="Retracted.")
    return _answer(chat_id, index, spoken=CONFIRMATIONS[signal], form="why" if signal == "not_helpful" else "")


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/why")
@access("member")
def why(chat_id: UUID, index: int) -> Any:
    """Set the reasons for a thumb down."""
    reasons = frozenset(request.form.getlist("reasons"))
    form = Form("why", index, reasons, form_text("missing"), form_text("comment"))
    try:
        with transaction():
            chat_own.explain_rating(
                chat_id, index, reasons=form.reasons, missing=form.missing, comment=form.comment, actor=g.actor
            )
    except Invalid as refusal:
        return _refused(chat_id, form, refusal)
    return _answer(chat_id, index, Toast("Thank you. Sent your feedback to the admins."))


@bp.post("/<uuid:chat_id>/messages/<int(max=2147483647):index>/edit")
@access("member")
def edit(chat_id: UUID, index: int) -> Any:
    """Store the answer that the person wanted."""
    form = Form("edit", index, text=form_text("text"))
    try:
        with transaction():
            changed = chat_own.prefer_answer(chat_id, index, form.text, actor=g.actor)
    except Invalid as refusal:
        return _refused(chat_id, form, refusal)
    undo = Toast(
        f"Saved your edit, {changed}% changed.",
        undo=url_for(".thumb", chat_id=chat_id, index=index),
        target=f"#received-m-{index}",
        fields=(("signal", "edit"), ("do", "retract")),
    )
    return _answer(chat_id, index, undo)


def _refused(chat_id: UUID, form: Form, refusal: Invalid) -> Response:
    """Show the same form with its text kept and an error under each wrong field."""
    fields = {name.rsplit(".", 1)[-1]: sentence for name, sentence in refusal.fields.items()}
    renamed = {"preferred_answer": "text", "missing_context": "missing"}
    errors = {renamed.get(name, name): sentence for name, sentence in fields.items()}
    filled = replace(form, errors=errors or {"text": refusal.detail})
    if not wants_fragment() or form.index is None:
        return _chat_page(chat_id, filled, 422)
    received = load_answer_feedback(chat_id, form.index, filled)
    return page("chat/_answer_feedback.html", "chat/_answer_feedback.html", status=422, received=received)


def _answer(chat_id: UUID, index: int, *toasts: Toast, spoken: str = "", form: str = "") -> Response:
    """Show the feedback on the answer; without a script, the conversation at that place."""
    back = query(url_for(".detail", chat_id=chat_id), {form or "at": index}) + f"#m-{index}"
    if not wants_fragment():
        return swap("chat/_answer_feedback.html", fallback=back, toasts=toasts)
    received = load_answer_feedback(chat_id, index, Form(form))
    return swap("chat/_feedback.html", fallback=back, toasts=toasts, received=received, spoken=spoken)


def agent_options() -> list[dict[str, Any]]:
    """The agents that one can talk to."""
    usual: str = current_app.config["SETTINGS"].model
    return [_option(agent, usual) for agent in session_start.list_chat_agents(actor=g.actor)]


def _option(agent: Any, usual: str) -> dict[str, Any]:
    config = read_config(agent.config)
    can = [words for group, words in TOOL_GROUP_LABELS.items() if group in config.tool_groups]
    can += [tool.name for tool in config.http_tools] + [server.name for server in config.mcp_servers]
    if agent.kind == "endpoint":
        can = [f"answers from {urlsplit(config.endpoint_url).hostname or 'elsewhere'}"]
    return {
        "slug": agent.slug,
        "name": agent.name,
        "about": agent.description,
        "can": ", ".join(can[:6]),
        "offline": agent.kind == "builtin" and (config.model or usual) == "offline",
    }


# The answer that is being written: the page asks for it every now and then and gets 204 when nothing is new

# How often the page asks, in milliseconds: while an answer is written, when that takes long, and when all is quiet.
FAST_POLL_MS, SLOW_POLL_MS, IDLE_POLL_MS = 400, 1000, 5000
LONG_SECONDS = 30
# After so many seconds the page says that no executor has taken the session.
UNCLAIMED_SECONDS = 20
MAX_SPOKEN_LENGTH = 2000


@bp.get("/<uuid:chat_id>/run")
@access("member")
def follow_answer(chat_id: UUID) -> Any:
    """What is new since the page last asked; nothing, in 204, when nothing is."""
    now = session_start.chat_state(chat_id, actor=g.actor)
    if not wants_fragment():
        return vary_by_htmx(redirect(_end_of(chat_id), 303))
    if request.args.get("seen") == now.mark:
        return vary_by_htmx(make_response("", 204))
    return _live(now)


@bp.post("/<uuid:chat_id>/messages")
@access("member")
def send_message(chat_id: UUID) -> Any:
    """Send the person's next message."""
    return _act(chat_id, lambda: session_start.send_message(chat_id, form_text("message"), actor=g.actor))


@bp.post("/<uuid:chat_id>/again")
@access("member")
def regenerate(chat_id: UUID) -> Any:
    """Ask for another answer to the last question."""
    return _act(chat_id, lambda: session_start.ask_again(chat_id, actor=g.actor))


@bp.post("/<uuid:chat_id>/stop")
@access("member")
def stop_answer(chat_id: UUID) -> Any:
    """Stop writing this answer."""
    return _act(chat_id, lambda: session_start.stop_answer(chat_id, actor=g.actor))


def _act(chat_id: UUID, act: Callable[[], object]) -> Response:
    """Do it and show the end of the conversation, with what went wrong."""
    status, error = 200, ""
    try:
        with transaction():
            act()
    except Invalid as refusal:
        status, error = 422, refusal.fields.get("message", refusal.detail)
    except Refused as refusal:
        status, error = 409, refusal.detail
    if wants_fragment():
        return _live(session_start.chat_state(chat_id, actor=g.actor), status, error=error)
    return swap("chat/_run.html", fallback=_end_of(chat_id), toasts=[Toast(error, "error")] if error else ())


def _end_of(chat_id: UUID) -> str:
    return url_for("chat.detail", chat_id=chat_id) + "#run"


def _live(now: ChatState, status: int = 200, *, error: str = "") -> Response:
    """What the page does not have yet, and the end of the conversation as it is."""
    had = parse_count(request.values.get("after"))
    had = -1 if had is None else had
    fresh = chat_own.messages_after(now.chat_id, had, actor=g.actor)
    last = fresh[-1].message.message_index if fresh else had
    messages, replaced = _new_messages(now, fresh, had)
    spoken = _announcement(now, fresh)
    html = render_template(
        "chat/_live.html", messages=messages, replaced=replaced, spoken=spoken, error=error, **_end(now, last)
    )
    return vary_by_htmx(make_response(html, status))


def _new_messages(now: ChatState, fresh: list[ChatMessage], had: int) -> tuple[list[MessageView], int | None]:
    """Return the new messages, and the index of the message that the first of them replaces on the page."""
    agent = now.agent_name or "Agent"
    latest = fresh[0].message if fresh else None
    if latest is None or latest.role != "agent" or "instead_of" not in latest.details:
        return build_messages(now.chat, fresh, agent, fresh=True), None
    beside = chat_own.answers_in_turn(latest, actor=g.actor)
    groups = group_alternatives([one.message for one in beside]).values()
    first = next(places[0] for places in groups if latest.message_index in places)
    earlier = [one for one in beside if first <= one.message.message_index <= had]
    return build_messages(now.chat, [*earlier, *fresh], agent, fresh=True), first


def _announcement(now: ChatState, fresh: Sequence[ChatMessage]) -> str:
    """What a screen reader announces: a whole answer, once, and never a part of one."""
    answers = [one.message.content for one in fresh if one.message.role == "agent"]
    if answers:
        return f"{now.agent_name or 'The agent'}: {answers[-1]}"[:MAX_SPOKEN_LENGTH]
    if now.run and now.run.status == "failed":
        return f"No answer. {now.run.error or ''}"[:MAX_SPOKEN_LENGTH]
    return ""


def live_now(now: ChatState, last: int) -> dict[str, Any]:
    """What the page of a conversation needs when it shows it to its end."""
    to_the_end = last + 1 >= now.chat.message_count
    return {"to_the_end": to_the_end, **(_end(now, last) if to_the_end else {"now": now})}


def _end(now: ChatState, last: int) -> dict[str, Any]:
    age = (datetime.now(UTC) - now.run.created_at).total_seconds() if now.run else 0.0
    pace = (FAST_POLL_MS if age < LONG_SECONDS else SLOW_POLL_MS) if now.running else IDLE_POLL_MS
    unclaimed = now.run is not None and now.run.status == "pending" and age > UNCLAIMED_SECONDS
    return {"now": now, "after": last, "lines": _lines(now), "pace": pace, "unclaimed": unclaimed}


def _lines(now: ChatState) -> list[transcript_turns.Part]:
    """What the agent has done so far."""
    if now.run is None or not now.run.open:
        return []
    events = session_transcript.load_work_events({now.run.session_id}, actor=g.actor).get(now.run.session_id, [])
    return [step.part for step in transcript_turns.session_steps(events)]
