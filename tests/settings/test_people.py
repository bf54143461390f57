"""People join, get roles, leave; nobody climbs, and the last owner stays."""

from __future__ import annotations

import threading
from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from app.actor import Actor
from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, NotFound, Refused
from app.models.people import AuditEntry, LoginSession, OneTimeLink
from app.services.workspaces import identity, logins, people
from app.services.workspaces import keys as workspace_keys
from app.services.workspaces import store as workspace_store
from tests.threads import run_at_once

pytestmark = [pytest.mark.usefixtures("app_context"), pytest.mark.core]
PASSWORD = "correct horse battery"


def address() -> str:
    return f"p-{uuid4().hex[:10]}@example.test"


def invite(actor: Actor, email: str, role: str = "member") -> str:
    with acting_as(actor), transaction():
        return people.invite_person(email=email, role=role, actor=actor)


def accept(token: str, name: str = "Sam", password: str = PASSWORD, signed_in_as=None) -> Actor:
    with acting_as(None), transaction():
        return people.accept_invite(token, name, password, signed_in_as=signed_in_as)


def actions(actor: Actor) -> list[str]:
    with acting_as(actor):
        return list(db.session.scalars(select(AuditEntry.action).order_by(AuditEntry.created_at)))


def test_members_are_listed_owners_first_and_without_the_system_user(workspace):
    admin = workspace.actor("admin")
    with acting_as(admin):
        listed = people.list_members(actor=admin)
    assert [member.role for member in listed] == ["owner", "admin", "member", "member"]


def test_someone_known_joins_a_second_workspace_with_the_same_account(workspace, make_workspace):
    other = make_workspace("Other")
    member, owner = workspace.actor("member"), other.actor("owner")
    with acting_as(member):
        email = people.get_person(member.id, actor=member).email
    with acting_as(owner):
        with transaction():
            joined = people.create_person(email=email.upper(), name="Ignored", role="admin", actor=owner)
        assert (joined.id, joined.name) == (member.id, member.name)
        with pytest.raises(Refused, match="already"), transaction():
            people.create_person(email=email, name="Again", role="member", actor=owner)
        with pytest.raises(Refused, match="Leave the password out"), transaction():
            people.create_person(email=email, name="Again", role="member", actor=owner, password=PASSWORD)
    with acting_as(member):
        assert {tenant.id: role for tenant, role in workspace_store.list_workspaces(member.id)} == {
            workspace.id: "member",
            other.id: "admin",
        }
        assert {place.id: place.role for place in people.workspaces_of(member.id)} == {
            workspace.id: "member",
            other.id: "",
        }


def test_people_of_another_workspace_are_unknown(workspace, make_workspace):
    admin, stranger = workspace.actor("admin"), make_workspace().actor("member")
    with acting_as(admin):
        for attempt in (
            lambda: people.get_person(stranger.id, actor=admin),
            lambda: people.change_role(stranger.id, "admin", actor=admin),
            lambda: people.remove_member(stranger.id, actor=admin),
        ):
            with pytest.raises(NotFound), transaction():
                attempt()


def test_names_and_addresses_have_a_form(workspace):
    admin = workspace.actor("admin")
    with acting_as(admin):
        for email in ("", "sam", "a@", "@b", "a b@c.de", "a@b@c", "a\x00@b.de", "a@" + "b" * 200):
            with pytest.raises(Invalid) as raised, transaction():
                people.create_person(email=email, name="Sam", role="member", actor=admin)
            assert "email" in raised.value.fields
        for name in ("", "  ", "x" * 121, "a\x00b", "a\u202eb"):
            with pytest.raises(Invalid) as raised, transaction():
                people.create_person(email=address(), name=name, role="member", actor=admin)
            assert "name" in raised.value.fields


def test_an_invitation_makes_an_account_once(workspace):
    admin, email = workspace.actor("admin"), address()
    token = invite(admin, email, "admin")
    with acting_as(admin):
        stored = db.session.scalars(select(OneTimeLink).where(OneTimeLink.email == email)).one()
        assert token not in (stored.token_hash, str(stored.id))
    with pytest.raises(Invalid) as raised:
        accept(token, name="", password="short")
    assert set(raised.value.fields) == {"name", "password"}

    joined = accept(token)

    assert (joined.role, joined.tenant_id) == ("admin", workspace.id)
    with pytest.raises(NotFound, match="has expired"):
        accept(token)
    assert actions(admin)[-3:] == ["member.invited", "member.added", "invitation.accepted"]


def test_an_account_joins_only_with_proof_that_it_is_theirs(workspace, make_workspace):
    email = address()
    person = accept(invite(workspace.actor("admin"), email))
    other = make_workspace("Other")
    token = invite(other.actor("admin"), email)
    with acting_as(None):
        assert people.look_up_invite(token).user_id == person.id
    for wrong in ({"password": "not the password"}, {"password": ""}, {"password": "x", "signed_in_as": uuid4()}):
        with pytest.raises(Invalid) as raised:
            accept(token, **wrong)
        assert "password" in raised.value.fields

    joined = accept(token, name="Someone else")

    assert (joined.id, joined.name, joined.tenant_id) == (person.id, "Sam", other.id)


def test_who_is_signed_in_as_the_account_joins_without_the_password(workspace, make_workspace):
    member, other = workspace.actor("member"), make_workspace("Other")
    with acting_as(member):
        email = people.get_person(member.id, actor=member).email
    token = invite(other.actor("admin"), email)

    assert accept(token, password="", signed_in_as=member.id).tenant_id == other.id


def test_invitations_end_when_used_withdrawn_replaced_or_old(workspace):
    admin, email = workspace.actor("admin"), address()
    replaced = invite(admin, email)
    withdrawn = invite(admin, email)
    old = invite(admin, address())
    with acting_as(admin), transaction():
        assert len(people.list_invites(actor=admin)) == 2
        open_one = db.session.scalars(
            select(OneTimeLink.id).where(OneTimeLink.email == email).order_by(OneTimeLink.expires_at.desc()).limit(1)
        ).one()
        people.withdraw_invite(open_one, actor=admin)
        db.session.execute(update(OneTimeLink).values(expires_at=func.now()))
    with acting_as(admin):
        assert people.list_invites(actor=admin) == []
    for token in (replaced, withdrawn, old, "", "nonsense", "é\udc80"):
        with pytest.raises(NotFound):
            accept(token)


def test_members_are_not_invited_and_members_do_not_invite(workspace):
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        email = people.get_person(member.id, actor=admin).email
        with pytest.raises(Invalid) as raised, transaction():
            people.invite_person(email=email, role="member", actor=admin)
    assert "email" in raised.value.fields
    with pytest.raises(Forbidden):
        invite(member, address())
    with pytest.raises(Invalid):
        invite(admin, address(), "system")


def test_only_an_owner_makes_or_changes_owners(workspace):
    owner, admin, member = (workspace.actor(role) for role in ("owner", "admin", "member"))
    for attempt in (
        lambda: people.change_role(member.id, "owner", actor=admin),
        lambda: people.change_role(owner.id, "member", actor=admin),
        lambda: people.remove_member(owner.id, actor=admin),
        lambda: people.invite_person(email=address(), role="owner", actor=admin),
    ):
        with pytest.raises(Forbidden, match="owner"), acting_as(admin), transaction():
            attempt()
    with acting_as(owner), transaction():
        assert people.change_role(member.id, "owner", actor=owner) == "member"


def test_the_last_owner_stays(workspace):
    owner = workspace.actor("owner")
    for attempt in (
        lambda: people.change_role(owner.id, "admin", actor=owner),
        lambda: people.remove_member(owner.id, actor=owner),
    ):
        with pytest.raises(Refused, match="last owner"), acting_as(owner), transaction():
            attempt()


def test_two_owners_cannot_remove_each_other(app, workspace):
    first, second = workspace.actor("owner"), workspace.actor("admin")
    with acting_as(first), transaction():
        people.change_role(second.id, "owner", actor=first)
    second = Actor(second.id, workspace.id, "owner")
    refused: list[str] = []
    ready = threading.Barrier(2, timeout=60)

    def remove(actor: Actor, target: Actor) -> None:
        with app.app_context(), acting_as(actor):
            ready.wait()
            try:
                with transaction():
                    people.remove_member(target.id, actor=actor)
            except Refused as refusal:
                refused.append(str(refusal))

    run_at_once(*(partial(remove, *pair) for pair in ((first, second), (second, first))))

    assert len(refused) == 1
    with acting_as(workspace.actor("system")):
        assert [one.role for one in people.list_members(actor=workspace.actor("system"))].count("owner") == 1


def test_demotion_ends_logins_and_open_invitations(workspace):
    owner, admin = workspace.actor("owner"), workspace.actor("admin")
    token = invite(admin, address(), "admin")
    with acting_as(admin), transaction():
        logins.begin_login(actor=admin, user_agent=None)
    with acting_as(owner), transaction():
        people.change_role(admin.id, "member", actor=owner)

    with acting_as(owner):
        assert db.session.scalars(select(LoginSession.revoked_at).where(LoginSession.user_id == admin.id)).one()
    with pytest.raises(NotFound):
        accept(token)
    assert "member.role_changed" in actions(owner)


def test_removal_ends_logins_and_keys_for_good(app, workspace):
    owner, member = workspace.actor("owner"), workspace.actor("member")
    with acting_as(member), transaction():
        token = logins.begin_login(actor=member, user_agent=None)
        _, key = workspace_keys.create_key(name="k", scopes=["feedback"], actor=member)
    with acting_as(owner), transaction():
        email = people.get_person(member.id, actor=owner).email
        people.remove_member(member.id, actor=owner)
    with acting_as(owner), transaction():
        people.create_person(email=email, name="Back", role="member", actor=owner)

    from app.security import authentication

    with app.test_request_context():
        assert authentication.bind(token) is None
        assert authentication.bind(key) is None


def test_a_password_needs_the_old_one_and_ends_the_other_logins_everywhere(workspace, make_workspace):
    email = address()
    person = accept(invite(workspace.actor("admin"), email))
    other = make_workspace("Other")
    there = accept(invite(other.actor("admin"), email))
    with acting_as(person), transaction():
        logins.begin_login(actor=person, user_agent="kept")
        logins.begin_login(actor=person, user_agent="ended")
    with acting_as(there), transaction():
        logins.begin_login(actor=there, user_agent="elsewhere")
    with acting_as(person):
        kept = db.session.scalars(select(LoginSession.id).where(LoginSession.user_agent == "kept")).one()
        for old, new, field in (("wrong", PASSWORD + "2", "old"), (PASSWORD, "short", "new"), (PASSWORD, email, "new")):
            with pytest.raises(Invalid) as raised, transaction():
                people.change_password(old, new, actor=person, keep=kept)
            assert list(raised.value.fields) == [field]
        with transaction():
            people.change_password(PASSWORD, PASSWORD + "2", actor=person, keep=kept)
        assert [one.user_agent for one in logins.list_logins(actor=person)] == ["kept"]
    with acting_as(there):
        assert logins.list_logins(actor=there) == []


def test_a_first_password_needs_no_old_one(workspace):
    member = workspace.actor("member")
    with acting_as(member):
        with transaction():
            people.change_password("", PASSWORD, actor=member, keep=None)
        assert people.get_person(member.id, actor=member).password_hash.startswith("$argon2id$")
        with transaction():
            people.rename_person(" Sam  Okafor ", actor=member)
        assert people.get_person(member.id, actor=member).name == "Sam Okafor"
    assert identity.find_user("nobody@nowhere.test") is None
