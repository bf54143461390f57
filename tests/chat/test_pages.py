"""A member's conversations: own ones only, a say about every answer, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import intake as feedback_intake
from app.services.feedback import review as feedback_review
from app.services.feedback.intake import NewFeedback
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.proposals import propose_retirement
from app.services.knowledge.rows import NewRow
from app.services.sessions import store as session_store
from app.services.sessions.store import NewSession
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
ANSWER = "Kestrel trades at 11.2 times last year's EBITDA."


class Talk:
    """One conversation of a member's, and the member at a browser."""

    def __init__(self, app: Flask, workspace: Workspace, client: FlaskClient, chat_id: UUID, message_id: UUID) -> None:
        self.app = app
        self.workspace = workspace
        self.client = client
        self.id = chat_id
        self.message_id = message_id

    def post(self, what: str, *, index: int = 1, htmx: bool = False, **form: Any) -> Any:
        data = {"csrf_token": self.client.csrf, **form}  # type: ignore[attr-defined]
        return self.client.post(f"/chat/{self.id}/messages/{index}/{what}", data=data, headers=HTMX if htmx else {})

    def thumb(self, signal: str, do: str = "give", **more: Any) -> Any:
        return self.post("thumb", signal=signal, do=do, **more)

    def rows(self) -> dict[str, Any]:
        """What is stored, by signal."""
        admin = self.workspace.actor("admin")
        columns = (Feedback.id, Feedback.signal, Feedback.comment, Feedback.details, Feedback.message_id)
        with self.app.app_context(), acting_as(admin), transaction():
            rows = db.session.execute(select(*columns).where(Feedback.tenant_id == admin.tenant_id))
            return {row.signal: row for row in rows}

    def page(self, query: str = "") -> Any:
        return soup(self.client.get(f"/chat/{self.id}{query}"))


def begin(app: Flask, actor: Any, *, external: str | None = None) -> tuple[UUID, UUID]:
    with app.app_context(), acting_as(actor), transaction():
        chat = chat_store.create_chat(
            actor=actor, agent_slug="deal-analyst", title="What does Kestrel trade at?", external_id=external
        )
        messages = chat_store.append_messages(
            chat.id,
            [
                NewMessage(role="user", content="What does Kestrel trade at?"),
                NewMessage(role="agent", content=ANSWER, external_id=f"ext-{chat.id}"),
            ],
            actor=actor,
        )
        return chat.id, messages[1].id


@pytest.fixture
def talk(app: Flask, workspace: Workspace, sign_in: SignIn) -> Talk:
    member = workspace.actor("member")
    return Talk(app, workspace, sign_in(member), *begin(app, member))


def test_a_thumb_is_given_taken_back_and_replaced_by_the_other(talk: Talk) -> None:
    assert talk.thumb("helpful").status_code == 303
    assert set(talk.rows()) == {"helpful"}
    assert talk.page().select_one("#helpful-m-1")["aria-pressed"] == "true"

    talk.thumb("helpful")
    assert set(talk.rows()) == {"helpful"}, "the same form sent twice is one thumb"
    answer = talk.thumb("not_helpful")
    assert answer.location.endswith(f"/chat/{talk.id}?why=1#m-1")
    assert set(talk.rows()) == {"not_helpful"}

    talk.thumb("not_helpful", do="retract")
    assert talk.rows() == {}
    talk.thumb("not_helpful", do="retract")
    assert talk.page().select_one("#not_helpful-m-1")["aria-pressed"] == "false"


def test_reasons_and_what_was_missing(talk: Talk) -> None:
    talk.thumb("not_helpful")
    form = talk.page("?why=1").select_one("form[aria-label='What was wrong']")
    assert len(form.select("input[name=reasons]")) == 8

    talk.post("why", reasons=["inaccurate", "wrong_context"], comment="Last\r\nyear again", missing="The LTM figures")
    rows = talk.rows()
    assert set(rows) == {"not_helpful", "inaccurate"}
    assert rows["not_helpful"].comment == "Last\nyear again"
    assert rows["not_helpful"].details == {"error_categories": ["wrong_context"], "missing_context": "The LTM figures"}
    assert rows["not_helpful"].message_id == str(talk.message_id)
    assert (rows["inaccurate"].comment, rows["inaccurate"].details) == (None, {})

    again = talk.page("?why=1")
    ticked = {box["value"] for box in again.select("input[name=reasons][checked]")}
    assert ticked == {"inaccurate", "wrong_context"}
    talk.post("why", reasons=["unsafe"], comment="", missing="")
    assert set(talk.rows()) == {"not_helpful", "unsafe"}
    talk.thumb("helpful")
    assert set(talk.rows()) == {"helpful"}


def test_what_does_not_fit_is_refused_and_kept_in_the_form(talk: Talk) -> None:
    wrong = talk.post("why", reasons=["nonsense"], comment="kept", missing="", htmx=True)
    assert wrong.status_code == 422
    assert "kept" in wrong.text
    assert talk.post("why", reasons=[], comment="x" * 4097, missing="").status_code == 422
    assert talk.post("edit", text=" ").status_code == 422
    assert talk.post("edit", text=ANSWER + "\r\n").status_code == 422
    long = talk.post("edit", text="x" * 20_001, htmx=True)
    assert long.status_code == 422
    assert soup(long).select_one("textarea[name=text][aria-invalid=true]")
    assert talk.thumb("unsafe").status_code == 400
    assert talk.thumb("helpful", index=0).status_code == 404, "the person's own words are no answer"
    assert talk.thumb("helpful", index=7).status_code == 404
    assert talk.thumb("helpful", index=10**30).status_code == 404
    assert talk.post("why", comment="a\x00b", missing="\x00").status_code == 400
    talk.thumb("not_helpful", do="retract")
    assert talk.rows() == {}


def test_an_edit_keeps_the_answer_that_was_wanted(talk: Talk) -> None:
    box = talk.page("?edit=1").select_one("textarea[name=text]")
    assert box.text.strip() == ANSWER

    answer = talk.post("edit", text=ANSWER.replace("last year's", "LTM"), htmx=True)
    part = soup(answer)
    assert part.select_one(".u-edit del").text == "last year's"
    assert part.select_one(".u-edit ins").text == "LTM"
    row = talk.rows()["edit"]
    assert row.details["preferred_answer"] == "Kestrel trades at 11.2 times LTM EBITDA."
    assert row.comment == row.details["preferred_answer"], "the replacement text is the reason"
    changed = row.details["output_review"]["edit_distance"]
    assert 0 < changed < 50
    assert f"{changed}% changed" in part.text

    talk.post("edit", text="Ask the model again.")
    assert len(talk.rows()) == 1
    undo = part.select_one("[data-undo]")
    fields = {field["name"]: field["value"] for field in undo.select("input")}
    talk.client.post(undo["action"], data=fields)
    assert talk.rows() == {}


def test_htmx_gets_the_say_about_one_answer(talk: Talk) -> None:
    answer = soup(talk.thumb("not_helpful", htmx=True))
    block = answer.select_one("#received-m-1")
    assert block.select_one("#not_helpful-m-1")["aria-pressed"] == "true"
    assert block.select_one("input[name=do][value=retract]")
    assert block.select_one("form[aria-label='What was wrong']")
    assert answer.select_one("#spoken").text.startswith("Marked as not helpful")
    closed = soup(talk.client.get(f"/chat/{talk.id}?closed=1", headers=HTMX))
    assert not closed.select("form[aria-label='What was wrong']")
    assert closed.html is None
    panel = soup(talk.client.get(f"/chat/{talk.id}?panel=1", headers=HTMX))
    assert panel.select_one("aside#panel #received-m-1")


def test_the_outcome_is_shown_beside_the_feedback(talk: Talk) -> None:
    admin = talk.workspace.actor("admin")
    talk.post("why", reasons=["hallucination"], comment="Invented", missing="")
    row = talk.rows()["not_helpful"].id
    page = talk.page()
    assert "pending" in page.select_one(".u-own").text
    assert "Made something up" in page.select_one(".u-own").text

    with talk.app.app_context(), acting_as(admin), transaction():
        feedback_review.review([row], "dismissed", actor=admin, notes="The figure is right")
    assert "No change: The figure is right" in talk.page().select_one(".u-own").text
    mine = soup(talk.client.get("/feedback/mine"))
    assert "The figure is right" in mine.select_one(f"#feedback-{row}").text
    assert mine.select_one(f"#feedback-{row} a")["href"] == f"/chat/{talk.id}?at=1#m-1"

    with talk.app.app_context(), acting_as(admin), transaction():
        feedback_review.review([row], "reopen", actor=admin)
        rule = knowledge_rows.add_row(
            NewRow(type="correction", content="Use LTM EBITDA.", feedback_ids=[row]), actor=admin
        )
        outcome = {"kind": "knowledge", "id": str(rule.id), "text": rule.content}
        feedback_review.review([row], "applied", actor=admin, outcome=outcome)
    assert "Led to a change. Agents now get this rule: Use LTM EBITDA." in talk.page().select_one(".u-own").text
    assert not talk.page().select(".u-own a"), "a member cannot open the rule"

    # What something was decided about stays; only its author no longer counts it.
    talk.thumb("not_helpful", do="retract")
    assert not talk.page().select(".u-own")
    assert "retracted" in soup(talk.client.get("/feedback/mine")).select_one(f"#feedback-{row}").text


def test_the_author_reads_the_state_of_the_rule_and_no_names(talk: Talk) -> None:
    admin = talk.workspace.actor("admin")
    talk.thumb("not_helpful")
    row = talk.rows()["not_helpful"].id

    def act(work: Callable[[], Any]) -> str:
        with talk.app.app_context(), acting_as(admin), transaction():
            work()
        said = " ".join(talk.page().select_one(".u-own").text.split())
        assert admin.name not in said
        mine = soup(talk.client.get("/feedback/mine")).select_one(f"#feedback-{row} .u-dim")
        assert said.partition("just now")[2] in " ".join(mine.text.split())
        return said

    rules: list[UUID] = []

    def propose() -> None:
        new = NewRow(type="lesson", content="Quote the basis.", feedback_ids=[row])
        rules.append(knowledge_rows.add_row(new, actor=admin, proposed=True).id)

    def reword() -> None:
        rules.append(knowledge_rows.add_row(NewRow(type="lesson", content="Name the basis."), actor=admin).id)
        knowledge_rows.set_state(rules[0], "superseded", superseded_by=rules[1], actor=admin)

    def set_state(number: int, state: str) -> Callable[[], Any]:
        return lambda: knowledge_rows.set_state(rules[number], state, actor=admin, reason="Not true here")

    said = act(propose)
    assert "Being reviewed." in said
    assert "Quote the basis." not in said, "a proposal is not the author's to read yet"
    assert "Led to a change. Agents now get this rule: Quote the basis." in act(set_state(0, "active"))
    assert "Agents now get this rule: Name the basis." in act(reword)
    said = act(set_state(1, "inactive"))
    assert "Led to a change that is no longer in use." in said
    assert "the basis." not in said
    act(lambda: feedback_review.review([row], "reopen", actor=admin))
    said = act(lambda: feedback_review.review([row], "dismissed", actor=admin))
    assert said.endswith("No change.")


def test_the_author_reads_that_a_rule_was_retired_and_why_nothing_changed(talk: Talk) -> None:
    admin = talk.workspace.actor("admin")
    talk.thumb("not_helpful")
    row = talk.rows()["not_helpful"].id

    def said(work: Callable[[], Any]) -> str:
        with talk.app.app_context(), acting_as(admin), transaction():
            work()
        return " ".join(talk.page().select_one(".u-own").text.split())

    with talk.app.app_context(), acting_as(admin), transaction():
        rule = knowledge_rows.add_row(NewRow(type="lesson", content="Round to millions."), actor=admin).id

    def retire() -> None:
        proposal = propose_retirement(rule, "It misleads.", actor=admin)
        knowledge_rows.link_signals(proposal, [row])
        db.session.flush()
        knowledge_rows.set_state(proposal.id, "active", actor=admin)

    assert "Led to a change. Agents no longer get this rule: Round to millions." in said(retire)
    back = said(lambda: knowledge_rows.set_state(rule, "active", actor=admin))
    assert "Led to a change that is no longer in use." in back

    def reject() -> None:
        feedback_review.review([row], "reopen", actor=admin)
        new = NewRow(type="lesson", content="Name the basis.", feedback_ids=[row])
        wrong = knowledge_rows.add_row(new, actor=admin, proposed=True).id
        knowledge_rows.set_state(wrong, "inactive", actor=admin, reason="The basis is always LTM.")

    assert "No change: The rule made of it was rejected: The basis is always LTM." in said(reject)

    def dismiss(notes: str) -> None:
        feedback_review.review([row], "reopen", actor=admin)
        feedback_review.review([row], "dismissed", actor=admin, notes=notes)

    by_model = said(lambda: dismiss(f"{feedback_review.BY_MODEL}Sam said the same of Halden."))
    assert "No change: A review decided that nothing needs to change." in by_model
    assert "Halden" not in by_model


def test_a_row_of_the_product_s_own_widget_is_changed_not_doubled(talk: Talk) -> None:
    member = talk.workspace.actor("member")
    with talk.app.app_context(), acting_as(member), transaction():
        given = NewFeedback(kind="signal", signal="not_helpful", message_id=f"ext-{talk.id}", comment="From the widget")
        row = feedback_intake.record_feedback(given, actor=member).id
    assert talk.page().select_one("#not_helpful-m-1")["aria-pressed"] == "true"

    talk.post("why", reasons=["other"], comment="Said again here", missing="")
    rows = talk.rows()
    assert set(rows) == {"not_helpful"}
    assert (rows["not_helpful"].id, rows["not_helpful"].comment) == (row, "Said again here")
    talk.thumb("not_helpful", do="retract")
    assert talk.rows() == {}


@pytest.mark.core
def test_nobody_opens_anybody_else_s_conversation(
    talk: Talk, sign_in: SignIn, make_workspace: Callable[..., Workspace]
) -> None:
    talk.thumb("helpful")
    stranger = make_workspace("Other").actor("member")
    for actor in (talk.workspace.actor("other"), talk.workspace.actor("admin"), stranger):
        client = sign_in(actor)
        assert client.get(f"/chat/{talk.id}").status_code == 404
        assert client.get(f"/chat/{talk.id}?edit=1", headers=HTMX).status_code == 404
        for what, form in (("thumb", {"signal": "helpful"}), ("why", {"comment": "x"}), ("edit", {"text": "x"})):
            sent = client.post(
                f"/chat/{talk.id}/messages/1/{what}",
                data={"csrf_token": client.csrf, **form},  # type: ignore[attr-defined]
            )
            assert sent.status_code == 404
        assert not soup(client.get("/chat")).select("[data-row]")
        assert not soup(client.get("/feedback/mine")).select(".u-mine > li")
    assert talk.client.get(f"/chat/{uuid4()}").status_code == 404


def test_two_people_see_only_their_own_about_the_same_answer(talk: Talk) -> None:
    other = talk.workspace.actor("other")
    with talk.app.app_context(), acting_as(other), transaction():
        given = NewFeedback(
            kind="signal", signal="not_helpful", message_id=str(talk.message_id), comment="By someone else"
        )
        feedback_intake.record_feedback(given, actor=other)
    talk.thumb("helpful")

    assert "By someone else" not in str(talk.page())
    assert talk.page().select_one("#not_helpful-m-1")["aria-pressed"] == "false"
    assert "By someone else" not in talk.client.get("/feedback/mine").text


def test_the_history_and_its_two_empty_states(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    client = sign_in(member)
    assert "No conversations yet" in client.get("/chat").text
    assert "No feedback yet" in client.get("/feedback/mine").text
    begin(app, workspace.actor("other"))
    talk = Talk(app, workspace, client, *begin(app, member, external=f"theirs-{workspace.slug}"))
    for _ in range(3):
        begin(app, member)
    talk.thumb("not_helpful")

    page = soup(client.get("/chat?q=kestrel"))
    assert len(page.select("[data-row]")) == 4
    assert page.select_one(f"#chat-{talk.id} .is-fail")
    assert "No matches" in client.get("/chat?q=zanzibar").text
    assert "No matches" in client.get("/feedback/mine?status=dismissed").text
    assert client.get("/chat?nonsense=1").status_code == 400


def test_a_page_asks_at_most_eight_questions(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    for role in ("member", "admin"):
        actor, admin = workspace.actor(role), workspace.actor("admin")
        talk = Talk(app, workspace, sign_in(actor), *begin(app, actor))
        begin(app, actor)
        with app.app_context(), acting_as(actor), transaction():
            new = NewSession(agent="deal-analyst", status="completed", chat_id=talk.id)
            session, _ = session_store.create_session(new, actor=actor)
            more = [NewMessage(role="agent", content="And more.", session_id=session.id)]
            chat_store.append_messages(talk.id, more, actor=actor)
            about = NewFeedback(source_type="session", rating="neutral", session_id=session.id, comment="kestrel")
            feedback_intake.record_feedback(about, actor=actor)
        talk.thumb("not_helpful")
        with app.app_context(), acting_as(admin), transaction():
            pending = Feedback.created_by == actor.id, Feedback.signal == "not_helpful"
            feedback_review.review(
                list(db.session.scalars(select(Feedback.id).where(*pending))), "reviewed", actor=admin
            )
        for path in ("/chat?q=kestrel", f"/chat/{talk.id}", "/feedback/mine?q=kestrel", "/feedback/mine"):
            with count_queries() as seen:
                assert talk.client.get(path).status_code == 200
            assert len(seen) <= 8, (path, role, seen)


@pytest.mark.exhaustive
def test_a_long_conversation_comes_in_pages(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    chat_id, _ = begin(app, member)
    with app.app_context(), acting_as(member), transaction():
        more = [NewMessage(role="agent", content=f"Line {number}") for number in range(248)]
        chat_store.append_messages(chat_id, more, actor=member)
    client = sign_in(member)

    page = soup(client.get(f"/chat/{chat_id}"))
    assert len(page.select(".u-turn")) == 200
    earlier = soup(client.get(page.select_one(".u-since a")["href"]))
    assert len(earlier.select(".u-turn")) == 50
    assert earlier.select_one("#m-1")
    # A link to what was said long ago leads there, and to a place among the latest to the latest.
    there = soup(client.get(f"/chat/{chat_id}?at=3"))
    assert there.select_one("#m-3")
    assert there.select_one("#m-102")
    assert not there.select_one("#m-103")
    assert soup(client.get(f"/chat/{chat_id}?at=60")).select_one("#m-249")
    assert soup(client.get(f"/chat/{chat_id}?why=1")).select_one("#received-m-1 form")
    said = client.post(f"/chat/{chat_id}/messages/1/thumb", data={"csrf_token": client.csrf, "signal": "helpful"})  # type: ignore[attr-defined]
    assert soup(client.get(said.location)).select_one("#m-1")
    link = soup(client.get("/feedback/mine")).select_one(".u-own-head a")["href"]
    assert link.endswith("#m-1")
    assert soup(client.get(link)).select_one("#m-1")
