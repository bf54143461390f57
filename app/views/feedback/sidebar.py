"""The feedback panel's sidebar: assignee, comments, assessment, similar rows, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from flask import g

from app.errors import Invalid
from app.formats.feedback_details import ERROR_CATEGORIES, OUTPUT_ISSUES, SCORES, VERDICTS
from app.services import audit as services_audit
from app.services.feedback import teamwork
from app.services.feedback.lists import FeedbackDetail
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


@dataclass(frozen=True)
class AssessmentForm:
    """An assessment as the form shows it: as it is stored, or as it was sent and refused."""

    VERDICTS: ClassVar[tuple[str, ...]] = VERDICTS
    ISSUES: ClassVar[tuple[str, ...]] = OUTPUT_ISSUES
    CATEGORIES: ClassVar[tuple[str, ...]] = ERROR_CATEGORIES

    scores: dict[str, str]
    verdict: str = ""
    issues: Sequence[str] = ()
    error_categories: Sequence[str] = ()
    who: str | None = None
    at: datetime | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def stored(cls, found: Mapping[str, Any], names: Mapping[str, str]) -> AssessmentForm:
        scores, review = found.get("quality_scores") or {}, found.get("output_review") or {}
        return cls(
            {name: str(scores.get(name, "")) for name in SCORES},
            review.get("verdict") or "",
            review.get("issues", ()),
            found.get("error_categories", ()),
            names.get(found.get("by", "")),
            datetime.fromisoformat(found["at"]) if found.get("at") else None,
        )

    @classmethod
    def sent(cls, form: Any, refusal: Invalid | None = None) -> AssessmentForm:
        fields = refusal.fields if refusal else {}
        wrong = {name.split(".")[2] if name.count(".") > 1 else "": text for name, text in fields.items()}
        return cls(
            {name: form.get(name, "").strip()[:20] for name in SCORES},
            form.get("verdict", "").strip(),
            form.getlist("issues"),
            form.getlist("error_categories"),
            errors=wrong,
        )

    def given(self) -> dict[str, Any]:
        """As the service takes it."""
        review: dict[str, Any] = {"issues": list(self.issues)} if self.issues else {}
        return {
            "quality_scores": {name: value for name, value in self.scores.items() if value},
            "output_review": review | ({"verdict": self.verdict} if self.verdict else {}),
            "error_categories": list(self.error_categories),
        }

    def fields(self) -> tuple[tuple[str, str], ...]:
        """As a form sends it again, to undo what replaced it."""
        pairs = [*self.scores.items(), ("verdict", self.verdict)]
        pairs += [("issues", value) for value in self.issues]
        pairs += [("error_categories", value) for value in self.error_categories]
        return tuple((name, value) for name, value in pairs if value)


def load_sidebar(found: FeedbackDetail) -> dict[str, Any]:
    """What the panel shows around the message. Four queries."""
    row = found.row
    colleagues = teamwork.colleagues(actor=g.actor)
    names = {str(one.id): one.name for one in colleagues}
    return {
        "found": found,
        "row": row,
        "said": summarise,
        "colleagues": colleagues,
        "comments": teamwork.comments_of(row.id, actor=g.actor),
        "assessment": AssessmentForm.stored(found.assessment, names),
        "alike": teamwork.alike(row.id, row.comment, row.agent_id, actor=g.actor),
        "steps": steps_of(found, names),
    }


def steps_of(found: FeedbackDetail, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every decision; of hands it went through and of assessments, only what holds now."""
    trail = services_audit.history_of("feedback", found.row.id, actor=g.actor)
    holds = {"feedback.assigned": bool(found.row.assignee_id), "feedback.assessed": bool(found.assessment)}
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
