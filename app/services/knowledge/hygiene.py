"""What the hygiene checks find in the knowledge of a workspace: in single rows, and in all of them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import Date, Uuid, cast, func, literal, null, select, text, union, union_all
from sqlalchemy.dialects.postgresql import JSONB

from app.actor import Actor
from app.db import db
from app.errors import Refused
from app.formats.agent_config import tool_names
from app.learning.hygiene.checks import RELATED_NEARNESS, Finding, Named, Row, World, check_alone, compare
from app.models import Agent, AgentVersion, EntityType, SharedContext, SharedContextUsage
from app.services.knowledge.vectors import get_vectors
from app.text.embeddings import near_pairs, nearness

# How many active and proposed rows are looked at, the last changed first. Comparing grows with the square of it.
MAX_ROWS = 2000
CHECKED_STATES = ("active", "proposed")
# What must be answered before a rule goes live. The other findings are advice.
CONFIRMED_CHECKS = ("duplicate", "contradiction", "vague", "addresses the model", "hidden")


class Unanswered(Refused):
    """A rule would go live although the checks found something that nobody answered. Raised inside the transaction, so
    that nothing of it is kept."""

    title = "The checks found something"

    def __init__(self, findings: Collection[Finding]) -> None:
        self.findings = list(findings)
        names = ", ".join(dict.fromkeys(one.check for one in self.findings))
        said = [{"check": one.check, "reason": one.reason, "fix": one.fix} for one in self.findings]
        super().__init__(f"Not activated. Findings: {names}. Edit the text, or confirm with a reason.", findings=said)


def confirmation_of(findings: Collection[Finding]) -> str:
    """The value that confirms exactly these findings. A changed text with other findings asks again."""
    return sha256("\n".join(f"{one.check}: {one.reason}" for one in findings).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Report:
    """All that was found. `more` says that there are rows which were not looked at."""

    found: list[tuple[Row, list[Finding]]]
    looked_at: int
    more: bool

    @property
    def findings(self) -> int:
        return sum(len(findings) for _, findings in self.found)


def check_rows(row_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, list[Finding]]:
    """What is wrong with each of these rows, by itself and beside what agents get with it. At most four queries. Rows
    that are neither active nor proposed are not checked: nobody gets them."""
    rows, _ = _read_rows(actor, row_ids)
    wanted = [row for row in rows if row.id in row_ids]
    if not wanted:
        return {}
    world, today = read_world(actor=actor), datetime.now(UTC).date()
    vectors = get_vectors(rows)
    found = {}
    for row in wanted:
        others = [other for other in rows if _are_compared(row, other)]
        near = nearness(vectors[row.id], [vectors[other.id] for other in others])
        clashes = (compare(row, other, by) for other, by in zip(others, near, strict=True) if by >= RELATED_NEARNESS)
        found[row.id] = [*check_alone(row, world, today), *filter(None, clashes)]
    return found


def findings_to_confirm(row_ids: Collection[UUID], *, actor: Actor) -> dict[UUID, list[Finding]]:
    """What must be answered before these rows go live; only rows with something to answer."""
    found = check_rows(row_ids, actor=actor)
    asked = {row_id: [one for one in findings if one.check in CONFIRMED_CHECKS] for row_id, findings in found.items()}
    return {row_id: findings for row_id, findings in asked.items() if findings}


def check_answered(row_id: UUID, confirm: str, *, actor: Actor) -> None:
    """Refuse a rule that is about to go live unless `confirm` says that a person has read what the checks found."""
    findings = findings_to_confirm([row_id], actor=actor).get(row_id, [])
    if findings and confirm != confirmation_of(findings):
        raise Unanswered(findings)


def check_all(*, actor: Actor) -> Report:
    """Check all active and proposed rows. A pair is reported once: at the proposal, else at the newer row."""
    rows, more = _read_rows(actor)
    world, today = read_world(actor=actor), datetime.now(UTC).date()
    vectors = get_vectors(rows)
    found = {row.id: check_alone(row, world, today) for row in rows}
    for first, second, near in near_pairs([vectors[row.id] for row in rows], RELATED_NEARNESS):
        row, other = sorted((rows[first], rows[second]), key=lambda one: one.state == "active")
        clash = compare(row, other, near) if _are_compared(row, other) else None
        if clash:
            found[row.id].append(clash)
    return Report([(row, found[row.id]) for row in rows if found[row.id]], len(rows), more)


def nearest_rows(row_id: UUID, *, actor: Actor, most: int = 8) -> list[UUID]:
    """The active rows that say what is nearest to what a row says, nearest first."""
    rows, _ = _read_rows(actor, [row_id])
    others = [row for row in rows if row.state == "active" and row.id != row_id]
    if all(row.id != row_id for row in rows):  # It is neither active nor proposed, so it has no vector here.
        return [row.id for row in others[:most]]
    vectors = get_vectors(rows)
    near = nearness(vectors[row_id], [vectors[row.id] for row in others])
    ranked = sorted(zip(near, others, strict=True), key=lambda pair: (-pair[0], pair[1].id))
    return [row.id for _, row in ranked[:most]]


def read_world(*, actor: Actor) -> World:
    """What the workspace has that a rule can speak of. Two queries."""
    named: dict[str, list[Named]] = {"agent": [], "type": []}
    fields: set[str] = set()
    for kind, id_, slug, name, archived_at, known in _read_names(actor):
        named[kind].append(Named(id_, slug, name, archived_at is not None))
        fields |= set(known or ())
    in_use = {agent.id for agent in named["agent"] if not agent.archived}
    tools: dict[str, frozenset[UUID]] = {}
    once: set[str] = set()
    for agent_id, is_current, groups, own in _read_tools(actor):
        names = tool_names(_texts_in(groups)) | set(_texts_in(own))
        once |= names
        if is_current and agent_id in in_use:
            tools |= {name: tools.get(name, frozenset()) | {agent_id} for name in names}
    return World(named["agent"], named["type"], frozenset(fields), tools, frozenset(once - tools.keys()))


def _are_compared(row: Row, other: Row) -> bool:
    """Whether two rows are compared: a proposal with all, an active row with active ones, neither with itself nor with
    the row whose words it changes."""
    if other.id in (row.id, row.replaces) or row.id == other.replaces:
        return False
    return other.state == "active" or row.state == "proposed"


def _read_rows(actor: Actor, also: Collection[UUID] = ()) -> tuple[list[Row], bool]:
    """The rows that agents get or may get, newest first, and whether there are more. One query."""
    row, used = SharedContext, SharedContextUsage
    # A proposal to retire a row has that row's words, and brings none into a prompt.
    says_something = row.state.in_(CHECKED_STATES) & ~row.meta.has_key("retires")
    live = select(row.id).where(row.tenant_id == actor.tenant_id, says_something)
    newest = live.order_by(row.updated_at.desc(), row.id.desc()).limit(MAX_ROWS + 1).subquery()
    wanted = union(select(newest.c.id), live.where(row.id.in_(also)))
    found = db.session.execute(
        select(
            row.id, row.content, row.context, row.agent_id, row.entity_type_id, row.state,
            cast(func.timezone("UTC", row.updated_at), Date).label("active_since"),
            func.coalesce(used.injected, 0).label("injected"), row.content_hash.label("digest"),
            cast(row.meta["replaces"]["id"].astext, Uuid).label("replaces"),
        )
        .outerjoin(used, (used.tenant_id == row.tenant_id) & (used.shared_context_id == row.id))
        .where(row.tenant_id == actor.tenant_id, row.id.in_(wanted))
        .order_by(row.updated_at.desc(), row.id.desc())
    )  # fmt: skip
    rows = [Row(**values) for values in found.mappings()]
    return [one for place, one in enumerate(rows) if place < MAX_ROWS or one.id in also], len(rows) > MAX_ROWS


def _read_names(actor: Actor) -> Iterable[Any]:
    """Agents, and entity types with their fields. One query."""
    kinds = (("agent", Agent, cast(null(), JSONB)), ("type", EntityType, EntityType.fields))
    of_kinds = [
        select(literal(kind), model.id, model.slug, model.name, model.archived_at, fields).where(
            model.tenant_id == actor.tenant_id, *([Agent.merged_into.is_(None)] if model is Agent else [])
        )
        for kind, model, fields in kinds
    ]
    return db.session.execute(union_all(*of_kinds))


def _read_tools(actor: Actor) -> Iterable[Any]:
    """Of each version of each agent, whether it is the current one, and its tools. One query."""
    groups = AgentVersion.config["tool_groups"]
    own = func.jsonb_path_query_array(AgentVersion.config, text("'$.http_tools[*].name'"))
    return db.session.execute(
        select(AgentVersion.agent_id, AgentVersion.version == Agent.current_version, groups, own)
        .join(Agent, (Agent.tenant_id == AgentVersion.tenant_id) & (Agent.id == AgentVersion.agent_id))
        .where(AgentVersion.tenant_id == actor.tenant_id)
    )


def _texts_in(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
