"""What the panel and the page of a feedback row show: the moment it is about, and the sidebar beside it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from flask import g, request

from app.formats.feedback_details import ERROR_CATEGORIES, OUTPUT_ISSUES, SCORES, VERDICTS
from app.services import audit as services_audit
from app.services.chats import store as chat_store
from app.services.evals import golden_lists, promotion
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.feedback.lists import FeedbackRow
from app.services.sessions import event_windows
from app.services.sessions import store as session_store
from app.services.sessions import transcript as session_transcript
from app.text.diff import word_diff
from app.views.feedback.summary import summarise
from app.views.format import with_version
from app.views.transcript import turns as transcript_turns
from app.views.transcript.notes import ids_of, load_known_rows, name_changed_records
from app.views.transcript.turns import Turn

MAX_EVENTS = 2000
MAX_BYTES = 2_000_000
MAX_REPLAYS = 10
MAX_DIVERGENCES = 12


def load_context(row: FeedbackRow) -> dict[str, Any]:
    """Everything the panel shows of one row."""
    turns, loaded = _turns(row)
    target = _target(row, turns)
    if target is not None:
        target.target = True
    shown = transcript_turns.turns_around(turns, target)
    name_changed_records(shown)
    return {
        "words": summarise(row),
        "agent": with_version(row.agent, row.agent_version),
        "turns": shown,
        "place": _place(row, turns, target),
        "diff": _diff(row, target),
        "loaded": loaded,
        "replays": _replays(row),
        "actions": feedback_review.allowed_actions(row.status, actor=g.actor),
        "trial": promotion.find_trial(row.session_id, actor=g.actor) if row.session_id else None,
    }


def _replays(row: FeedbackRow) -> dict[str, Any] | None:
    """For a replay that failed: its golden, the replays, and how they differ. Nothing for other feedback."""
    if row.kind != "replay_failure":
        return None
    golden, ids = UUID(row.context["golden_session_id"]), [UUID(one) for one in row.context["replay_session_ids"]]
    latest = ids[::-1][:MAX_REPLAYS]
    titles = golden_lists.titles_of([golden, *latest], actor=g.actor)
    return {
        "golden": golden,
        "title": titles.get(str(golden), "a golden that was deleted")[:160],
        "ids": [one for one in latest if str(one) in titles],
        "count": len(ids),
        "divergences": row.context.get("divergences", [])[:MAX_DIVERGENCES],
    }


def _target(row: FeedbackRow, turns: Sequence[Turn]) -> Turn | None:
    """The turn that the row means: the one it names, the last that used its tool, the last of a session that failed."""
    named = transcript_turns.find_turn(turns, [*ids_of(row), f"#{row.message_index}"])
    if named is not None:
        return named
    if row.tool_slug:
        used = [turn for turn in turns if any(part.name == row.tool_slug for part in turn.parts)]
        return used[-1] if used else None
    return turns[-1] if turns and row.kind == "session_failure" else None


def _turns(row: FeedbackRow) -> tuple[list[Turn], Sequence[Any]]:
    """Return the transcript around the row, the conversation's when there is one, else the session's, and the knowledge
    that the session had."""
    version = f"v{row.agent_version}" if row.agent_version else ""
    events: Sequence[event_windows.Event] = ()
    turns: list[Turn] = []
    if row.chat is not None:
        chat = chat_store.get_chat(g.actor, row.chat)
        behind = {row.session_id} if row.session_id else {message.session_id for message in chat.messages}
        work = session_transcript.load_work_events({session for session in behind if session}, actor=g.actor)
        versions = {row.session_id: version} if row.session_id and version else {}
        steps = transcript_turns.chat_steps(chat.messages, versions=versions, work=work)
        turns = transcript_turns.build_turns(steps, person=chat.person or "someone", agent=chat.agent or "agent")
        events = work.get(row.session_id, ()) if row.session_id else ()
    elif row.session_id is not None:
        whole = session_store.get_session(row.session_id, actor=g.actor)
        events, _ = event_windows.read_window(row.session_id, actor=g.actor, most=MAX_EVENTS, most_bytes=MAX_BYTES)
        steps = transcript_turns.session_steps(events, version=version)
        turns = transcript_turns.build_turns(steps, person=whole.person or "someone", agent=whole.agent)
    loaded = next((event.payload for event in events if event.event_type == "context.loaded"), None)
    return turns, load_known_rows(loaded) if loaded else []


def _place(row: FeedbackRow, turns: Sequence[Turn], target: Turn | None) -> str:
    """`chat, turn 3 of 6`: where in the whole this is. A turn is a question and its answer."""
    asked = [turn for turn in turns if not turn.agent]
    if target is None or not asked:
        return str(row.source_type)
    at = [id(turn) for turn in turns].index(id(target))
    number = sum(not turn.agent for turn in turns[: at + 1])
    return f"{row.source_type}, turn {max(number, 1)} of {len(asked)}"


def _diff(row: FeedbackRow, target: Turn | None) -> list[tuple[str, str]]:
    wanted = row.details.get("preferred_answer")
    before = row.message_text or (target.text if target else "")
    if row.signal != "edit" or not isinstance(wanted, str) or not before:
        return []
    return word_diff(before, wanted)


# What each entry of the audit log means in the history of a row.
STEPS = {
    "feedback.reviewed": "Reviewed",
    "feedback.applied": "Applied",
    "feedback.dismissed": "Dismissed",
    "feedback.reopened": "Reopened",
    "feedback.changed": "Repeated",
    "feedback.retracted": "Retracted",
    "feedback.assigned": "Assigned",
    "feedback.assessed": "Assessed",
}


ASSESSMENT_CHOICES = {"scores": SCORES, "verdicts": VERDICTS, "issues": OUTPUT_ISSUES, "categories": ERROR_CATEGORIES}


def posted_assessment() -> dict[str, Any]:
    """Return the assessment that was sent, in the shape in which it is stored."""
    form = request.form
    review = {"verdict": form.get("verdict", "").strip(), "issues": form.getlist("issues")}
    return {
        "quality_scores": {name: value for name in SCORES if (value := form.get(name, "").strip()[:20])},
        "output_review": {name: value for name, value in review.items() if value},
        "error_categories": form.getlist("error_categories"),
    }


def assessment_fields(stored: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return an assessment as a form sends it, to undo the one that replaced it."""
    review = stored.get("output_review", {})
    pairs = [*stored.get("quality_scores", {}).items(), ("verdict", review.get("verdict", ""))]
    pairs += [("issues", value) for value in review.get("issues", ())]
    pairs += [("error_categories", value) for value in stored.get("error_categories", ())]
    return tuple((name, str(value)) for name, value in pairs if value != "")


def load_sidebar(row: FeedbackRow) -> dict[str, Any]:
    """What the panel shows around the message. Four queries."""
    colleagues = teamwork.colleagues(actor=g.actor)
    names = {str(one.id): one.name for one in colleagues}
    return {
        "found": row,
        "row": row,
        "summary": summarise,
        "colleagues": colleagues,
        "comments": teamwork.comments_of(row.id, actor=g.actor),
        "assessment": row.assessment,
        "assessed_at": datetime.fromisoformat(row.assessment["at"]) if row.assessment else None,
        "assessor": names.get(row.assessment.get("by", ""), "someone who left"),
        "choices": ASSESSMENT_CHOICES,
        "alike": teamwork.alike(row.id, row.comment, row.agent_id, actor=g.actor),
        "steps": steps_of(row, names),
    }


def steps_of(row: FeedbackRow, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every decision; of hands it went through and of assessments, only what holds now."""
    trail = services_audit.history_of("feedback", row.id, actor=g.actor)
    holds = {"feedback.assigned": bool(row.assignee_id), "feedback.assessed": bool(row.assessment)}
    shown = [step for step in trail if step.action in STEPS and holds.get(step.action, True)]
    latest = {step.action: step for step in shown}
    steps = []
    for step in shown:
        if step.action in holds and latest[step.action] is not step:
            continue
        word = STEPS[step.action]
        if step.action == "feedback.assigned":
            word = f"Assigned to {names.get(str(step.details.get('after')), 'someone who left')}"
        steps.append({"word": word, "at": step.created_at, "who": step.who, "note": step.details.get("notes")})
    return steps
