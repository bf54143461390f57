"""What agents may do: the tools of each group, and how one is run."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import Invalid, NotFound
from app.tools import agents_admin, context, entities_read, entities_write, feedback
from app.tools.base import GROUPS, Outcome, Tool, ToolScope
from app.tools.run import run_tool
from app.tools.tailor import tailored

__all__ = ["GROUPS", "Outcome", "Tool", "ToolScope", "find", "run_tool", "tailored", "tools_of"]

TOOLS: tuple[Tool, ...] = (
    *context.TOOLS,
    *feedback.TOOLS,
    *entities_read.TOOLS,
    *entities_write.TOOLS,
    *agents_admin.TOOLS,
)
_BY_NAME = {tool.name: tool for tool in TOOLS}


def tools_of(groups: Sequence[str]) -> list[Tool]:
    """The tools of these groups, always in the same order."""
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise Invalid(f"There is no tool group {unknown[0]!r}; use {', '.join(GROUPS)}.")
    return [tool for tool in TOOLS if tool.group in groups]


def find(name: str) -> Tool:
    """The tool of that name."""
    if name not in _BY_NAME:
        raise NotFound(f"There is no tool {name[:80]!r}.")
    return _BY_NAME[name]
