"""The knowledge for a prompt over the API: the bytes of the prompt, an ETag, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import SharedContextUsage
from app.security.last_used import write_uses
from app.services.agents import versions
from app.services.entities import store as entity_store
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.prompt import load_shared_context_prompt
from app.services.knowledge.rows import NewRow
from tests.conftest import Api, Workspace

PATH = "/api/v1/context"


@pytest.fixture
def rows(app: Flask, workspace: Workspace) -> dict[str, Any]:
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor), transaction():
        agent = versions.ensure_agent("deal-analyst", actor=actor)
        kind = entity_store.create_type(slug="deal", name="Deal", fields={}, actor=actor)
        made = {
            "all": knowledge_rows.add_row(NewRow(type="correction", content="For all."), actor=actor).id,
            "agent": knowledge_rows.add_row(
                NewRow(type="lesson", content="For the analyst.", agent_id=agent.id), actor=actor
            ).id,
            "type": knowledge_rows.add_row(
                NewRow(type="routing", content="For deals.", entity_type_id=kind.id), actor=actor
            ).id,
        }
        return made | {"agent_id": agent.id, "type_id": kind.id}


def test_an_agent_gets_what_is_for_it(
    app: Flask, workspace: Workspace, api: Callable[..., Api], rows: dict[str, Any]
) -> None:
    key = api(workspace.actor("member"), "context")
    answer = key.get(f"{PATH}?agent=deal-analyst&entity_type=deal")

    assert answer.status_code == 200
    with app.app_context(), acting_as(workspace.actor("member")):
        prompt = load_shared_context_prompt(workspace.id, rows["agent_id"], rows["type_id"])
    assert answer.json == {
        "prompt": prompt.text,
        "row_ids": [str(rows[name]) for name in ("all", "agent", "type")],
        "rows": [
            {"id": str(rows[name]), "type": kind}
            for name, kind in (("all", "correction"), ("agent", "lesson"), ("type", "routing"))
        ],
        "sha256": sha256(prompt.text.encode()).hexdigest(),
    }
    assert key.get(PATH).json["row_ids"] == [str(rows["all"])]
    for query, named in (
        ("agent=nobody", "agent “nobody”"),
        ("agent=", "agent “”"),
        ("agent=%20", "agent “ ”"),
        ("agent=nobody&entity_type=deal", "agent “nobody”"),
        ("entity_type=nothing", "entity type “nothing”"),
        ("entity_type=", "entity type “”"),
        ("agent=deal-analyst&entity_type=nothing", "entity type “nothing”"),
    ):
        unknown = key.get(f"{PATH}?{query}")
        assert unknown.status_code == 404, query
        assert unknown.json["detail"] == f"There is no {named} in this workspace."
    assert key.get(f"{PATH}?agent_id=1").status_code == 400


def test_nothing_new_is_a_304(workspace: Workspace, api: Callable[..., Api], rows: dict[str, Any]) -> None:
    key, admin = api(workspace.actor("member"), "context"), api(workspace.actor("admin"))
    tag = key.get(PATH).headers["ETag"]
    assert tag.startswith('"')
    for sent in (tag, f'"other", {tag}', "*"):
        again = key.get(PATH, headers={"If-None-Match": sent})
        assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag), sent
    assert key.get(PATH, headers={"If-None-Match": '"other"'}).status_code == 200
    path = f"/api/admin/shared-context/{rows['all']}"
    assert admin.patch(path, {"content": "For everybody.", "version": 1}).status_code == 200
    changed = key.get(PATH, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag
    assert "For everybody." in changed.json["prompt"]
    admin.patch(path, {"active": False, "reason": "No longer."})
    assert key.get(PATH).json["prompt"] == ""


def test_reading_writes_nothing_and_uses_are_counted_in_batches(
    app: Flask, workspace: Workspace, api: Callable[..., Api], rows: dict[str, Any], count_queries: Callable[[], Any]
) -> None:
    write_uses_in(app)
    key = api(workspace.actor("member"), "context")
    with count_queries() as seen:
        tag = key.get(PATH).headers["ETag"]
    assert len(seen) == 1
    assert not [one for one in seen if not str(one).lstrip().upper().startswith("SELECT")]
    key.get(PATH, headers={"If-None-Match": tag})

    def used() -> Any:
        with app.app_context(), acting_as(workspace.actor("admin")):
            return db.session.scalar(
                select(SharedContextUsage.injected).where(SharedContextUsage.shared_context_id == rows["all"])
            )

    assert used() is None
    write_uses_in(app)
    assert used() == 2
    write_uses_in(app)
    assert used() == 2, "a batch is written once"


def test_a_batch_that_failed_is_part_of_the_next(workspace: Workspace, rows: dict[str, Any]) -> None:
    knowledge_usage.take_pending()
    knowledge_usage.note_injected(workspace.id, [rows["all"]])
    taken = knowledge_usage.take_pending()
    knowledge_usage.note_injected(workspace.id, [rows["all"]])
    knowledge_usage.restore_pending(workspace.id, taken[workspace.id])
    assert knowledge_usage.take_pending()[workspace.id].counts[rows["all"]][0] == 2


def write_uses_in(app: Flask) -> None:
    with app.app_context():
        write_uses()
