"""`upshot tenant | user | key | signin-link`: workspaces, people and keys from the operator's own hand."""

import sys

import click

from app.actor import RANK, SCOPES
from app.cli.output import emit, json_option, opened_transaction, people_command, plain_failures
from app.config import Settings
from app.errors import Invalid, NotFound
from app.server.address import find_address


@click.group()
def tenant() -> None:
    """Create workspaces."""


@tenant.command("create")
@click.option("--slug", required=True, help="Lowercase letters, digits and hyphens. Can't be changed later.")
@click.option("--name", required=True, help="The workspace's name.")
@people_command
def create_tenant(slug: str, name: str, as_json: bool) -> None:
    """Create a workspace."""
    from app.db import transaction
    from app.services.workspaces import store as workspace_store

    with transaction():
        made, _ = workspace_store.create_workspace(slug=slug, name=name)
    emit({"id": made.id, "slug": made.slug, "name": made.name}, f"Created the workspace {made.name} ({slug}).", as_json)


@click.group()
def user() -> None:
    """Create people."""


@user.command("create")
@click.option("--email", required=True)
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@click.option("--role", type=click.Choice(list(RANK)), default="member", show_default=True)
@click.option("--name", help="The person's name (default: first part of the email).")
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@people_command
def create_user(email: str, slug: str, role: str, name: str | None, password_stdin: bool, as_json: bool) -> None:
    """Add a person to a workspace. Without a password they sign in with `upshot signin-link`."""
    from app.db import acting_as, transaction
    from app.services.workspaces import people
    from app.services.workspaces import store as workspace_store

    password = _first_line() if password_stdin else None
    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    with acting_as(system), transaction():
        person = people.create_person(
            email=email, name=name or email.partition("@")[0], role=role, actor=system, password=password
        )
        payload = {"id": person.id, "email": person.email, "name": person.name, "role": role, "tenant": slug}
    emit(payload, f"{payload['email']} is {role} of {slug}.", as_json)


@click.group()
def key() -> None:
    """Create API keys."""


@key.command("create")
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@click.option("--user", "email", required=True, help="Email of the key's owner.")
@click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help="Can be repeated.")
@click.option("--name", default="from the command line", show_default=True, help="Name of the key.")
@json_option
@plain_failures
def create_key(slug: str, email: str, scopes: tuple[str, ...], name: str, as_json: bool) -> None:
    """Create a key and print it. It isn't shown again."""
    from app.services.workspaces import credentials

    with opened_transaction() as run:
        system = credentials.bind_system(run, credentials.find_workspace(run, slug))
        user_id = credentials.find_user(run, email)
        if user_id is None or system.tenant_id not in credentials.tenants_of(run, user_id):
            raise NotFound(f"{email} is not in the workspace {slug}; add them with `upshot user create`.")
        made, secret = credentials.create_key(run, name=name, scopes=list(scopes), actor=system, user_id=user_id)
    payload = {"id": made.id, "key": secret, "name": made.name, "scopes": made.scopes, "user": email, "tenant": slug}
    emit(payload, secret, as_json)


@click.command("signin-link")
@click.option("--email", required=True)
@json_option
@plain_failures
def signin_link(email: str, as_json: bool) -> None:
    """Print a one-time sign-in link, valid for 15 minutes."""
    from app.services.workspaces import credentials

    settings = Settings.from_env()
    try:
        with opened_transaction() as run:
            token = credentials.make_link(run, email)
    except NotFound as unknown:
        where = f"the database in {settings.data_dir}" if settings.embedded else "the database of UPSHOT_DATABASE_URL"
        raise NotFound(f"{unknown.detail.rstrip('.')} of {where}.") from None
    url = f"{find_address(settings)}/sign-in/link/{token}"
    emit({"url": url, "email": email, "expires_in": int(credentials.LINK_LIFETIME.total_seconds())}, url, as_json)


def _first_line() -> str:
    """The password as it was piped in. Not an option: those show in the list of processes."""
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise Invalid("The first line of standard input has no password.")
    return line
