"""The feedback panel's sidebar: assignee, comments, assessment, similar rows, history."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from flask import g, request

from app.formats.feedback_details import ERROR_CATEGORIES, OUTPUT_ISSUES, SCORES, VERDICTS
from app.services import audit as services_audit
from app.services.feedback import teamwork
from app.services.feedback.lists import FeedbackRow
from app.views.feedback.summary import summarise

# What each entry of the audit log means in the history of a row.
STEPS = {
    "feedback.reviewed": "Reviewed",
    "feedback.applied": "Applied",
    "feedback.dismissed": "Dismissed",
    "feedback.reopened": "Reopened",
    "feedback.changed": "Said again",
    "feedback.retracted": "Taken back",
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
        "said": summarise,
        "colleagues": colleagues,
        "comments": teamwork.comments_of(row.id, actor=g.actor),
        "assessment": row.assessment,
        "assessed_at": datetime.fromisoformat(row.assessment["at"]) if row.assessment else None,
        "assessor": names.get(row.assessment.get("by", ""), "somebody who left"),
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
            word = f"Assigned to {names.get(str(step.details.get('after')), 'somebody who left')}"
        steps.append({"word": word, "at": step.created_at, "who": step.who, "note": step.details.get("notes")})
    return steps
