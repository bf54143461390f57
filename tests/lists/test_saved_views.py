"""Saved views: kept under a name, shared, opened by default, and nobody else's to change."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Invalid, NotFound, Refused
from app.models import AuditEntry
from app.services.lists import saved_views
from app.views.layout.saved_views import FILTERS

pytestmark = pytest.mark.usefixtures("app_context")


def save(actor: Any, name: str, query: str = "status=pending", tab: str = "feedback", **more: Any) -> Any:
    with transaction():
        return saved_views.save_view(tab, name, query, filters=FILTERS, actor=actor, **more)


def names(actor: Any, tab: str | None = "feedback") -> list[str]:
    return [view.name for view in saved_views.list_views(tab, actor=actor)]


def test_a_view_keeps_filters_and_not_the_place_in_the_list(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        view = save(
            actor, "  Pending   negatives ", "status=pending&rating=negative&after=abc&q=&from=2026-01-31&view=all"
        )
        assert (view.name, view.query) == ("Pending negatives", "from=2026-01-31&status=pending&rating=negative")
        assert saved_views.list_views("feedback", actor=actor)[0].args["rating"] == "negative"
        again = save(actor, "Pending negatives", "q=ltm")
        assert (again.id, again.query) == (view.id, "q=ltm")
        assert save(actor, "Everything", "").query == ""
        actions = set(db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == view.id)))
        assert actions == {"view.saved"}


def test_what_cannot_be_saved_is_refused_with_a_reason(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        for name, query, tab, field in (
            ("", "status=pending", "feedback", "name"),
            ("x" * 61, "status=pending", "feedback", "name"),
            ("a\x00b", "status=pending", "feedback", "name"),
            ("Mine", "colour=red", "feedback", "query"),
            ("Mine", "status=pending", "sessions-of-others", "tab"),
            ("Mine", "q=" + "x" * 2000, "feedback", "query"),
            ("Mine", "signal=edit", "sessions", "query"),
        ):
            with pytest.raises(Invalid) as wrong:
                save(actor, name, query, tab)
            assert list(wrong.value.fields) == [field]
        assert names(actor) == []
        save(actor, "x" * 60)


def test_shared_views_are_read_by_others_and_changed_by_their_owner(workspace: Any) -> None:
    owner, admin = workspace.actor("owner"), workspace.actor("admin")
    with acting_as(owner):
        shared = save(owner, "Shared", shared=True, is_default=True).id
        private = save(owner, "Private").id
        save(owner, "Runs", "status=failed", "sessions")
    with acting_as(admin):
        save(admin, "Zebra")
        rows = saved_views.list_views("feedback", actor=admin)
        assert [(row.name, row.mine, row.owner, row.is_default) for row in rows] == [
            ("Zebra", True, None, False),
            ("Shared", False, owner.name, False),
        ]
        for view_id in (shared, private):
            with pytest.raises(NotFound), transaction():
                saved_views.delete_view(view_id, actor=admin)
            with pytest.raises(NotFound), transaction():
                saved_views.change_view(view_id, actor=admin, name="Taken", shared=True, is_default=False)
        with pytest.raises(NotFound):
            saved_views.get_view(private, actor=admin)
        assert saved_views.get_view(shared, actor=admin).name == "Shared"
    with acting_as(owner):
        assert names(owner) == ["Private", "Shared"]
        assert names(owner, None) == ["Private", "Runs", "Shared"]


def test_a_tab_opens_with_one_view_at_most(workspace: Any) -> None:
    actor = workspace.actor()
    with acting_as(actor):
        first = save(actor, "First", is_default=True)
        second = save(actor, "Second", is_default=True)
        save(actor, "Runs", "status=failed", "sessions", is_default=True)
        assert [row.name for row in saved_views.list_views(actor=actor) if row.is_default] == ["Runs", "Second"]
        with transaction():
            saved_views.change_view(first.id, actor=actor, name="Renamed", shared=True, is_default=True)
        rows = {row.name: row for row in saved_views.list_views("feedback", actor=actor)}
        assert (rows["Renamed"].is_default, rows["Renamed"].shared, rows["Second"].is_default) == (True, True, False)
        with pytest.raises(Refused, match="already"), transaction():
            saved_views.change_view(second.id, actor=actor, name="Renamed", shared=False, is_default=False)
        with transaction():
            saved_views.delete_view(first.id, actor=actor)
        assert names(actor) == ["Second"]


def test_there_is_an_end_to_them(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    actor = workspace.actor()
    with acting_as(actor):
        save(actor, "One")
        save(actor, "Two")
        save(actor, "Two", "q=again")
        with pytest.raises(Refused, match="Delete one first"):
            save(actor, "Three")
