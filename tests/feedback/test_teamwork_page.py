"""The desk over HTTP: handing rows over, comments, assessments, several rows at once, and authors that stay hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.feedback import lists as feedback_lists
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback, record_feedback
from app.services.workspaces import store as workspace_store
from tests.conftest import Workspace, soup
from tests.lists.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/feedback"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}


def post(client: Any, path: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    return client.post(f"{URL}{path}", data={"csrf_token": client.csrf, **form}, headers=headers)


def undo(client: Any, answer: Any) -> Any:
    """Press the button of the toast."""
    form = soup(answer).select_one("[data-undo]")
    fields: dict[str, list[str]] = {}
    for field in form.select("input"):
        fields.setdefault(field["name"], []).append(field["value"])
    return client.post(form["action"], data=fields, headers=HTMX)


def row(app: Flask, workspace: Workspace, row_id: UUID) -> Any:
    with app.app_context(), acting_as(workspace.actor()):
        columns = (Feedback.status, Feedback.assignee_id, Feedback.details, Feedback.error_categories)
        return db.session.execute(select(*columns).where(Feedback.id == row_id)).one()


def text_of(found: Any) -> str:
    return " ".join(found.get_text(" ").split())


def test_a_row_is_taken_given_and_given_back(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row_id = fill(app, workspace).ids["reaction"]
    admin, owner = workspace.actor("admin"), workspace.actor("owner")
    client = sign_in(admin)

    taken = post(client, f"/{row_id}/assign", HTMX, assignee="me")
    parts = soup(taken)
    assert row(app, workspace, row_id).assignee_id == admin.id
    targets = [part["hx-target"] for part in parts.select("hx-partial")]
    assert targets[:4] == [f"#desk-{row_id}", f"#feedback-{row_id}", f"#became-{row_id}", "#feedback-waiting"]
    assert "Unassign me" in parts.select_one(f"#desk-{row_id}").text
    assert f"Assigned to {admin.name}" in text_of(parts.select_one(f"#became-{row_id}"))
    queue = parts.select_one("#feedback-waiting").find("a", string="1 assigned to you")["href"]
    assert [found["id"] for found in soup(client.get(queue)).select("[data-row]")] == [f"feedback-{row_id}"]

    given = post(client, f"/{row_id}/assign", HTMX, assignee=str(owner.id))
    assert row(app, workspace, row_id).assignee_id == owner.id
    assert f"Assigned to {owner.name}" in soup(given).select_one(".u-toast").text
    assert undo(client, given).status_code == 200
    assert row(app, workspace, row_id).assignee_id == admin.id
    plain = post(client, f"/{row_id}/assign", assignee="")
    assert (plain.status_code, plain.location) == (303, f"{URL}/{row_id}")
    assert row(app, workspace, row_id).assignee_id is None
    for wrong in ("x", str(workspace.actor("member").id), str(uuid4())):
        assert post(client, f"/{row_id}/assign", assignee=wrong).status_code == 400
    assert post(client, f"/{uuid4()}/assign", assignee="me").status_code == 404


def test_several_rows_are_reassigned_and_go_back_on_undo(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    rows = [filled.ids[name] for name in ("reaction", "edit", "hostile")]
    admin, owner = workspace.actor("admin"), workspace.actor("owner")
    client = sign_in(admin)
    post(client, f"/{rows[0]}/assign", HTMX, assignee=str(owner.id))

    taken = post(client, "/review", HTMX, action="take", ids=rows, next=f"{URL}?status=pending")
    assert {row(app, workspace, one).assignee_id for one in rows} == {admin.id}
    assert "Assigned 3." in soup(taken).select_one(".u-toast").text
    assert len(soup(undo(client, taken)).select("#list [data-row]")) == 4
    assert [row(app, workspace, one).assignee_id for one in rows] == [owner.id, None, None]
    post(client, "/review", action="assign", assignee=str(owner.id), ids=rows)
    assert {row(app, workspace, one).assignee_id for one in rows} == {owner.id}
    assert post(client, "/review", action="take").status_code == 400
    assert post(client, "/review", action="return", before="x:y").status_code == 400


def test_undo_takes_back_only_what_was_done(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    first, second = filled.ids["reaction"], filled.ids["edit"]
    client = sign_in(workspace.actor())
    post(client, f"/{first}/review", HTMX, action="dismissed", notes="Long ago")

    answer = post(client, "/review", HTMX, action="dismissed", notes="Known", ids=[first, second], next=URL)
    assert "Dismissed 1 of 2." in soup(answer).select_one(".u-toast").text
    undo(client, answer)
    assert [row(app, workspace, one).status for one in (first, second)] == ["dismissed", "pending"]


def test_a_cookie_never_holds_more_than_it_can(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        rows = [
            record_feedback(NewFeedback(source_type="session", rating="neutral"), actor=admin).id for _ in range(60)
        ]
    answer = post(sign_in(admin), "/review", action="reviewed", ids=rows, next=URL)
    assert answer.status_code == 303
    assert all(len(value) < 4000 for name, value in answer.headers if name == "Set-Cookie")


def test_admins_comment_and_take_their_words_back(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row_id = fill(app, workspace).ids["reaction"]
    admin, owner = sign_in(workspace.actor()), sign_in(workspace.actor("owner"))

    said = post(admin, f"/{row_id}/comments", HTMX, body="Is this <b>the old</b> model?")
    assert "Is this <b>the old</b> model?" in soup(said).select_one(".u-talk li").text
    theirs = soup(owner.get(f"{URL}/{row_id}"))
    assert "the old" in theirs.select_one(".u-talk li").text
    assert not theirs.select(".u-talk li form")
    path = soup(said).select_one(".u-talk li form")["action"].removeprefix(URL)
    assert post(owner, path).status_code == 404
    deleted = post(admin, path, HTMX)
    assert not soup(deleted).select(".u-talk li")
    assert len(soup(undo(admin, deleted)).select(".u-talk li")) == 1

    refused = post(admin, f"/{row_id}/comments", HTMX, body="x" * 4097)
    assert refused.status_code == 422
    assert soup(refused).select_one(".u-talk textarea[aria-invalid=true]") is not None
    assert post(admin, f"/{uuid4()}/comments", body="Hello").status_code == 404
    member = sign_in(workspace.actor("member"))
    for path in ("comments", "assign", "assessment"):
        assert post(member, f"/{row_id}/{path}", body="x").status_code == 403


def test_an_answer_is_assessed(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    row_id = fill(app, workspace).ids["edit"]
    client = sign_in(workspace.actor())
    form = {
        "accuracy": "40", "completeness": "", "style_match": "100", "verdict": "changes_requested",
        "issues": ["hallucination", "style_issue"], "error_categories": ["wrong_context"],
    }  # fmt: skip

    saved = post(client, f"/{row_id}/assessment", HTMX, **form)
    found = row(app, workspace, row_id)
    assert found.details["assessment"]["quality_scores"] == {"accuracy": 40, "style_match": 100}
    assert found.details["preferred_answer"]
    assert found.error_categories == ["wrong_context"]
    facts = text_of(soup(saved).select_one(f"#assessment-{row_id} .u-facts"))
    assert facts == (
        "Verdict changes requested Accuracy 40 of 100 Style match 100 of 100"
        " Issues hallucination, style issue Causes wrong context"
    )
    assert "wrong context" in text_of(soup(saved).select_one(f"#tags-{row_id}"))
    again = post(client, f"/{row_id}/assessment", HTMX, accuracy="55")
    undo(client, again)
    assert row(app, workspace, row_id).details["assessment"]["output_review"]["verdict"] == "changes_requested"

    for wrong in ({"accuracy": "101"}, {"accuracy": "-1"}, {"accuracy": "much"}):
        refused = post(client, f"/{row_id}/assessment", HTMX, **wrong)
        assert refused.status_code == 422
        assert soup(refused).select_one("input[name=accuracy][aria-invalid=true]")["value"] == wrong["accuracy"]
    assert post(client, f"/{row_id}/assessment", verdict="perhaps").status_code == 303
    assert row(app, workspace, row_id).details["assessment"]["quality_scores"] == {"accuracy": 40, "style_match": 100}
    assert post(client, f"/{uuid4()}/assessment", accuracy="1").status_code == 404


def test_every_filter_is_a_chip_and_the_queries_stay_few(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    filled = fill(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        teamwork.assign([filled.ids["reaction"]], admin.id, actor=admin)
    client = sign_in(admin)
    asked = {
        "q": "ebitda", "status": "pending", "source_type": "chat", "rating": "negative", "origin": "user",
        "kind": "reaction", "agent": "deal-analyst", "version": "1", "environment": "production", "model": "offline",
        "tag": "ic-pack", "assignee": "me", "from": "2020-01-01", "to": "2099-01-01",
        "author_id": str(workspace.actor("member").id),
    }  # fmt: skip
    with count_queries() as seen:
        html = soup(client.get(URL, query_string=asked))
    assert len(seen) <= 8, seen
    assert [found["id"] for found in html.select("[data-row]")] == [f"feedback-{filled.ids['reaction']}"]
    chips = [text_of(chip) for chip in html.select(".u-chip")]
    assert len(chips) == len(asked) - 1
    assert "assignee me" in chips
    assert f"from {workspace.actor('member').name}" in chips
    for name, value in (("signal", "unsafe"), ("error_category", "other"), ("session_id", str(uuid4()))):
        assert len(soup(client.get(URL, query_string={name: value})).select(".u-chip a")) == 1
    assert client.get(f"{URL}?assignee=everyone").status_code == 400


def test_what_it_is_linked_to_and_what_is_like_it(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        new = NewFeedback(
            source_type="session", rating="negative", session_id=filled.session, comment="EBITDA of last year, again!"
        )
        alike = record_feedback(new, actor=member).id
    page = soup(sign_in(workspace.actor()).get(f"{URL}/{filled.ids['reaction']}"))
    links = {link["href"] for link in page.select("main a[href]")}
    assert f"{URL}/{alike}" in links
    assert f"/admin/agent-review/knowledge/{filled.ids['proposed']}" in links
    assert any(link.startswith(f"/admin/agent-review/conversations/{filled.chat}") for link in links)


def test_a_hidden_author_is_nowhere_on_the_tab(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    owner, member, other = (workspace.actor(role) for role in ("owner", "member", "other"))
    with app.app_context():
        with acting_as(owner), transaction():
            workspace_store.change_settings({"author_private": True}, actor=owner)
        with acting_as(member), transaction():
            again = NewFeedback(
                source_type="chat", kind="reaction", rating="neutral", comment="Never mind", turn_id="t1",
                context={"chat_id": str(filled.chat), "message_index": 1},
            )  # fmt: skip
            assert record_feedback(again, actor=member).id == filled.ids["reaction"]
    client = sign_in(workspace.actor())
    post(client, f"/{filled.ids['reaction']}/comments", body="Whoever said it is right")
    post(client, f"/{filled.ids['reaction']}/assign", assignee="me")
    row_path = f"{URL}/{filled.ids['reaction']}"
    paths = [URL, f"{URL}?q=mind", f"{URL}?author_id={member.id}", row_path, f"{URL}/{filled.ids['edit']}"]
    paths += [f"{URL}?assignee=me"]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, path
        main = str(soup(answer).select_one("main"))
        for person in (member, other):
            assert person.name not in main, (path, person.name)
    chip = soup(client.get(f"{URL}?author_id={member.id}"))
    assert "from a member" in [text_of(found) for found in chip.select(".u-chip")]
    assert not chip.select("[data-row]")
    said = soup(client.get("/admin/settings/audit")).select("tr:has([title^='feedback.c'])")
    assert len(said) >= 4
    assert {member.name, other.name}.isdisjoint(text_of(line.td) for line in said)
    with app.app_context(), acting_as(workspace.actor()):
        assert feedback_lists.get_feedback(filled.ids["reaction"], actor=workspace.actor()).author == "a member"
