"""Judged replays over the API: overrule the judge, check it with blind labels."""

from typing import Any
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Id, Moment, Page
from app.db import paging
from app.evals.agreement import MIN_LABELS, Agreement
from app.services.evals.judging import labels, overrules

Reason = Field(min_length=1, max_length=overrules.MAX_REASON)


class Overruling(Body):
    """The right score of a judged dimension, and the reason."""

    dimension: str = Field(min_length=1, max_length=256)
    passed: bool
    reason: str = Reason


class JudgedReplay(Answer):
    """A replay's verdict and rubric."""

    verdict: str
    passed: bool | None
    overall_accuracy: float | None
    reason: str
    rubric: dict[str, Any]


class OverruleItem(Answer):
    """An overruled judgement. `judge` is the judge's own score."""

    id: UUID
    replay_session_id: UUID = Field(validation_alias="session_id")
    golden_id: UUID
    criteria_set_id: UUID
    model: str | None
    dimension: str
    passed: bool
    reason: str
    author: str | None
    judge: dict[str, Any] | None
    created_at: Moment


class OverruleList(Answer):
    """Overruled judgements, newest first."""

    items: list[OverruleItem]
    next_cursor: str | None


class NewLabel(Body):
    """A person's blind score for a judged dimension of a replay."""

    replay_session_id: Id = Field(strict=False)
    dimension: str = Field(min_length=1, max_length=256)
    passed: bool


class AgreementAnswer(Answer):
    """A judge's agreement with people. `kappa` is null below 20 labels or if all labels are the same."""

    labels: int
    agreed: int
    kappa: float | None
    low: float | None
    high: float | None
    needed: int = Field(MIN_LABELS, description="Minimum number of blind labels.")
    reliable: bool
    summary: str


class LabelAnswer(Answer):
    """Your label next to the judge's, and the judge's agreement so far."""

    id: UUID
    dimension: str
    passed: bool
    judge_passed: bool
    judge_score: float | None
    judge_reason: str
    agreement: AgreementAnswer


class JudgeItem(Answer):
    """A model that judges with a criteria set."""

    criteria_set_id: UUID
    criteria: str
    model: str | None
    judged: int
    overruled: int = Field(description="Judgements an admin overruled. They don't count towards agreement.")
    agreement: AgreementAnswer


class JudgeList(Answer):
    """The workspace's judges."""

    items: list[JudgeItem]


@admin_route(
    "POST",
    "/api/admin/evals/judgements/<uuid:session_id>/overrule",
    also={409: "It already has this score, its run is still going, or there is no judgement."},
)
def overrule(session_id: UUID, body: Overruling) -> JudgedReplay:
    """Overrule a judgement. Changes one dimension of a replay. The verdict never gets better than the comparison's."""
    result = overrules.overrule_judgement(
        session_id, body.dimension, passed=body.passed, reason=body.reason, actor=g.actor
    )
    return JudgedReplay.model_validate(result)


@admin_route("GET", "/api/admin/evals/judgements/overruled")
def list_overruled(query: Page) -> OverruleList:
    """List overruled judgements."""
    found = overrules.list_overrules(paging.Page(query.limit, query.cursor), actor=g.actor)
    return OverruleList.model_validate({"items": found.items, "next_cursor": found.next_cursor})


@admin_route("GET", "/api/admin/evals/judge-labels")
def list_judges() -> JudgeList:
    """List judges and their agreement with people."""
    found = labels.list_judges(actor=g.actor)
    return JudgeList(items=[JudgeItem(**{**vars(one), "agreement": _agreement(one.agreement)}) for one in found])


@admin_route(
    "POST",
    "/api/admin/evals/judge-labels",
    status=201,
    also={404: "This replay has no judgement.", 409: "You already labelled it, or it was overruled."},
)
def add_label(body: NewLabel) -> LabelAnswer:
    """Label a judged dimension. A label can't be changed."""
    made = labels.add_label(body.replay_session_id, body.dimension, passed=body.passed, actor=g.actor)
    agreement = labels.agreement_of(made.criteria_set_id, made.model, actor=g.actor)
    shown = ("id", "dimension", "passed", "judge_passed", "judge_score", "judge_reason")
    return LabelAnswer(**{name: getattr(made, name) for name in shown}, agreement=_agreement(agreement))


def _agreement(found: Agreement) -> AgreementAnswer:
    return AgreementAnswer(**vars(found), reliable=found.reliable, summary=found.summary)
