"""Agents as people write them: made, changed, and taken back to an earlier version.

Whatever a save changes is a new version, which nobody changes afterwards. A version holds the configuration, and the
kind and the names that the agent had with it.
"""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.config import LOOPBACK, Settings, variable
from app.db import db, get_own
from app.errors import Invalid, NotFound, Refused, Stale
from app.formats.agent_config import EXAMPLES, OFFLINE, about_model, check_config, read_config
from app.formats.agent_diff import diff_versions
from app.formats.outbound_rules import config_problems
from app.formats.session_limits import AGENT_SLUG
from app.models import Agent, AgentVersion
from app.models.agents import AGENT_KINDS
from app.services import audit
from app.services.agents import versions

MAX_DESCRIPTION = 500
MAX_NOTE = 500
MAX_NAME = 120
SLUG_FORM = "Use up to 120 lowercase letters, digits, dots, dashes and underscores, such as deal-analyst."


# What a version holds besides the configuration.
NAMED = ("kind", "slug", "name", "description")
SYSTEM_EDITABLE = ("instructions", "skills", "model", "limits")
Content = dict[str, Any]


def create_agent(content: Content, *, actor: Actor, note: str = "", allow: str = "") -> Agent:
    """A new agent with its first version; without a short name it gets the one that its name suggests. `allow` is the
    operator's list of private hosts that agents may call."""
    actor.check_admin("Only admins can change agents.")
    content = _check_content({**content, "slug": content["slug"].strip() or suggest_slug(content["name"])}, allow)
    slug = content["slug"]
    if versions.find_agent(slug, actor=actor) is not None:
        raise Invalid.of({"slug": f"An agent already uses the slug {slug}."})
    agent = Agent(tenant_id=actor.tenant_id, **{name: content[name] for name in NAMED})
    db.session.add(agent)
    db.session.flush()
    versions.add_version(agent.id, 1, content, actor, note=_clean_note(note))
    audit.record(actor, "agent.created", "agent", agent.id, slug=slug, kind=agent.kind)
    return agent


def edit_agent(
    agent_id: UUID, content: Content, *, version: int, actor: Actor, note: str = "", allow: str = ""
) -> AgentVersion | None:
    """Save an agent over the version that was read; return None when it changes nothing. Of the workspace's own agent
    only what it is told, the model and the limits change, whatever else is sent."""
    agent, current = _lock_agent(agent_id, actor)
    before = content_of(agent, current.config)
    if agent.is_system:
        content = before | {name: content[name] for name in SYSTEM_EDITABLE if name in content}
    content = _check_content(content, allow)
    if current.version != version:
        raise Stale(f"Someone else saved version {current.version}.", before)
    if not diff_versions(before, content):
        return None
    return _save_content(agent, before, content, actor, _clean_note(note), "agent.changed")


def restore_version(agent_id: UUID, number: int, *, version: int, actor: Actor, allow: str = "") -> AgentVersion:
    """Make what an earlier version says current again, as a new version. Names stay as they are now: going back is
    about what the agent does."""
    agent, current = _lock_agent(agent_id, actor)
    if agent.is_system:
        raise Refused(f"{agent.slug} is built in. Edit its instructions instead.")
    if current.version != version:
        raise Stale(f"Someone else saved version {current.version}. Review it first.")
    wanted = _get_version(agent, number)
    before = content_of(agent, current.config)
    kind = wanted.config.get("kind")
    kind = kind if kind in AGENT_KINDS else agent.kind
    content = _check_content(content_of(agent, wanted.config) | {"kind": kind}, allow)
    if not diff_versions(before, content):
        raise Refused(f"Version {current.version} is identical to version {number}.")
    return _save_content(agent, before, content, actor, f"Restored version {number}", "agent.version_restored")


def content_of(agent: Agent, config: dict[str, Any]) -> Content:
    """All that a version of an agent holds: what is stored, under the names that the agent has now."""
    return read_config(config).stored() | {name: getattr(agent, name) for name in NAMED}


def _check_content(content: Content, allow: str) -> Content:
    """What a version would hold, or Invalid with everything that does not fit, each under its field."""
    kind, slug, name = content["kind"], content["slug"].strip(), " ".join(content["name"].split())
    description = " ".join((content["description"] or "").split())
    wrong: dict[str, str] = {}
    if kind not in AGENT_KINDS:
        wrong["kind"] = f"Use one of {', '.join(AGENT_KINDS)}."
    if not AGENT_SLUG.fullmatch(slug):
        wrong["slug"] = SLUG_FORM
    if not name or len(name) > MAX_NAME or not name.isprintable():
        wrong["name"] = f"Enter a name of up to {MAX_NAME} characters."
    if len(description) > MAX_DESCRIPTION:
        wrong["description"] = f"At most {MAX_DESCRIPTION} characters."
    stored: dict[str, Any] = {}
    try:
        config = check_config({name: value for name, value in content.items() if name not in NAMED})
        wrong |= config_problems(config, allow)
        stored = config.stored()
        if kind == "endpoint" and not config.endpoint_url:
            wrong["endpoint_url"] = "Enter the endpoint URL."
    except Invalid as refusal:
        wrong |= refusal.fields
    if wrong:
        raise Invalid.of(wrong)
    return stored | {"kind": kind, "slug": slug, "name": name, "description": description or None}


def _save_content(
    agent: Agent, before: Content, content: Content, actor: Actor, note: str | None, action: str
) -> AgentVersion:
    if content["slug"] != agent.slug:
        change_slug(agent, content["slug"], actor)
    agent.name, agent.kind, agent.description = content["name"], content["kind"], content["description"]
    agent.current_version += 1
    agent.updated_at = datetime.now(UTC)
    version = versions.add_version(agent.id, agent.current_version, content, actor, note=note)
    changes = {key: {"from": before[key], "to": content[key]} for key in NAMED if before[key] != content[key]}
    changed = list(dict.fromkeys(change.name for change in diff_versions(before, content)))
    audit.record(
        actor, action, "agent", agent.id, version=version.version, changed=changed[:20], changes=changes, note=note
    )
    return version


def _lock_agent(agent_id: UUID, actor: Actor) -> tuple[Agent, AgentVersion]:
    actor.check_admin("Only admins can change agents.")
    agent = get_own(Agent, agent_id, "agent", actor=actor, lock=True)
    if agent.merged_into:
        raise Refused(f"{agent.slug} was merged into another agent. Change that one.")
    if agent.archived_at:
        raise Refused(f"{agent.slug} is archived. Restore it before changing it.")
    return agent, _get_version(agent, agent.current_version)


def _get_version(agent: Agent, number: int) -> AgentVersion:
    found = db.session.scalar(select(AgentVersion).where(*versions.versions_of(agent), AgentVersion.version == number))
    if found is None:
        raise NotFound(f"{agent.slug} has no version {number}.")
    return found


def _clean_note(note: str) -> str | None:
    note = " ".join(note.split())
    if len(note) > MAX_NOTE:
        raise Invalid.of({"note": f"At most {MAX_NOTE} characters."})
    return note or None


# Names and slugs. A slug that an agent once had keeps leading to it.


def suggest_slug(name: str) -> str:
    """The short name that a name suggests: `Deal Analyst (EU)` is deal-analyst-eu."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:120]


def change_slug(agent: Agent, slug: str, actor: Actor) -> None:
    """Give an agent another short name: swapped with one that it had, or the old one stays behind and leads to it."""
    taken = db.session.scalar(select(Agent).where(Agent.tenant_id == actor.tenant_id, Agent.slug == slug))
    if taken is not None and taken.merged_into != agent.id:
        raise Invalid.of({"slug": f"An agent already uses the slug {slug}. Merge this one into it instead."})
    old = agent.slug
    if taken is not None:
        # No two agents have the same slug at any moment, so the swap takes three steps.
        for holder, name in ((taken, str(taken.id)), (agent, slug), (taken, old)):
            holder.slug = name
            db.session.flush()
        return
    agent.slug = slug
    earlier = Agent(
        tenant_id=actor.tenant_id, slug=old, name=agent.name, kind=agent.kind, archived_at=datetime.now(UTC),
        merged_into=agent.id,
    )  # fmt: skip
    db.session.flush()
    db.session.add(earlier)
    db.session.flush()
    versions.add_version(earlier.id, 1, {}, actor)


def status_of(configured: str, settings: Settings) -> dict[str, str]:
    """The model that an agent uses in the end, and what that still needs. An empty name is the server's."""
    name, server = configured or settings.model, settings.openai_base_url
    here = urlsplit(server).hostname in LOOPBACK
    trouble = about_model(name, server=server, server_is_here=here, knows=lambda wanted: bool(variable(wanted)))
    return {"name": name, "trouble": trouble}


def suggest_models(settings: Settings) -> list[str]:
    """Models to offer in the form: ours, the server's, and some of the providers'."""
    return list(dict.fromkeys([OFFLINE, settings.model, *EXAMPLES]))
