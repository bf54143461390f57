"""What differs between two versions of an agent, in the order in which its page shows it."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.formats.agent_config import AgentConfig, HttpTool, McpServer, Skill, read_config

# What an agent is called and what kind it is stand beside its configuration in a version since forms write them.
PROFILE = {"kind": "Kind", "name": "Name", "slug": "Short name", "description": "Description"}
LIMITS = {
    "requests": "Questions to the model",
    "tool_calls": "Tool calls",
    "seconds": "Seconds",
    "output_chars": "Characters of an answer",
}
SERVERS_MODEL = "the server's model"


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
    changes = [
        *_profile(before, after),
        *_text("Instructions", old.instructions, new.instructions),
        *_skills(old.skills, new.skills),
        *_value("Model", old.model or SERVERS_MODEL, new.model or SERVERS_MODEL),
        *_members("Tool groups", old.tool_groups, new.tool_groups),
        *_diff_named("HTTP tool", old.http_tools, new.http_tools, _tool_lines),
        *_diff_named("MCP server", old.mcp_servers, new.mcp_servers, _server_lines),
        *_value("Address", old.endpoint_url, new.endpoint_url),
        *_value("Headers of the address", _headers(old.endpoint_headers_env), _headers(new.endpoint_headers_env)),
        *_limits(old, new),
    ]
    return changes


def _profile(before: dict[str, Any], after: dict[str, Any]) -> Iterable[Change]:
    """Kind and names, where both versions know them."""
    for key, title in PROFILE.items():
        if key in before and key in after:
            old, new = str(before[key] or ""), str(after[key] or "")
            yield from _text(title, old, new) if key == "description" else _value(title, old, new)


def _value(name: str, before: str, after: str) -> list[Change]:
    return [Change(name, "value", before, after)] if before != after else []


def _text(name: str, before: str, after: str) -> list[Change]:
    return [Change(name, "text", before, after)] if before != after else []


def _members(name: str, before: Sequence[str], after: Sequence[str]) -> list[Change]:
    came, went = [one for one in after if one not in before], [one for one in before if one not in after]
    return [Change(name, "members", came=came, went=went)] if came or went else []


def _skills(before: Sequence[Skill], after: Sequence[Skill]) -> Iterable[Change]:
    old, new = {one.name: one.text for one in before}, {one.name: one.text for one in after}
    yield from (Change(f"Skill {name}", "removed", before=text) for name, text in old.items() if name not in new)
    for name, text in new.items():
        if name not in old:
            yield Change(f"Skill {name}", "added", after=text)
        else:
            yield from _text(f"Skill {name}", old[name], text)
    if list(old) != list(new) and sorted(old) == sorted(new):
        yield Change("Order of skills", "value", ", ".join(old), ", ".join(new))


def _diff_named(
    title: str, before: Sequence[Any], after: Sequence[Any], lines: Callable[[Any], dict[str, str]]
) -> Iterable[Change]:
    old, new = {one.name: one for one in before}, {one.name: one for one in after}
    for name, one in old.items():
        if name not in new:
            yield Change(f"{title} {name}", "removed", before=_all(lines(one)))
    for name, one in new.items():
        if name not in old:
            yield Change(f"{title} {name}", "added", after=_all(lines(one)))
            continue
        was, now = lines(old[name]), lines(one)
        for key in now:
            yield from _value(f"{title} {name}, {key}", was[key], now[key])


def _all(lines: dict[str, str]) -> str:
    return "\n".join(f"{key}: {text}" for key, text in lines.items() if text)


def _tool_lines(tool: HttpTool) -> dict[str, str]:
    return {
        "description": tool.description,
        "address": f"{tool.method} {tool.url}",
        "takes": json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True) if tool.parameters else "",
        "effect": "changes something" if tool.writes else "only reads",
        "headers": _headers(tool.headers_env),
    }


def _server_lines(server: McpServer) -> dict[str, str]:
    return {"address": server.url, "headers": _headers(server.headers_env)}


def _headers(headers: dict[str, str]) -> str:
    return ", ".join(f"{header} from {name}" for header, name in sorted(headers.items()))


def _limits(before: AgentConfig, after: AgentConfig) -> Iterable[Change]:
    for key, title in LIMITS.items():
        yield from _value(title, f"{getattr(before.limits, key):,}", f"{getattr(after.limits, key):,}")
