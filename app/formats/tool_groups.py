"""Which tools each group holds, by name: what a rule can speak of. `app.tools` has the tools themselves."""

from collections.abc import Iterable

TOOLS_OF_GROUP = {
    "context": (
        "getContext", "listSharedContext", "addCorrection", "addLesson", "addInsight", "updateSharedContext",
        "deactivateSharedContext", "saveMemory",
    ),
    "feedback-review": ("listFeedback", "getFeedback", "reviewFeedback", "addFeedback"),
    "entities-read": (
        "listEntityTypes", "searchEntities", "listEntities", "getEntity", "listResponses", "listCriteriaSets",
    ),
    "entities-write": ("createEntity", "updateEntity", "submitResponse"),
    "agents-admin": ("listAgents", "getAgent", "updateAgentConfig"),
}  # fmt: skip


def tool_names(groups: Iterable[str]) -> set[str]:
    return {name for group in groups for name in TOOLS_OF_GROUP.get(group, ())}
