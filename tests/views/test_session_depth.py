"""Long sessions in parts, all filters, flags in place, and deleting several sessions at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models import AgentSession, AuditEntry, Feedback
from app.services import chats, imports, intake, session_deletes, sessions
from app.services.filters import ChatFilters, SessionFilters
from app.services.intake import NewFeedback
from app.services.pages import Page
from app.services.sessions import NewEvent, NewSession
from tests.conftest import Workspace, golden_mark, soup
from tests.views.filling import fill

SignIn = Callable[..., FlaskClient]
URL = "/admin/agent-review/sessions"
CHATS = "/admin/agent-review/conversations"
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
EVENTS = 2000


def long_session(app: Flask, workspace: Workspace) -> tuple[UUID, list[UUID]]:
    """2,000 events of the worst kind: calls with results that are all quotes, records changed, texts in between."""
    admin, member = workspace.actor(), workspace.actor("member")
    heavy = {"rows": [{"id": f"{n}", "name": '"<&>"', "tags": ["a", "b", "c"]} for n in range(30)]}
    events: list[NewEvent] = [NewEvent("context.loaded", {"row_ids": [str(uuid4())], "token_count": 9}, NOON)]
    for n in range(1, EVENTS):
        at = NOON + timedelta(seconds=n)
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("tool.call", {"id": f"c{n}", "name": "searchDeals", "arguments": heavy}),
            ("tool.result", {"call_id": f"c{n - 1}", "output": heavy}),
            ("agent.message", {"text": f"step {n} " + "word " * 40}),
            ("user.message", {"text": f"and then {n}"}),
        ]
        events.append(NewEvent(*kinds[n % 4 - 1], at))
    with app.app_context():
        with acting_as(admin), transaction():
            session, _ = sessions.create_session(NewSession(agent="long-runner", title="A long day"), actor=admin)
            ids: list[UUID] = []
            for start in range(0, EVENTS, 1000):
                ids += sessions.append_events(session.id, events[start : start + 1000], actor=admin)
        with acting_as(member), transaction():
            for comment, event in (("near the end", str(ids[1900])), ("about all of it", None)):
                intake.give_feedback(
                    NewFeedback(
                        source_type="session",
                        rating="negative",
                        comment=comment,
                        session_id=session.id,
                        context={"event_id": event} if event else {},
                    ),
                    actor=member,
                )
    return session.id, ids


def test_a_session_of_2000_events_answers_quickly_and_loads_the_rest(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    session_id, ids = long_session(app, workspace)
    client = sign_in(workspace.actor())
    with count_queries() as seen:
        answer = client.get(f"{URL}/{session_id}")
    assert len(seen) <= 8, seen
    assert len(answer.data) <= 300_000
    page = soup(answer)
    assert page.select_one("svg.u-wave") is not None
    assert "about all of it" in page.select_one(".u-about").text
    assert not page.select(".u-margin .u-note")
    further = page.select_one(".u-rail a[href*='at=']")
    assert "near the end" in further.text

    texts, notes, link = [], 0, page.select_one(".u-next a")["href"]
    while link:
        assert link == page.select_one(".u-next")["hx-get"]
        with count_queries() as seen:
            answer = client.get(link, headers=HTMX)
        assert len(seen) <= 8
        assert len(answer.data) <= 300_000
        page = soup(answer)
        assert page.html is None
        assert not page.select(".u-tool .is-fail"), "every call has its result"
        notes += len(page.select(".u-margin .u-note"))
        texts += [said.text.strip() for said in page.select(".u-say")]
        link = page.select_one(".u-next a")["href"] if page.select_one(".u-next") else None
    assert notes == 1
    assert texts[-1].startswith(f"step {EVENTS - 1}")
    assert len(texts) == len(set(texts))

    with count_queries() as seen:
        begins = soup(client.get(further["href"]))
    assert len(seen) <= 9
    anchor = further["href"].split("#")[1]
    assert begins.select_one(".u-turn")["id"] == anchor
    assert "near the end" in begins.select_one(f"#notes-{anchor}").text
    assert begins.select_one(".u-since a")["href"] == f"{URL}/{session_id}"
    assert str(ids[1900]) in further["href"]


def test_a_member_reads_the_same_in_parts_with_their_own_feedback(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    session_id, _ = long_session(app, workspace)
    for role, about in (("member", 1), ("other", 0)):
        client = sign_in(workspace.actor(role))
        page = soup(client.get(f"/sessions/{session_id}"))
        assert len(page.select(".u-about .u-note")) == about
        following = page.select_one(".u-next a")["href"]
        assert following.startswith(f"/sessions/{session_id}?after=")
        part = soup(client.get(following, headers=HTMX))
        assert part.select(".u-turn")
        assert not part.select("a[href*='/admin/']")


def test_what_is_very_long_is_cut_and_read_elsewhere(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    admin = workspace.actor()
    events = [
        NewEvent("user.message", {"text": "long " * 5000}),
        NewEvent("tool.call", {"id": "1", "name": "look", "arguments": {"q": "x" * 9000}}),
        NewEvent("tool.result", {"call_id": "1", "output": {"rows": ["<b>"] * 5000}}),
    ]
    with app.app_context(), acting_as(admin), transaction():
        session_id = sessions.create_session(NewSession(agent="a", events=events), actor=admin)[0].id
    for actor, base in ((admin, URL), (workspace.actor("member"), "/sessions")):
        client = sign_in(actor)
        answer = client.get(f"{base}/{session_id}")
        assert len(answer.data) < 60_000
        links = [link["href"] for link in soup(answer).select(".u-rest a")]
        assert len(links) == 3
        for link, text in zip(links, ("long long", "xxx", "&lt;b&gt;"), strict=True):
            whole = client.get(link, headers=HTMX)
            assert text in whole.get_data(as_text=True)
            assert soup(client.get(link)).select_one("h1") is not None
        assert client.get(f"{base}/{session_id}/events/{uuid4()}").status_code == 404


def test_places_that_are_none_are_refused(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())

    assert client.get(f"{URL}/{filled.session}?after=garbage").status_code == 400
    assert client.get(f"{CHATS}/{filled.chat}?after=x").status_code == 400
    for query in ("at=garbage", f"at={uuid4()}"):
        assert "searchDeals" in client.get(f"{URL}/{filled.session}?{query}").get_data(as_text=True)


def test_a_long_conversation_comes_in_parts(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        chat = chats.create_chat(actor=member, agent_slug="sales-ops", title="Long talk")
        said = [chats.NewMessage(role="user" if n % 2 else "agent", content=f"line {n}") for n in range(250)]
        chats.append_messages(chat.id, said, actor=member)
        new = NewFeedback(
            source_type="chat",
            kind="comment",
            rating="negative",
            comment="Here",
            context={"chat_id": str(chat.id), "message_index": 220},
        )
        intake.give_feedback(new, actor=member)
        url = f"{CHATS}/{chat.id}"
    client = sign_in(workspace.actor())
    page = soup(client.get(url))
    seen = [turn["id"] for turn in page.select(".u-turn")]
    assert not page.select(".u-note")
    while page.select_one(".u-next"):
        page = soup(client.get(page.select_one(".u-next")["hx-get"], headers=HTMX))
        seen += [turn["id"] for turn in page.select(".u-turn")]
    assert seen == [f"m-{n}" for n in range(250)]
    assert "Here" in page.select_one("#notes-m-220").text


def test_every_message_and_the_whole_can_be_flagged_in_place(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    filled = fill(app, workspace)
    client = sign_in(workspace.actor())
    sent = {"csrf_token": client.csrf, "rating": "positive", "comment": "Keep"}  # type: ignore[attr-defined]
    for url in (f"{URL}/{filled.session}", f"{CHATS}/{filled.chat}"):
        turns = [turn["id"] for turn in soup(client.get(url)).select(".u-turn")]
        for at in turns:
            form = soup(client.get(f"{url}?flag={at}", headers=HTMX)).select_one("form")
            assert form["hx-target"] == f"#flag-{at}"
            away = soup(client.get(f"{url}?flag={at}&put=away", headers=HTMX))
            assert away.select_one("form") is None
            wrong = client.post(f"{url}/flag", data={**sent, "at": at, "comment": ""}, headers=HTMX)
            assert wrong.status_code == 422
            assert soup(wrong).html is None
            answer = soup(client.post(f"{url}/flag", data={**sent, "at": at}, headers=HTMX))
            assert "Keep" in answer.select_one(f"hx-partial[hx-target='#notes-{at}'] .u-note").text
            assert "Flagged" in answer.text
    whole = client.post(f"{URL}/{filled.session}/flag", data={**sent, "at": "whole"}, headers=HTMX)
    assert "Keep" in soup(whole).select_one(".u-about .u-note").text
    nowhere = client.post(f"{URL}/{filled.session}/flag", data={**sent, "at": "e-%"}, headers=HTMX)
    assert nowhere.status_code == 422


def several(app: Flask, workspace: Workspace) -> tuple[dict[str, UUID], UUID]:
    admin = workspace.actor()
    made: dict[str, UUID] = {}
    with app.app_context(), acting_as(admin), transaction():
        import_id = imports._begin("runs.ndjson", admin)
        for name, more in {
            "quick": {"duration_ms": 900, "tags": ("test", "a")},
            "slow": {"duration_ms": 60_000, "session_type": "chat", "tags": ("b",)},
            "failed": {"status": "failed", "error": "no answer"},
            "brought": {"import_id": import_id, "agent_version": 1},
        }.items():
            new = NewSession(**{"agent": "deal-analyst", "title": name, "status": "completed", **more})  # type: ignore[arg-type]
            made[name] = sessions.create_session(new, actor=admin)[0].id
    return made, import_id


def test_every_filter_of_sessions(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, import_id = several(app, workspace)
    client = sign_in(workspace.actor())
    wanted = {
        "longer=1": {"slow"},
        "shorter=1.5": {"quick"},
        "longer=0.9&shorter=0.9": {"quick"},
        "error=yes": {"failed"},
        "error=no&tag=test": {"quick"},
        "tag=b": {"slow"},
        "type=chat": {"slow"},
        f"import={import_id}": {"brought"},
        "version=1": set(made),
        "version=2": set(),
        f"person_id={workspace.actor().id}&status=failed": {"failed"},
    }
    for query, names in wanted.items():
        page = soup(client.get(f"{URL}?{query}"))
        assert {row["id"] for row in page.select("[data-row]")} == {f"session-{made[name]}" for name in names}, query
        if names:
            assert f"{len(names)} session" in page.select_one(".u-filters [role=status]").text
    chip = soup(client.get(f"{URL}?import={import_id}")).select_one(".u-chip")
    assert "runs.ndjson" in chip.text
    for query in ("longer=soon", "version=x", "shorter=-1", "import=1", "error=maybe"):
        assert client.get(f"{URL}?{query}").status_code == 400, query


def test_conversations_by_person_and_by_how_they_were_received(
    app: Flask, workspace: Workspace, sign_in: SignIn
) -> None:
    filled = fill(app, workspace)
    member = workspace.actor("member")
    with app.app_context(), acting_as(member), transaction():
        named = chats.create_chat(
            actor=member, agent_slug="sales-ops", title="Outside", external_id="conv-1", project="x"
        )
        chats.append_messages(named.id, [chats.NewMessage(role="agent", content="A reply")], actor=member)
        new = NewFeedback(
            source_type="chat", rating="positive", chat_id="conv-1", context={"chat_id": "conv-1", "message_index": 0}
        )
        intake.give_feedback(new, actor=member)
        other = named.id
    client = sign_in(workspace.actor())
    wanted = {
        "rating=negative": {filled.chat},
        "rating=positive": {other},
        "rating=neutral": set(),
        "project=x": {other},
        f"person_id={member.id}": {filled.chat, other},
        f"person_id={workspace.actor('other').id}": set(),
        "q=reply": {other},
    }
    for query, found in wanted.items():
        page = soup(client.get(f"{CHATS}?{query}"))
        assert {row["id"] for row in page.select("[data-row]")} == {f"chat-{chat}" for chat in found}, query
    chip = soup(client.get(f"{CHATS}?person_id={member.id}")).select_one(".u-chip")
    assert member.name in chip.text


def test_pages_of_what_no_index_knows(
    app: Flask, workspace: Workspace, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a stretch is looked at; its cursors lead through the whole list, forth and back."""
    from app.services import session_lists

    admin = workspace.actor()
    with app.app_context(), acting_as(admin):
        with transaction():
            for n in range(40):
                tags = ("rare",) if n in (3, 4, 20, 39) else ()
                new = NewSession(agent="a", title=str(n), tags=tags, created_at=NOON + timedelta(minutes=n))
                sessions.create_session(new, actor=admin)
        real = session_lists.stretch_of
        monkeypatch.setattr(session_lists, "stretch_of", lambda filters, where: real(filters, where, 10))
        filters, cursor, titles, cursors = SessionFilters(tag="rare"), None, [], []
        while True:
            page = sessions.list_sessions(filters, Page(50, cursor), actor=admin)
            titles.append([row.title for row in page.items])
            cursors.append(page.prev_cursor)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert titles == [["39"], ["20"], [], ["4", "3"], []]
        assert page.count_is_more
        back = sessions.list_sessions(filters, Page(50, cursors[3]), actor=admin)
        assert [row.title for row in back.items] == ["20"] or back.items == []
        assert [row.title for row in sessions.list_sessions(filters, Page(1), actor=admin).items] == ["39"]
    page = soup(sign_in(admin).get(f"{URL}?tag=nowhere"))
    assert "Nothing so far" in page.select_one(".u-blank").text
    assert "after=" in page.select_one(".u-blank a.btn-primary")["href"]


def ask(client: FlaskClient, **fields: Any) -> Any:
    return client.post(f"{URL}/delete", data={"csrf_token": client.csrf, **fields})  # type: ignore[attr-defined]


def test_deleting_several_sessions_asks_first(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, _ = several(app, workspace)
    admin = workspace.actor()
    client = sign_in(admin)
    ids = [str(made["quick"]), str(made["failed"])]
    page = soup(ask(client, which="ticked", ids=ids, next=f"{URL}?tag=test"))
    assert "Delete 2 sessions for good?" in page.text
    assert "There is no undo" in page.text
    form = page.select_one("#ask form")
    sent = {field["name"]: field["value"] for field in form.select("input")}
    assert len(soup(client.get(URL)).select("[data-row]")) == 4

    answer = client.post(form["action"], data=sent)
    assert answer.location == f"{URL}?tag=test"
    assert "Deleted 2 sessions for good." in soup(client.get(answer.location)).select_one("#toasts").text
    assert len(soup(client.get(URL)).select("[data-row]")) == 2
    with app.app_context(), acting_as(admin):
        lines = db.session.execute(
            select(AuditEntry.subject_id, AuditEntry.details).where(AuditEntry.action == "session.deleted")
        ).all()
        assert {line[0] for line in lines} == {made["quick"], made["failed"]}
        assert {line[1]["title"] for line in lines} == {"quick", "failed"}
        report = db.session.scalars(select(Feedback).where(Feedback.kind == "session_failure")).one()
        assert report.session_id is None
    assert client.post(form["action"], data=sent).status_code == 404


def test_all_that_match_are_deleted_with_htmx(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    several(app, workspace)
    client = sign_in(workspace.actor())
    sent = {"csrf_token": client.csrf, "which": "all", "next": f"{URL}?error=no"}  # type: ignore[attr-defined]
    part = soup(client.post(f"{URL}/delete", data=sent, headers=HTMX))
    assert part.select_one("dialog[open] h2").text == "Delete 3 sessions for good?"
    sent = {field["name"]: field["value"] for field in part.select_one("form[action]").select("input")}
    answer = soup(client.post(f"{URL}/delete/confirmed", data=sent, headers=HTMX))
    assert "Nothing matches" in answer.select_one("#list").text
    assert "Deleted 3 sessions" in answer.text


def test_goldens_are_never_deleted(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    made, _ = several(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin), transaction():
        db.session.execute(update(AgentSession).where(AgentSession.id == made["quick"]).values(meta=golden_mark()))
    client = sign_in(admin)
    for headers in ({}, HTMX):
        data = {"csrf_token": client.csrf, "which": "all", "next": URL}  # type: ignore[attr-defined]
        answer = client.post(f"{URL}/delete", data=data, headers=headers)
        assert answer.status_code == 409
        assert "1 of these 4 sessions is golden" in answer.get_data(as_text=True)
    with app.app_context(), acting_as(admin), pytest.raises(Refused, match="golden"):
        session_deletes.delete_sessions(list(made.values()), actor=admin)
    assert len(soup(client.get(URL)).select("[data-row]")) == 4


def test_what_deleting_refuses(app: Flask, make_workspace: Callable[..., Workspace], sign_in: SignIn) -> None:
    workspace, foreign = make_workspace(), make_workspace("Other")
    made, _ = several(app, foreign)
    client = sign_in(workspace.actor())
    assert ask(client, which="ticked", ids="garbage").status_code == 400
    assert ask(client, which="ticked").status_code == 409
    assert ask(sign_in(workspace.actor("member")), which="all").status_code == 403
    with app.app_context(), acting_as(workspace.actor()):
        with pytest.raises(NotFound):
            session_deletes.delete_sessions(list(made.values()), actor=workspace.actor())
        with pytest.raises(Invalid):
            session_deletes.delete_sessions([], actor=workspace.actor())
        with pytest.raises(Invalid):
            session_deletes.delete_sessions([uuid4() for _ in range(1001)], actor=workspace.actor())
    with app.app_context(), acting_as(workspace.actor("member")), pytest.raises(Forbidden):
        session_deletes.delete_sessions([uuid4()], actor=workspace.actor("member"))


def test_chats_are_filtered_alike_for_programs(app: Flask, workspace: Workspace) -> None:
    filled = fill(app, workspace)
    admin = workspace.actor()
    with app.app_context(), acting_as(admin):
        found = chats.list_chats(ChatFilters(rating="negative", project="default"), Page(), actor=admin)
        assert [row.id for row in found.items] == [filled.chat]
        assert found.count == 1
        assert not found.count_is_more
