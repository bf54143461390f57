"""The frame, the two ways a view answers, error pages, and the macros that lists and forms are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from flask import Flask, g
from flask.testing import FlaskClient
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import InternalServerError

from app.db import acting_as, transaction
from app.models import SharedContext
from app.services.analytics import tab_counts
from app.views import format
from app.views.htmx import Toast, flashed_toasts, page, swap
from app.views.layout import errors
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


def macro(app: Flask, file: str, name: str, *args: Any, **kwargs: Any) -> BeautifulSoup:
    """What a macro gives, parsed."""
    html = getattr(app.jinja_env.get_template(f"macros/{file}.html").module, name)(*args, **kwargs)
    return BeautifulSoup(str(html), "html.parser")


# The frame ------------------------------------------------------------------------------------------------------------
def test_an_admin_sees_the_sections_that_exist(workspace: Workspace, sign_in: SignIn) -> None:
    html = soup(sign_in(workspace.actor("admin")).get("/keys"))

    titles = [link.get_text(" ", strip=True) for link in html.select(".u-nav a")]
    assert titles == ["Agent Review", "Agents", "Chat", "Entities", "Tasks", "Settings"]
    assert len(html.select("h1")) == 1
    assert html.select_one(".u-skip")["href"] == "#page"
    assert html.select_one("#toasts")["aria-live"] == "polite"


def test_a_member_sees_no_admin_section(workspace: Workspace, sign_in: SignIn) -> None:
    html = soup(sign_in(workspace.actor("member")).get("/keys"))

    assert [link.get_text(strip=True) for link in html.select(".u-nav a")] == ["Home", "Chat", "Entities", "Tasks"]
    assert not html.select(".u-tabs")


def test_every_form_of_the_frame_carries_the_token(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("admin"))
    html = soup(client.get("/keys"))

    forms = html.select("form[method=post]")
    assert forms
    assert {form.select_one("[name=csrf_token]")["value"] for form in forms} == {client.csrf}  # type: ignore[attr-defined]
    assert html.select_one("meta[name=csrf]")["content"] in html.body["hx-headers:inherited"]


def test_the_switcher_lists_the_persons_workspaces(workspace: Workspace, sign_in: SignIn) -> None:
    html = soup(sign_in(workspace.actor("admin")).get("/keys"))

    items = html.select("form[action='/workspace'] button")
    assert [item["aria-current"] for item in items] == ["true"]
    assert html.select_one("form[action='/workspace'] [name=workspace]")["value"] == str(workspace.id)


def test_tabs_say_what_is_waiting(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor):
        with transaction() as session:
            session.add(
                SharedContext(
                    tenant_id=workspace.id, type="lesson", content="Ask which one.", state="proposed", active=False
                )
            )
        found = tab_counts.count_tabs(actor=actor)
        assert found.items() >= {"feedback": 0, "knowledge": 1, "oldest": None, "mine": 0, "tasks": 0}.items()

    tabs = soup(sign_in(actor).get("/admin/agent-review/feedback")).select(".u-tabs a")
    assert [tab.get_text(" ", strip=True) for tab in tabs] == [
        "Conversations",
        "Sessions",
        "Feedback",
        "Knowledge 1 proposed",
        "Evals",
    ]
    assert [tab.get("aria-current") for tab in tabs] == [None, None, "page", None, None]


# Theme ----------------------------------------------------------------------------------------------------------------
def test_the_theme_is_kept_in_a_cookie(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("member"))
    sent = {"csrf_token": client.csrf, "theme": "dark", "next": "/keys?a=1"}  # type: ignore[attr-defined]

    answer = client.post("/theme", data=sent)

    assert (answer.status_code, answer.location) == (303, "/keys?a=1")
    assert soup(client.get("/keys")).html["data-bs-theme"] == "dark"
    assert client.post("/theme", data=sent, headers={"HX-Request": "true"}).status_code == 204


def test_the_theme_leads_to_no_other_site_and_takes_no_other_word(workspace: Workspace, sign_in: SignIn) -> None:
    client = sign_in(workspace.actor("member"))
    for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\r\nSet-Cookie: b"):
        sent = {"csrf_token": client.csrf, "theme": '"><script>', "next": wanted}  # type: ignore[attr-defined]
        answer = client.post("/theme", data=sent)
        assert answer.location == "/"
        assert answer.headers["Set-Cookie"].startswith("theme=auto;")


def test_only_our_own_forms_pass(workspace: Workspace, sign_in: SignIn) -> None:
    """Pages send no referrer, so a browser writes `Origin: null` for them; it counts only with the browser's word."""
    client = sign_in(workspace.actor("member"))
    token = client.csrf  # type: ignore[attr-defined]

    def status(csrf: str = token, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post("/theme", data={"csrf_token": csrf, "theme": "dark"}, headers=named).status_code

    assert status(Origin="null", Sec_Fetch_Site="same-origin") == 303
    assert status(Origin="http://localhost") == 303
    assert status(Origin="null") == 403
    assert status(Origin="null", Sec_Fetch_Site="none") == 403
    assert status(Origin="null", Sec_Fetch_Site="cross-site") == 403
    assert status(Origin="https://evil.example", Sec_Fetch_Site="same-origin") == 403
    assert status("wrong", Origin="null", Sec_Fetch_Site="same-origin") == 403


# The two answers ------------------------------------------------------------------------------------------------------
def test_a_page_or_its_fragment(app: Flask) -> None:
    partial = {"HX-Request": "true", "HX-Request-Type": "partial"}
    with app.test_request_context("/keys", headers=partial):
        part = page("layout/keys.html", "layout/_keys.html")
    with app.test_request_context("/keys", headers={"HX-Request": "true", "HX-Request-Type": "full"}):
        whole = page("layout/keys.html", "layout/_keys.html")

    assert part.get_data(as_text=True).lstrip().startswith('<div class="u-keys"')
    assert "<html" in whole.get_data(as_text=True)
    assert "HX-Request" in part.vary
    assert "HX-Request" in whole.vary


def test_an_action_gives_its_fragment_and_toasts(app: Flask) -> None:
    done = Toast("Marked as reviewed.", undo="/undo", fields=(("status", "pending"),))
    with app.test_request_context("/x", method="POST", headers={"HX-Request": "true"}):
        answer = swap("layout/_keys.html", fallback="/keys", status=409, toasts=[done])

    root, toasts = soup(answer).find_all("div", recursive=False)  # type: ignore[arg-type]
    assert answer.status_code == 409
    assert root["id"] == "keys-list"
    assert toasts["hx-swap-oob"] == "beforeend:#toasts"
    assert toasts.select_one("form")["action"] == "/undo"
    assert toasts.select_one("[name=status]")["value"] == "pending"


def test_without_htmx_an_action_redirects_and_says_it_there(app: Flask) -> None:
    done = Toast("Marked as reviewed.", undo="/undo", fields=(("status", "pending"),))
    with app.test_request_context("/x", method="POST"):
        answer = swap("layout/_keys.html", fallback="/keys", toasts=[done, "And this."])
        assert (answer.status_code, answer.location) == (303, "/keys")
        assert flashed_toasts() == [done, Toast("And this.")]


# What went wrong ------------------------------------------------------------------------------------------------------
def test_an_unknown_address_looks_like_the_product(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    inside = sign_in(workspace.actor("admin")).get("/nowhere/<b>")
    outside = app.test_client().get("/nowhere")

    assert inside.status_code == outside.status_code == 404
    html = soup(inside)
    assert html.select_one(".u-side")
    assert html.select_one("h1").text == "Page not found"
    assert "/nowhere/<b>" in html.main.text
    assert not soup(outside).select_one(".u-side")


def test_a_stranger_is_sent_to_the_sign_in_and_back(app: Flask) -> None:
    client = app.test_client()

    answer = client.get("/admin/agent-review/feedback?status=pending")
    part = client.get("/admin/agent-review/feedback", headers={"HX-Request": "true"})

    assert answer.status_code == 303
    assert "next=/admin/agent-review/feedback?status%3Dpending" in answer.location
    assert part.status_code == 401
    assert part.headers["HX-Redirect"].startswith("/")


def test_a_role_that_is_too_low_gets_an_explanation(workspace: Workspace, sign_in: SignIn) -> None:
    answer = sign_in(workspace.actor("member")).get("/admin/agent-review/feedback")

    assert answer.status_code == 403
    assert "You don’t have access" in soup(answer).h1.text
    assert "needs the role admin" in soup(answer).main.text


def test_the_database_is_down_and_the_page_does_not_ask_it(app: Flask, count_queries: Callable[[], Any]) -> None:
    with count_queries() as seen, app.test_request_context("/admin/agent-review/feedback"):
        g.request_id = "abc"
        answer = errors.database_down(OperationalError("select secret", {}, Exception("gone")))

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert soup(answer).h1.text == "The database isn’t responding"  # type: ignore[arg-type]
    assert "secret" not in answer.get_data(as_text=True)
    assert seen == []


def test_a_foreign_host_name_gets_one_sentence(app: Flask) -> None:
    answer = app.test_client().get("/keys", headers={"Host": "rebound.example"})

    assert answer.status_code == 400
    assert "UPSHOT_TRUSTED_HOSTS" in answer.text


def test_a_fault_of_ours_shows_its_number(app: Flask) -> None:
    with app.test_request_context("/x"):
        g.request_id = "7f3a9c21"
        answer = errors.broken(InternalServerError())

    assert answer.status_code == 500
    assert "7f3a9c21" in soup(answer).main.text  # type: ignore[arg-type]


def test_an_error_reaches_htmx_as_a_toast(app: Flask) -> None:
    with app.test_request_context("/x", headers={"HX-Request": "true"}):
        answer = errors.answer_with(Exception(), 409, "Someone was faster.")

    assert answer.headers["HX-Reswap"] == "none"
    assert soup(answer).select_one("[hx-swap-oob] .u-toast").get_text(strip=True).endswith("Someone was faster.")  # type: ignore[arg-type]


def test_every_status_has_words(app: Flask) -> None:
    for status in (400, 403, 404, 405, 409, 413, 415, 422, 429, 500, 502, 503):
        with app.test_request_context("/x"):
            answer = errors.answer_with(Exception(), status, frame=False)
        assert answer.status_code == status
        assert len(soup(answer).select("h1")) == 1  # type: ignore[arg-type]


# Macros ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def asked(app: Flask) -> Any:
    with app.test_request_context("/"):
        g.csrf = "token"
        yield app


def test_chips_take_one_filter_away_and_forms_carry_the_rest(asked: Flask) -> None:
    fields = [
        {"name": "status", "label": "status", "options": [("pending", "Pending")]},
        {"name": "rating", "label": "rating", "options": [("negative", "negative")]},
        {"name": "from", "label": "since", "type": "date"},
    ]
    args = {"q": 'a"b&c', "status": "pending", "rating": "negative", "after": "cursor"}

    html = macro(asked, "list", "filters", "/f", args, fields)

    assert [chip.a["href"] for chip in html.select(".u-chip")] == [
        "/f?q=a%22b%26c&rating=negative",
        "/f?q=a%22b%26c&status=pending",
    ]
    assert html.select_one(".u-chip").get_text(" ", strip=True) == "status Pending"
    assert html.select_one("#list-q")["value"] == 'a"b&c'
    menu = html.select_one(".u-filter-form")
    assert [field["name"] for field in menu.select("input, select")] == ["q", "status", "rating", "from"]


def test_the_pager_links_to_its_neighbours(asked: Flask) -> None:
    html = macro(asked, "list", "pager", "/f", {"q": "x", "before": "old"}, 50, newer=None, older="c1")

    assert [(link.text, link["href"]) for link in html.select("a")] == [("Older", "/f?q=x&after=c1")]
    assert html.select_one("[aria-disabled]").text == "Newer"


def test_the_first_wrong_field_gets_the_focus(asked: Flask) -> None:
    wrong = {"email": "Write an address.", "name": "Write a name."}

    email = macro(asked, "form", "field", "email", "E-mail", "<x>", wrong, hint="Yours").input
    name = macro(asked, "form", "field", "name", "Name", "", wrong).input
    password = macro(asked, "form", "field", "password", "Password", "secret", {}, type="password").input

    assert email.has_attr("autofocus")
    assert not name.has_attr("autofocus")
    assert email["value"] == "<x>"
    assert email["aria-describedby"] == "f-email-error f-email-hint"
    assert name["aria-invalid"] == "true"
    assert not password.has_attr("value")


def test_state_is_never_colour_alone(asked: Flask) -> None:
    for value in ("pending", "completed", "failed", "proposed", "never heard of"):
        assert len(macro(asked, "state", "status", value).get_text(strip=True)) > len(value)
    assert macro(asked, "state", "rating", "negative").text == "✗negative"


def test_a_tool_call_is_one_line_and_escaped(asked: Flask) -> None:
    html = macro(asked, "transcript", "tool", "search", {"q": "<script>", "limit": 10}, [1, 2], 340)

    assert html.find("script") is None
    assert html.summary.get_text(" ", strip=True) == 'search (q="<script>", limit=10) → 2 results 340 ms'


# Words ----------------------------------------------------------------------------------------------------------------
def test_times_read_in_one_unit() -> None:
    def said(**passed: int) -> tuple[str, str]:
        at = NOON - timedelta(**passed)
        return format.age(at, NOON), format.ago(at, NOON)

    assert said(seconds=20) == ("now", "just now")
    assert said(minutes=5) == ("5 min", "5 min ago")
    assert said(hours=3) == ("3 h", "3 h ago")
    assert said(days=2) == ("2 d", "2 d ago")
    assert said(days=70) == ("2 mo", "2 mo ago")
    assert said(days=800) == ("2 y", "2 y ago")
    assert said(hours=-3) == ("3 h", "in 3 h")
    assert format.exact(NOON) == "13 Nov 2026, 12:00:00 UTC"
    assert format.iso(NOON) == "2026-11-13T12:00:00.000Z"


def test_numbers_durations_and_names() -> None:
    assert format.FILTERS["number"](1204) == "1,204"
    assert [format.duration(ms) for ms in (340, 7900, 97_000, 7_500_000)] == [
        "340 ms",
        "7.9 s",
        "1 m 37 s",
        "2 h 5 m",
    ]
    names = ("Sam Okafor", "sam@acme.example", " ", "Ana", "a member")
    assert [format.initials(name) for name in names] == ["SO", "S", "?", "A", "?"]
    assert format.short_id("0190c0de-0000-7000-8000-0000deadbeef") == "deadbeef"


def test_tool_lines() -> None:
    assert format.args_line(None) == "()"
    assert format.args_line({"q": "a\nb", "n": None}) == '(q="a b", n=null)'
    assert format.result_line([]) == "empty"
    assert format.result_line({"deals": [1]}) == "1 result"
    assert format.result_line({"a": 1, "b": 2}) == "2 fields"
    assert format.result_line("x" * 200).endswith("…")
    assert format.query("/f", {"q": "x", "status": ""}, after=None) == "/f?q=x"


def test_the_system_is_followed_without_a_script(app: Flask) -> None:
    """The style sheet has the dark values twice: for a page that says dark, and for one that leaves it open."""
    css = (Path(app.static_folder or "") / "upshot.css").read_text()
    said = re.search(r'\n\[data-bs-theme="dark"\] \{\n(.*?)\n\}', css, re.DOTALL)
    left = re.search(
        r'@media \(prefers-color-scheme: dark\) \{\n\[data-theme="auto"\]:not\(\.has-js\) \{\n(.*?)\n\}', css, re.DOTALL
    )
    assert said is not None
    assert left is not None
    assert left.group(1) == said.group(1)


def test_a_normal_state_has_no_sign_of_an_error(app: Flask) -> None:
    """`!` is for what went wrong, and reviewed feedback did not."""
    with app.app_context():
        macros = app.jinja_env.get_template("macros/state.html").module
    signs = {name: glyph for name, (_, glyph) in macros.statuses.items()}
    assert {name for name, glyph in signs.items() if glyph == "!"} == {"errored"}
    for plain in (False, True):
        assert "!" not in macros.status("reviewed", plain=plain)
