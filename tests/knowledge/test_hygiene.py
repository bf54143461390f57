"""Hygiene over the rows of a workspace: what is found, how vectors are kept, and where the look ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import delete, select

from app.db import acting_as, db, transaction
from app.formats.agent_config import TOOLS_OF_GROUP
from app.models import SharedContextEmbedding
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import hygiene, vectors
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.text import embeddings
from app.tools import TOOLS
from tests.conftest import Workspace

pytestmark = [pytest.mark.usefixtures("app_context")]


@pytest.fixture
def admin(workspace: Workspace) -> Iterator[Any]:
    actor = workspace.actor("admin")
    with acting_as(actor):
        yield actor


def add(actor: Any, content: str, **more: Any) -> Any:
    with transaction():
        return knowledge_rows.add_row(NewRow(**({"type": "correction", "content": content} | more)), actor=actor).id


def checks(found: Any) -> list[str]:
    return [finding.check for finding in found]


def test_a_row_is_checked_beside_those_that_agents_get_with_it(admin: Any, workspace: Workspace) -> None:
    old = add(admin, "Use LTM EBITDA when comparing deals.")
    same = add(admin, "Use the LTM EBITDA when comparing deals.", type="lesson")
    against = add(workspace.actor("member"), "Never use LTM EBITDA when comparing deals.")
    apart = add(admin, "Reply to tickets within 4 hours.")

    found = hygiene.check_rows([same, against, apart], actor=admin)

    assert "duplicate" in checks(found[same])
    assert {finding.other_id for finding in found[against] if finding.check == "contradiction"} >= {old}
    assert found[apart] == []
    with transaction():
        knowledge_rows.set_state(against, "inactive", actor=admin, reason="Wrong.")
    assert hygiene.check_rows([against], actor=admin) == {}


def test_scope_fixes_name_what_to_set(admin: Any) -> None:
    with transaction():
        agent = versions.ensure_agent("deal-analyst", actor=admin)
        kind = entity_store.create_type(slug="deal", name="Deal", fields={"valuation": {"type": "number"}}, actor=admin)
    by_agent = add(admin, "When deal-analyst answers, it states the period.")
    by_type = add(admin, "Every deal has its valuation in EUR.")

    found = hygiene.check_rows([by_agent, by_type], actor=admin)

    assert [finding.agent_id for finding in found[by_agent]] == [agent.id]
    assert [finding.entity_type_id for finding in found[by_type]] == [kind.id]


def test_the_report_tells_a_pair_once_and_says_when_it_was_cut(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = add(admin, "State the currency next to every amount.")
    second = add(admin, "State the currency next to every amount!", type="guideline")
    add(admin, "Be careful.")

    report = hygiene.check_all(actor=admin)
    assert (report.looked_at, report.more) == (3, False)
    pairs = [(kept.id, finding.other_id) for kept, found in report.found for finding in found if finding.other_id]
    assert len(pairs) == 1
    assert set(pairs[0]) == {first, second}
    assert "vague" in [finding.check for _, found in report.found for finding in found]
    assert report.findings == 2

    monkeypatch.setattr(hygiene, "MAX_ROWS", 2)
    cut = hygiene.check_all(actor=admin)
    assert (cut.looked_at, cut.more) == (2, True)
    assert list(hygiene.check_rows([first], actor=admin)) == [first], "whoever is asked for is looked at"


def test_a_new_wording_is_not_compared_with_what_it_replaces(admin: Any) -> None:
    old = add(admin, "Quote multiples with one decimal place.")
    with transaction():
        new = knowledge_rows.add_row(
            NewRow(type="correction", content="Quote multiples with one decimal place, always."),
            actor=admin, proposed=True, meta={"replaces": {"id": str(old), "version": 1}},
        ).id  # fmt: skip
    assert hygiene.check_rows([new], actor=admin)[new] == []


def test_the_nearest_rows_come_first(admin: Any) -> None:
    near = add(admin, "Use LTM EBITDA when comparing deals.")
    add(admin, "Reply to tickets within 4 hours.")
    row = add(admin, "Compare deals on LTM EBITDA figures.")
    assert hygiene.nearest_rows(row, actor=admin)[0] == near


def test_vectors_are_kept_by_text_and_model(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = add(admin, "State the period.")
    stored = db.session.scalars(select(SharedContextEmbedding)).one()
    assert (stored.model, len(stored.vector)) == (embeddings.MODEL_NAME, embeddings.DIMENSIONS)

    made: list[str] = []
    monkeypatch.setattr(vectors, "_cache", {})
    monkeypatch.setattr(vectors, "embed", lambda texts: made.extend(texts) or embeddings.embed(texts))
    hygiene.check_all(actor=admin)
    assert made == [], "a stored vector is read"
    before = list(stored.vector)
    with transaction():
        knowledge_rows.edit_row(row, {"content": "State the period and the currency."}, 1, actor=admin)
    db.session.expire_all()
    assert db.session.scalars(select(SharedContextEmbedding.vector)).one() != before, "an edit stores the new vector"
    hygiene.check_all(actor=admin)
    assert made == []


def test_a_row_without_a_vector_is_embedded_when_it_is_read(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add(admin, "State the period.")
    with transaction():
        db.session.execute(delete(SharedContextEmbedding))
    made: list[str] = []
    monkeypatch.setattr(vectors, "_cache", {})
    monkeypatch.setattr(vectors, "embed", lambda texts: made.extend(texts) or embeddings.embed(texts))
    hygiene.check_all(actor=admin)
    assert made == ["State the period."]


def test_names_of_tools_are_those_of_the_tools() -> None:
    assert {name: group for group, names in TOOLS_OF_GROUP.items() for name in names} == {
        tool.name: tool.group for tool in TOOLS
    }
