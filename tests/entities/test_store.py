"""Records, what is submitted about them, and what a rejection sets off."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select

from app.db import acting_as, db, transaction
from app.db.paging import Page
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import AgentSession, AuditEntry, Entity, EntityResponse, Feedback
from app.services.agents import versions
from app.services.entities import criteria as criteria_store
from app.services.entities import responses as entity_responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.services.entities.store import EntityFilters
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]
FIELDS = {"valuation": {"type": "number"}, "close_date": {"type": "string"}}
VALUES = {"close_date": {"value": "2026-05-01", "source": "page 4", "confidence": 0.7}}


def make_deal(actor: Any, name: str = "Project Kestrel") -> Entity:
    with transaction():
        if not any(row.slug == "deal" for row in entity_store.list_types(actor=actor)):
            entity_store.create_type(slug="deal", name="Deal", fields=FIELDS, actor=actor)
        return entity_store.create_entity(entity_type="deal", name=name, fields={"valuation": 430.0}, actor=actor)


def submit(actor: Any, deal: Entity, *, extracted: bool, values: Any = None, session_id: UUID | None = None) -> Any:
    with transaction():
        agent = versions.ensure_agent("extractor", actor=actor)
        if session_id is None:
            wanted = NewSession(agent="extractor", status="completed", output_type="field" if extracted else None)
            session_id = session_store.create_session(wanted, actor=actor)[0].id
        return entity_responses.submit_response(
            NewResponse(entity_id=deal.id, values=values or VALUES, agent_id=agent.id, session_id=session_id),
            actor=actor,
        ).id


def decide(response_id: UUID, status: str, actor: Any, **more: Any) -> EntityResponse:
    with transaction():
        return entity_responses.decide_response(response_id, status, actor=actor, **more)


def feedback_rows() -> list[Feedback]:
    return list(db.session.scalars(select(Feedback).order_by(Feedback.created_at)))


def test_records_change_field_by_field(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        deal = make_deal(admin)
        with transaction():
            changed = entity_store.update_entity(deal.id, {"valuation": 450.0, "close_date": "2026-06-30"}, actor=admin)
        assert changed == {
            "valuation": {"from": 430.0, "to": 450.0},
            "close_date": {"from": None, "to": "2026-06-30"},
        }
        with transaction():
            assert entity_store.update_entity(deal.id, {"valuation": 450.0}, actor=admin) == {}
            entity_store.update_entity(deal.id, {"close_date": None}, actor=admin)
        assert entity_store.get_entity(deal.id, actor=admin).entity.fields == {"valuation": 450.0}
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == deal.id)).all()
        assert sorted(actions) == ["entity.created", "entity.updated", "entity.updated"]


def test_records_have_the_fields_of_their_type(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        deal = make_deal(admin)
        for match, attempt in (
            ("colour", lambda: entity_store.update_entity(deal.id, {"colour": "red"}, actor=admin)),
            (
                "colour",
                lambda: entity_store.create_entity(entity_type="deal", name="X", fields={"colour": 1}, actor=admin),
            ),
            ("name", lambda: entity_store.create_entity(entity_type="deal", name=" ", fields={}, actor=admin)),
            ("slug", lambda: entity_store.create_type(slug="Bad Slug", name="X", fields={}, actor=admin)),
            (
                "type",
                lambda: entity_store.create_type(slug="x", name="X", fields={"a": {"type": "colour"}}, actor=admin),
            ),
            ("dimensions", lambda: criteria_store.create_criteria_set(slug="x", name="X", dimensions={}, actor=admin)),
        ):
            with pytest.raises(Invalid, match=match), transaction():
                attempt()
        with pytest.raises(Refused, match="already uses the slug deal"), transaction():
            entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
        with pytest.raises(Forbidden), transaction():
            entity_store.create_type(slug="other", name="Other", fields={}, actor=member)
        with pytest.raises(NotFound), transaction():
            entity_store.create_entity(entity_type="unknown", name="X", fields={}, actor=admin)


def test_the_list_finds_names_as_they_are_typed(workspace: Any, count_queries: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        for name in ("Project Kestrel", "100% Owned", "100 Owned"):
            make_deal(admin, name)

        def found(**args: str) -> list[str]:
            page = entity_store.list_entities(EntityFilters.from_args(args), Page(), actor=admin)
            return sorted(row.name for row in page.items)

        assert len(found()) == len(found(entity_type="deal")) == 3
        assert found(q="kestr") == ["Project Kestrel"]
        assert found(q="100% o") == ["100% Owned"], "a percent sign is a percent sign"
        assert found(entity_type="company") == []
        with count_queries() as seen:
            found(q="owned")
        assert len(seen) <= 4
        [kind] = entity_store.list_types(actor=admin)
        assert (kind.slug, kind.entities) == ("deal", 3)


def test_a_rejected_extraction_is_tried_again_once(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        deal = make_deal(admin)
    with acting_as(member):
        response = submit(member, deal, extracted=True)
        decide(response, "rejected", member, reason="That is the signing date")
        [row] = feedback_rows()
        assert (row.source_type, row.kind, row.rating, row.status) == (
            "extraction",
            "extraction_rejection",
            "negative",
            "applied",
        )
        retry = db.session.get_one(AgentSession, UUID(row.context["retry_ref"]))
        assert row.context["field_name"] == "close_date"
        assert row.context["rejected_value"] == "2026-05-01"
        assert row.context["entity_type_id"] == str(deal.entity_type_id)
        assert row.outcome["id"] == str(retry.id)
        assert (retry.status, retry.session_type, retry.output_type, retry.entity_id) == (
            "pending",
            "agent",
            "field",
            deal.id,
        )
        assert "That is the signing date" in retry.meta["instruction"]

        second = submit(member, deal, extracted=True, session_id=retry.id)
        decide(second, "rejected", member, reason="Still the signing date")
        rows = feedback_rows()
        assert [item.status for item in rows] == ["applied", "pending"]
        assert "retry_ref" not in rows[1].context
        assert db.session.scalar(select(func.count()).select_from(AgentSession)) == 2, "a retry is not tried again"


def test_a_rejected_response_waits_for_review(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        deal = make_deal(admin)
        with transaction():
            criteria = criteria_store.create_criteria_set(
                slug="terms",
                name="Terms",
                dimensions={"fit": {"kind": "select"}, "risk": {"kind": "text"}},
                actor=admin,
            )
            response = entity_responses.submit_response(
                NewResponse(entity_id=deal.id, values={"fit": "strong", "risk": "none"}, criteria_set_id=criteria.id),
                actor=admin,
            ).id
        decide(response, "rejected", admin, reason="Nobody looked at it", field_name="fit")
        [row] = feedback_rows()
        assert (row.source_type, row.kind, row.status) == ("response", "response_rejection", "pending")
        assert row.context == {
            "response_id": str(response),
            "criteria_set_id": str(criteria.id),
            "field_name": "fit",
        }
        assert db.session.scalar(select(func.count()).select_from(AgentSession)) == 0
        [listed] = entity_responses.list_responses(deal.id, actor=admin)
        assert (listed.status, listed.rejection_reason, listed.criteria_set) == (
            "rejected",
            "Nobody looked at it",
            "terms",
        )


def test_a_rejection_follows_the_work_of_its_session(workspace: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        deal = make_deal(admin)
        with transaction():
            agent = versions.ensure_agent("extractor", actor=admin)
            made = {
                output: session_store.create_session(
                    NewSession(agent="extractor", status="completed", output_type=output), actor=admin
                )[0].id
                for output in ("field", "fields", "message", None)
            }
        cases = [
            (agent.id, made["field"], "extraction", True),
            (agent.id, made["fields"], "extraction", True),
            (agent.id, made["message"], "response", False),
            (agent.id, made[None], "response", False),
            (agent.id, None, "response", False),
            (None, made["field"], "extraction", False),
            (None, None, "response", False),
        ]
    with acting_as(member):
        for agent_id, session_id, source, retried in cases:
            with transaction():
                response = entity_responses.submit_response(
                    NewResponse(entity_id=deal.id, values=VALUES, agent_id=agent_id, session_id=session_id),
                    actor=member,
                ).id
            before = len(feedback_rows())
            decide(response, "rejected", member, reason="Wrong")
            assert len(feedback_rows()) == before + 1, "one rejection, one row"
            row = feedback_rows()[-1]
            assert (row.source_type, row.kind) == (source, f"{source}_rejection")
            assert ("retry_ref" in row.context, row.status) == (retried, "applied" if retried else "pending")


def test_values_fit_their_criteria_set(workspace: Any) -> None:
    admin = workspace.actor("admin")
    dimensions = {
        "fit": {"kind": "select", "options": ["strong", "weak"]},
        "valuation": {"kind": "numeric"},
        "buyers": {"kind": "relation-rank"},
        "risk": {"kind": "text"},
    }
    with acting_as(admin):
        deal = make_deal(admin)
        with transaction():
            criteria = criteria_store.create_criteria_set(
                slug="terms", name="Terms", dimensions=dimensions, actor=admin
            ).id
        for wrong in (
            {"colour": "red"},
            {"fit": "medium"},
            {"valuation": "12"},
            {"valuation": True},
            {"valuation": float("nan")},
            {"buyers": "Kestrel"},
            {"buyers": [1]},
            {"risk": ["a"]},
            {"risk": {"value": "x", "page": 3}},
            {"risk": {"value": "x", "confidence": 90}},
            {"risk": {"value": "x", "source": 3}},
            {"risk": "x" * 20_001},
        ):
            with pytest.raises(Invalid) as refused, transaction():
                entity_responses.submit_response(
                    NewResponse(entity_id=deal.id, values=wrong, criteria_set_id=criteria), actor=admin
                )
            assert list(refused.value.fields) == [f"values.{next(iter(wrong))}"]
        right = {"fit": "weak", "valuation": 12, "buyers": ["Kestrel"], "risk": {"value": None, "source": "p. 3"}}
        with transaction():
            row = entity_responses.submit_response(
                NewResponse(entity_id=deal.id, values=right, criteria_set_id=criteria), actor=admin
            )
            assert row.values["fit"] == {"value": "weak"}
            assert row.values["risk"] == {"value": None, "source": "p. 3"}


def test_a_response_is_decided_once_and_with_a_reason(workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        deal = make_deal(admin)
        response = submit(admin, deal, extracted=False)
        for match, more in (
            ("Enter what is wrong", {"status": "rejected"}),
            ("Enter what is wrong", {"status": "rejected", "reason": "  "}),
            ("status", {"status": "submitted"}),
            ("field_name", {"status": "rejected", "reason": "x", "field_name": "colour"}),
        ):
            with pytest.raises(Invalid, match=match):
                decide(response, actor=admin, **more)  # type: ignore[arg-type]
        decide(response, "accepted", admin)
        with pytest.raises(Refused, match="already accepted"):
            decide(response, "rejected", admin, reason="Too late")
        assert feedback_rows() == []
        with pytest.raises(NotFound):
            decide(uuid4(), "accepted", admin)


def test_of_two_who_reject_one_writes(app: Any, workspace: Any) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        response = submit(admin, make_deal(admin), extracted=True)
    answers: list[str] = []

    def reject() -> None:
        with app.app_context(), acting_as(admin):
            try:
                decide(response, "rejected", admin, reason="Wrong")
                answers.append("rejected")
            except Refused:
                answers.append("refused")

    run_at_once(*[reject] * 3)
    assert sorted(answers) == ["refused", "refused", "rejected"]
    with acting_as(admin):
        assert len(feedback_rows()) == 1
        assert db.session.scalar(select(func.count()).select_from(AgentSession)) == 2


def test_links_stay_in_the_workspace(make_workspace: Any) -> None:
    here, there = make_workspace(), make_workspace()
    with acting_as(there.actor("admin")):
        foreign = make_deal(there.actor("admin")).id
        with transaction():
            session, _ = session_store.create_session(session_store.NewSession(agent="a"), actor=there.actor("admin"))
            foreign_session = session.id
    admin = here.actor("admin")
    with acting_as(admin):
        deal = make_deal(admin)
        for unknown in (foreign, uuid4()):
            with pytest.raises(NotFound):
                entity_store.get_entity(unknown, actor=admin)
            with pytest.raises(NotFound), transaction():
                entity_store.update_entity(unknown, {"valuation": 1}, actor=admin)
            with pytest.raises(Invalid, match="no entity"), transaction():
                entity_responses.submit_response(NewResponse(entity_id=unknown, values=VALUES), actor=admin)
        with pytest.raises(Invalid, match="no session"):
            submit(admin, deal, extracted=True, session_id=foreign_session)
