"""The filter box: what people type becomes filters in the address; what may follow; the same as a plain form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as, transaction
from app.errors import Invalid
from app.services.feedback import intake as feedback_intake
from app.services.feedback.intake import NewFeedback
from app.services.feedback.lists import FeedbackFilters
from app.services.lists.phrases import parse_phrase
from app.services.sessions.lists import SessionFilters
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agent-review"
THURSDAY = date(2026, 11, 19)


def asked(answer: Any) -> dict[str, str]:
    """The query that an answer leads to."""
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.location).query).items()}


def rows(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [str(row["id"]) for row in soup(answer).select("[data-row]")]


def suggested(client: FlaskClient, tab: str, text: str) -> list[str]:
    answer = client.get(f"{BASE}/filters/{tab}/suggestions", query_string={"text": text})
    return [one["text"] for one in answer.json]


def test_a_phrase_names_filters_days_and_words(app: Flask, workspace: Workspace) -> None:
    fill(app, workspace)
    admin, member = workspace.actor(), workspace.actor("member")
    with app.app_context(), acting_as(admin):

        def parse(text: str, kind: Any = FeedbackFilters) -> dict[str, str]:
            return parse_phrase(kind, text, today=THURSDAY, actor=admin)

        assert parse("rating:negative agent:deal-analyst last 7 days EBITDA") == {
            "rating": "negative", "agent": "deal-analyst", "from": "7d", "to": "", "q": "EBITDA",
        }  # fmt: skip
        assert parse('-status:dismissed source:-chat "rating:negative" http://x') == {
            "status": "-dismissed", "source_type": "-chat", "q": '"rating:negative" http://x',
        }  # fmt: skip
        assert parse("Rating:NEG before 1 Nov late") == {"rating": "negative", "to": "2026-10-31", "q": "late"}
        assert parse(f'author:"{member.name}"') == {"author_id": str(member.id), "q": ""}
        assert parse("assignee:me environment:never-seen") == {
            "assignee": "me", "environment": "never-seen", "q": "",
        }  # fmt: skip
        assert parse("took longer:2.5 -golden:yes", SessionFilters) == {"longer": "2.5", "golden": "-yes", "q": "took"}
        for text in ("rating:purple", "agent:nobody-here", "author:Zorro", "version:x", "since:someday"):
            with pytest.raises(Invalid):
                parse(text)
        with pytest.raises(Invalid):
            parse("longer:-2", SessionFilters)


def test_the_box_leads_to_an_address_that_says_it_all(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    url, text = f"{BASE}/feedback", "rating:negative agent:deal-analyst last 7 days year"

    answer = client.get(url, query_string={"q": text, "status": "pending", "after": ""})
    assert answer.status_code == 303
    assert asked(answer) == {
        "q": "year", "status": "pending", "rating": "negative", "agent": "deal-analyst", "from": "7d",
    }  # fmt: skip
    page = client.get(answer.location)
    assert rows(page) == [f"feedback-{filled.ids['reaction']}"]
    chips = [" ".join(chip.text.split()) for chip in soup(page).select(".u-chip")]
    assert chips == ["status pending", "rating negative", "agent deal-analyst", "last 7 days"]

    htmx = {"HX-Request": "true", "HX-Request-Type": "partial"}
    part = client.get(url, query_string={"q": text, "status": "pending"}, headers=htmx)
    assert part.headers["HX-Push-Url"] == answer.location
    assert rows(part) == rows(page)
    assert soup(part).select_one("#list-q")["value"] == "year"


def test_what_the_box_cannot_read_stays_in_it_with_a_sentence(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor())
    answer = client.get(f"{BASE}/sessions", query_string={"q": "status:purple", "type": "chat"})
    page = soup(answer)
    field = page.select_one("#list-q")
    assert answer.status_code == 422
    assert field["value"] == "status:purple"
    assert "use one of pending, running" in page.find(id=field["aria-describedby"]).text
    assert [chip.a["href"] for chip in page.select(".u-chip")] == [f"{BASE}/sessions"]


def test_a_value_can_be_left_out(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    wanted = {
        "feedback": ["status", "rating", "agent", "source_type", "assignee", "kind"],
        "sessions": ["status", "agent", "type", "golden", "tag"],
        "conversations": ["agent", "project", "rating"],
        "knowledge": ["state", "type", "agent", "harmful"],
    }
    values = {
        "status": "pending", "rating": "negative", "agent": "deal-analyst", "source_type": "chat", "assignee": "nobody",
        "kind": "reaction", "type": "chat", "golden": "no", "tag": "ic-pack", "project": "default", "state": "active",
        "harmful": "no",
    }  # fmt: skip
    for tab, names in wanted.items():
        everything = set(rows(client.get(f"{BASE}/{tab}?{'view=all'}")))
        for name in names:
            value = values[name] if (tab, name) != ("knowledge", "type") else "correction"
            with_it = set(rows(client.get(f"{BASE}/{tab}?{name}={value}")))
            without = set(rows(client.get(f"{BASE}/{tab}?{name}=-{value}")))
            assert with_it.isdisjoint(without), (tab, name)
            assert with_it | without == everything, (tab, name)
    chip = soup(client.get(f"{BASE}/sessions?agent=-deal-analyst")).select_one(".u-chip")
    assert " ".join(chip.text.split()) == "agent not deal-analyst"


def test_relative_days_stay_relative(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        for days in (0, 3, 40):
            at = datetime.now(UTC) - timedelta(days=days)
            new = NewFeedback(
                source_type="session", rating="neutral", comment=f"{days} old", created_at=at, occurred_at=at
            )
            feedback_intake.record_feedback(new, actor=member)
    client = sign_in(workspace.actor())
    for query, number in (("from=7d", 2), ("from=today", 1), ("to=today-1", 2), ("from=30d&to=yesterday", 1)):
        assert len(rows(client.get(f"{BASE}/feedback?{query}"))) == number, query

    token = soup(client.get(f"{BASE}/feedback?from=7d")).select_one("meta[name=csrf]")["content"]
    saved = {"csrf_token": token, "tab": "feedback", "name": "Lately", "query": "from=7d&rating=-positive"}
    assert client.post(f"{BASE}/views", data=saved).location == f"{BASE}/feedback?from=7d&rating=-positive"


def test_suggestions_follow_what_was_typed(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client, member = sign_in(workspace.actor()), workspace.actor("member")

    assert suggested(client, "sessions", "kestrel ag")[0] == "kestrel agent:"
    assert suggested(client, "sessions", "agent:deal")[0] == "agent:deal-analyst "
    assert suggested(client, "sessions", "-agent:deal")[0] == "-agent:deal-analyst "
    assert suggested(client, "sessions", "tag:") == ["tag:ic-pack "]
    assert f'author:"{member.name}" ' in suggested(client, "feedback", "author:")
    assert suggested(client, "feedback", "rating:n") == ["rating:negative ", "rating:neutral "]
    assert suggested(client, "feedback", "x neg") == ["x rating:negative "]
    assert suggested(client, "feedback", "year last 14") == ["year last 14 days "]
    assert "since Monday " in suggested(client, "feedback", "since mo")
    assert suggested(client, "feedback", "year analyst") == ["year agent:deal-analyst "]
    assert f'-author:"{member.name}" ' in suggested(client, "feedback", f"-{member.name.split()[0].lower()}")
    assert suggested(client, "feedback", "EBITDA") == []
    assert suggested(client, "conversations", "agent:%") == []
    assert client.get(f"{BASE}/filters/nothing/suggestions?text=a").status_code == 404
    assert sign_in(member).get(f"{BASE}/filters/sessions/suggestions?text=a").status_code == 403


def test_suggestions_stay_in_the_workspace(
    app: Flask, make_workspace: Callable[..., Workspace], sign_in: SignIn
) -> None:
    ours, theirs = make_workspace("Ours"), make_workspace("Theirs")
    fill(app, theirs)
    client = sign_in(ours.actor())
    for text in ("agent:", "environment:", "tag:", "model:"):
        assert "deal-analyst" not in str(suggested(client, "sessions", text))
        assert "ic-pack" not in str(suggested(client, "sessions", text))
    names = str(suggested(client, "feedback", "author:"))
    assert theirs.actor("member").name not in names or ours.actor("member").name == theirs.actor("member").name


def test_all_filters_are_a_plain_form_too(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    for tab in ("conversations", "sessions", "feedback", "knowledge", "patterns"):
        listed = soup(client.get(f"{BASE}/{tab}?agent=deal-analyst&q=kestrel"))
        link = listed.select_one(".u-filters details a")["href"]
        form = soup(client.get(link)).select_one("form.u-filter-form")
        assert form["action"] == f"{BASE}/{tab}"
        assert form.select_one("[name=q]")["value"] == "kestrel"
        assert form.select_one("[name=agent] option[selected]")["value"] == "deal-analyst"
        sent = {str(field["name"]): "" for field in form.select("select, input")} | {"agent": "-deal-analyst"}
        assert client.get(form["action"], query_string=sent).status_code == 200


def test_values_in_cells_lead_to_the_rows_that_share_them(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    wanted = {
        "conversations": {"person_id", "agent", "rating"},
        "sessions": {"status", "agent", "type", "model", "rating"},
        "feedback": {"rating", "source_type", "agent", "author_id", "origin"},
    }
    for tab, names in wanted.items():
        followed = set()
        for row in soup(client.get(f"{BASE}/{tab}?view=all")).select("[data-row]"):
            for link in row.select("a[data-only]"):
                name, value = urlsplit(str(link["href"])).query.rpartition("&")[2].split("=")
                assert row["id"] in rows(client.get(str(link["href"]))), link
                assert row["id"] not in rows(client.get(f"{BASE}/{tab}?{name}=-{value}")), link
                followed.add(name)
        assert followed == names
    narrowed = soup(client.get(f"{BASE}/sessions?type=chat&q=kestrel&agent=deal-analyst"))
    links = {str(link["href"]) for link in narrowed.select("a[data-only]")}
    assert f"{BASE}/sessions?type=chat&q=kestrel&agent=deal-analyst" in links
    assert f"{BASE}/sessions?q=kestrel&agent=deal-analyst&type=chat" in links
