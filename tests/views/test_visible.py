"""Characters that hide or turn a line: stored as they came, harmless on every page."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services import chats, desk, intake
from app.services.chats import NewMessage
from app.services.intake import NewFeedback
from app.views.visible import MARK, visible
from tests.conftest import Workspace

SignIn = Callable[..., FlaskClient]
TURNED = "safe\u202egpj.exe"
HIDDEN = "fine" + "".join(chr(0xE0000 + ord(letter)) for letter in "approve")


def test_what_turns_or_hides_is_marked_and_what_is_merely_invisible_is_dropped() -> None:
    assert visible(TURNED) == f"safe{MARK}gpj.exe"
    assert visible(HIDDEN) == f"fine{MARK}"
    assert visible("a\x1b[31mb\x9bc\x00d") == f"a{MARK}[31mb{MARK}c{MARK}d"
    assert visible("\ufeffig\u200bnore\u00ad th\u200cat\u200f\u2060") == "ignore that"
    assert visible("two\nlines\tand a\r\nthird") == "two\nlines\tand a\r\nthird"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert visible(family) == family


def test_no_page_passes_them_on(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member, admin = workspace.actor("member"), workspace.actor("admin")
    with app.app_context():
        with acting_as(member), transaction():
            chat = chats.create_chat(actor=member, agent_slug="helper", title=f"Title {TURNED}")
            said = [NewMessage(role="user", content=TURNED), NewMessage(role="agent", content=f"**{HIDDEN}** {TURNED}")]
            chats.append_messages(chat.id, said, actor=member)
            row = intake.give_feedback(
                NewFeedback(
                    kind="signal", signal="inaccurate", chat_id=str(chat.id), message_id="m-1", comment=TURNED + HIDDEN
                ),
                actor=member,
            )
        with acting_as(admin), transaction():
            desk.add_comment(row.id, HIDDEN, actor=admin)
            assert db.session.scalar(select(Feedback.comment).where(Feedback.id == row.id)) == TURNED + HIDDEN
    pages = {
        admin: [
            "/admin/agent-review/feedback", f"/admin/agent-review/feedback/{row.id}",
            "/admin/agent-review/conversations", f"/admin/agent-review/conversations/{chat.id}", "/search?q=Title",
        ],
        member: ["/chat", f"/chat/{chat.id}", "/feedback/mine"],
    }  # fmt: skip
    for person, paths in pages.items():
        client = sign_in(person)
        for path in paths:
            html = client.get(path).text
            assert MARK in html, path
            assert "\u202e" not in html, path
            assert not any(0xE0000 <= ord(letter) < 0xE1000 for letter in html), path
