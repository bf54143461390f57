"""What the side bar and the tabs hold. A section appears once its page exists; a member never sees an admin's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from app.actor import Actor


@dataclass(frozen=True)
class Section:
    """One entry of the side bar. `endpoint` is where it leads; the blueprints in `within` are under it."""

    title: str
    icon: str
    endpoint: str
    role: str = "admin"
    within: tuple[str, ...] = ()

    def holds(self, blueprint: str | None) -> bool:
        return blueprint is not None and blueprint in (*self.within, self.endpoint.split(".")[0])


@dataclass(frozen=True)
class Group:
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Tab:
    """A page of Agent Review. `waiting` names the count that stands beside it, `words` what follows the number; the
    blueprints in `within` are under it too."""

    title: str
    endpoint: str
    waiting: str = ""
    words: str = ""
    within: tuple[str, ...] = ()

    def holds(self, blueprint: str | None) -> bool:
        return blueprint is not None and blueprint in (*self.within, self.endpoint.split(".")[0])


TABS = (
    Tab("Conversations", "conversations.index"),
    Tab("Sessions", "sessions.index"),
    Tab("Feedback", "feedback.index", waiting="feedback"),
    Tab("Knowledge", "knowledge.index", waiting="knowledge", words="proposed"),
    Tab("Evals", "evals.index", within=("eval_pages", "eval_diffs")),
)

ADMIN_SECTIONS = (
    Group(
        "AI & Agents",
        (
            Section(
                "Agent Review",
                "checkup-list",
                "feedback.index",
                within=("saved_views", *(name for tab in TABS for name in (tab.endpoint.split(".")[0], *tab.within))),
            ),
            Section("Agents", "robot", "agents.index", within=("agent_edit", "agent_try")),
        ),
    ),
    Group(
        "Workspace",
        (
            Section("Home", "building", "home.index", role="member"),
            Section("Chat", "message-circle", "chat.index", role="member", within=("own_feedback",)),
            Section("Entities", "database", "entities.index", role="member"),
            Section("Tasks", "list-check", "tasks.index", role="member", within=("schedules",)),
            Section("Settings", "settings", "settings.index", within=("members", "keys", "imports", "masking")),
        ),
    ),
)


def navigation(actor: Actor | None, endpoints: Collection[str]) -> list[Group]:
    """The groups this actor sees, with the sections whose pages exist; a group without any is left out."""
    if actor is None:
        return []
    groups = (
        Group(group.title, tuple(s for s in group.sections if s.endpoint in endpoints and _meant_for(s, actor)))
        for group in ADMIN_SECTIONS
    )
    return [group for group in groups if group.sections]


def _meant_for(section: Section, actor: Actor) -> bool:
    """An admin starts in Agent Review, so the home page is in a member's bar only."""
    if section.endpoint == "home.index":
        return not actor.is_admin
    return actor.at_least(section.role)
