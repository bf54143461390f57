"""Failures of a run in the feed: one line for each run, decided together or one by one; and trial runs that say
nothing there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import db
from app.db.paging import Page
from app.models import Feedback
from app.services.agents import lists as agent_lists
from app.services.agents import versions
from app.services.analytics.tab_counts import count_tabs
from app.services.evals import candidates
from app.services.feedback import failures, lists, volume
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.feedback.lists import FeedbackFilters
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Workspace, soup
from tests.feedback.test_teamwork_page import post, undo

__all__ = ["bench"]
URL = "/admin/agent-review/feedback"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
# All of these fail on a version that updates nothing.
ASKED = (
    "Update entity Halden: set stage to won",
    "Update entity Kestrel: set stage to won",
    "Update entity Marlow: set stage to won",
)


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., FlaskClient]) -> FlaskClient:
    return sign_in(workspace.actor("admin"))


def words(node: Any) -> str:
    return " ".join(node.get_text(" ", strip=True).split())


def mute(bench: Bench, note: str = "") -> UUID:
    """A version that fails everything."""
    with bench.acting():
        config = CONFIG | {"instructions": f"Never use updateEntity. {note}"}
        return versions.save_version(bench.agent_id, config, actor=bench.admin).id


def statuses(bench: Bench) -> Counter[str]:
    return Counter(row.status for row in bench.complaints())


def test_a_trial_run_writes_no_feedback_and_counts_nowhere(bench: Bench) -> None:
    golden = bench.golden(ASKED[0], set_name="deals")

    def figures() -> Any:
        with bench.acting():
            admin = bench.admin
            tabs = count_tabs(actor=admin)
            agents = agent_lists.list_stats(actor=admin).items
            return {
                "volume": [(day.day, day.total) for day in volume.volume(actor=admin)],
                "tabs": {name: tabs[name] for name in ("feedback", "mine", "knowledge", "tasks", "evals")},
                "candidates": candidates.list_candidates(actor=admin).count,
                "feedback": lists.list_feedback(FeedbackFilters(), Page(), actor=admin).count,
                "agents": [(one.slug, one.sessions, one.cost, one.ratings) for one in agents],
                "ratings": lists.feedback_about(session_id=golden, actor=admin),
            }

    before = figures()
    worse = mute(bench)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG, actor=bench.admin)
    trials = [
        bench.run(set_name="deals", agent_version_id=worse, trials=2),
        bench.run(golden_ids=[golden], agent_version_id=worse),
        bench.run(set_name="deals", agent_version_id=worse, context_mode="live"),
    ]
    assert [run.failed_count for run in trials] == [1, 1, 1]
    assert figures() == before
    assert bench.complaints() == []


def test_the_failures_of_a_run_are_one_line_that_unfolds(
    bench: Bench, client: FlaskClient, count_queries: Callable[[], Any]
) -> None:
    for asked in ASKED:
        bench.golden(asked, set_name="deals")
    first = bench.run(set_name="deals")
    assert (first.passed_count, bench.complaints()) == (3, [])
    mute(bench)
    run = bench.run(set_name="deals")
    assert {row.eval_run_id for row in bench.complaints()} == {run.id}
    with bench.acting():
        record_feedback(NewFeedback(source_type="session", rating="neutral", comment="Nice"), actor=bench.admin)

    with count_queries() as seen:
        page = soup(client.get(f"{URL}?status=pending"))
    assert len(seen) <= 8, [one[:120] for one in seen]
    group = page.select_one(".u-group")
    head, *members = group.select("tr")
    assert words(head.select_one("summary")) == "deals v2: 3 goldens fail 3 rows"
    assert head.select_one(f"a[href$='/evals/runs/{run.id}']")
    assert sorted(words(row.select_one(".u-main"))[:24] for row in members) == sorted(
        f"“{asked}” fails: "[:24] for asked in ASKED
    )
    ids = {row["id"].removeprefix("feedback-") for row in members}
    assert set(head.select_one("input")["value"].split(",")) == ids
    assert "4 rows" in words(page.select_one(".u-filters")), "what the tab counts"
    assert words(page.select_one("#count-feedback")) == "4 pending"
    assert "4 shown" in words(page.select_one(".u-pager"))
    assert [row["id"] for row in page.select("tbody:not(.u-group) [data-row]")] != []

    # The same from any filter that still has several of them, one by one where a single row is asked for.
    for query, lines in (
        ("kind=replay_failure", 1), ("q=replay&kind=replay_failure&from=2020-01-01", 1),
        ("rating=negative&agent=assistant", 1), ("version=2&model=offline", 1), ("q=deals", 0), ("status=reviewed", 0),
        ("sort=oldest", 2), ("rating=neutral", 1),
    ):  # fmt: skip
        with count_queries() as seen:
            found = soup(client.get(f"{URL}?{query}"))
        assert len(seen) <= 8, (query, [one[:70] for one in seen])
        assert len(found.select("tbody:not(.u-group) [data-row], .u-group > tr:first-child")) == lines, query
    flat = soup(client.get(f"{URL}?run={run.id}"))
    assert not flat.select(".u-group")
    assert len(flat.select("[data-row]")) == 3
    panel = words(
        soup(client.get(f"{URL}/{members[0]['id'].removeprefix('feedback-')}")).select_one("#feedback-detail")
    )
    assert "Run: deals · assistant v2" in panel


def test_a_group_is_decided_together_taken_back_and_decided_one_by_one(bench: Bench, client: FlaskClient) -> None:
    for asked in ASKED:
        bench.golden(asked, set_name="deals")
    mute(bench)
    bench.run(set_name="deals")

    def box() -> Any:
        return soup(client.get(URL)).select_one(".u-group input")

    for action, field in (("reviewed", "notes"), ("dismissed", "notes"), ("applied", "done")):
        answer = post(client, "/review", HTMX, action=action, ids=box()["value"], **{field: "Known since Monday"})
        assert statuses(bench) == {action: 3}
        assert f"{action.capitalize()} 3." in soup(answer).select_one(".u-toast").text
        if action != "reviewed":
            with bench.acting():
                notes = db.session.scalars(select(Feedback.review_notes)).all()
            assert set(notes) == {"Known since Monday"}
        assert len(soup(undo(client, answer)).select(".u-group")) == 1
        assert statuses(bench) == {"pending": 3}

    # Someone else decides one of them meanwhile; without a script the box of the group carries all ids.
    ids = box()["value"].split(",")
    with bench.acting():
        feedback_review.review([UUID(ids[0])], "applied", actor=bench.admin, notes="Fixed in v3")
    plain = post(client, "/review", action="dismissed", ids=",".join(ids), notes="Old", next=URL)
    assert plain.status_code == 303
    assert "Dismissed 2 of 3." in words(soup(client.get(URL)))
    assert statuses(bench) == {"applied": 1, "dismissed": 2}

    with bench.acting():
        feedback_review.review([UUID(one) for one in ids], "reopen", actor=bench.admin)
    answer = soup(post(client, f"/{ids[0]}/review", {**HTMX, "HX-Current-URL": URL}, action="reviewed"))
    run_id = bench.complaints()[0].eval_run_id
    parts = {part["hx-target"]: words(part) for part in answer.select("hx-partial")}
    assert parts[f"#failures-title-{run_id}"] == "deals v2: 2 goldens fail 2 rows"
    left = answer.select_one(f"#failures-box-{run_id} input")["value"].split(",")
    assert set(left) == set(ids[1:])
    post(client, f"/{ids[1]}/review", HTMX, action="dismissed")
    page = soup(client.get(f"{URL}?status=pending"))
    assert not page.select(".u-group"), "one row is no group"
    assert [row["id"] for row in page.select("[data-row]")] == [f"feedback-{ids[2]}"]


def test_a_large_group_shows_its_first_rows_and_is_decided_whole(
    bench: Bench, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in ASKED:
        bench.golden(asked, set_name="deals")
    mute(bench)
    run = bench.run(set_name="deals")
    monkeypatch.setattr(failures, "MAX_ROWS", 2)
    group = soup(client.get(URL)).select_one(".u-group")
    assert len(group.select("[data-row].u-member")) == 2
    assert len(group.select_one("input")["value"].split(",")) == 3
    assert group.find("a", string="Show all 3")["href"] == f"{URL}?run={run.id}&status=pending"


def test_groups_keep_their_place_over_pages(bench: Bench) -> None:
    for asked in ASKED:
        bench.golden(asked, set_name="deals")
    mute(bench)
    bench.run(set_name="deals")
    with bench.acting():
        for number in range(3):
            new = NewFeedback(source_type="session", rating="neutral", comment=f"Word {number}")
            record_feedback(new, actor=bench.admin)
    mute(bench, "Still.")
    bench.run(set_name="deals")

    def walk(**wanted: Any) -> list[list[Any]]:
        pages, cursor = [], None
        with bench.acting():
            while True:
                filters = FeedbackFilters(**wanted)
                found, groups = failures.list_folded(filters, Page(2, cursor), actor=bench.admin)
                assert found.count == len(lists.list_feedback(filters, Page(100), actor=bench.admin).items) == expected
                pages.append([groups[row.id].total if row.id in groups else row.comment for row in found.items])
                cursor = found.next_cursor
                if cursor is None:
                    return pages

    expected = 9
    newest = [[3, "Word 2"], ["Word 1", "Word 0"], [3]]
    assert walk() == newest
    assert walk(sort="oldest") == [[3, "Word 0"], ["Word 1", "Word 2"], [3]]
    expected = 6
    # A filter without an index looks at a window of rows.
    with bench.acting():
        found, groups = failures.list_folded(FeedbackFilters(kind="replay_failure"), Page(1), actor=bench.admin)
        assert (found.count, [group.total for group in groups.values()]) == (6, [3])
        found, _ = failures.list_folded(
            FeedbackFilters(kind="replay_failure"), Page(1, found.next_cursor), actor=bench.admin
        )
        assert len(found.items) == 1
        assert found.next_cursor is None
    assert walk(rating="negative") == [[3, 3]]


def test_a_row_belongs_to_the_newest_run_that_it_failed_in(bench: Bench, superuser_url: str) -> None:
    bench.golden(ASKED[0], set_name="deals")
    mute(bench)
    first, second = bench.run(set_name="deals"), bench.run(set_name="deals")
    [row] = bench.complaints()
    assert (row.eval_run_id, row.context["eval_run_id"]) == (second.id, str(second.id))
    with psycopg.connect(superuser_url) as connection:
        [by_sql] = connection.execute("SELECT eval_run_id FROM feedback WHERE id = %s", (row.id,)).fetchone() or [None]
    assert by_sql == second.id != first.id
