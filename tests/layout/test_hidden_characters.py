"""Characters that hide or turn a line: stored as they came, harmless on every page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.models import Feedback
from app.services.chats import store as chat_store
from app.services.chats.store import NewMessage
from app.services.feedback import intake as feedback_intake
from app.services.feedback import teamwork
from app.services.feedback.intake import NewFeedback
from app.text.hidden_characters import MARK, visible
from tests.conftest import Workspace

SignIn = Callable[..., FlaskClient]
TURNED = "safe\u202egpj.exe"
HIDDEN = "fine" + "".join(chr(0xE0000 + ord(letter)) for letter in "approve")


HANGUL_AND_THE_LIKE = "\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180e\U0001d173"
ZERO_WIDTH = "\u200b\u200c\u200d\ufeff\u2060\u2061\u2062\u2063\u2064\ufe00\ufe0e\ufe0f\U000e0100"
USED_AS_MEANT = (
    "\u2764\ufe0f", "1\ufe0f\u20e3", "\u2602\ufe0e", "\u845b\ufe00",  # Variants of an emoji, a digit, an ideograph.
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937",
    "\u2813\u2811\u2800\u2813\u2811", "\u1828\u1820\u180e\u1820",  # A blank in Braille, a vowel in Mongolian.
    "\ud55c\uad6d\uc5b4", "\u6f22\u5b57\u3000\u4eee\u540d", "caf\u00e9",
)  # fmt: skip


@pytest.mark.parametrize("filler", HANGUL_AND_THE_LIKE + ZERO_WIDTH, ids=lambda one: f"U+{ord(one):04X}")
def test_every_filler_is_seen(filler: str) -> None:
    assert visible(f"ig{filler}nore") == f"ig{MARK}nore"
    assert visible(filler) == MARK
    assert visible(f"a{filler * 3}") == f"a{MARK}"


def test_what_scripts_and_emoji_need_stays() -> None:
    for text in USED_AS_MEANT:
        assert visible(text) == text, ascii(text)


def test_nothing_hides_behind_what_is_marked() -> None:
    assert visible("a\u200b\u200d\ufe0fb") == f"a{MARK}b"
    assert visible("\U0001f600\ufe0f\ufe01\ufe02x") == f"\U0001f600\ufe0f{MARK}x"
    assert visible("\u0645\u200c\u200d\u200c\u062e") == f"\u0645\u200c{MARK}\u062e"


def test_what_turns_or_hides_is_marked_and_hints_are_dropped() -> None:
    assert visible(TURNED) == f"safe{MARK}gpj.exe"
    assert visible(HIDDEN) == f"fine{MARK}"
    assert visible("a\x1b[31mb\x9bc\x00d") == f"a{MARK}[31mb{MARK}c{MARK}d"
    assert visible("hy\u00adphen\u200f and\u200e mark\u061c") == "hyphen and mark"
    assert visible("two\nlines\tand a\r\nthird") == "two\nlines\tand a\r\nthird"
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert visible(family) == family


def test_no_page_passes_them_on(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    member, admin = workspace.actor("member"), workspace.actor("admin")
    with app.app_context():
        with acting_as(member), transaction():
            chat = chat_store.create_chat(actor=member, agent_slug="helper", title=f"Title {TURNED}")
            said = [NewMessage(role="user", content=TURNED), NewMessage(role="agent", content=f"**{HIDDEN}** {TURNED}")]
            chat_store.append_messages(chat.id, said, actor=member)
            row = feedback_intake.record_feedback(
                NewFeedback(
                    kind="signal", signal="inaccurate", chat_id=str(chat.id), message_id="m-1", comment=TURNED + HIDDEN
                ),
                actor=member,
            )
        with acting_as(admin), transaction():
            teamwork.add_comment(row.id, HIDDEN, actor=admin)
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
