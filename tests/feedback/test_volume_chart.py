"""The volume strip: bars for what was said, the chosen days marked, a table that says the same, one query."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as
from app.server.run import count_once
from app.services.feedback import volume as feedback_volume
from app.services.feedback.volume import Day
from app.views.feedback import pages
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
FEEDBACK = "/admin/agent-review/feedback"
LAST = date(2026, 11, 13)


def volume(**said: tuple[int, int, int]) -> list[Day]:
    """Ninety days with something on some of them: d0 is the last one."""
    days = []
    for back in range(89, -1, -1):
        positive, negative, neutral = said.get(f"d{back}", (0, 0, 0))
        days.append(Day(LAST - timedelta(days=back), positive, negative, neutral))
    return days


def test_bars_stand_on_each_other() -> None:
    drawn = pages.draw_chart(volume(d0=(1, 2, 1), d89=(0, 1, 0)), None, None)

    paths = dict(drawn["paths"])
    assert paths["u-bneg"] == "M1 40.0v-9.0h8v9.0zM891 40.0v-18.0h8v18.0z"
    assert paths["u-bpos"] == "M891 22.0v-9.0h8v9.0z"
    assert paths["u-bneu"] == "M891 13.0v-9.0h8v9.0z"
    assert drawn["label"] == "Feedback per day over the last 90 days: a peak of 4 on 13 November, 4 today"
    assert (drawn["span"], drawn["width"], drawn["chosen"]) == ("16 Aug – 13 Nov", 900, None)


def test_the_days_of_the_address_are_marked() -> None:
    nothing = volume()
    assert pages.draw_chart(nothing, None, None)["label"].endswith(": none")
    for days, chosen in (
        (("2026-11-13", "2026-11-13"), (890, 10)),
        (("2026-11-10", None), (860, 40)),
        ((None, "2026-08-17"), (0, 20)),
        (("2020-01-01", "2099-01-01"), (0, 900)),
        (("2020-01-01", "2020-01-02"), None),
        (("2026-11-13", "2026-11-12"), None),
    ):
        since, until = (date.fromisoformat(day) if day else None for day in days)
        assert pages.draw_chart(nothing, since, until)["chosen"] == chosen, days


def test_the_page_shows_it_and_says_the_same_in_a_table(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    today = datetime.now(UTC).date()

    assert not soup(client.get(f"{FEEDBACK}?q=")).select("[style]")
    with count_queries() as seen:
        html = soup(client.get(f"{FEEDBACK}?q=ebitda&status=pending&from={today}&to={today}"))
    assert len(seen) <= 8, seen
    assert sum("feedback_daily" in statement for statement in seen) == 1
    shown = html.select_one("#strip")
    assert shown.svg["role"] == "img"
    assert "today" in shown.svg["aria-label"]
    assert len(shown.select("tbody tr")) == 90
    assert shown.select("tbody tr")[-1]["data-day"] in {str(today), str(today + timedelta(days=1))}
    counts = [int(cell.text) for cell in shown.select("tbody td")]
    with app.app_context(), acting_as(workspace.actor()):
        assert sum(counts) == sum(day.total for day in feedback_volume.volume(actor=workspace.actor())) > 0
    assert "visibility" not in shown.select_one("[data-range]").attrs
    kept = {field["name"]: field["value"] for field in shown.select("form input")}
    assert kept == {"q": "ebitda", "status": "pending", "from": str(today), "to": str(today)}


def test_an_empty_workspace_has_none(workspace: Workspace, sign_in: SignIn) -> None:
    assert not soup(sign_in(workspace.actor()).get(FEEDBACK)).select("#strip")


def test_the_server_counts_what_was_noted(app: Flask, workspace: Workspace) -> None:
    feedback_volume.take_stale()
    fill(app, workspace)
    actor = workspace.actor()
    with app.app_context():
        with acting_as(actor):
            before = feedback_volume.volume(actor=actor)
        count_once()
        with acting_as(actor):
            assert feedback_volume.volume(actor=actor) == before
        assert workspace.id not in feedback_volume.take_stale()
