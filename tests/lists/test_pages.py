"""What every list of Agent Review has: search, filters in the URL, counts, keyset pages, panels, two empty states,
few queries, and nothing for others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agent-review"
LISTS = ("conversations", "sessions", "feedback", "knowledge")
TABS = (*LISTS, "evals")
ALL_FILTERS = {
    "conversations": "q=kestrel&agent=deal-analyst&project=default&from=2020-01-01&to=2099-01-01",
    "sessions": "q=kestrel&status=completed&type=chat&agent=deal-analyst&environment=production&model=offline"
    "&tag=ic-pack&golden=no&replay=no&from=2020-01-01&to=2099-01-01",
    "feedback": "q=ebitda&status=pending&source_type=chat&rating=negative&origin=user&agent=deal-analyst"
    "&from=2020-01-01&to=2099-01-01",
    "knowledge": "q=ebitda&state=active&type=correction&from=2020-01-01&to=2099-01-01",
}


def test_agent_review_leads_to_its_queue(workspace: Workspace, sign_in: SignIn) -> None:
    answer = sign_in(workspace.actor()).get(BASE)

    assert answer.status_code == 303
    assert answer.location == f"{BASE}/feedback"


def test_where_conversations_used_to_be(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    for path in ("", f"/{uuid4()}", "/?agent=deal-analyst"):
        answer = client.get(f"/admin/conversations{path}")
        assert answer.status_code in {301, 308}
    assert client.get("/admin/conversations?agent=x").location == f"{BASE}/conversations?agent=x"
    assert client.get("/admin/conversations/abc").location == f"{BASE}/conversations/abc"


def test_an_empty_workspace_says_what_will_be_here_and_what_to_do(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    for tab in TABS:
        html = soup(client.get(f"{BASE}/{tab}"))
        assert len(html.select("h1")) == 1, tab
        assert len(html.select(".u-tabs a")) == len(TABS), tab
        assert html.select_one(".u-tabs [aria-current=page]").get_text(strip=True).lower().startswith(tab)
        blank = html.select_one(".u-blank")
        assert "yet" in blank.h2.text, tab
        target = blank.select_one("a.btn-primary")["href"]
        assert client.get(target).status_code == 200, target


def test_nothing_matches_is_another_text_with_a_way_out(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    for tab in LISTS:
        blank = soup(client.get(f"{BASE}/{tab}?q=zanzibar")).select_one(".u-blank")
        assert blank.h2.text == "No matches", tab
        assert blank.select_one("a")["href"] == f"{BASE}/{tab}"


def test_search_finds_by_words(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    for tab, words in (
        ("conversations", "bluefin"),
        ("sessions", "bluefin"),
        ("feedback", "year"),
        ("knowledge", "ebitda"),
    ):
        html = soup(client.get(f"{BASE}/{tab}?q={words}"))
        assert len(html.select("[data-row]")) == 1, tab
        assert html.select_one("#list-q")["value"] == words


def test_filters_are_chips_that_can_be_taken_off(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    for tab, query in ALL_FILTERS.items():
        html = soup(client.get(f"{BASE}/{tab}?{query}"))
        names = [pair.split("=")[0] for pair in query.split("&") if not pair.startswith("q=")]
        assert len(html.select(".u-chip")) == len(names), tab
        for chip in html.select(".u-chip [data-remove]"):
            assert chip["href"].count("&") == query.count("&") - 1
        assert html.select("[data-row]"), tab


def test_an_unknown_filter_is_refused_with_a_sentence(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())

    for tab in LISTS:
        for query in ("colour=red", "status=purple", "after=garbage", "from=someday", "q=%00"):
            answer = client.get(f"{BASE}/{tab}?{query}")
            assert answer.status_code == 400, (tab, query)
            assert soup(answer).select_one("h1")


def test_lists_need_at_most_eight_queries(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())

    for tab in LISTS:
        for query in ("", ALL_FILTERS[tab], "q=kestrel&from=2020-01-01" if tab != "knowledge" else "q=ebitda"):
            with count_queries() as seen:
                answer = client.get(f"{BASE}/{tab}?{query}")
            assert answer.status_code == 200
            assert len(seen) <= 8, (tab, query, seen)


def test_more_rows_need_no_more_queries(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    client = sign_in(workspace.actor())
    counted = []
    for rows in (2, 30):
        many(app, workspace, rows)
        with count_queries() as seen:
            client.get(f"{BASE}/feedback")
        counted.append(len(seen))
    assert counted[0] == counted[1]


def many(app: Flask, workspace: Workspace, number: int) -> None:
    member = workspace.actor("member")
    begin = datetime.now(UTC) - timedelta(days=2)
    with app.app_context(), acting_as(member), transaction():
        for index in range(number):
            new = NewFeedback(
                source_type="session",
                rating="neutral",
                comment=f"number {index}",
                created_at=begin + timedelta(minutes=index),
            )
            feedback_intake.record_feedback(new, actor=member)


def test_pages_are_steady_while_rows_arrive(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    many(app, workspace, 120)
    client = sign_in(workspace.actor())
    first = soup(client.get(f"{BASE}/feedback"))
    older = first.select_one(".u-pager a[rel=next]")["href"]
    assert not first.select(".u-pager a[rel=prev]")
    assert "120 rows" in first.select_one(".u-filters [role=status]").text

    many(app, workspace, 3)
    second = soup(client.get(older))
    third = soup(client.get(second.select_one(".u-pager a[rel=next]")["href"]))

    seen = [row["id"] for page in (first, second, third) for row in page.select("[data-row]")]
    assert len(seen) == len(set(seen))
    assert len(second.select("[data-row]")) == 50
    back = soup(client.get(second.select_one(".u-pager a[rel=prev]")["href"]))
    assert [row["id"] for row in back.select("[data-row]")] == [row["id"] for row in first.select("[data-row]")]


def test_htmx_gets_the_list_alone_and_the_row_as_a_panel(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    htmx = {"HX-Request": "true", "HX-Request-Type": "partial"}

    for tab in LISTS:
        part = soup(client.get(f"{BASE}/{tab}", headers=htmx))
        assert part.select_one("#list") is not None
        assert part.html is None
        href = part.select_one("[data-row]")["data-href"]
        panel = soup(client.get(f"{href}?panel=1", headers=htmx))
        assert panel.select_one("aside#panel") is not None, tab
        assert panel.html is None
        page = soup(client.get(href))
        assert page.html is not None
        assert len(page.select("h1")) == 1, tab


def test_what_others_wrote_never_becomes_markup(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    pages = [f"{BASE}/{tab}" for tab in TABS]
    pages += [f"{BASE}/conversations/{filled.chat}", f"{BASE}/sessions/{filled.session}"]
    pages += [f"{BASE}/feedback/{filled.ids['hostile']}"]

    for path in pages:
        html = soup(client.get(path))
        assert not html.select("script:not([src])"), path
        assert not html.select("[onerror], main img"), path


@pytest.mark.core
def test_another_workspace_is_as_unknown_as_nothing(
    app: Flask, make_workspace: Callable[..., Workspace], sign_in: SignIn
) -> None:
    filled = fill(app, make_workspace())
    client = sign_in(make_workspace("Other").actor())
    there = [
        ("conversations", filled.chat),
        ("sessions", filled.session),
        ("feedback", filled.ids["reaction"]),
        ("knowledge", filled.ids["correction"]),
        ("evals", filled.session),
    ]
    for tab, row in there:
        assert client.get(f"{BASE}/{tab}/{row}").status_code == 404
        assert client.get(f"{BASE}/{tab}/{uuid4()}").status_code == 404
        assert not soup(client.get(f"{BASE}/{tab}")).select("[data-row]")


def test_members_are_kept_out_of_every_tab(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("member"))

    for tab in LISTS:
        assert client.get(f"{BASE}/{tab}").status_code == 403
        assert client.get(f"{BASE}/{tab}/{uuid4()}").status_code == 403
