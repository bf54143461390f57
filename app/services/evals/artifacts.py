"""Grade what knowledge loops produce: the suites, a workspace's own rows and records, and stored scorecards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import Any
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy.orm import aliased, undefer

from app.actor import Actor
from app.artifacts.catalogue import OWN_TYPES, grade_with, load_suites, load_workspace_suite
from app.artifacts.scorecard import build_scorecard, summarise_scorecard
from app.artifacts.suites import KnowledgeEvalSuite, KnowledgeFixture, SuiteResult, run_knowledge_eval_suite
from app.artifacts.surfaces import Resolver
from app.db import db
from app.db.paging import Page, Slice, read_page
from app.errors import Invalid, NotFound, Unusable
from app.models import (
    Entity,
    EntityResponse,
    EntityType,
    KnowledgeProof,
    KnowledgeScorecard,
    SharedContext,
    SharedContextFeedback,
    SharedContextHistory,
    User,
)
from app.services import audit
from app.services.entities.store import check_definition
from app.services.evals.golden import require_admin
from app.services.knowledge.proofs import row_hash
from app.services.privacy import name_of

WORKSPACE = "workspace"
# Of knowledge rows and of entities, so many are graded, those that changed last.
MAX_RECORDS = 1000
MAX_TITLE = 80


# Suites and surfaces


def load_all_suites(modules: Iterable[str] = ()) -> dict[str, KnowledgeEvalSuite]:
    """The suites that come with Upshot and those of the operator's modules, by name."""
    found = {suite.name: suite for suite in load_suites()}
    for module in modules:
        suite = _load_module_suite(module)
        if suite.name in (*found, WORKSPACE):
            raise Unusable(f"UPSHOT_KNOWLEDGE_SUITES: there is already a suite {suite.name}; rename that of {module}.")
        found[suite.name] = suite
    return found


def _load_module_suite(module: str) -> KnowledgeEvalSuite:
    try:
        suite = import_module(module).SUITE
    except Exception as trouble:
        # Whatever the operator's code does wrong, the sentence names the module.
        raise Unusable(f"UPSHOT_KNOWLEDGE_SUITES: {module} cannot be loaded: {trouble}.") from trouble
    if not isinstance(suite, KnowledgeEvalSuite):
        raise Unusable(f"UPSHOT_KNOWLEDGE_SUITES: SUITE of {module} is no KnowledgeEvalSuite.")
    return suite


def make_resolvers(routes: Iterable[Any], suites: Iterable[KnowledgeEvalSuite]) -> dict[str, Resolver]:
    """Who says what a surface stands for: the routes that can be opened, and the entity types that a workspace could
    have as the suites define them."""
    pages = {rule.endpoint: rule.rule for rule in routes if "GET" in rule.methods}
    types = {suite.rubric.entity_type: suite.rubric.schema for suite in suites}
    return {"page": pages.get, "entity_type": lambda slug: _resolve_type(slug, types)}


def _resolve_type(slug: str, types: Mapping[str, Mapping[str, Any]]) -> str | None:
    try:
        check_definition(slug, types[slug])
    except (KeyError, Invalid):
        return None
    return slug


def run_suites(
    suites: Mapping[str, KnowledgeEvalSuite], resolvers: Mapping[str, Resolver], names: Sequence[str] = ()
) -> list[SuiteResult]:
    """Run the named suites, or all."""
    return [run_knowledge_eval_suite(suites[name], resolvers) for name in names or suites]


# The workspace's own records


def load_own_suite(*, actor: Actor) -> KnowledgeEvalSuite:
    """The suite of a workspace: fixtures that prove its dimensions, and its own records, which should all pass. Three
    queries."""
    require_admin(actor, "grades knowledge")
    suite = load_workspace_suite(str(actor.tenant_id))
    own = (_as_fixture(record, actor) for record in (*_read_rows(actor), *_read_entities(actor)))
    return replace(suite, fixtures=(*suite.fixtures, *own))


def _as_fixture(record: Mapping[str, Any], actor: Actor) -> KnowledgeFixture:
    rubric, adapter = grade_with(record["entity_type"], str(actor.tenant_id))
    title = " ".join(record["name"].split())[:MAX_TITLE]
    name = f"{title} ({record['entity_type']} {record['id']})"
    return KnowledgeFixture(name, adapter({**record, "name": title}), rubric=rubric)


def _read_rows(actor: Actor) -> Iterator[dict[str, Any]]:
    """Proposed and active knowledge rows as records. A row rests on the feedback behind it and on a person who wrote
    it. A person approved it, or a proof of what it says now that broke no golden."""
    statement = (
        select(SharedContext, _signals(), _is_person(SharedContext.created_by_user_id), _approver(), _proof_hash())
        .where(SharedContext.tenant_id == actor.tenant_id, SharedContext.state.in_(("proposed", "active")))
        .order_by(SharedContext.updated_at.desc(), SharedContext.id.desc())
        .limit(MAX_RECORDS)
    )
    for row, signals, by_person, approver, proof_hash in db.session.execute(statement):
        proved = "proof" if proof_hash == row_hash(row) else ""
        yield {
            "id": row.id,
            "entity_type": "knowledge_row",
            "tenant": str(row.tenant_id),
            "name": row.content,
            "surface": "page:knowledge.detail",
            "evidence": [*(f"feedback:{one}" for one in signals or ()), *(["person:author"] if by_person else ())],
            "reviewed_by": f"person:{approver}" if approver else proved,
            "fields": {"kind": row.type, "content": row.content, "status": row.state, "safety_class": "operational"},
        }


def _signals() -> Any:
    link = SharedContextFeedback
    of_row = (link.tenant_id == SharedContext.tenant_id) & (link.shared_context_id == SharedContext.id)
    return select(func.array_agg(link.feedback_id)).where(of_row).scalar_subquery()


def _is_person(user_id: Any) -> Any:
    """Whether it is a person and not Upshot itself. A workspace no longer sees those who left, and they were people."""
    one = aliased(User)
    return user_id.is_not(None) & ~exists().where(one.id == user_id, one.is_system)


def _approver() -> Any:
    """The person who last brought a row into use, or changed it while it was."""
    history = SharedContextHistory
    of_row = (history.tenant_id == SharedContext.tenant_id) & (history.shared_context_id == SharedContext.id)
    return (
        select(history.user_id)
        .where(of_row, history.after["state"].astext == "active", _is_person(history.user_id))
        .order_by(history.version.desc())
        .limit(1)
        .scalar_subquery()
    )


def _proof_hash() -> Any:
    """What a row said when it was last proved to fix goldens and break none."""
    proof = KnowledgeProof
    good = (proof.status == "done") & (func.cardinality(proof.fixed) > 0) & (func.cardinality(proof.broken) == 0)
    of_row = (proof.tenant_id == SharedContext.tenant_id) & (proof.shared_context_id == SharedContext.id)
    return select(proof.row_hash).where(of_row, good).order_by(proof.created_at.desc()).limit(1).scalar_subquery()


def _read_entities(actor: Actor) -> Iterator[dict[str, Any]]:
    """Records of the workspace. Those of a type that a suite knows are graded by its rubric, the others by what was
    accepted about them."""
    entities = db.session.execute(
        select(Entity.id, Entity.tenant_id, Entity.name, Entity.fields, EntityType.slug)
        .join(EntityType, EntityType.id == Entity.entity_type_id)
        .where(Entity.tenant_id == actor.tenant_id)
        .order_by(Entity.updated_at.desc(), Entity.id.desc())
        .limit(MAX_RECORDS)
    ).all()
    accepted = _accepted_responses([row.id for row in entities], actor)
    for row in entities:
        about = {"fields": row.fields} if row.slug in OWN_TYPES else _describe_entity(row, accepted.get(row.id, ()))
        yield {"id": row.id, "entity_type": row.slug, "tenant": str(row.tenant_id), "name": row.name, **about}


def _describe_entity(row: Any, responses: Sequence[Any]) -> dict[str, Any]:
    content = ". ".join(f"{name}: {value}" for name, value in row.fields.items() if value not in (None, "", []))
    deciders = [f"person:{one.decided_by}" for one in responses if one.decided_by]
    return {
        "evidence": [f"response:{one.id}" for one in responses],
        "reviewed_by": deciders[0] if deciders else "",
        "fields": {
            "kind": row.slug,
            "content": content,
            "status": "answered" if responses else "recorded",
            "safety_class": "informational",
        },
    }


def _accepted_responses(ids: Sequence[UUID], actor: Actor) -> dict[UUID, list[Any]]:
    mine = EntityResponse.tenant_id == actor.tenant_id, EntityResponse.entity_id.in_(ids)
    found: dict[UUID, list[Any]] = {}
    for row in db.session.execute(
        select(EntityResponse.id, EntityResponse.entity_id, EntityResponse.decided_by)
        .where(*mine, EntityResponse.status == "accepted")
        .order_by(EntityResponse.decided_at.desc())
    ):
        found.setdefault(row.entity_id, []).append(row)
    return found


# Scorecards


@dataclass(frozen=True)
class ScorecardRow:
    """A stored scorecard as the history lists it. `suites` has the name, state and size of each suite."""

    id: UUID
    created_at: datetime
    passed: bool
    suites: list[dict[str, Any]]
    author: str | None


def store_scorecard(results: Sequence[SuiteResult], *, actor: Actor) -> KnowledgeScorecard:
    """Keep what the suites found now."""
    require_admin(actor, "grades knowledge")
    scorecard = build_scorecard(results)
    row = KnowledgeScorecard(
        tenant_id=actor.tenant_id,
        passed=scorecard["passed"],
        summary=summarise_scorecard(scorecard),
        scorecard=scorecard,
        created_by=actor.id,
    )
    db.session.add(row)
    db.session.flush()
    failed = [one["name"] for one in scorecard["suites"] if not one["passed"]]
    audit.record(actor, "knowledge.graded", "knowledge_scorecard", row.id, passed=row.passed, failed=failed)
    return row


def list_scorecards(page: Page, *, actor: Actor) -> Slice[ScorecardRow]:
    """Stored scorecards, the newest first."""
    require_admin(actor, "reads scorecards")
    card = KnowledgeScorecard
    columns = (card.id, card.created_at, card.passed, card.summary, name_of(card.created_by, actor))
    statement: Any = select(*columns).outerjoin(User, User.id == card.created_by)
    found = read_page(statement, page, at=card.created_at, id=card.id, where=[card.tenant_id == actor.tenant_id])
    return found.map(lambda row: ScorecardRow(*row))


def get_scorecard(scorecard_id: UUID | None, *, actor: Actor) -> KnowledgeScorecard | None:
    """A scorecard, or the newest where none is named; None where there is none yet."""
    require_admin(actor, "reads scorecards")
    card = KnowledgeScorecard
    wanted = select(card).where(card.tenant_id == actor.tenant_id).options(undefer(card.scorecard))
    if scorecard_id is not None:
        wanted = wanted.where(card.id == scorecard_id)
    found = db.session.scalar(wanted.order_by(card.created_at.desc(), card.id.desc()).limit(1))
    if found is None and scorecard_id is not None:
        raise NotFound("There is no such scorecard in this workspace.")
    return found
