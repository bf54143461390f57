"""What differs between two versions of an agent, in the order in which its page shows it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from app.formats.agent_config import AgentConfig, HttpTool, McpServer, read_config

# What an agent is called and what kind it is stand beside its configuration in a version since forms write them.
PROFILE = {"kind": "Kind", "name": "Name", "slug": "Slug", "description": "Description"}
LIMITS = {
    "requests": "Model requests",
    "tool_calls": "Tool calls",
    "seconds": "Seconds",
    "output_chars": "Answer length (characters)",
    "runs": "Parallel runs (0 = no limit)",
}
SERVERS_MODEL = "the server’s default"
# The parts of one kind by name, each as the lines that its page shows.
Parts = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Change:
    """One difference. `shape` says how it reads: `text` is compared word by word, `value` is before → after, `added`
    and `removed` are whole parts, and `members` is a set with what came and what went."""

    name: str
    shape: str
    before: str = ""
    after: str = ""
    came: list[str] = field(default_factory=list)
    went: list[str] = field(default_factory=list)


def diff_versions(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """All differences between two stored versions; none when they say the same."""
    old, new = read_config(before), read_config(after)
    return [
        *_diff_profile(before, after),
        *_diff("Instructions", old.instructions, new.instructions, "text"),
        *_diff_parts("Skill", _skills(old), _skills(new)),
        *_diff_order(list(_skills(old)), list(_skills(new))),
        *_diff("Model", old.model or SERVERS_MODEL, new.model or SERVERS_MODEL),
        *_diff_members("Tool groups", old.tool_groups, new.tool_groups),
        *_diff_parts("HTTP tool", _tools(old.http_tools), _tools(new.http_tools)),
        *_diff_parts("MCP server", _servers(old.mcp_servers), _servers(new.mcp_servers)),
        *_diff("Endpoint URL", old.endpoint_url, new.endpoint_url),
        *_diff("Endpoint headers", _headers(old.endpoint_headers_env), _headers(new.endpoint_headers_env)),
        *_diff_limits(old, new),
    ]


def _diff(name: str, before: str, after: str, shape: str = "value") -> Iterator[Change]:
    if before != after:
        yield Change(name, shape, before, after)


def _diff_profile(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    """Kind and names, where both versions know them."""
    for key, title in PROFILE.items():
        if key in before and key in after:
            shape = "text" if key == "description" else "value"
            yield from _diff(title, str(before[key] or ""), str(after[key] or ""), shape)


def _diff_members(name: str, before: list[str], after: list[str]) -> Iterator[Change]:
    came, went = [one for one in after if one not in before], [one for one in before if one not in after]
    if came or went:
        yield Change(name, "members", came=came, went=went)


def _diff_parts(title: str, before: Parts, after: Parts) -> Iterator[Change]:
    for name, lines in before.items():
        if name not in after:
            yield Change(f"{title} {name}", "removed", before=_join(lines))
    for name, lines in after.items():
        if name not in before:
            yield Change(f"{title} {name}", "added", after=_join(lines))
            continue
        for key, line in lines.items():
            place = f"{title} {name}, {key}" if key else f"{title} {name}"
            yield from _diff(place, before[name][key], line, "value" if key else "text")


def _diff_order(before: list[str], after: list[str]) -> Iterator[Change]:
    if before != after and sorted(before) == sorted(after):
        yield Change("Order of skills", "value", ", ".join(before), ", ".join(after))


def _diff_limits(before: AgentConfig, after: AgentConfig) -> Iterator[Change]:
    for key, title in LIMITS.items():
        yield from _diff(title, f"{getattr(before.limits, key):,}", f"{getattr(after.limits, key):,}")


def _join(lines: dict[str, str]) -> str:
    return "\n".join(f"{key}: {text}" if key else text for key, text in lines.items() if text)


def _skills(config: AgentConfig) -> Parts:
    """A skill is one text without a name of its own."""
    return {skill.name: {"": skill.text} for skill in config.skills}


def _tools(tools: Iterable[HttpTool]) -> Parts:
    return {
        tool.name: {
            "description": tool.description,
            "address": f"{tool.method} {tool.url}",
            "takes": json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True) if tool.parameters else "",
            "effect": "changes data" if tool.writes else "read-only",
            "headers": _headers(tool.headers_env),
        }
        for tool in tools
    }


def _servers(servers: Iterable[McpServer]) -> Parts:
    return {one.name: {"address": one.url, "headers": _headers(one.headers_env)} for one in servers}


def _headers(headers: dict[str, str]) -> str:
    return ", ".join(f"{header} from {name}" for header, name in sorted(headers.items()))
