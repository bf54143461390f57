"""The weekly digest: received, proposed, activated and dropped, week by week."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from flask import Flask

from app.db import acting_as, transaction
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.agents.test_replays import Bench, bench
from tests.conftest import Workspace, soup
from tests.evals.test_charts import UPDATE, WON

__all__ = ["bench"]
PAGE = "/admin/agent-review/digest"


def monday(back: int = 0) -> datetime:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday() + 7 * back)


def say(actor: Any, at: datetime, rating: str = "negative") -> None:
    new = NewFeedback(rating=rating, comment="Wrong basis", trace_id=uuid4().hex, occurred_at=at, created_at=at)
    record_feedback(new, actor=actor)


def words(element: Any) -> str:
    return " ".join(element.get_text(" ", strip=True).split())


def test_each_week_has_its_own_figures(
    app: Flask, bench: Bench, make_workspace: Callable[..., Workspace], sign_in: Callable[..., Any],
    count_queries: Callable[[], Any],
) -> None:  # fmt: skip
    admin, foreign = bench.admin, make_workspace().actor("admin")
    last = monday(1)
    with app.app_context(), acting_as(foreign), transaction():
        say(foreign, last)
    with bench.acting():
        for at, rating in ((last, "negative"), (monday() - timedelta(seconds=1), "positive"), (monday(2), "negative")):
            say(admin, at, rating)
        add = knowledge_rows.add_row
        add(NewRow(type="lesson", content="Quote the basis.", created_at=last), actor=admin, proposed=True)
        row = add(NewRow(type="lesson", content="Name the year.", created_at=last), actor=admin, proposed=True).id
        knowledge_rows.set_state(row, "active", actor=admin, at=last + timedelta(days=2))
        knowledge_rows.edit_row(row, {"context": "always"}, None, actor=admin, at=last + timedelta(days=3))
    bench.golden(WON)
    bench.golden(UPDATE)
    bench.run(set_name="default", triggered_by="scheduled")
    bench.worse()
    run = bench.run(set_name="default")

    client = sign_in(admin)
    link = "a[href$='/digest']"
    feedback = "/admin/agent-review/feedback"
    assert words(soup(client.get(feedback)).select_one(link)) == "Weekly digest new"
    with count_queries() as seen:
        page = soup(client.get(PAGE))
    assert len(seen) <= 8, seen
    assert words(soup(client.get(feedback)).select_one(link)) == "Weekly digest"
    mark = next(one for one in client._cookies.values() if one.key.startswith("upshot_digest"))
    assert mark.expires.replace(tzinfo=UTC) == monday(-1), "new again with the next week"
    shown = words(page.select_one(".u-facts"))
    assert shown == "Received 2 feedback (1 negative) Proposed 2 rules Activated 1 rule Dropped 0 sets"
    assert [one["href"].rsplit("/", 1)[1] for one in page.select("tbody a[href*=knowledge]")] == [str(row)]
    weeks = [words(line) for line in page.select("tr[id^=week-]")]
    assert len(weeks) == 12
    assert "received 1 proposed 0 activated 0 dropped 0" in weeks[2]

    now = soup(client.get(f"{PAGE}?week={datetime.now(UTC).date()}"))
    assert "Dropped 1 set" in words(now.select_one(".u-facts"))
    assert now.select_one(f"a[href$='{run.id}']").text == "default"
    for wrong in ("2001-01-01", "someday", "2026-99-99"):
        assert words(soup(client.get(f"{PAGE}?week={wrong}")).select_one(".u-facts")) == shown
    assert sign_in(bench.workspace.actor("member")).get(PAGE).status_code == 403
