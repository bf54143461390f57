"""What a knowledge row may hold: text that can be seen, a scope and signals of the workspace."""

from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.models import Agent, EntityType, Feedback
from app.models.knowledge import KNOWLEDGE_TYPES
from app.text.hidden_characters import describe_hidden

MAX_CONTENT = 2000
MAX_CONTEXT = 500


def check_text(kind: Any, content: Any, context: str | None) -> None:
    wrong = {}
    if kind not in KNOWLEDGE_TYPES:
        wrong["type"] = f"Use one of {', '.join(KNOWLEDGE_TYPES)}."
    if not isinstance(content, str) or not content.strip():
        wrong["content"] = "Enter the rule or fact."
    elif len(content) > MAX_CONTENT:
        wrong["content"] = f"At most {MAX_CONTENT:,} characters."
    if len(context or "") > MAX_CONTEXT:
        wrong["context"] = f"At most {MAX_CONTEXT} characters."
    if wrong:
        raise Invalid.of(wrong)


def check_visible(content: str, context: str | None) -> None:
    """What a person approves is what prompts get, byte for byte: a text with hidden characters cannot be approved."""
    hidden = {"content": describe_hidden(content), "context": describe_hidden(context or "")}
    wrong = {name: sentence for name, sentence in hidden.items() if sentence}
    if wrong:
        raise Invalid.of(wrong)


def clean_text(text: str) -> str:
    """A text as it is kept: as it came, with one kind of line end. Browsers send two characters for each, and pages
    cannot show the other kinds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_scope(agent_id: UUID | None, entity_type_id: UUID | None, actor: Actor) -> None:
    for name, model, wanted in (("agent_id", Agent, agent_id), ("entity_type_id", EntityType, entity_type_id)):
        if wanted is None:
            continue
        archived = db.session.execute(
            select(model.archived_at).where(model.tenant_id == actor.tenant_id, model.id == wanted)
        ).one_or_none()
        if archived is None or archived[0] is not None:
            noun = name.removesuffix("_id").replace("_", " ")
            raise Invalid(f"There is no {noun} {wanted} in use in this workspace.", {name: "Not in this workspace."})


def check_signals(ids: list[UUID], actor: Actor) -> None:
    if not ids:
        return
    mine = select(Feedback.id).where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(ids))
    known = set(db.session.scalars(mine))
    missing = next((row_id for row_id in ids if row_id not in known), None)
    if missing:
        raise Invalid.at("source_feedback_id", f"There is no feedback {missing} in this workspace.")
