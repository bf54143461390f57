"""Patterns as admins see them: who says it, about which agents, how bad it is, and what came of its rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from app.actor import Actor
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.models import Agent, Feedback, FeedbackPattern, FeedbackPatternRow, SharedContext, User
from app.models.knowledge import KNOWLEDGE_STATES
from app.services.knowledge.proposals import was_rejected
from app.services.lists import filters as declare
from app.services.lists.filters import Condition, Filters
from app.services.privacy import name_of

WEEKS = 12
# A larger pattern is described by its newest rows.
MAX_DESCRIBED = 1000
MANY_PEOPLE = 3
RULE_STATES = ("none", *KNOWLEDGE_STATES)
FIGURES = text("""
    SELECT p.id, count(DISTINCT f.created_by) FILTER (WHERE f.origin = 'user') AS people,
           count(*) FILTER (WHERE f.origin <> 'user') AS automatic,
           count(DISTINCT f.session_id) AS sessions,
           count(*) FILTER (WHERE f.status IN ('pending', 'reviewed')) AS open,
           count(*) FILTER (WHERE f.status = 'pending') AS pending,
           mode() WITHIN GROUP (ORDER BY r.waits) FILTER (WHERE f.status = 'pending') AS waits,
           bool_or(f.signal = 'unsafe' OR f.kind IN ('flag', 'replay_failure') OR 'unsafe' = ANY (f.error_categories))
               AS severe,
           array_remove(array_agg(DISTINCT a.slug || coalesce(' v' || v.version, '')), NULL) AS agents,
           array_agg(least(greatest(floor(extract(epoch FROM now() - r.occurred_at) / 604800), 0), :weeks)::integer)
               AS weeks_ago
      FROM unnest(CAST(:ids AS uuid[])) AS p (id)
     CROSS JOIN LATERAL (
           SELECT one.feedback_id, one.occurred_at, one.waits FROM feedback_pattern_rows AS one
            WHERE one.tenant_id = :tenant AND one.pattern_id = p.id
            ORDER BY one.occurred_at DESC, one.feedback_id DESC LIMIT :most) AS r
      JOIN feedback AS f ON f.tenant_id = :tenant AND f.id = r.feedback_id
      LEFT JOIN agents AS a ON a.tenant_id = f.tenant_id AND a.id = f.agent_id
      LEFT JOIN sessions AS s ON s.tenant_id = f.tenant_id AND s.id = f.session_id
      LEFT JOIN agent_versions AS v ON v.tenant_id = s.tenant_id AND v.id = s.agent_version_id
     GROUP BY p.id
""")
# What was said after the rule became active. A rule that was replaced or merged is followed once.
RETURNED = text("""
    SELECT p.id, live.at,
           (SELECT count(*) FROM (
                   SELECT FROM feedback_pattern_rows AS r
                    WHERE r.tenant_id = p.tenant_id AND r.pattern_id = p.id AND r.occurred_at > live.at
                    LIMIT :most) AS late) AS number
      FROM feedback_patterns AS p
      JOIN shared_context AS c ON c.tenant_id = p.tenant_id AND c.id = p.shared_context_id
      LEFT JOIN shared_context AS heir
        ON heir.tenant_id = c.tenant_id AND heir.id = c.superseded_by AND c.state = 'superseded'
     CROSS JOIN LATERAL (
           SELECT max(h.created_at) AS at FROM shared_context_history AS h
            WHERE h.tenant_id = p.tenant_id AND h.shared_context_id = coalesce(heir.id, c.id)
              AND h.after ->> 'state' = 'active' AND h.before ->> 'state' IS DISTINCT FROM 'active') AS live
     WHERE p.tenant_id = :tenant AND p.id = ANY (CAST(:ids AS uuid[])) AND coalesce(heir.state, c.state) = 'active'
       AND live.at IS NOT NULL
""")


def _has_rule_state(column: Any, wanted: str) -> Any:
    """Patterns whose rule is in a state, or that have none."""
    if wanted == "none":
        return column.is_(None)
    return column.in_(select(SharedContext.id).where(SharedContext.state == wanted))


@dataclass(frozen=True, kw_only=True)
class PatternFilters(Filters):
    agent: str | None = declare.agent_slug()
    agent_id: UUID | None = declare.agent_id()
    rule: str | None = declare.choice(RULE_STATES, column="shared_context_id", compare=_has_rule_state)

    def conditions(self) -> list[Condition]:
        found = self._within(FeedbackPattern.last_seen_at)
        if self.q:
            found.append(FeedbackPattern.label.icontains(self.q, autoescape=True))
        return found + self.compare(FeedbackPattern, self.chosen)


@dataclass(frozen=True)
class PatternRow:
    """A pattern with its figures. `returned` counts what was said after its rule became active, at `active_since`."""

    id: UUID
    label: str
    count: int
    first_seen: datetime
    last_seen: datetime
    agent_id: UUID | None = None
    entity_type_id: UUID | None = None
    shared_context_id: UUID | None = None
    proposal_state: str | None = None
    rule: str | None = None
    rejected: bool = False
    people: int = 0
    automatic: int = 0
    sessions: int = 0
    open: int = 0
    pending: int = 0
    waits: str | None = None
    severe: bool = False
    agents: list[str] = field(default_factory=list)
    weeks: list[int] = field(default_factory=list)
    active_since: datetime | None = None
    returned: int = 0

    @property
    def severity(self) -> str:
        """High for what is unsafe, flagged by an admin or fails a golden; medium for what many people say."""
        return "high" if self.severe else "medium" if self.people >= MANY_PEOPLE else "low"


def list_patterns(filters: PatternFilters, page: Page, *, actor: Actor) -> Slice[PatternRow]:
    """One page of patterns, last seen first. Four queries."""
    actor.check_admin("Only admins can see patterns of feedback.")
    pattern = FeedbackPattern
    where = [pattern.tenant_id == actor.tenant_id, *filters.conditions()]
    at, id_ = pattern.last_seen_at, pattern.id
    found = read_page(_select_patterns(actor), page, at=at, id=id_, where=where, oldest_first=filters.oldest_first)
    described = describe_patterns(found.items, actor=actor)
    return found.map(lambda row: described[row[0].id])


def get_pattern(pattern_id: UUID, *, actor: Actor) -> PatternRow | None:
    """One pattern with its figures, or None where there is none. Three queries."""
    actor.check_admin("Only admins can see patterns of feedback.")
    mine = FeedbackPattern.tenant_id == actor.tenant_id, FeedbackPattern.id == pattern_id
    rows = db.session.execute(_select_patterns(actor).where(*mine)).all()
    return describe_patterns(rows, actor=actor).get(pattern_id)


def _select_patterns(actor: Actor) -> Any:
    pattern = FeedbackPattern
    rule = (SharedContext.tenant_id == pattern.tenant_id) & (SharedContext.id == pattern.shared_context_id)
    return select(pattern, SharedContext, was_rejected(actor)).outerjoin(SharedContext, rule)


def describe_patterns(rows: Sequence[Any], *, actor: Actor) -> dict[UUID, PatternRow]:
    """Patterns by their ids, from rows of a pattern, its rule and whether that was
    rejected. Two queries."""
    ids = [pattern.id for pattern, *_ in rows]
    if not ids:
        return {}
    asked = {"tenant": actor.tenant_id, "ids": ids, "most": MAX_DESCRIBED}
    figures = {row.id: row for row in db.session.execute(FIGURES, {**asked, "weeks": WEEKS})}
    returned = {row.id: row for row in db.session.execute(RETURNED, asked)}
    return {
        pattern.id: _describe(pattern, rule, bool(rejected), figures.get(pattern.id), returned.get(pattern.id))
        for pattern, rule, rejected in rows
    }


def _describe(
    pattern: FeedbackPattern, rule: SharedContext | None, rejected: bool, figures: Any, returned: Any
) -> PatternRow:
    known: dict[str, Any] = {name: getattr(pattern, name) for name in ("id", "label", "agent_id", "entity_type_id")}
    seen: dict[str, Any] = {
        "count": pattern.signal_count,
        "first_seen": pattern.first_seen_at,
        "last_seen": pattern.last_seen_at,
    }
    more: dict[str, Any] = {}
    if rule is not None:
        more |= {"shared_context_id": rule.id, "proposal_state": rule.state, "rule": rule.content, "rejected": rejected}
    if figures is not None:
        names = ("people", "automatic", "sessions", "open", "pending", "waits", "agents")
        more |= {name: getattr(figures, name) for name in names}
        more |= {"severe": bool(figures.severe), "weeks": _count_weeks(figures.weeks_ago)}
    if returned is not None:
        more |= {"active_since": returned.at, "returned": returned.number}
    return PatternRow(**known, **seen, **more)


def _count_weeks(ago: Sequence[int]) -> list[int]:
    """How much was said in each of the last weeks, the oldest first."""
    return [list(ago).count(back) for back in range(WEEKS - 1, -1, -1)]


def list_samples(pattern_id: UUID, *, actor: Actor, most: int = 20) -> Sequence[Any]:
    """The newest feedback of a pattern, what has words first, as `id, rating, kind, status, comment, author, agent,
    session_id, at`. One query."""
    link = FeedbackPatternRow
    newest = (
        select(link.feedback_id)
        .where(link.tenant_id == actor.tenant_id, link.pattern_id == pattern_id)
        .order_by(link.occurred_at.desc(), link.feedback_id.desc())
        .limit(MAX_DESCRIBED)
    )
    return db.session.execute(
        select(
            Feedback.id, Feedback.rating, Feedback.kind, Feedback.status, Feedback.comment,
            name_of(Feedback.created_by, actor, Feedback.origin == "user").label("author"),
            Agent.slug.label("agent"), Feedback.session_id, Feedback.occurred_at.label("at"),
        )
        .outerjoin(User, User.id == Feedback.created_by)
        .outerjoin(Agent, (Agent.tenant_id == Feedback.tenant_id) & (Agent.id == Feedback.agent_id))
        .where(Feedback.tenant_id == actor.tenant_id, Feedback.id.in_(newest))
        .order_by(func.coalesce(Feedback.comment, "") == "", Feedback.occurred_at.desc(), Feedback.id)
        .limit(most)
    ).all()  # fmt: skip
