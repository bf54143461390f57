"""What the side bar and the tabs hold. A section appears once its page exists; a member never sees an admin's."""

from collections.abc import Collection
from dataclasses import dataclass

from app.actor import Actor


@dataclass(frozen=True)
class Section:
    """One entry of the side bar. `endpoint` is where it leads; pages at or below `paths` belong to it."""

    title: str
    icon: str
    endpoint: str
    paths: tuple[str, ...]
    role: str = "admin"

    def holds(self, path: str) -> bool:
        return is_below(path, self.paths)


@dataclass(frozen=True)
class Group:
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Tab:
    """A page of Agent Review. `waiting` names the count beside it, `words` what follows the number; pages at or below
    `paths` belong to it."""

    title: str
    endpoint: str
    paths: tuple[str, ...]
    waiting: str = ""
    words: str = ""

    def holds(self, path: str) -> bool:
        return is_below(path, self.paths)


def is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


REVIEW = "/admin/agent-review"
TABS = (
    Tab("Conversations", "conversations.index", (f"{REVIEW}/conversations",)),
    Tab("Sessions", "sessions.index", (f"{REVIEW}/sessions", "/sessions")),
    Tab("Feedback", "feedback.index", (f"{REVIEW}/feedback",), waiting="feedback"),
    Tab("Knowledge", "knowledge.index", (f"{REVIEW}/knowledge",), waiting="knowledge", words="proposed"),
    Tab("Evals", "evals.index", (f"{REVIEW}/evals",)),
)

ADMIN_SECTIONS = (
    Group(
        "AI & Agents",
        (
            Section("Agent Review", "checkup-list", "feedback.index", (REVIEW, "/sessions")),
            Section("Agents", "robot", "agents.index", ("/admin/agents",)),
        ),
    ),
    Group(
        "Workspace",
        (
            Section("Home", "building", "home.index", ("/",), role="member"),
            Section("Chat", "message-circle", "chat.index", ("/chat", "/feedback/mine"), role="member"),
            Section("Entities", "database", "entities.index", ("/entities",), role="member"),
            Section("Tasks", "list-check", "tasks.index", ("/tasks",), role="member"),
            Section("Settings", "settings", "settings.index", ("/admin/settings",)),
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
