"""API keys and sign-in links, and how their person is found. Plain SQL: commands need not load SQLAlchemy for them.

`run` is `app.db.run` in the server, and `app.db.connect.run_on` a connection in a command.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from app import tokens
from app.actor import SCOPES, Actor
from app.db.connect import BIND, Run, bound
from app.errors import Forbidden, Invalid, NotFound
from app.formats.ids import EMAIL, clean_name
from app.services.audit_entry import record

NO_USER = UUID(int=0)
LINK_LIFETIME = timedelta(minutes=15)
PREFIX_LENGTH = 10
BIND_CREDENTIAL = "select * from bind_credential(%(hash)s)"
SET_SLUG = "select set_config('app.tenant_slug', %(slug)s, true)"
SYSTEM_USER = """
select users.id, users.name from users join memberships on memberships.user_id = users.id
where memberships.tenant_id = %(tenant_id)s and memberships.role = 'system'
"""
INSERT_KEY = """
insert into api_keys (tenant_id, user_id, name, prefix, key_hash, scopes, expires_at)
values (%(tenant_id)s, %(user_id)s, %(name)s, %(prefix)s, %(key_hash)s, string_to_array(%(scopes)s, ','),
        %(expires_at)s)
returning id
"""
INSERT_LINK = """
insert into one_time_links (tenant_id, kind, token_hash, user_id, created_by, expires_at)
values (%(tenant_id)s, 'sign_in', %(token_hash)s, %(user_id)s, %(created_by)s,
        now() + make_interval(secs => %(seconds)s))
"""


class Credential(NamedTuple):
    """What the database function `bind_credential` returns about a key or a login, its person and their workspace."""

    kind: str
    credential_id: UUID
    user_id: UUID
    tenant_id: UUID
    role: str
    scopes: list[str]
    name: str
    email: str | None
    workspace: str
    workspace_slug: str
    seen_at: datetime | None

    def actor(self, request_id: str | None = None) -> Actor:
        is_login = self.kind == "login"
        scopes = None if is_login else frozenset(self.scopes)
        key_id = None if is_login else self.credential_id
        return Actor(self.user_id, self.tenant_id, self.role, self.name, scopes, key_id, request_id=request_id)


@dataclass(frozen=True)
class CreatedKey:
    id: UUID
    name: str
    scopes: list[str]


def find_user(run: Run, email: str) -> UUID | None:
    """Whose e-mail this is, whatever workspaces they are in."""
    email = email.strip()
    if not EMAIL.fullmatch(email) or not email.isprintable():
        return None
    found: UUID | None = run("select door_login(%(email)s)", {"email": email})[0][0]
    return found


def tenants_of(run: Run, user_id: UUID) -> list[UUID]:
    """The workspaces of a user, the newest membership last."""
    return [row[0] for row in run("select door_memberships(%(user_id)s)", {"user_id": user_id})]


def find_workspace(run: Run, slug: str) -> UUID:
    """The id of the workspace with this slug, for the operator's commands. No page and no API asks by slug."""
    run(SET_SLUG, {"slug": slug})
    found = run("select id from tenants where slug = %(slug)s", {"slug": slug})
    run(SET_SLUG, {"slug": ""})
    if not found:
        raise NotFound(f"There is no workspace with the slug {slug}; make it with `upshot tenant create`.")
    tenant_id: UUID = found[0][0]
    return tenant_id


def product_in(tenant_id: UUID) -> Actor:
    """The product itself at work in a workspace, before it is known who acts there."""
    return Actor(NO_USER, tenant_id, "system")


def system_user(run: Run, tenant_id: UUID) -> Actor:
    """The system user of the workspace that the transaction is bound to."""
    found = run(SYSTEM_USER, {"tenant_id": tenant_id})
    if not found:
        raise NotFound(f"There is no workspace {tenant_id}.")
    user_id, name = found[0]
    return Actor(user_id, tenant_id, "system", name)


def bind_system(run: Run, tenant_id: UUID) -> Actor:
    """Work as the workspace's system user until the transaction ends."""
    run(BIND, bound(product_in(tenant_id)))
    actor = system_user(run, tenant_id)
    run(BIND, bound(actor))
    return actor


def create_key(
    run: Run,
    *,
    name: str,
    scopes: list[str],
    actor: Actor,
    user_id: UUID | None = None,
    expires_at: datetime | None = None,
) -> tuple[CreatedKey, str]:
    """A key that acts as its person, and the key itself, which nobody can read again."""
    owner_id = user_id or actor.id
    if owner_id != actor.id and actor.role != "system":
        raise Forbidden("A key acts as its person, so only they can make it.")
    if not run("select id from users where id = %(user_id)s", {"user_id": owner_id}):
        raise NotFound("No such person.")
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise Invalid.of({"expires": "Choose a future date."})
    name, scopes = clean_name(name), _check_scopes(scopes)
    key = tokens.new_key()
    values = {
        "tenant_id": actor.tenant_id,
        "user_id": owner_id,
        "name": name,
        "prefix": key[:PREFIX_LENGTH],
        "key_hash": tokens.digest(key),
        "scopes": ",".join(scopes),
        "expires_at": expires_at,
    }
    ((key_id,),) = run(INSERT_KEY, values)
    record(run, actor, "key.created", "api_key", key_id, name=name, scopes=scopes, user_id=owner_id)
    return CreatedKey(key_id, name, scopes), key


def make_link(run: Run, email: str, *, lifetime: timedelta = LINK_LIFETIME) -> str:
    """Create a one-time sign-in link and return its token."""
    user_id = find_user(run, email)
    tenants = tenants_of(run, user_id) if user_id else []
    if not tenants:
        raise NotFound(f"No one with the email {email} is in a workspace.")
    system = bind_system(run, tenants[-1])
    token = tokens.new_token()
    values = {
        "tenant_id": system.tenant_id,
        "token_hash": tokens.digest(token),
        "user_id": user_id,
        "created_by": system.id,
        "seconds": lifetime.total_seconds(),
    }
    run(INSERT_LINK, values)
    record(run, system, "sign_in_link.made", "user", user_id)
    return token


def _check_scopes(scopes: list[str]) -> list[str]:
    """The scopes in the order in which they are always named."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise Invalid.of({"scopes": f"Choose at least one of {', '.join(SCOPES)}."})
    return [scope for scope in SCOPES if scope in scopes]
