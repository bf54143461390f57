"""What a webhook is told. No words of people and no names: whoever reads a channel may not be allowed to read
feedback. The link leads to it for those who are."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.actor import Actor
from app.db import db
from app.models import (
    Agent,
    ChangeDraft,
    EntityType,
    Feedback,
    SharedContext,
    SharedContextFeedback,
    Tenant,
    WebhookDelivery,
)
from app.services.webhooks.store import TEST_EVENT

PATHS = {
    "feedback.submitted": "/admin/agent-review/feedback/{id}",
    "proposal.created": "/admin/agent-review/knowledge/{id}",
    "knowledge.activated": "/admin/agent-review/knowledge/{id}",
    "eval.regressed": "/admin/agent-review/evals/runs/{id}",
    TEST_EVENT: "/admin/settings/webhooks",
}
DRAFT_PATH = "/admin/agent-review/drafts/{id}"


def build_payload(delivery: WebhookDelivery, base_url: str, *, actor: Actor) -> dict[str, Any] | None:
    """The event in JSON, or None when what it tells of is gone."""
    data = _describe(delivery, actor)
    if data is None:
        return None
    slug = db.session.scalar(select(Tenant.slug).where(Tenant.id == actor.tenant_id))
    return {
        "id": str(delivery.id),
        "event": delivery.event,
        "created_at": _iso(delivery.created_at),
        "workspace": slug,
        "url": base_url + (DRAFT_PATH if _is_draft(delivery) else PATHS[delivery.event]).format(id=delivery.subject_id),
        "data": data,
    }


def _describe(delivery: WebhookDelivery, actor: Actor) -> dict[str, Any] | None:
    if delivery.event == TEST_EVENT:
        return {"message": "This is a test event."}
    if delivery.subject_id is None:
        return None
    if delivery.event == "feedback.submitted":
        return _describe_feedback(delivery.subject_id, actor)
    if delivery.event == "eval.regressed":
        return {"run_id": str(delivery.subject_id), **delivery.details}
    if _is_draft(delivery):
        return _describe_draft(delivery.subject_id, actor)
    return _describe_knowledge(delivery.subject_id, actor, with_text=delivery.event == "knowledge.activated")


def _is_draft(delivery: WebhookDelivery) -> bool:
    return delivery.event == "proposal.created" and "draft" in delivery.details


def _describe_draft(draft_id: UUID, actor: Actor) -> dict[str, Any] | None:
    row = db.session.execute(
        select(
            ChangeDraft.status.label("state"), Agent.slug.label("agent"), EntityType.slug.label("entity_type"),
            func.cardinality(ChangeDraft.feedback_ids).label("signals"),
        )
        .outerjoin(Agent, Agent.id == ChangeDraft.agent_id)
        .outerjoin(EntityType, EntityType.id == ChangeDraft.entity_type_id)
        .where(ChangeDraft.tenant_id == actor.tenant_id, ChangeDraft.id == draft_id)
    ).one_or_none()  # fmt: skip
    return None if row is None else {"id": str(draft_id), "type": "draft", **row._mapping}


def _describe_feedback(feedback_id: UUID, actor: Actor) -> dict[str, Any] | None:
    row = db.session.execute(
        select(
            Feedback.rating, Feedback.kind, Feedback.signal, Feedback.origin, Feedback.source_type,
            Agent.slug.label("agent"),
        )
        .outerjoin(Agent, (Agent.tenant_id == Feedback.tenant_id) & (Agent.id == Feedback.agent_id))
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id == feedback_id)
    ).one_or_none()  # fmt: skip
    return None if row is None else {"id": str(feedback_id), **row._mapping}


def _describe_knowledge(row_id: UUID, actor: Actor, *, with_text: bool) -> dict[str, Any] | None:
    """A proposal may repeat what a person said, so its text stays here until an admin has approved it."""
    link = SharedContextFeedback
    signals = select(func.count()).where(link.tenant_id == actor.tenant_id, link.shared_context_id == row_id)
    row = db.session.execute(
        select(
            SharedContext.type, SharedContext.state, SharedContext.content, SharedContext.context,
            Agent.slug.label("agent"), EntityType.slug.label("entity_type"),
            signals.scalar_subquery().label("signals"),
        )
        .outerjoin(Agent, (Agent.tenant_id == SharedContext.tenant_id) & (Agent.id == SharedContext.agent_id))
        .outerjoin(
            EntityType,
            (EntityType.tenant_id == SharedContext.tenant_id) & (EntityType.id == SharedContext.entity_type_id),
        )
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id == row_id)
    ).one_or_none()  # fmt: skip
    if row is None:
        return None
    kept = {name: value for name, value in row._mapping.items() if with_text or name not in ("content", "context")}
    return {"id": str(row_id), **kept}


def slack_message(payload: dict[str, Any]) -> dict[str, Any]:
    """The event as Slack's incoming webhooks take it."""
    return {"text": f"{_escape(_sentence(payload))} <{payload['url']}|Open in Upshot>"}


def _sentence(payload: dict[str, Any]) -> str:
    data, event = payload["data"], payload["event"]
    whom = data.get("agent") or "all agents"
    if event == "feedback.submitted":
        return f"{data['rating'].capitalize()} feedback on {data.get('agent') or 'an agent'}."
    if event == "proposal.created":
        number = data["signals"]
        whom = data["entity_type"] if data["type"] == "draft" and data["entity_type"] else whom
        return f"A {data['type']} for {whom} is waiting for approval, from {number} signal{'s' if number != 1 else ''}."
    if event == "knowledge.activated":
        return f"A {data['type']} for {whom} is active: {data['content']}"
    if event == "eval.regressed":
        before, now = data["before"], data["now"]
        return (
            f"{data['set']} dropped: {now['passed']} of {now['judged']} pass, {before['passed']} of"
            f" {before['judged']} before."
        )
    return str(data["message"])


def _escape(text: str) -> str:
    """Slack reads these three characters as links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _iso(at: datetime) -> str:
    return at.isoformat()
