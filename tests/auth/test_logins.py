"""Signing in: the right password, few wrong ones, links that work once."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import func, select, text, update

from app import tokens
from app.db import acting_as, db, transaction
from app.errors import Invalid, NotFound, Throttled
from app.models.people import LoginSession, OneTimeLink
from app.security import authentication
from app.services.workspaces import identity, keys, logins, people, throttle
from app.services.workspaces import logins as workspace_logins
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]
PASSWORD = "correct horse battery"


@pytest.fixture
def person(workspace):
    """A member with a password."""
    owner = workspace.actor("owner")
    email = f"Sam-{uuid4().hex[:10]}@example.test"
    with acting_as(owner), transaction():
        user = people.create_person(email=email, name="Sam", role="member", actor=owner, password=PASSWORD)
        return user.id, email


def try_in(email: str, password: str, address: str):
    with acting_as(None):
        with transaction():
            attempt = throttle.count_attempt(email, address)
        with transaction():
            try:
                signed_in = logins.sign_in(email, password, user_agent="tests")
                throttle.forget_attempts(email, address)
                return signed_in
            except Invalid:
                if attempt.last:
                    raise throttle.too_many(attempt.retry_after) from None
                raise


def test_the_right_password_signs_in_and_only_a_hash_is_kept(app, workspace, person):
    user_id, email = person

    actor, token = try_in(f"  {email.upper()} ", PASSWORD, "192.0.2.1")

    assert (actor.id, actor.tenant_id, actor.role) == (user_id, workspace.id, "member")
    with app.test_request_context():
        found = authentication.bind(token)
        assert (found.kind, found.user_id, found.email) == ("login", user_id, email.lower())
    with acting_as(actor):
        row = db.session.scalars(select(LoginSession)).one()
        assert row.token_hash == tokens.digest(token) != token
        assert timedelta(days=13) < row.expires_at - row.created_at <= timedelta(days=14)


def test_wrong_password_unknown_address_and_no_password_read_alike(workspace, person):
    member = workspace.actor("member")
    with acting_as(member):
        without = people.get_person(member.id, actor=member).email
    said = set()
    for email in (person[1], f"{uuid4().hex}@example.test", without, "", "a\x00@b", "é\udc80@b"):
        with pytest.raises(Invalid) as raised:
            try_in(email, "not the password", f"192.0.2.{uuid4()}")
        said.add((raised.value.detail, tuple(raised.value.fields.items())))
    assert len(said) == 1


def test_the_tenth_wrong_password_in_a_row_has_to_wait_and_only_there(person):
    _, email = person
    here, elsewhere = f"here-{uuid4()}", f"elsewhere-{uuid4()}"
    with acting_as(None), transaction():
        for _ in range(8):
            throttle.count_attempt(email, here)
    with pytest.raises(Invalid):
        try_in(email, "wrong", here)
    with pytest.raises(Throttled) as raised:
        try_in(email, "wrong", here)
    assert 0 < raised.value.retry_after <= 15 * 60
    with pytest.raises(Throttled):
        try_in(email, PASSWORD, here)

    assert try_in(email, PASSWORD, elsewhere)[0].id == person[0]


def test_the_right_password_clears_the_count(person):
    _, email = person
    here = f"here-{uuid4()}"
    with acting_as(None), transaction():
        for _ in range(9):
            throttle.count_attempt(email, here)
    try_in(email, PASSWORD, here)

    with acting_as(None), transaction():
        assert not throttle.count_attempt(email, here).last


def test_an_address_that_guesses_for_many_has_to_wait():
    here = f"here-{uuid4()}"
    with acting_as(None):
        with transaction():
            for number in range(throttle.PER_ADDRESS):
                throttle.count_attempt(f"{number}@example.test", here)
        with pytest.raises(Throttled), transaction():
            throttle.count_attempt("another@example.test", here)


def test_the_window_ends():
    here = f"here-{uuid4()}"
    with acting_as(None), transaction():
        for _ in range(throttle.PER_PERSON):
            attempt = throttle.count_attempt("a@example.test", here)
        assert attempt.last
        for key in (throttle._key(here), throttle._key(here, "a@example.test")):
            throttle._set_key(key)
            db.session.execute(
                text("update sign_in_attempts set window_began = now() - interval '16 minutes' where key = :key"),
                {"key": key},
            )
        assert not throttle.count_attempt("a@example.test", here).last


def test_attempts_are_seen_only_by_their_key():
    with acting_as(None), transaction():
        throttle.count_attempt("a@example.test", f"here-{uuid4()}")
    with acting_as(None):
        assert db.session.execute(text("select count(*) from sign_in_attempts")).scalar() == 0


def test_a_login_ends_once_and_only_for_its_person(app, workspace):
    member, other = workspace.actor("member"), workspace.actor("other")
    with acting_as(member), transaction():
        token = logins.begin_login(actor=member, user_agent="x" * 1000 + "\x00")
    with acting_as(member):
        login_id = logins.list_logins(actor=member)[0].id
    for actor, ended in ((other, False), (member, True), (member, False)):
        with acting_as(actor), transaction():
            assert logins.end_login(login_id, actor=actor) is ended
    with app.test_request_context():
        assert authentication.bind(token) is None


def test_a_login_that_is_too_old_is_none(app, workspace):
    member = workspace.actor("member")
    with acting_as(member), transaction():
        token = logins.begin_login(actor=member, user_agent=None)
        db.session.execute(
            update(LoginSession).values(created_at=func.now() - timedelta(days=15), expires_at=func.now())
        )
    with app.test_request_context():
        assert authentication.bind(token) is None


def test_a_link_signs_in_once_also_when_two_try_at_the_same_moment(app, person):
    user_id, email = person
    with acting_as(None), transaction():
        token = logins.make_link(email)
    with acting_as(None):
        assert logins.link_works(token)
        assert logins.link_works(token)
    got_in: list[object] = []
    ready = threading.Barrier(2, timeout=60)

    def use() -> None:
        with app.app_context():
            ready.wait()
            try:
                with transaction():
                    got_in.append(logins.use_link(token)[0].id)
            except NotFound:
                pass

    run_at_once(*[use] * 2)

    assert got_in == [user_id]
    with acting_as(None):
        assert not logins.link_works(token)


def test_links_that_are_old_unknown_or_of_another_kind_do_nothing(workspace, person):
    admin = workspace.actor("admin")
    with acting_as(None), transaction():
        old = logins.make_link(person[1])
    with acting_as(admin), transaction():
        db.session.execute(update(OneTimeLink).values(expires_at=func.now()))
        invitation = people.invite_person(email="new@example.test", role="member", actor=admin)
    for token in (old, invitation, "", "nonsense", "é\udc80"):
        with pytest.raises(NotFound), acting_as(None), transaction():
            logins.use_link(token)
    with pytest.raises(NotFound, match="No one with the email"), acting_as(None), transaction():
        logins.make_link("nobody@nowhere.test")


def test_switching_ends_the_login_here_and_begins_one_there(workspace, make_workspace):
    other, member = make_workspace("Other"), workspace.actor("member")
    with acting_as(member), transaction():
        email = people.get_person(member.id, actor=member).email
        logins.begin_login(actor=member, user_agent=None)
    with acting_as(member):
        login_id = logins.list_logins(actor=member)[0].id
        with pytest.raises(NotFound), transaction():
            logins.switch_workspace(other.id, actor=member, login_id=login_id)
    with acting_as(other.actor("owner")), transaction():
        people.create_person(email=email, name="x", role="admin", actor=other.actor("owner"))
    with acting_as(member), transaction():
        there, _ = logins.switch_workspace(other.id, actor=member, login_id=login_id)

    assert (there.tenant_id, there.role, there.id) == (other.id, "admin", member.id)
    with acting_as(member):
        assert logins.list_logins(actor=member) == []


def test_uses_are_remembered_and_written_together(workspace, write_last_used):
    member = workspace.actor("member")
    with acting_as(member), transaction():
        logins.begin_login(actor=member, user_agent=None)
        db.session.execute(update(LoginSession).values(seen_at=func.now() - timedelta(days=1)))
    with acting_as(member):
        row = logins.list_logins(actor=member)[0]
        login_id, before = row.id, row.seen_at
        keys.note_use(member, login_id)
        assert keys.last_used(login_id, before) > before
    write_last_used(member.tenant_id)
    with acting_as(member):
        assert logins.list_logins(actor=member)[0].seen_at > before


def test_a_password_is_one_whichever_keyboard_wrote_it():
    stored = workspace_logins.hash_password("pässwörd-é")

    assert workspace_logins.verify_password(stored, "pa\u0308sswo\u0308rd-e\u0301")
    assert not workspace_logins.verify_password("not a hash", "x")
    assert identity.find_user("nobody@nowhere.test") is None


def test_counts_of_long_ago_are_removed_by_the_product_alone():
    here, product = f"here-{uuid4()}", identity.product_in(identity.NO_USER)
    keys = [
        throttle._key(here),
        throttle._key(here, "a@example.test"),
        throttle._key("", "a@example.test"),
    ]
    with acting_as(None), transaction():
        throttle.count_attempt("a@example.test", here)
        for key in keys[:2]:
            throttle._set_key(key)
            old = "update sign_in_attempts set window_began = now() - interval '2 days' where key = :key"
            db.session.execute(text(old), {"key": key})
    with acting_as(None), transaction():
        assert throttle.purge_attempts() == 0
    with acting_as(product), transaction():
        assert throttle.purge_attempts() >= 2
    with acting_as(None), transaction():
        left = []
        for key in keys:
            throttle._set_key(key)
            left.append(db.session.execute(text("select count(*) from sign_in_attempts")).scalar())
    assert left == [0, 0, 1]
