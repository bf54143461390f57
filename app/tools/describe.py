"""Descriptions of tool groups for pages that let people choose among them."""

from dataclasses import dataclass

from app.tools import GROUPS, tools_of

GROUP_PURPOSES = {
    "context": "Read and add knowledge of the workspace, and remember things about a person.",
    "feedback-review": "Read feedback and say what became of it.",
    "entities-read": "Find and read records.",
    "entities-write": "Make and change records, and submit responses about them.",
    "agents-admin": "Read other agents and change what they are told.",
}


@dataclass(frozen=True)
class ToolDescription:
    """A tool as people read it. `role` is the lowest role of the person who asks the agent."""

    name: str
    about: str
    writes: bool
    role: str


@dataclass(frozen=True)
class GroupDescription:
    name: str
    about: str
    tools: list[ToolDescription]


def describe_groups() -> list[GroupDescription]:
    """Every group with its tools, in the order in which agents get them."""
    return [
        GroupDescription(
            name,
            GROUP_PURPOSES[name],
            [ToolDescription(tool.name, tool.description, tool.writes, tool.role) for tool in tools_of([name])],
        )
        for name in GROUPS
    ]
