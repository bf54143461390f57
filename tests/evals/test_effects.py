from __future__ import annotations

from typing import Any

from app import tools
from app.evals.compare import builtin_tools
from app.evals.compare.effects import Effect, effects_of
from app.evals.trace import calls_of, make_run
from app.text.values import Reader
from tests.evals import mutations


def effects(*calls: tuple[Any, ...], events: Any = (), definitions: Any = ()) -> list[Effect]:
    session: mutations.Session = {"events": []}
    for said in calls:
        session["events"] += mutations.call(session, *said)
    run = make_run([*session["events"], *events], tools=definitions)
    reader = Reader()
    return effects_of(run, calls_of(run, run.tools, reader), reader)[0]


def event_of(event_type: str, **payload: Any) -> dict[str, Any]:
    return {"event_type": event_type, "payload": payload}


def seen(found: list[Effect]) -> list[tuple[Any, ...]]:
    return [(effect.kind, effect.type, effect.target, effect.fields) for effect in found]


def test_every_tool_of_ours_is_known() -> None:
    assert {tool.name for tool in tools.TOOLS if tool.writes} == builtin_tools.WRITES
    assert {tool.name for tool in tools.TOOLS if not tool.writes} == builtin_tools.READS


def test_the_target_is_the_thing_in_the_tools_name() -> None:
    found = effects(
        ("update_reservation_flights", {"reservation_id": "R1", "user_id": "u", "payment_id": "p"}, {}),
        ("send_certificate", {"user_id": "u", "amount": 50}, {}),
        ("updateOrder", {"orderId": "O1", "x": 1}, {}),
        ("touch", {"id": 7, "x": 1}, {}),
        ("notify", {"who": "w", "text": "hi"}, {}),
        definitions=[{"name": "notify", "x-upshot-target": "who"}],
    )

    assert seen(found) == [
        ("updated", "update_reservation_flights", "R1", {"payment_id": "p", "user_id": "u"}),
        ("created", "send_certificate", None, {"amount": 50, "user_id": "u"}),
        ("updated", "updateOrder", "O1", {"x": 1}),
        ("updated", "touch", 7, {"x": 1}),
        ("updated", "notify", "w", {"text": "hi"}),
    ]


def test_failed_calls_and_reads_change_nothing() -> None:
    found = effects(
        ("save", {"a": 1}, "Error: no", True),
        ("look", {"a": 1}, {}),
        ("getEntity", {"id": "x"}, {}),
        definitions=[{"name": "look", "annotations": {"readOnlyHint": True}}],
    )

    assert found == []


def test_the_last_write_counts_and_lists_are_replaced() -> None:
    found = effects(
        ("update_order", {"order_id": "A", "lines": [1, 2], "to": {"x": 1, "y": 1}}, {}),
        ("update_order", {"order_id": "B", "lines": [9]}, {}),
        ("update_order", {"order_id": "A", "lines": [3], "to": {"y": 2}}, {}),
        ("create_order", {"a": 1}, {}),
        ("create_order", {"a": 1}, {}),
    )

    assert [(effect.target, effect.fields) for effect in found] == [
        ("A", {"lines": [3], "to": {"x": 1, "y": 2}}), ("B", {"lines": [9]}), (None, {"a": 1}), (None, {"a": 1}),
    ]  # fmt: skip


def test_ids_that_creations_returned_have_names() -> None:
    found = effects(
        ("book_room", {"for": "x"}, '{"room_id": "RM-88"}'),
        ("update_room", {"room_id": "RM-88", "note": "RM-88", "count": 1}, {}),
        ("createEntity", {"entityType": "deal", "name": "D", "fields": {"room": "RM-88"}}, {"id": 1}),
        ("updateEntity", {"entityId": 1, "changes": {"count": 1, "deal_id": 1}}, {}),
    )

    assert seen(found) == [
        ("created", "book_room", None, {"for": "x"}),
        ("updated", "update_room", "$1", {"count": 1, "note": "$1"}),
        ("created", "deal", None, {"name": "D", "room": "$1"}),
        ("updated", "entity", "$2", {"count": 1, "deal_id": "$2"}),
    ]


def test_our_tools_map_by_name() -> None:
    found = effects(
        (
            "submitResponse",
            {"entityId": "e", "criteriaSetId": "c", "values": {"v": {"value": 4, "source": "p. 1"}}},
            {},
        ),
        ("reviewFeedback", {"id": "f", "action": "dismissed", "notes": "one-off"}, {}),
        ("deactivateSharedContext", {"id": "k", "reason": "stale"}, {}),
        ("addLesson", {"content": "Ask first."}, {"id": "new-row"}),
        ("updateEntity", {"id": "r", "fields": {"stage": None}}, {}),
    )

    assert seen(found) == [
        ("response", "c", "e", {"v": 4}),
        ("updated", "feedback", "f", {"action": "dismissed"}),
        ("updated", "knowledge", "k", {"active": False}),
        ("created", "lesson", None, {"content": "Ask first."}),
        ("updated", "entity", "r", {"stage": None}),
    ]


def test_events_count_only_when_no_call_explains_them() -> None:
    change = {"stage": {"from": "open", "to": "won"}}
    explained = event_of(
        "entity.updated", entity_id="d", entity_type="deal", changes=change, call_id="new-0-updateEntity"
    )
    unexplained = event_of("entity.created", entity_id="n", entity_type="deal", name="N", fields={"a": 1})

    found = effects(
        ("updateEntity", {"entityId": "d", "changes": {"stage": "won"}}, {}), events=[explained, unexplained]
    )

    assert seen(found) == [
        ("updated", "entity", "d", {"stage": "won"}),
        ("created", "deal", None, {"a": 1, "name": "N"}),
    ]


def test_a_record_that_ends_as_it_began_was_not_changed() -> None:
    def change(before: Any, after: Any, **more: Any) -> dict[str, Any]:
        return event_of("entity.updated", entity_id="d", changes={"stage": {"from": before, "to": after}, **more})

    assert effects(events=[change("open", "won"), change("won", "open")]) == []
    kept = effects(events=[change("open", "won"), change("won", "open", note={"from": None, "to": "x"})])
    assert seen(kept) == [("updated", "entity", "d", {"note": "x"})]


def test_a_target_that_a_model_wrote_as_an_object_is_compared_as_it_is_written() -> None:
    events = [
        event_of("knowledge.changed", id={"row": 1}, to="x"),
        event_of("entity.created", entity_id=["e", 1], entity_type="project", fields={"a": 1}),
    ]

    found = effects(("updateEntity", {"entityId": {"id": "e-1"}, "changes": {"stage": "won"}}, {}), events=events)

    assert [(effect.kind, effect.type, effect.target) for effect in found] == [
        ("updated", "entity", {"id": "e-1"}),
        ("updated", "knowledge", {"row": 1}),
        ("created", "project", None),
    ]
