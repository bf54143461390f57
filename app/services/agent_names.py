"""What an agent is called. A short name that it had goes on leading to it."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import Invalid
from app.formats.session_limits import AGENT_SLUG
from app.models import Agent, AgentVersion

LONGEST_NAME = 120
SLUG_FORM = "Small letters, digits, dots, dashes and underscores, at most 120; such as deal-analyst."


def slug_of(name: str) -> str:
    """The short name that a name suggests: `Deal Analyst (EU)` is deal-analyst-eu."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:120]


def clean_names(slug: str, name: str) -> tuple[str, str]:
    """Both names as they are kept, or Invalid with a sentence for each that does not fit."""
    slug, name = slug.strip(), " ".join(name.split())
    wrong = {}
    if not AGENT_SLUG.fullmatch(slug):
        wrong["slug"] = SLUG_FORM
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        wrong["name"] = f"Give it a name, at most {LONGEST_NAME} characters."
    if wrong:
        first = next(iter(wrong))
        raise Invalid(f"{first}: {wrong[first]}", wrong)
    return slug, name


def take_slug(agent: Agent, slug: str, actor: Actor) -> None:
    """Give an agent another short name: swapped with one that it had, or the old one stays behind and leads to it."""
    taken = db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))
    if taken is not None and taken.merged_into != agent.id:
        sentence = f"There is an agent {slug} already; merge this one into it instead."
        raise Invalid(f"slug: {sentence}", {"slug": sentence})
    old = agent.slug
    if taken is not None:
        taken.slug = f"{taken.id}"
        db.session.flush()
        agent.slug = slug
        db.session.flush()
        taken.slug = old
        db.session.flush()
        return
    agent.slug = slug
    db.session.flush()
    now = datetime.now(UTC)
    earlier = Agent(
        tenant_id=actor.tenant_id, slug=old, name=agent.name, kind=agent.kind, archived_at=now, merged_into=agent.id
    )
    db.session.add(earlier)
    db.session.flush()
    db.session.add(AgentVersion(tenant_id=actor.tenant_id, agent_id=earlier.id, version=1, config={}))
    db.session.flush()
