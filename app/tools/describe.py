"""Descriptions of tool groups for pages that let people choose among them."""

from dataclasses import dataclass

from app.tools import GROUPS, Tool, tools_of


@dataclass(frozen=True)
class GroupDescription:
    name: str
    about: str
    tools: list[Tool]


def describe_groups() -> list[GroupDescription]:
    """Every group with its tools, in the order in which agents get them."""
    return [GroupDescription(name, about, tools_of([name])) for name, about in GROUPS.items()]
