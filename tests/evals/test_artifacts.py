"""Artifact evals on a real workspace: what is graded, what is stored, and who may see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.actor import Actor
from app.artifacts.catalogue import entity_types, load_suites
from app.artifacts.suites import SuiteResult, run_knowledge_eval_suite
from app.artifacts.surfaces import resolve_knowledge_surfaces
from app.db import acting_as, db, transaction
from app.errors import Forbidden, Unusable
from app.models import AuditEntry, KnowledgeProof, KnowledgeScorecard, SharedContext, User
from app.services.entities import responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.services.evals import artifacts
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.proofs import row_hash
from app.services.knowledge.rows import NewRow
from app.services.workspaces import people
from tests.conftest import Workspace, soup

URL = "/admin/agent-review/evals/artifacts"
RULE = "Compare deals by the EBITDA of the last 12 months."


@contextmanager
def acting(app: Flask, actor: Actor) -> Iterator[None]:
    with app.app_context(), acting_as(actor), transaction():
        yield


def grade(app: Flask, workspace: Workspace) -> SuiteResult:
    with acting(app, workspace.actor()):
        own = artifacts.load_own_suite(actor=workspace.actor())
    suites = artifacts.load_all_suites()
    return run_knowledge_eval_suite(own, artifacts.make_resolvers(app.url_map.iter_rules(), suites.values()))


def failed(result: SuiteResult) -> dict[str, list[str]]:
    """The titles of records that fail, each with its dimensions."""
    return {one.fixture.artifact.render.title: one.result.failed for one in result.graded if one.problem}


def add_rule(content: str, actor: Actor, **given: Any) -> UUID:
    return knowledge_rows.add_row(NewRow(type="correction", content=content, **given), actor=actor).id


def add_proof(row_id: UUID, actor: Actor) -> None:
    """A proof of a row as it is now that fixed a golden and broke none."""
    row = db.session.get_one(SharedContext, row_id)
    about = {"row_version": row.version, "row_hash": row_hash(row), "batch_id": uuid4(), "trials": 1}
    lists = {"agent_version_ids": [], "golden_ids": [], "golden_hashes": [], "fixed": [uuid4()], "broken": []}
    done = {"status": "done", "completed_at": datetime.now(UTC)}
    db.session.add(KnowledgeProof(tenant_id=actor.tenant_id, shared_context_id=row_id, **about, **lists, **done))
    db.session.flush()


def test_an_empty_workspace_passes(app: Flask, workspace: Workspace) -> None:
    result = grade(app, workspace)
    assert (result.passed, len(result.graded)) == (True, 9)


def test_knowledge_rows_are_graded(app: Flask, workspace: Workspace) -> None:
    admin, system = workspace.actor(), workspace.actor("system")
    with acting(app, admin):
        add_rule(RULE, admin)
        add_rule("Always try to do good work.", admin)
        signal = record_feedback(
            NewFeedback(source_type="observation", kind="flag", rating="negative", comment="Wrong year"), actor=admin
        )
        backed = add_rule("Quote the currency with every price above 1,000.", system, source_feedback_id=signal.id)
        alone = add_rule("Put the newest deal first in each of the 3 lists.", system)
        given = {"source_feedback_id": signal.id}
        proved = add_rule("Sort the 5 newest deals by size.", system, **given)
        reworded = add_rule("Round every price to 2 digits.", system, **given)
        add_rule("Name the seller in the first of two sentences.", system)
        knowledge_rows.set_state(backed, "active", actor=admin)
        for row_id in (alone, proved, reworded):
            knowledge_rows.set_state(row_id, "active", actor=system)
        for row_id in (proved, reworded):
            add_proof(row_id, admin)
        db.session.get_one(SharedContext, reworded).content = "Round every price to 3 digits."
    result = grade(app, workspace)
    assert failed(result) == {
        "Always try to do good work.": ["actionability"],
        "Put the newest deal first in each of the 3 lists.": ["source_grounding", "safety_human_gate"],
        "Round every price to 3 digits.": ["safety_human_gate"],
    }
    assert not result.passed
    assert len(result.graded) == 9 + 7


def test_what_someone_approved_who_left_stays_approved(app: Flask, workspace: Workspace) -> None:
    owner, admin = workspace.actor("owner"), workspace.actor()
    with acting(app, admin):
        add_rule(RULE, admin)
    with acting(app, owner):
        people.remove_member(admin.id, actor=owner)
    with acting(app, owner):
        assert db.session.get(User, admin.id) is None, "nobody sees those who left"
        own = artifacts.load_own_suite(actor=owner)
    assert run_knowledge_eval_suite(own, None).problems == ()


def test_records_are_graded_by_what_was_accepted(app: Flask, workspace: Workspace) -> None:
    admin = workspace.actor()
    with acting(app, admin):
        entity_store.create_type(slug="deal", name="Deal", fields={"stage": {"type": "string"}}, actor=admin)
        make = {"entity_type": "deal", "actor": admin}
        entity_store.create_entity(name="Kestrel", fields={"stage": "letter of intent signed"}, **make)
        entity_store.create_entity(name="Empty", fields={}, **make)
        tern = entity_store.create_entity(name="Tern", fields={"stage": "ioi 2026"}, **make)
        response = responses.submit_response(NewResponse(entity_id=tern.id, values={"stage": "loi"}), actor=admin)
        responses.decide_response(response.id, "accepted", actor=admin)
    result = grade(app, workspace)
    assert failed(result) == {"Empty": ["schema_completeness", "actionability", "workspace_renderability"]}
    [graded] = [one for one in result.graded if one.fixture.artifact.render.title == "Tern"]
    assert graded.fixture.artifact.fields["status"] == "answered"
    assert [ref.source for ref in graded.fixture.artifact.evidence_refs] == [f"response:{response.id}"]


def test_seed_records_are_real_records_with_real_pages(
    app: Flask, workspace: Workspace, sign_in: Callable[..., FlaskClient]
) -> None:
    """The entity types of the suites can be created, hold the good fixtures, show them, and are graded by their own
    rubric."""
    admin, suites = workspace.actor(), load_suites()
    made: dict[UUID, str] = {}
    with acting(app, admin):
        for kind in entity_types().values():
            entity_store.create_type(**kind, actor=admin)
        for suite in suites:
            for one in (fixture.artifact for fixture in suite.fixtures if not fixture.fails_dimension):
                entity = entity_store.create_entity(
                    entity_type=one.kind, name=one.render.title, fields=dict(one.fields), actor=admin
                )
                made[entity.id] = one.render.title
        bare = entity_store.create_entity(
            entity_type="pf_knowledge", name="Bare", fields={"statement": "x", "status": "published"}, actor=admin
        )
    client = sign_in(admin)
    for entity_id, title in made.items():
        page = client.get(f"/entities/{entity_id}")
        assert page.status_code == 200
        assert title in soup(page).text
    assert client.get("/entities?entity_type=therapy_plan").status_code == 200
    result = grade(app, workspace)
    assert list(failed(result)) == ["Bare"]
    assert len(failed(result)["Bare"]) == 5
    assert len(result.graded) == 9 + 19 + 1, bare.id


def test_every_declared_surface_exists(app: Flask) -> None:
    suites = artifacts.load_all_suites()
    resolvers = artifacts.make_resolvers(app.url_map.iter_rules(), suites.values())
    for suite in suites.values():
        found = {str(one.surface): one.target for one in resolve_knowledge_surfaces(suite.rubric.loop, resolvers)}
        assert None not in found.values(), found
        assert found["page:entities.detail"] == "/entities/<uuid:entity_id>"
    assert resolvers["page"]("entities.respond") is None, "a form that is only posted to shows nothing"
    assert resolvers["entity_type"]("deal") is None


def test_the_workspace_suite_takes_three_queries(
    app: Flask, workspace: Workspace, count_queries: Callable[[], Any]
) -> None:
    with acting(app, workspace.actor()), count_queries() as seen:
        artifacts.load_own_suite(actor=workspace.actor())
    assert len(seen) == 3


def test_modules_of_the_operator_are_checked() -> None:
    for module, said in (
        ("no.such", "cannot be loaded"),
        ("json", "cannot be loaded"),
        ("tests.evals.forms", "cannot"),
    ):
        with pytest.raises(Unusable, match=said):
            artifacts.load_all_suites([module])


# The page


def test_a_run_is_stored_shown_and_audited(
    app: Flask, workspace: Workspace, sign_in: Callable[..., FlaskClient]
) -> None:
    admin = workspace.actor()
    client: Any = sign_in(admin)
    assert "No scorecard yet" in client.get(URL).text
    assert client.post(URL).status_code == 403, "without the token of the form"
    assert client.post(URL, data={"csrf_token": client.csrf}).status_code == 303
    page = soup(client.get(URL))
    assert [row.td.text for row in page.select("[aria-labelledby=suites] tbody tr")] == [
        "evidence-claim", "therapy-plan", "pf-idea", "pf-knowledge", "workspace",
    ]  # fmt: skip
    assert "5 of 5 pass" in page.text
    with acting(app, admin):
        vague = add_rule("Always try to do good work.", admin)
    client.post(URL, data={"csrf_token": client.csrf})
    page = soup(client.get(URL))
    assert "1 of 5 suites failed." in page.text
    assert "4 of 5 pass" in page.text
    [link] = page.select("#suite-workspace td.u-main a")
    assert link["href"] == f"/admin/agent-review/knowledge/{vague}"
    assert "does not say what to do" in page.select_one("#suite-workspace").text
    history = page.select("#list tbody tr")
    assert len(history) == 2
    older = client.get(history[1].a["href"])
    assert "5 of 5 pass" in older.text
    assert f'href="{URL}"' in client.get("/admin/agent-review/evals").text
    with acting(app, admin):
        entries = db.session.execute(
            select(AuditEntry.details).where(AuditEntry.action == "knowledge.graded").order_by(AuditEntry.created_at)
        ).scalars()
        assert [one["failed"] for one in entries] == [[], ["workspace"]]


def test_scorecards_stay_in_their_workspace(
    app: Flask, workspace: Workspace, make_workspace: Callable[..., Workspace], sign_in: Callable[..., FlaskClient]
) -> None:
    client: Any = sign_in(workspace.actor())
    client.post(URL, data={"csrf_token": client.csrf})
    with acting(app, workspace.actor()):
        scorecard_id = db.session.scalars(select(KnowledgeScorecard.id)).one()
    stranger: Any = sign_in(make_workspace().actor())
    assert stranger.get(f"{URL}/{scorecard_id}").status_code == 404
    assert "No scorecard yet" in stranger.get(URL).text
    member: Any = sign_in(workspace.actor("member"))
    assert member.get(URL).status_code == 403
    assert member.post(URL, data={"csrf_token": member.csrf}).status_code == 403
    with acting(app, workspace.actor("member")), pytest.raises(Forbidden):
        artifacts.load_own_suite(actor=workspace.actor("member"))
