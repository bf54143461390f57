"""The knowledge that goes into an agent's prompt, read in one query.

Nothing is written here: what was in a prompt is known from the session's `context.loaded` event.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import run
from app.errors import NotFound
from app.learning.prompt import SECTIONS, TOP_N, Prompt, PromptRow, format_prompt

# What the query gives: secret, setting, and the columns of a row.
Found = tuple[tuple[Any, ...], ...]
# How many rows of each type a preview reads; the rest is only counted.
PREVIEW_ROWS = 100

IN_SCOPE = """
SELECT count(*) FROM shared_context AS c WHERE c.tenant_id = app_tenant() AND c.active
   AND (c.agent_id IS NULL OR c.agent_id = %(agent)s)
   AND (c.entity_type_id IS NULL OR c.entity_type_id = %(entity_type)s)
"""
ROWS = f"""
SELECT * FROM prompt_rows(%(tenant)s, %(agent)s, %(entity_type)s, '{{{",".join(SECTIONS)}}}', {TOP_N}, %(fewest)s)
"""


def read_rows(
    tenant_id: UUID, agent_id: UUID | None = None, entity_type_id: UUID | None = None, fewest: int = 0
) -> Found:
    """Secret, setting and rows of the workspace that is bound; another one is not found. Of each type come as many
    rows as the workspace wants, and not fewer than `fewest` where there are so many."""
    found = tuple(run(ROWS, {"tenant": tenant_id, "agent": agent_id, "entity_type": entity_type_id, "fewest": fewest}))
    if not found:
        raise NotFound("There is no such workspace.")
    return found


@dataclass(frozen=True)
class Preview:
    """The prompt as an agent would get it, and how many active rows in its scope were not even looked at. With a row
    that is not in use, it is the prompt as it would be if it were; `before` is what it is now."""

    prompt: Prompt
    top_n: int
    further: int
    before: Prompt | None = None


def load_shared_context_prompt(
    tenant_id: UUID, agent_id: UUID | None = None, entity_type_id: UUID | None = None
) -> Prompt:
    """What an agent gets with its next prompt: the workspace's knowledge, its own, and that of the entity type. The
    database session must be bound to this workspace. One query."""
    return _format_found(read_rows(tenant_id, agent_id, entity_type_id))


def preview_prompt(
    *, actor: Actor, agent_id: UUID | None = None, entity_type_id: UUID | None = None, row: PromptRow | None = None
) -> Preview:
    """The same prompt, with what fell below the line and why; with `row`, as it would be if that were in use. Two
    queries."""
    rows, secret, top_n = _parse_found(read_rows(actor.tenant_id, agent_id, entity_type_id, PREVIEW_ROWS))
    prompt = format_prompt(rows, secret=secret, top_n=top_n)
    [(total,)] = run(IN_SCOPE, {"agent": agent_id, "entity_type": entity_type_id})
    further = max(total - len(rows), 0)
    both = agent_id and entity_type_id
    is_loaded = {"workspace": True, "agent": agent_id, "entity_type": entity_type_id, "both": both}
    if row is None or not is_loaded[row.scope] or row.id in {one.id for one in rows}:
        return Preview(prompt, top_n, further)
    return Preview(format_prompt([*rows, row], secret=secret, top_n=top_n), top_n, further, prompt)


def _parse_found(found: Found) -> tuple[list[PromptRow], str, int]:
    secret, top_n, first, *_ = found[0]
    return [PromptRow(UUID(values[2]), *values[3:]) for values in found] if first else [], secret, top_n


@lru_cache(maxsize=256)
def _format_found(found: Found) -> Prompt:
    """The prompt of what was just read. Equal rows give equal bytes, and the same rows are read again and again."""
    rows, secret, top_n = _parse_found(found)
    return format_prompt(rows, secret=secret, top_n=top_n)
