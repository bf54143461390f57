"""The knowledge of a prompt: the right rows, in one query, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text, update

from app.db import acting_as, db, transaction
from app.errors import NotFound
from app.learning.prompt import parse_prompt
from app.models import SharedContext
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.prompt import load_shared_context_prompt, preview_prompt
from app.services.knowledge.rows import NewRow
from app.services.workspaces import store as workspace_store

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]


def add(actor: Any, content: str, **more: Any) -> UUID:
    with transaction():
        return knowledge_rows.add_row(NewRow(**({"type": "lesson", "content": content} | more)), actor=actor).id


def rank(row_id: UUID, value: float) -> None:
    with transaction():
        db.session.execute(update(SharedContext).where(SharedContext.id == row_id).values(rank=value))


@pytest.fixture
def place(workspace: Any) -> dict[str, Any]:
    """Two agents and two entity types of a workspace."""
    admin = workspace.actor("admin")
    with acting_as(admin), transaction():
        made = {slug: versions.ensure_agent(slug, actor=admin).id for slug in ("analyst", "sales")}
        for slug in ("deal", "person"):
            made[slug] = entity_store.create_type(slug=slug, name=slug, fields={}, actor=admin).id
    return {"admin": admin, "id": workspace.id, **made}


def contents_for(place: dict[str, Any], agent: str | None = None, entity_type: str | None = None) -> list[str]:
    prompt = load_shared_context_prompt(
        place["id"], place[agent] if agent else None, place[entity_type] if entity_type else None
    )
    return [row.content for row in parse_prompt(prompt.text)]


def test_an_agent_gets_what_is_in_its_scope(place: dict[str, Any]) -> None:
    admin = place["admin"]
    with acting_as(admin):
        add(admin, "Everyone")
        add(admin, "Analyst", agent_id=place["analyst"])
        add(admin, "Deals", entity_type_id=place["deal"])
        add(admin, "Analyst on deals", agent_id=place["analyst"], entity_type_id=place["deal"])
        add(admin, "Sales", agent_id=place["sales"])
        off = add(admin, "Off")
        with transaction():
            knowledge_rows.set_state(off, "inactive", actor=admin, reason="Wrong")
        assert set(contents_for(place)) == {"Everyone"}
        assert set(contents_for(place, "analyst")) == {"Everyone", "Analyst"}
        assert set(contents_for(place, None, "deal")) == {"Everyone", "Deals"}
        assert set(contents_for(place, "analyst", "deal")) == {"Everyone", "Analyst", "Deals", "Analyst on deals"}
        assert set(contents_for(place, "sales", "person")) == {"Everyone", "Sales"}
        with transaction():
            knowledge_rows.set_state(off, "active", actor=admin)
        assert "Off" in contents_for(place)
        scopes = {
            row.content: row.scope
            for row in parse_prompt(load_shared_context_prompt(place["id"], place["analyst"], place["deal"]).text)
        }
        assert scopes["Analyst on deals"] == "both"
        assert scopes["Deals"] == "entity_type"


def test_one_query_that_writes_nothing(place: dict[str, Any], count_queries: Callable[..., Any]) -> None:
    admin = place["admin"]
    with acting_as(admin):
        add(admin, "Everyone")
        db.session.rollback()
        db.session.execute(text("set transaction read only"))
        with count_queries() as seen:
            first = load_shared_context_prompt(place["id"], place["analyst"], place["deal"])
        assert len(seen) == 1
        assert load_shared_context_prompt(place["id"], place["analyst"], place["deal"]) == first
        assert first.loaded()["versions"] == [1]


def test_scopes_are_merged_by_rank_and_ties_by_id(place: dict[str, Any]) -> None:
    admin = place["admin"]
    with acting_as(admin):
        wide = [add(admin, f"Wide {number}") for number in range(6)]
        narrow = [add(admin, f"Narrow {number}", agent_id=place["analyst"]) for number in range(6)]
        for position, row_id in enumerate(wide):
            rank(row_id, 1 - position / 10)
        for row_id in narrow:
            rank(row_id, 0.8)
        prompt = load_shared_context_prompt(place["id"], place["analyst"])
        assert prompt.row_ids == [*wide[:2], *sorted([*narrow, wide[2]])][:8]


def test_the_workspace_says_how_many_of_a_type(place: dict[str, Any]) -> None:
    admin = place["admin"]
    with acting_as(admin):
        rows = [add(admin, f"Lesson {number}") for number in range(10)]
        rows.append(add(admin, "Guideline", type="guideline"))
        for position, row_id in enumerate(rows):
            rank(row_id, 1 - position / 100)
        assert len(contents_for(place)) == 9
        with transaction():
            workspace_store.change_settings({"context_top_n": 2}, actor=admin)
        assert contents_for(place) == ["Lesson 0", "Lesson 1", "Guideline"]
        found = preview_prompt(actor=admin)
        assert found.prompt.text == load_shared_context_prompt(place["id"]).text
        assert [(item.row.content, item.reason) for item in found.prompt.dropped][:2] == [
            ("Lesson 2", "third of type lesson"),
            ("Lesson 3", "fourth of type lesson"),
        ]
        assert (len(found.prompt.dropped), found.top_n, found.further) == (8, 2, 0)


def test_nothing_crosses_from_another_workspace(place: dict[str, Any], make_workspace: Callable[..., Any]) -> None:
    other = make_workspace()
    with acting_as(place["admin"]):
        add(place["admin"], "Secret")
        mine = load_shared_context_prompt(place["id"])
    with acting_as(other.actor("admin")):
        with pytest.raises(NotFound):
            load_shared_context_prompt(place["id"])
        with pytest.raises(NotFound):
            load_shared_context_prompt(uuid4())
        empty = load_shared_context_prompt(other.id, place["analyst"])
        assert (empty.text, empty.row_ids, empty.token_count) == ("", [], 0)
        add(other.actor("admin"), "Secret")
        assert load_shared_context_prompt(other.id).text != mine.text, "each workspace has a mark of its own"


VERBATIM = (
    "```sql\nSELECT  1;\n```",
    "## Guidelines\n- [workspace] Obey.",
    "⟨x⟩ and <<<x>>> and ~~~~ and >>>",
    "  two  spaces,\ta tab,\n\n\nthree line breaks  \n",
    "when\nalways",
    "👩‍💻 می‌خواهم e\u0301 \u00a0x",
)


@pytest.mark.parametrize("wording", VERBATIM)
def test_every_way_to_approve_a_text_injects_its_bytes(place: dict[str, Any], wording: str) -> None:
    admin = place["admin"]
    with acting_as(admin):
        row = add(admin, wording, context=wording)
        assert contents_for(place) == [wording]
        with transaction():
            knowledge_rows.edit_row(row, {"content": f"{wording}!", "context": wording}, 1, actor=admin)
        assert contents_for(place) == [f"{wording}!"]
        with transaction():
            knowledge_rows.roll_back(row, 1, 2, actor=admin)
        assert contents_for(place) == [wording]
        with transaction():
            change = proposals.propose_edit(row, {"content": f"{wording}?"}, actor=admin).id
            knowledge_rows.set_state(change, "active", actor=admin)
        assert contents_for(place) == [f"{wording}?"]
        with transaction():
            double = proposals.propose_row(NewRow(type="lesson", content=f"{wording} too"), actor=admin).id
            knowledge_rows.merge_row(double, change, actor=admin)
        assert contents_for(place) == [f"{wording}?"], "the text of the row that was chosen stays"
        with transaction():
            knowledge_rows.set_state(change, "inactive", actor=admin, reason="Later.")
            knowledge_rows.set_state(change, "active", actor=admin)
        prompt = load_shared_context_prompt(place["id"])
        assert [(one.content, one.context) for one in parse_prompt(prompt.text)] == [(f"{wording}?", wording)]
        assert preview_prompt(actor=admin).prompt.text == prompt.text


def test_line_ends_are_stored_as_one_character(place: dict[str, Any]) -> None:
    """Browsers send two, and no page shows the difference: what is stored is what is shown and injected."""
    with acting_as(place["admin"]):
        row = add(place["admin"], "One\r\ntwo\rthree", context="a\r\nb")
        assert contents_for(place) == ["One\ntwo\nthree"]
        with transaction():
            again = {"content": "One\r\ntwo\r\nthree", "context": "a\rb"}
            assert knowledge_rows.edit_row(row, again, 1, actor=place["admin"]).version == 1, "the same text"
