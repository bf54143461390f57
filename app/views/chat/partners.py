"""Who can be asked something, and what they can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from flask import current_app, g

from app.services.sessions import chat_turns
from app.services.sessions.chat_turns import Partner

CAN = {
    "context": "workspace knowledge",
    "entities-read": "reads records",
    "entities-write": "changes records",
    "feedback-review": "reads feedback",
    "agents-admin": "changes agents",
}


@dataclass(frozen=True)
class Opening:
    """The form that begins a conversation."""

    agent: str = ""
    message: str = ""
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """An agent in that form."""

    slug: str
    name: str
    about: str
    can: str
    offline: bool


def partners() -> list[Choice]:
    """The agents that one can talk to."""
    usual: str = current_app.config["SETTINGS"].model
    return [_choice(partner, usual) for partner in chat_turns.list_partners(actor=g.actor)]


def _choice(partner: Partner, usual: str) -> Choice:
    config = partner.config
    can = [words for group, words in CAN.items() if group in config.tool_groups]
    can += [tool.name for tool in config.http_tools] + [server.name for server in config.mcp_servers]
    if partner.kind == "endpoint":
        can = [f"answers from {urlsplit(config.endpoint_url).hostname or 'elsewhere'}"]
    offline = partner.kind == "builtin" and (config.model or usual) == "offline"
    return Choice(partner.slug, partner.name, partner.description or "", ", ".join(can[:6]), offline)
