"""What the side bar and the tabs hold. A member never sees an admin's section."""

from dataclasses import dataclass

from app.actor import Actor


@dataclass(frozen=True)
class Section:
    """An entry of the side bar or a tab of Agent Review. `endpoint` is where it leads; pages at or below `paths` belong
    to it. `waiting` names the count beside a tab, `words` what follows the number."""

    title: str
    icon: str
    endpoint: str
    paths: tuple[str, ...]
    role: str = "admin"
    waiting: str = ""
    words: str = ""

    def holds(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self.paths)


@dataclass(frozen=True)
class Group:
    title: str
    sections: tuple[Section, ...]


REVIEW = "/admin/agent-review"
TABS = (
    Section("Conversations", "message-circle", "conversations.index", (f"{REVIEW}/conversations",)),
    Section("Sessions", "activity", "sessions.index", (f"{REVIEW}/sessions", "/sessions")),
    Section("Feedback", "thumb-down", "feedback.index", (f"{REVIEW}/feedback",), waiting="feedback"),
    Section("Knowledge", "book", "knowledge.index", (f"{REVIEW}/knowledge",), waiting="knowledge", words="proposed"),
    Section("Evals", "flask", "evals.index", (f"{REVIEW}/evals",)),
)
AGENTS = (
    Section("Agent Review", "checkup-list", "feedback.index", (REVIEW, "/sessions")),
    Section("Agents", "robot", "agents.index", ("/admin/agents",)),
)
WORKSPACE = (
    Section("Home", "building", "home.index", ("/",), role="member"),
    Section("Chat", "message-circle", "chat.index", ("/chat", "/feedback/mine"), role="member"),
    Section("Entities", "database", "entities.index", ("/entities",), role="member"),
    Section("Tasks", "list-check", "tasks.index", ("/tasks",), role="member"),
    Section("Settings", "settings", "settings.index", ("/admin/settings",)),
)


def navigation(actor: Actor | None) -> list[Group]:
    """The groups this actor sees. An admin starts in Agent Review, so the home page is in a member's bar only."""
    if actor is None:
        return []
    if actor.is_admin:
        return [Group("AI & Agents", AGENTS), Group("Workspace", WORKSPACE[1:])]
    return [Group("Workspace", tuple(section for section in WORKSPACE if actor.at_least(section.role)))]
