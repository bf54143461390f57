"""Records through tools: found by name, changed with events that say what, and responses that wait."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from app.db import acting_as, db, transaction
from app.models import EntityResponse
from app.services.entities import store as entity_store
from tests.conftest import Workspace
from tests.tools.conftest import Bench


def test_records_are_found_by_words_of_their_names(bench: Bench) -> None:
    for name in ("Halden Health", "Halden Logistics"):
        bench.ok("createEntity", {"entityType": "deal", "name": name, "fields": {"valuation": 12.5}})
    names = [row["name"] for row in bench.ok("searchEntities", {"query": "Update the Halden Logistics deal"})["items"]]
    assert names == ["Halden Logistics", "Halden Health"]
    assert bench.ok("searchEntities", {"query": "kest"})["items"][0]["id"] == str(bench.entity_id)
    for query in ("no such thing", "% _ \\", "..."):
        assert bench.ok("searchEntities", {"query": query})["items"] == []
    assert len(bench.ok("listEntities", {"entityType": "deal"})["items"]) == 3
    assert "no entity type" in bench.refused("searchEntities", {"query": "Halden", "entityType": "ship"})


def test_a_record_is_read_flat(bench: Bench) -> None:
    found = bench.ok("getEntity", {"entityId": str(bench.entity_id)})
    assert found == {
        "id": str(bench.entity_id), "name": "Project Kestrel", "valuation": 430.0, "entityType": "deal",
    }  # fmt: skip
    assert list(found)[:3] == ["id", "name", "valuation"]
    assert "no such record" in bench.refused("getEntity", {"entityId": str(uuid4())})
    assert [row["slug"] for row in bench.ok("listEntityTypes")["items"]] == ["deal"]
    assert [row["id"] for row in bench.ok("listCriteriaSets")["items"]] == [str(bench.criteria_set_id)]


def test_changes_come_back_as_events(bench: Bench) -> None:
    made = bench.run("createEntity", {"entityType": "deal", "name": "Corvus", "fields": {"stage": "loi"}})
    entity_id = made.output["id"]
    assert made.events[0].event_type == "entity.created"
    assert made.events[0].payload == {
        "entity_id": entity_id, "entity_type": "deal", "name": "Corvus", "fields": {"stage": "loi"},
        "call_id": "call-1",
    }  # fmt: skip
    changed = bench.run("updateEntity", {"entityId": entity_id, "changes": {"stage": "closed", "valuation": 14.5}})
    assert changed.events[0].event_type == "entity.updated"
    assert changed.events[0].payload["changes"] == {
        "stage": {"from": "loi", "to": "closed"}, "valuation": {"from": None, "to": 14.5},
    }  # fmt: skip
    assert bench.ok("updateEntity", {"entityId": entity_id, "changes": {"stage": None}})["valuation"] == 14.5


def test_values_must_fit_the_kind_of_record(bench: Bench) -> None:
    entity_id = str(bench.entity_id)
    for changes, word in (
        ({"valuation": "a lot"}, "number"),
        ({"valuation": True}, "number"),
        ({"stage": "won"}, "loi, closed"),
        ({"price": 3}, "A deal has"),
        ({}, "changes"),
    ):
        assert word in bench.refused("updateEntity", {"entityId": entity_id, "changes": changes})
    assert "no entity type" in bench.refused("createEntity", {"entityType": "ship", "name": "N"})
    assert bench.ok("getEntity", {"entityId": entity_id})["valuation"] == 430.0


def test_a_response_waits_for_a_person(bench: Bench) -> None:
    given = {
        "entityId": str(bench.entity_id),
        "criteriaSetId": str(bench.criteria_set_id),
        "values": {"valuation": {"value": 431.0, "source": "term sheet, p. 2", "confidence": 0.9}, "stage": "loi"},
    }
    outcome = bench.run("submitResponse", given)
    values = {**given["values"], "stage": {"value": "loi"}}  # type: ignore[dict-item]
    assert outcome.output["status"] == "submitted"
    assert outcome.events[0].event_type == "response.submitted"
    assert outcome.events[0].payload["values"] == values
    row = bench.within(lambda: db.session.get_one(EntityResponse, UUID(outcome.output["id"])))
    assert (row.agent_id, row.extracted, row.criteria_set_id) == (bench.agent_id, False, bench.criteria_set_id)
    items = bench.ok("listResponses", {"entityId": str(bench.entity_id)})["items"]
    assert [(row["id"], row["status"]) for row in items] == [(outcome.output["id"], "submitted")]
    for name in ("entityId", "criteriaSetId"):
        assert "in this workspace" in bench.refused("submitResponse", {**given, name: str(uuid4())})
    assert "values" in bench.refused("submitResponse", {**given, "values": {}})
    assert "Terms has stage, valuation." in bench.refused("submitResponse", {**given, "values": {"colour": "red"}})
    assert "number" in bench.refused("submitResponse", {**given, "values": {"valuation": {"value": "much"}}})


def test_records_of_another_workspace_are_unknown(bench: Bench, make_workspace: Callable[..., Workspace]) -> None:
    admin = make_workspace().actor("admin")
    with bench.app.app_context(), acting_as(admin), transaction():
        entity_store.create_type(slug="deal", name="Deal", fields={"valuation": {"type": "number"}}, actor=admin)
        theirs = entity_store.create_entity(entity_type="deal", name="Theirs", fields={}, actor=admin).id
    given = {"entityId": str(theirs), "changes": {"valuation": 1}}
    unknown = {"entityId": str(uuid4()), "changes": {"valuation": 1}}
    assert bench.refused("updateEntity", given) == bench.refused("updateEntity", unknown)
    assert bench.ok("searchEntities", {"query": "Theirs"})["items"] == []
