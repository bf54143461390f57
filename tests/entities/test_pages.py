"""Records and the responses about them: who decides, what a rejection starts, what an admin flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import AgentSession, AuditEntry, EntityResponse, Feedback
from app.services.entities import criteria as criteria_store
from app.services.entities import responses as entity_responses
from app.services.entities import store as entity_store
from app.services.entities.responses import NewResponse
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


class Record:
    """A deal with responses about it, and someone at a browser."""

    def __init__(self, app: Flask, workspace: Workspace, client: FlaskClient) -> None:
        self.app = app
        self.workspace = workspace
        self.client = client
        admin = workspace.actor("admin")
        with app.app_context(), acting_as(admin), transaction():
            fields = {"valuation": {"type": "number", "title": "Valuation, m€"}, "sector": {"type": "string"}}
            entity_store.create_type(slug="deal", name="Deal", fields=fields, actor=admin)
            entity_store.create_type(slug="person", name="Person", fields={"email": {"type": "string"}}, actor=admin)
            deal = entity_store.create_entity(
                entity_type="deal", name="Halden Health", fields={"valuation": 1204.5}, actor=admin
            )
            run, _ = session_store.create_session(
                NewSession(
                    agent="extractor",
                    title="Read the teaser",
                    status="completed",
                    entity_id=deal.id,
                    output_type="fields",
                ),
                actor=admin,
            )
            self.id, self.session, self.agent = deal.id, run.id, run.agent_id

    def submit(self, *, extracted: bool = True, session_id: UUID | None = None, **values: Any) -> UUID:
        admin = self.workspace.actor("admin")
        given = {name: {"value": value, "source": "p. 3", "confidence": 0.8} for name, value in values.items()}
        with self.app.app_context(), acting_as(admin), transaction():
            new = NewResponse(
                entity_id=self.id,
                values=given,
                agent_id=self.agent if extracted else None,
                session_id=session_id or (self.session if extracted else None),
            )
            return entity_responses.submit_response(new, actor=admin).id

    def decide(self, response_id: UUID, *, client: FlaskClient | None = None, htmx: bool = False, **form: Any) -> Any:
        browser = client or self.client
        data = {"csrf_token": browser.csrf, **form}  # type: ignore[attr-defined]
        headers = HTMX if htmx else {}
        return browser.post(f"/entities/{self.id}/responses/{response_id}", data=data, headers=headers)

    def all(self, *columns: Any) -> list[Any]:
        admin = self.workspace.actor("admin")
        with self.app.app_context(), acting_as(admin), transaction():
            model = columns[0].class_
            return list(db.session.execute(select(*columns).where(model.tenant_id == admin.tenant_id)))


@pytest.fixture
def record(app: Flask, workspace: Workspace, sign_in: SignIn) -> Record:
    return Record(app, workspace, sign_in(workspace.actor("member")))


def test_a_member_accepts_a_response_once(record: Record) -> None:
    response = record.submit(valuation=14.5)
    page = soup(record.client.get(f"/entities/{record.id}"))
    assert page.select_one("h1").text == "Halden Health"
    assert "Valuation, m€" in page.select_one("#entity-fields").text
    assert "1,204.5" in page.select_one("#entity-fields").text
    assert "80%" in page.select_one(f"#response-{response}").text
    assert page.select_one("#entity-sessions a")["href"] == f"/sessions/{record.session}"

    assert record.decide(response, status="accepted").status_code == 303
    assert record.all(EntityResponse.status) == [("accepted",)]
    actions = [row[0] for row in record.all(AuditEntry.action)]
    assert actions.count("response.accepted") == 1
    again = record.decide(response, status="rejected", reason="too late", htmx=True)
    assert again.status_code == 409
    assert "already accepted" in again.text
    assert record.all(Feedback.id) == []


def test_a_member_adds_a_response(record: Record) -> None:
    def page(query: str = "", htmx: bool = False) -> Any:
        return soup(record.client.get(f"/entities/{record.id}{query}", headers=HTMX if htmx else {}))

    assert "No criteria sets yet" in page("?respond=new").select_one("#responses").text
    admin = record.workspace.actor("admin")
    with record.app.app_context(), acting_as(admin), transaction():
        dimensions = {
            "valuation": {"kind": "numeric"},
            "sector": {"kind": "select", "options": ["energy", "health"]},
            "main_risk": {"kind": "text"},
            "buyers": {"kind": "relation-rank"},
        }
        for slug, given in (("account", {"city": {"kind": "text"}}), ("terms", dimensions)):
            criteria_store.create_criteria_set(slug=slug, name=slug.title(), dimensions=given, actor=admin)
    assert page().select_one("#add-response")["href"].endswith("?respond=new#responses")
    form = page("?respond=new", htmx=True)
    assert form.select_one("#respond-set option[selected]").text == "Terms", "the one that fits the record best"
    assert "Valuation, m€" in form.select_one("#respond").text
    chosen = form.select_one("input[name=criteria_set_id]")["value"]
    other = next(option["value"] for option in form.select("#respond-set option") if option["value"] != chosen)
    assert page(f"?respond={other}", htmx=True).select_one("[name='value.city']")
    assert not page("?respond=", htmx=True).select_one("#respond")

    def send(htmx: bool = False, **values: str) -> Any:
        data = {"csrf_token": record.client.csrf, "criteria_set_id": chosen}  # type: ignore[attr-defined]
        data |= {name.replace("__", "."): value for name, value in values.items()}
        return record.client.post(f"/entities/{record.id}/responses", data=data, headers=HTMX if htmx else {})

    assert send().status_code == 422
    wrong = send(htmx=True, value__valuation="1,5", value__main_risk="Churn", source__main_risk="p. 3")
    assert wrong.status_code == 422
    assert soup(wrong).select_one("[name='value.valuation'][aria-invalid=true]")["value"] == "1,5"
    assert soup(wrong).select_one("[name='source.main_risk']")["value"] == "p. 3"
    assert send(htmx=True, value__sector="tobacco").status_code == 422
    assert send(criteria_set_id=str(uuid4())).status_code == 400
    assert record.all(EntityResponse.id) == []
    added = send(
        htmx=True,
        value__valuation="1,204.5",
        value__sector="energy",
        value__buyers="Kestrel\r\n\r\n Heron ",
        value__main_risk="Churn",
        source__main_risk="p. 3",
    )
    assert added.status_code == 200
    assert "Churn" in soup(added).select_one("#responses .u-values").text
    assert send(value__valuation="7").status_code == 303
    found = record.all(EntityResponse.values, EntityResponse.agent_id, EntityResponse.extracted)
    [(first, agent, extracted), _] = sorted(found, key=lambda row: -len(row[0]))
    assert first == {
        "valuation": {"value": 1204.5},
        "sector": {"value": "energy"},
        "buyers": {"value": ["Kestrel", "Heron"]},
        "main_risk": {"value": "Churn", "source": "p. 3"},
    }
    assert (agent, extracted) == (None, False)
    assert [row[0] for row in record.all(AuditEntry.action)].count("response.submitted") == 2

    response = record.all(EntityResponse.id)[0][0]
    assert record.decide(response, status="rejected", reason="Old figure", field_name="valuation").status_code == 303
    [(source, kind, status, context)] = record.all(
        Feedback.source_type, Feedback.kind, Feedback.status, Feedback.context
    )
    assert (source, kind, status) == ("response", "response_rejection", "pending")
    assert context == {"response_id": str(response), "criteria_set_id": chosen, "field_name": "valuation"}


def test_a_rejection_needs_its_reason(record: Record) -> None:
    response = record.submit(extracted=False, valuation=14.5, sector="energy")
    form = soup(record.client.get(f"/entities/{record.id}?reject={response}"))
    assert form.select_one(f"#response-{response} textarea[name=reason]")

    for reason in ("", "  \r\n"):
        refused = record.decide(response, status="rejected", reason=reason, field_name="sector")
        assert refused.status_code == 422
        assert soup(refused).select_one("textarea[name=reason][aria-invalid=true]")
        assert soup(refused).select_one("option[value=sector][selected]")
    assert record.decide(response, status="rejected", reason="x", field_name="colour", htmx=True).status_code == 422
    assert record.decide(response, status="gone", reason="x").status_code == 422
    assert record.decide(response, status="rejected", reason="x" * 4097, htmx=True).status_code == 422
    assert record.all(EntityResponse.status) == [("submitted",)]
    assert record.all(Feedback.id) == []

    done = record.decide(response, status="rejected", reason="It is healthcare", field_name="sector", htmx=True)
    assert done.status_code == 200
    columns = (Feedback.source_type, Feedback.kind, Feedback.status, Feedback.comment, Feedback.context)
    [(source, kind, status, comment, context)] = record.all(*columns)
    assert (source, kind, status, comment) == ("response", "response_rejection", "pending", "It is healthcare")
    assert context == {"response_id": str(response), "field_name": "sector"}


def test_a_rejected_extraction_is_tried_again_once(record: Record) -> None:
    response = record.submit(valuation=14.5)
    record.decide(response, status="rejected", reason="This is the price, not the valuation")

    sessions_ = {row.title: row for row in record.all(AgentSession.title, AgentSession.id, AgentSession.status)}
    retry = sessions_["Extract valuation of Halden Health again"]
    assert retry.status == "pending"
    [(status, context)] = record.all(Feedback.status, Feedback.context)
    assert status == "applied"
    assert context["retry_ref"] == str(retry.id)
    assert context["rejected_value"] == 14.5
    card = soup(record.client.get(f"/entities/{record.id}")).select_one(f"#response-{response}")
    assert "retry" in card.select_one(".u-own").text
    assert card.select_one(".u-own a")["href"] == f"/sessions/{retry.id}"

    second = record.submit(valuation=15, session_id=retry.id)
    record.decide(second, status="rejected", reason="Still wrong")
    assert len(record.all(AgentSession.id)) == 2, "a retry is not tried again"
    assert sorted(row[0] for row in record.all(Feedback.status)) == ["applied", "pending"]


def test_only_an_admin_flags_a_response(record: Record, sign_in: SignIn) -> None:
    response = record.submit(valuation=14.5)
    assert "Flag" not in soup(record.client.get(f"/entities/{record.id}")).select_one(f"#response-{response}").text
    token = {"csrf_token": record.client.csrf}  # type: ignore[attr-defined]
    url = f"/entities/{record.id}/flag"
    assert record.client.post(url, data={**token, "at": str(response), "comment": "x"}).status_code == 403

    admin = sign_in(record.workspace.actor("admin"))
    form = soup(admin.get(f"/entities/{record.id}?flag={response}")).select_one("form[aria-label=Flag]")
    fields = {field["name"]: field.get("value", "") for field in form.select("input")}
    assert admin.post(form["action"], data={**fields, "rating": "negative", "comment": ""}).status_code == 422
    sent = admin.post(form["action"], data={**fields, "rating": "negative", "comment": "Read the wrong column"})
    assert sent.status_code == 303
    [(source, kind, entity, context)] = record.all(
        Feedback.source_type, Feedback.kind, Feedback.entity_id, Feedback.context
    )
    assert (source, kind, entity, context) == ("observation", "flag", record.id, {"response_id": str(response)})
    assert "Read the wrong column" not in record.client.get(f"/entities/{record.id}").text
    assert "Read the wrong column" in admin.get(f"/entities/{record.id}").text


@pytest.mark.core
def test_another_workspace_s_records_are_unknown(
    record: Record, sign_in: SignIn, make_workspace: Callable[..., Workspace]
) -> None:
    response = record.submit(valuation=14.5)
    stranger = sign_in(make_workspace("Other").actor("admin"))
    assert stranger.get(f"/entities/{record.id}").status_code == 404
    assert record.decide(response, client=stranger, status="accepted").status_code == 404
    assert record.decide(uuid4(), status="accepted").status_code == 404
    assert record.client.get(f"/entities/{uuid4()}").status_code == 404
    assert record.all(EntityResponse.status) == [("submitted",)]


def test_the_list_by_type_and_by_name(
    record: Record, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    client, admin = record.client, workspace.actor("admin")
    with record.app.app_context(), acting_as(admin), transaction():
        for name in ("Ana Costa", "100%_<b>bold</b>"):
            entity_store.create_entity(entity_type="person", name=name, fields={"email": "a@example.test"}, actor=admin)
    record.submit(valuation=14.5)

    page = soup(client.get("/entities"))
    assert [link.text for link in page.select(".u-seg a")] == ["All 3", "Deal 1", "Person 2"]
    assert len(page.select("[data-row]")) == 3
    assert not page.select("main b b, main td b")
    deals = soup(client.get("/entities?entity_type=deal", headers=HTMX))
    assert len(deals.select("[data-row]")) == 1
    assert "Valuation, m€" in deals.select_one("thead").text
    assert "1 response" in deals.select_one("[data-row]").text
    assert len(soup(client.get("/entities?q=ana")).select("[data-row]")) == 1
    assert len(soup(client.get("/entities?q=%25_")).select("[data-row]")) == 1
    assert "No matches" in client.get("/entities?q=zanzibar").text
    assert client.get("/entities?entity_type=DEAL!").status_code == 400
    panel = soup(client.get(f"/entities/{record.id}?panel=1", headers=HTMX))
    assert panel.select_one("aside#panel .u-answers")
    for actor in (workspace.actor("member"), admin):
        browser = sign_in(actor)
        for path in ("/entities?q=a", f"/entities/{record.id}"):
            with count_queries() as seen:
                browser.get(path)
            assert len(seen) <= 8, (path, actor.role, seen)


def test_a_workspace_without_records_says_what_will_be_here(workspace: Workspace, sign_in: SignIn) -> None:
    assert "No records yet" in sign_in(workspace.actor("member")).get("/entities").text
