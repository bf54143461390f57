"""What the tools of each group do, in plain data, for pages that let somebody choose among them."""

from __future__ import annotations

from dataclasses import dataclass

from app.tools import GROUPS, tools_of

ABOUT = {
    "context": "Read and add knowledge of the workspace, and remember things about a person.",
    "feedback-review": "Read feedback and say what became of it.",
    "entities-read": "Find and read records.",
    "entities-write": "Make and change records, and submit responses about them.",
    "agents-admin": "Read other agents and change what they are told.",
}


@dataclass(frozen=True)
class ToolWords:
    """A tool as people read it. `role` is the least role that whoever asks the agent must have."""

    name: str
    about: str
    writes: bool
    role: str


@dataclass(frozen=True)
class GroupWords:
    name: str
    about: str
    tools: list[ToolWords]


def tool_groups() -> list[GroupWords]:
    """Every group with its tools, in the order in which agents are given them."""
    return [
        GroupWords(
            name,
            ABOUT[name],
            [ToolWords(tool.name, tool.description, tool.writes, tool.role) for tool in tools_of([name])],
        )
        for name in GROUPS
    ]
