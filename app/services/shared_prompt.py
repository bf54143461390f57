"""The knowledge that goes into an agent's prompt, read in one query.

Nothing is written here: what was in a prompt is known from the session's `context.loaded` event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.db import db
from app.errors import NotFound
from app.learning.prompt import DEFAULT_BUDGET, SECTIONS, TOP_N, Dropped, Prompt, PromptRow, format_prompt

# What the query gives: secret, setting, and the columns of a row.
Found = tuple[tuple[Any, ...], ...]
# How many rows of each type a preview looks at; what stands lower is only counted.
PREVIEWED = 100

# Each scope has an index of its own that holds active rows by rank, so a type costs a few short index scans however
# many rows there are. Planning them takes several times as long as reading them. The driver prepares a statement on
# each connection after its first uses, but one with parameters is still planned anew wherever that looks cheaper, which
# it does where workspaces differ in size. So the ids are part of the text, and each way to ask has a plan of its own.
_SCOPES = {
    "workspace": "c.agent_id IS NULL AND c.entity_type_id IS NULL",
    "agent": "c.agent_id = '{agent}' AND c.entity_type_id IS NULL",
    "entity_type": "c.agent_id IS NULL AND c.entity_type_id = '{entity_type}'",
    "both": "c.agent_id = '{agent}' AND c.entity_type_id = '{entity_type}'",
}
_KINDS = ", ".join(f"('{kind}')" for kind in SECTIONS)


def scopes_of(agent_id: UUID | None, entity_type_id: UUID | None) -> tuple[str, ...]:
    """Which scopes hold what goes into a prompt."""
    if agent_id and entity_type_id:
        return tuple(_SCOPES)
    return ("workspace", *(["agent"] if agent_id else []), *(["entity_type"] if entity_type_id else []))


@lru_cache(maxsize=1024)
def statement(tenant_id: UUID, agent_id: UUID | None, entity_type_id: UUID | None, most: int = 0) -> str:
    """Secret, setting and rows of the workspace that is bound, which must be the one that is asked for."""
    within = {one: _within(one, agent_id, entity_type_id) for one in scopes_of(agent_id, entity_type_id)}
    best = " UNION ALL ".join(
        f"(SELECT c.id, c.content, c.context, '{scope}' AS scope, c.version, c.rank FROM shared_context AS c"
        f" WHERE c.tenant_id = app_tenant() AND c.type = k.type AND c.active AND {condition}"
        " ORDER BY c.rank DESC, c.id LIMIT w.most)"
        for scope, condition in within.items()
    )
    return f"""
SELECT w.secret, w.top_n, p.id::text, p.type, p.content, p.context, p.scope, p.version, p.rank
  FROM (SELECT t.secret, t.top_n, greatest(t.top_n, {int(most)}) AS most
          FROM (SELECT secret, CASE WHEN settings ->> 'context_top_n' ~ '^[0-9]{{1,2}}$'
                                    THEN greatest(least((settings ->> 'context_top_n')::int, 50), 1)
                                    ELSE {TOP_N} END AS top_n
                  FROM tenants WHERE id = app_tenant() AND id = '{_id(tenant_id)}') AS t) AS w
  LEFT JOIN LATERAL (
       SELECT r.*, k.type FROM (VALUES {_KINDS}) AS k (type)
        CROSS JOIN LATERAL (SELECT s.* FROM ({best}) AS s ORDER BY s.rank DESC, s.id LIMIT w.most) AS r
       ) AS p ON true
"""


def _within(scope: str, agent_id: UUID | None, entity_type_id: UUID | None) -> str:
    return _SCOPES[scope].format(agent=_id(agent_id), entity_type=_id(entity_type_id))


def _id(value: UUID | None) -> str:
    """An id as a part of a statement: hexadecimal digits and dashes, whatever was given."""
    return str(UUID(int=value.int)) if value else ""


@dataclass(frozen=True)
class Preview:
    """The prompt as an agent would get it, and how many active rows in its scope were not even looked at.

    With a row that is not in use, it is the prompt as it would be if it were; `before` is what it is now.
    """

    prompt: Prompt
    top_n: int
    further: int
    before: Prompt | None = None

    @property
    def dropped(self) -> list[Dropped]:
        return self.prompt.dropped


def load_shared_context_prompt(
    tenant_id: UUID, agent_id: UUID | None = None, entity_type_id: UUID | None = None
) -> Prompt:
    """What an agent gets with its next prompt: the workspace's knowledge, its own, and that of the entity type.

    The session must be bound to somebody of this workspace. One query.
    """
    return _formatted_once(_found(tenant_id, agent_id, entity_type_id))


def preview_prompt(
    *, actor: Actor, agent_id: UUID | None = None, entity_type_id: UUID | None = None, row: PromptRow | None = None
) -> Preview:
    """The same prompt, with what fell below the line and why; with `row`, as it would be if that were in use. Two
    queries."""
    rows, secret, top_n = _read(actor.tenant_id, agent_id, entity_type_id, PREVIEWED)
    prompt = _formatted(rows, secret, top_n)
    scopes = " OR ".join(f"({_within(one, agent_id, entity_type_id)})" for one in scopes_of(agent_id, entity_type_id))
    total = _run(
        f"SELECT count(*) FROM shared_context AS c WHERE c.tenant_id = app_tenant() AND c.active AND ({scopes})"
    )[0][0]
    further = max(total - len(rows), 0)
    if row is None or row.id in {one.id for one in rows} or row.scope not in scopes_of(agent_id, entity_type_id):
        return Preview(prompt, top_n, further)
    return Preview(_formatted([*rows, row], secret, top_n), top_n, further, prompt)


def _formatted(rows: list[PromptRow], secret: str, top_n: int) -> Prompt:
    return format_prompt(rows, secret=secret, budget=DEFAULT_BUDGET, top_n=top_n)


def _read(
    tenant_id: UUID, agent_id: UUID | None, entity_type_id: UUID | None, most: int = 0
) -> tuple[list[PromptRow], str, int]:
    return _rows(_found(tenant_id, agent_id, entity_type_id, most))


def _found(tenant_id: UUID, agent_id: UUID | None, entity_type_id: UUID | None, most: int = 0) -> Found:
    found = tuple(map(tuple, _run(statement(tenant_id, agent_id, entity_type_id, most))))
    if not found:
        raise NotFound("There is no such workspace.")
    return found


def _rows(found: Found) -> tuple[list[PromptRow], str, int]:
    secret, top_n, first, *_ = found[0]
    return [PromptRow(UUID(values[2]), *values[3:]) for values in found] if first else [], secret, top_n


@lru_cache(maxsize=256)
def _formatted_once(found: Found) -> Prompt:
    """The prompt of what was just read. Equal rows give equal bytes, and the same rows are read again and again."""
    return _formatted(*_rows(found))


def _run(statement: str) -> Sequence[Any]:
    """The statement as it stands: building one would cost more than PostgreSQL takes to answer it."""
    return db.session().connection().exec_driver_sql(statement).fetchall()
