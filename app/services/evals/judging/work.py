"""What a judge gets to see, loaded in one short transaction; or why there is nothing to ask it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.evals.compare.clipping import WHOLE_BYTES
from app.evals.judge_prompt import JudgePrompt, TooLong, build_prompt
from app.evals.rubric import JUDGED, NOT_JUDGED, RUBRIC_ERRORED, Question, ask_about
from app.evals.trace import Run
from app.formats.agent_config import OFFLINE
from app.formats.criteria import read_dimensions
from app.models import AgentSession, EvalRun, Judgement, Tenant
from app.services.entities import criteria as criteria_store
from app.services.evals.compare import load_events
from app.services.evals.judging.queue import CANCELLED, NOTHING_LEFT, JudgeLease, hold_judgement
from app.services.workspaces import store as workspace_store

MAX_ATTEMPTS = 10
LOST = "Judging failed ten times because its process was lost."
NO_MODEL = "No judge is configured. Choose a model for it in Settings."
TOO_LONG = "The sessions are too long to be judged."
SPENT = "The judge has used its tokens for today. Raise the limit in Settings or wait."


@dataclass(frozen=True, kw_only=True)
class JudgeOutcome:
    """How a judgement ended: `judged` with the marks of each dimension, else with a reason."""

    status: str
    marks: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    model: str | None = None
    criteria_version: int | None = None
    content_hash: str | None = None
    cached: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)


@dataclass(frozen=True)
class JudgeWork:
    """One judgement as the judge is asked for it."""

    lease: JudgeLease
    model: str
    seconds: int
    criteria_version: int
    questions: list[Question]
    prompt: JudgePrompt


def judge_model(default: str, *, actor: Actor) -> str:
    """The model that judges in the workspace: its own choice, else the server's default. Empty where there is none."""
    name = workspace_store.get_settings(actor).judge_model or default
    return "" if name == OFFLINE else name


def prepare_judgement(lease: JudgeLease, default_model: str, *, actor: Actor) -> JudgeWork | JudgeOutcome | None:
    """What to ask the judge, or how the judgement ends without asking. None if it is not ours any more."""
    held = hold_judgement(lease)
    if held is None:
        return None
    model = judge_model(default_model, actor=actor)
    refused = _refuse(held, model, actor)
    if refused is not None:
        return refused
    criteria = criteria_store.get_criteria_set(held.criteria_set_id, actor=actor)
    replay = db.session.get_one(AgentSession, held.session_id)
    compared = replay.meta["eval_result"]["dimensions"]
    rules = {name: rule for name, rule in read_dimensions(criteria.dimensions).items() if name not in compared}
    questions = ask_about(rules)
    if not questions:
        return JudgeOutcome(status=NOT_JUDGED, reason=NOTHING_LEFT, criteria_version=criteria.version)
    try:
        prompt = _build(replay, questions, model, actor)
    except TooLong as refusal:
        return JudgeOutcome(
            status=RUBRIC_ERRORED, reason=str(refusal), model=model, criteria_version=criteria.version
        )  # fmt: skip
    known = _find_known(prompt.content_hash, model, criteria.version, actor)
    if known is not None:
        return known
    seconds = workspace_store.get_settings(actor).judge_seconds
    return JudgeWork(lease, model, seconds, criteria.version, questions, prompt)


def _refuse(held: Judgement, model: str, actor: Actor) -> JudgeOutcome | None:
    """How the judgement ends where the judge is not to be asked."""
    if held.attempt > MAX_ATTEMPTS:
        return JudgeOutcome(status=RUBRIC_ERRORED, reason=LOST, model=model)
    run = db.session.get_one(EvalRun, held.run_id)
    if run.cancel_requested_at is not None:
        return JudgeOutcome(status=NOT_JUDGED, reason=CANCELLED)
    if (why_not := why_not_ask(model, actor=actor)) is not None:
        return JudgeOutcome(status=NOT_JUDGED, reason=why_not, model=model or None)
    return None


def why_not_ask(default_model: str, *, actor: Actor) -> str | None:
    """Why the judge of the workspace cannot be asked now, in a sentence."""
    if not judge_model(default_model, actor=actor):
        return NO_MODEL
    spent = spent_today(actor=actor) >= workspace_store.get_settings(actor).judge_daily_tokens
    return SPENT if spent else None


def spent_today(*, actor: Actor) -> int:
    """The tokens that the judge took in the last 24 hours."""
    spent = select(func.coalesce(func.sum(Judgement.input_tokens + Judgement.output_tokens), 0)).where(
        Judgement.tenant_id == actor.tenant_id, Judgement.finished_at > func.now() - timedelta(days=1)
    )
    return int(db.session.scalar(spent) or 0)


def _build(replay: AgentSession, questions: list[Question], model: str, actor: Actor) -> JudgePrompt:
    kept = replay.meta["eval_golden"]
    golden_id = UUID(str(replay.eval_source))
    golden_bytes = db.session.scalar(select(AgentSession.event_bytes).where(AgentSession.id == golden_id)) or 0
    if golden_bytes + replay.event_bytes > WHOLE_BYTES:
        raise TooLong(TOO_LONG)
    loaded = load_events({golden_id: golden_bytes, replay.id: replay.event_bytes}, actor=actor)
    golden, graded = (Run(events=loaded[one].events) for one in (golden_id, replay.id))
    secret = db.session.scalars(select(Tenant.secret).where(Tenant.id == actor.tenant_id)).one()
    return build_prompt(golden, kept.get("expected"), graded, questions, model=model, secret=secret)


def _find_known(content_hash: str, model: str, version: int, actor: Actor) -> JudgeOutcome | None:
    """What the judge said of the same content before. It costs nothing."""
    known = db.session.scalar(
        select(Judgement.dimensions)
        .where(
            Judgement.tenant_id == actor.tenant_id,
            Judgement.content_hash == content_hash,
            Judgement.status == JUDGED,
        )
        .limit(1)
    )
    if known is None:
        return None
    return JudgeOutcome(
        status=JUDGED, marks=known, model=model, criteria_version=version, content_hash=content_hash, cached=True
    )
