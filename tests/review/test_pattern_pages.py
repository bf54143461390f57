"""The Patterns page: who says what, what came of its rule, and decisions about a whole group."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.feedback.review import MAX_AT_ONCE
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.review import pattern_decisions, patterns
from app.services.review.pattern_decisions import decide_pattern
from app.services.review.patterns import NewPattern
from tests.conftest import Api, Workspace, soup

pytestmark = pytest.mark.usefixtures("app_context")
PAGE = "/admin/agent-review/patterns"
HTMX = {"HX-Request": "true"}


def say(actor: Any, comment: str, days_ago: int = 0, **more: Any) -> tuple[UUID, datetime]:
    at = datetime.now(UTC) - timedelta(days=days_ago)
    new = NewFeedback(**{"source_type": "session", "rating": "negative", "comment": comment, "occurred_at": at, **more})
    with acting_as(actor), transaction():
        return record_feedback(new, actor=actor).id, at


def group(actor: Any, *rows: tuple[UUID, datetime], label: str = "Wrong basis") -> UUID:
    new = NewPattern(label=label, agent_id=None, entity_type_id=None, rows=rows)
    with acting_as(actor), transaction():
        return patterns.save_pattern(new, actor=actor)[rows[0][0]]


def link_rule(actor: Any, pattern_id: UUID, **more: Any) -> UUID:
    with acting_as(actor), transaction():
        rule = knowledge_rows.add_row(NewRow(type="lesson", content="Use LTM figures."), actor=actor, **more).id
        patterns.link_rule([pattern_id], rule, actor=actor)
        return rule


def statuses(actor: Any) -> dict[UUID, str]:
    with acting_as(actor):
        return dict(db.session.execute(select(Feedback.id, Feedback.status)).all())  # type: ignore[arg-type]


def words(element: Any) -> str:
    return " ".join(element.get_text(" ", strip=True).split())


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., Any]) -> Any:
    return sign_in(workspace.actor("admin"))


def test_a_pattern_says_who_says_it_and_what_came_back(
    workspace: Workspace, client: Any, api: Callable[..., Api], count_queries: Callable[[], Any]
) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    early = [say(admin, "Last year's EBITDA again", 30), say(member, "You used the wrong year", 20)]
    pattern = group(admin, *early, label="Uses last year's EBITDA")
    unsafe = group(admin, say(member, "It told a secret", 1, kind="signal", signal="unsafe", trace_id=uuid4().hex))
    rule = link_rule(admin, pattern, proposed=True)
    with count_queries() as seen:
        page = soup(client.get(PAGE))
    assert len(seen) <= 10, [one[:80] for one in seen]
    listed = [words(one) for one in page.select("tr[data-row]")]
    assert listed[0].startswith("✗ high Wrong basis all agents rows 1 people 1")
    assert listed[1].startswith("– low Uses last year's EBITDA all agents rows 2 people 2")
    assert "~ proposed" in listed[1]
    assert len(page.select(f"#pattern-{pattern} .u-spark rect")) == 2

    with acting_as(admin), transaction():
        knowledge_rows.set_state(rule, "active", actor=admin, at=datetime.now(UTC) - timedelta(days=10))
    late = [say(member, f"Again, case {number}", 3) for number in range(3)]
    with acting_as(admin), transaction():
        again = NewPattern(label="Same", agent_id=None, entity_type_id=None, rows=late, id=pattern)
        patterns.save_pattern(again, actor=admin)
    shown = soup(client.get(f"{PAGE}/{pattern}"))
    assert "3 new since the rule" in words(shown.select_one("#pattern-detail"))
    assert "5 rows, 5 open" in words(shown.select_one(".u-facts"))
    assert len(shown.select(".u-evidence li")) == 5
    [item] = [one for one in api(admin, "admin").get("/api/admin/patterns").json["items"] if one["id"] == str(pattern)]
    assert (item["returned"], item["people"], item["open"], item["severity"]) == (3, 2, 5, "low")
    assert sum(item["weeks"]) == 5

    assert [one["id"] for one in soup(client.get(f"{PAGE}?rule=none")).select("tr[data-row]")] == [f"pattern-{unsafe}"]
    assert [one["id"] for one in soup(client.get(f"{PAGE}?q=EBITDA")).select("tr[data-row]")] == [f"pattern-{pattern}"]
    see = client.get(f"{PAGE}/of/{late[0][0]}")
    assert (see.status_code, see.location) == (303, f"{PAGE}/{pattern}")
    alone = say(member, "Something else")[0]
    assert client.get(f"{PAGE}/of/{alone}").location == f"/admin/agent-review/feedback/{alone}"
    panel = soup(client.get(f"/admin/agent-review/feedback/{alone}", headers=HTMX))
    assert panel.select_one("[data-key=s]")["href"] == f"{PAGE}/of/{alone}"


def test_a_group_is_decided_at_once_and_taken_back(workspace: Workspace, client: Any) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    rows = [say(member, f"Wrong basis in case {number}") for number in range(4)]
    other = say(member, "Not of the group")[0]
    pattern = group(admin, *rows)

    def decide(**data: str) -> Any:
        form = {"csrf_token": client.csrf, **data}
        return client.post(f"{PAGE}/{pattern}/decide", data=form, headers=HTMX)

    assert decide(action="applauded").status_code == 422
    done = soup(decide(action="dismissed", notes="The basis was right."))
    assert "Dismissed 4." in done.text
    assert {statuses(admin)[row] for row, _ in rows} == {"dismissed"}
    assert statuses(admin)[other] == "pending"
    assert "All of it was already decided." in decide(action="applied").text

    taken_back = ",".join(str(row) for row, _ in rows[:2])
    assert "Reopened 2." in decide(action="reopen", ids=f"{taken_back},{other},x").text
    assert [statuses(admin)[row] for row, _ in rows] == ["pending", "pending", "dismissed", "dismissed"]
    assert "Reopened" not in decide(action="reopen", ids="").text


def test_applying_a_group_links_it_with_its_active_rule(workspace: Workspace, sign_in: Callable[..., Any]) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    rows = [say(admin, "Wrong basis"), say(member, "Wrong basis again")]
    pattern = group(admin, *rows)
    rule = link_rule(admin, pattern)
    with acting_as(admin), transaction():
        assert len(decide_pattern(pattern, "applied", actor=admin)) == 2
    with acting_as(admin):
        outcomes = [db.session.get_one(Feedback, row).outcome for row, _ in rows]
    assert [one["id"] for one in outcomes] == [str(rule)] * 2
    mine = soup(sign_in(member).get("/feedback/mine")).select_one(f"#feedback-{rows[1][0]}")
    assert "Led to a change. Agents now get this rule:" in words(mine)
    assert "Use LTM figures." in words(mine)


def test_a_large_group_is_decided_in_one_transaction_within_a_limit(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = workspace.actor("admin")
    monkeypatch.setattr(pattern_decisions, "MAX_DECIDED", MAX_AT_ONCE + 20)
    rows = []
    with acting_as(admin), transaction():
        for number in range(MAX_AT_ONCE + 30):
            at = datetime.now(UTC) - timedelta(minutes=number)
            new = NewFeedback(source_type="session", rating="negative", comment=f"Case {number}", occurred_at=at)
            rows.append((record_feedback(new, actor=admin).id, at))
    pattern = group(admin, *rows)
    with acting_as(admin), transaction():
        moved = decide_pattern(pattern, "reviewed", actor=admin)
    assert len(moved) == MAX_AT_ONCE + 20
    left = {row for row, _ in rows} - set(moved)
    assert left == {row for row, _ in rows[-10:]}, "the oldest wait for the next time"


def test_patterns_are_for_admins_of_the_workspace(
    workspace: Workspace, make_workspace: Callable[..., Workspace], sign_in: Callable[..., Any]
) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    row = say(member, "Wrong basis")
    pattern = group(admin, row)
    foreign = make_workspace().actor("admin")
    for actor, status in ((member, 403), (foreign, 404)):
        client = sign_in(actor)
        assert client.get(f"{PAGE}/{pattern}").status_code == status
        assert client.get(f"{PAGE}/of/{row[0]}").status_code == status
        form = {"csrf_token": client.csrf, "action": "dismissed"}
        assert client.post(f"{PAGE}/{pattern}/decide", data=form).status_code == status
    assert statuses(admin)[row[0]] == "pending"
