"""One search over everything: by words, by the beginning of a name, by an id; and nobody finds what is not theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.db import acting_as, transaction
from app.errors import Invalid
from app.services.entities import store as entity_store
from app.services.lists import global_search
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.lists.filling import fill


def found(actor: Any, query: str, **more: Any) -> list[tuple[str, str]]:
    with acting_as(actor):
        return [(one.kind, one.title) for one in global_search.search_workspace(query, actor=actor, **more)]


def test_records_are_found_by_their_words_in_two_queries(
    app: Flask, workspace: Any, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    admin = workspace.actor()
    with app.app_context():
        with count_queries() as seen:
            kinds = {kind for kind, _ in found(admin, "kestrel or ebitda")}
        assert len(seen) <= 2
        assert kinds == {"session", "chat", "feedback", "knowledge"}
        assert ("chat", "Compare Kestrel and Bluefin") in found(admin, "bluefin")
        assert {kind for kind, _ in found(admin, "ebitda", kinds=("knowledge",))} == {"knowledge"}
        assert found(admin, "zanzibar") == found(admin, "  ") == found(admin, "ebitda", kinds=()) == []


def test_agents_and_entities_are_found_by_the_beginning_of_a_name(app: Flask, workspace: Any) -> None:
    admin = workspace.actor()
    with app.app_context():
        with acting_as(admin), transaction():
            entity_store.create_type(slug="deal", name="Deal", fields={}, actor=admin)
            for name in ("Halden Logistics", "Nord Halden", "100% Halal", "Shalden"):
                entity_store.create_entity(entity_type="deal", name=name, fields={}, actor=admin)
            session_store.create_session(NewSession(agent="halden-helper", title="Something else"), actor=admin)
        assert {title for _, title in found(admin, "HALD")} == {"Halden Logistics", "Nord Halden", "Halden helper"}
        assert found(admin, "100%") == [("entity", "100% Halal")]
        assert found(admin, "%") == found(admin, "_") == []


def test_anything_is_found_by_its_id(app: Flask, workspace: Any, make_workspace: Callable[..., Any]) -> None:
    filled = fill(app, workspace)
    admin, stranger = workspace.actor(), make_workspace().actor()
    expected = {
        "session": filled.session,
        "chat": filled.chat,
        "feedback": filled.ids["reaction"],
        "knowledge": filled.ids["correction"],
        "entity": filled.ids["deal"],
    }
    with app.app_context():
        with acting_as(admin), transaction():
            session_store.create_session(
                NewSession(agent="deal-analyst", title="From outside", external_id="run/2026-11"), actor=admin
            )
        for kind, row_id in expected.items():
            for query in (str(row_id), row_id.hex.upper(), str(row_id)[-8:]):
                with acting_as(admin):
                    first = global_search.search_workspace(query, actor=admin)[0]
                assert (first.kind, first.id, first.by_id) == (kind, row_id, True), query
                assert found(stranger, query) == []
        assert found(admin, "run/2026-11")[0] == ("session", "From outside")


def test_members_find_what_is_theirs(app: Flask, workspace: Any) -> None:
    filled = fill(app, workspace)
    member, other = workspace.actor("member"), workspace.actor("other")
    with app.app_context():
        assert {kind for kind, _ in found(member, "bluefin")} == {"session", "chat", "feedback"}
        assert found(other, "bluefin") == []
        assert found(other, str(filled.session)) == found(other, str(filled.ids["reaction"])) == []
        assert [kind for kind, _ in found(member, str(filled.ids["reaction"]))] == ["feedback"]


def test_strange_queries_are_refused_or_find_nothing(app: Flask, workspace: Any) -> None:
    admin = workspace.actor()
    with app.app_context():
        for query in ("a\x00b", "x" * 201, "\ud800"):
            with pytest.raises(Invalid):
                found(admin, query)
        for query in ("'; drop table feedback; --", '"unclosed', ":* & |", "\\", "-", "%" * 200, "😀" * 100):
            assert found(admin, query) == []
