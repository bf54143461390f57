"""The tools of agents, by group."""

from collections.abc import Collection

from app.errors import Invalid, NotFound
from app.tools import agents_admin, context, entities, feedback  # noqa: F401 - they declare their tools
from app.tools.base import DECLARED, GROUPS, Outcome, Tool, ToolScope
from app.tools.run import run_tool
from app.tools.tailor import tailor_tools

__all__ = ["GROUPS", "Outcome", "Tool", "ToolScope", "find_tool", "run_tool", "tailor_tools", "tools_of"]

TOOLS = sorted(DECLARED, key=lambda tool: list(GROUPS).index(tool.group))
_BY_NAME = {tool.name: tool for tool in TOOLS}


def tools_of(groups: Collection[str]) -> list[Tool]:
    """The tools of these groups, always in the same order."""
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise Invalid(f"There is no tool group {unknown[0]!r}; use {', '.join(GROUPS)}.")
    return [tool for tool in TOOLS if tool.group in groups]


def find_tool(name: str) -> Tool:
    if name not in _BY_NAME:
        raise NotFound(f"There is no tool {name[:80]!r}.")
    return _BY_NAME[name]
