"""Feedback: what was said, the moment it is about, deciding about one row and about many."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import func, select

from app.db import acting_as, db
from app.models import AuditEntry, Feedback
from app.text.diff import MAX_WORDS, word_diff
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/feedback"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def post(client: Any, path: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    return client.post(path, data={"csrf_token": client.csrf, **form}, headers=headers)


def status_of(app: Flask, workspace: Workspace, row_id: Any) -> tuple[str, str | None]:
    with app.app_context(), acting_as(workspace.actor()):
        return tuple(
            db.session.execute(select(Feedback.status, Feedback.review_notes).where(Feedback.id == row_id)).one()
        )  # type: ignore[return-value]


def test_rows_name_author_comment_and_agent(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    html = soup(sign_in(workspace.actor()).get(URL))

    said = html.select_one(f"#feedback-{filled.ids['reaction']}").get_text(" ", strip=True)
    assert "“Used last year's EBITDA again”" in said
    assert "deal-analyst v1" in said
    assert "Member" in said
    edited = html.select_one(f"#feedback-{filled.ids['edit']}").get_text(" ", strip=True)
    assert "rewrote the answer" in edited
    assert "% changed" in edited
    assert "failed: searchAccounts timed out" in html.text
    assert re.match(r"4 pending, oldest \d+ minutes?\. ", html.select_one("#feedback-waiting").text)


def test_the_panel_shows_the_moment_first(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    panel = soup(sign_in(workspace.actor()).get(f"{URL}/{filled.ids['edit']}?panel=1", headers=HTMX))

    titles = [h3.find(string=True).strip() for h3 in panel.select("section > h3")]
    assert titles == [
        "Context", "Member’s edit", "Knowledge in the prompt", "Assessment", "Outcome", "Comments",
    ]  # fmt: skip
    target = panel.select_one(".u-turn.is-target")
    assert "11.2×" in target.text
    assert target.select_one("details.u-tool:not([open])") is not None
    assert panel.select_one(".u-edit ins").text == "9.6× LTM"
    assert panel.select_one(".u-links a")["href"].endswith(str(filled.ids["correction"]))
    assert "turn 1 of 1" in panel.text


def test_a_failed_session_shows_where_it_failed(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    fill(app, workspace)
    client = sign_in(workspace.actor())
    row = soup(client.get(f"{URL}?source_type=session")).select_one("[data-row]")
    page = soup(client.get(row["data-href"]))

    assert "Recorded by Upshot" in page.text
    assert "Waiting for a decision" in page.text


def test_reading_feedback_of_others_is_audited(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    client.get(f"{URL}/{filled.ids['reaction']}")
    client.get(URL)

    with app.app_context(), acting_as(workspace.actor()):
        read = select(func.count()).where(AuditEntry.action == "feedback.read")
        assert db.session.scalar(read) == 1


def test_deciding_works_without_a_script(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    row = filled.ids["reaction"]
    client = sign_in(workspace.actor())

    for action, after in (("reviewed", "reviewed"), ("applied", "applied"), ("reopen", "pending")):
        answer = post(client, f"{URL}/{row}/review", action=action)
        assert answer.status_code == 303
        assert answer.location == f"{URL}/{row}"
        assert status_of(app, workspace, row)[0] == after
    page = soup(client.get(f"{URL}/{row}"))
    assert "Reopened" in page.select_one("#toasts").text
    became = page.select_one(".u-became").text
    assert "Applied" in became
    assert "Waiting for a decision" in became


def test_a_dismissal_keeps_its_note_and_can_be_undone(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    row = filled.ids["reaction"]
    client = sign_in(workspace.actor())

    parts = soup(post(client, f"{URL}/{row}/review", HTMX, action="dismissed", notes="Known"))
    assert status_of(app, workspace, row) == ("dismissed", "Known")
    targets = [part["hx-target"] for part in parts.select("hx-partial")]
    assert targets == [
        f"#panel:has([data-feedback='{row}'])",
        f"#feedback-{row}",
        "#feedback-waiting",
        "#count-feedback",
        "#count-knowledge",
        "#count-evals",
        "#count-side",
    ]
    undo = parts.select_one("[data-undo]")
    fields = {field["name"]: field["value"] for field in undo.select("input")}
    assert client.post(undo["action"], data=fields, headers=HTMX).status_code == 200
    assert status_of(app, workspace, row) == ("pending", None)


def test_of_two_who_decide_one_is_refused(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["reaction"]
    client = sign_in(workspace.actor())
    post(client, f"{URL}/{row}/review", action="dismissed", notes="First")

    answer = post(client, f"{URL}/{row}/review", HTMX, action="reviewed")
    assert answer.status_code == 409
    assert "Reopen it before" in soup(answer).text
    assert status_of(app, workspace, row) == ("dismissed", "First")


def test_an_unknown_action_and_a_long_note_are_refused(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row = fill(app, workspace).ids["reaction"]
    client = sign_in(workspace.actor())

    assert post(client, f"{URL}/{row}/review", action="explode").status_code == 400
    assert post(client, f"{URL}/{row}/review", action="dismissed", notes="x" * 5000).status_code == 400
    assert client.post(f"{URL}/{row}/review", data={"action": "reviewed"}).status_code == 403
    assert status_of(app, workspace, row)[0] == "pending"


def test_several_rows_with_one_note(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    rows = [filled.ids[name] for name in ("reaction", "edit", "hostile")]
    client = sign_in(workspace.actor())
    back = f"{URL}?status=pending"

    answer = post(client, f"{URL}/review", HTMX, action="dismissed", notes="All known", ids=rows, next=back)
    parts = soup(answer)
    assert {status_of(app, workspace, row) for row in rows} == {("dismissed", "All known")}
    assert len(parts.select("#list [data-row]")) == 1
    assert "Dismissed 3." in parts.select_one(".u-toast").text
    undo = parts.select_one("[data-undo]")
    fields = {field["name"]: field["value"] for field in undo.select("input")}
    again = soup(client.post(undo["action"], data=fields, headers=HTMX))
    assert len(again.select("#list [data-row]")) == 4
    assert {status_of(app, workspace, row)[0] for row in rows} == {"pending"}


def test_several_rows_without_a_script(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    rows = [filled.ids["reaction"], filled.ids["edit"]]

    answer = post(client, f"{URL}/review", action="reviewed", ids=rows, next=f"{URL}?rating=negative")
    assert answer.status_code == 303
    assert answer.location == f"{URL}?rating=negative"
    elsewhere = post(client, f"{URL}/review", action="reopen", ids=rows, next="//evil.example/x")
    assert elsewhere.location == URL


def test_too_many_rows_and_no_rows_are_refused(workspace: Workspace, sign_in: SignIn) -> None:
    from uuid import uuid4

    client = sign_in(workspace.actor())
    assert post(client, f"{URL}/review", action="reviewed", ids=[uuid4() for _ in range(201)]).status_code == 400
    assert post(client, f"{URL}/review", action="reviewed").status_code == 400
    assert post(client, f"{URL}/review", action="reviewed", ids=["x"]).status_code == 400


def test_hidden_authors_stay_hidden(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    from app.db import transaction
    from app.services.workspaces import store as workspace_store

    filled = fill(app, workspace)
    owner = workspace.actor("owner")
    with app.app_context(), acting_as(owner), transaction():
        workspace_store.change_settings({"author_private": True}, actor=owner)
    client = sign_in(workspace.actor())
    name = workspace.actor("member").name

    row = soup(client.get(URL)).select_one(f"#feedback-{filled.ids['reaction']}")
    assert "a member" in row.text
    assert name not in str(row)
    panel = soup(client.get(f"{URL}/{filled.ids['reaction']}?panel=1", headers=HTMX))
    assert "by a member" in " ".join(panel.select_one(".u-became").text.split())
    assert name not in str(panel.select_one(".u-became"))


def test_words_that_changed() -> None:
    assert word_diff("a b c", "a x c") == [("same", "a"), ("gone", "b"), ("new", "x"), ("same", "c")]
    assert word_diff("", "") == []
    assert word_diff("same", "same") == [("same", "same")]
    assert word_diff("a", "") == [("gone", "a")]
    long = "w " * (MAX_WORDS + 1)
    assert [kind for kind, _ in word_diff(long, "short")] == ["gone", "new"]
