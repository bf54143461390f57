"""`upshot feedback`: feedback from the command line, in the name of a member."""

from uuid import UUID

import click

from app.cli.output import emit, workspace_command
from app.errors import NotFound
from app.models.feedback import RATINGS, SOURCES


@click.group()
def feedback() -> None:
    """Give feedback."""


@feedback.command("add")
@click.option("--tenant", "slug", required=True, help="Slug of the workspace.")
@click.option("--user", "email", required=True, help="E-mail of the person who says it.")
@click.option("--rating", required=True, type=click.Choice(RATINGS))
@click.option("--comment", help="In their own words, at most 4,096 characters.")
@click.option("--session", "session_id", type=click.UUID, help="Id of the session it is about.")
@click.option("--source", type=click.Choice(SOURCES), help="What it is about; the session when one is named.")
@click.option("--tool", help="Slug of the tool it is about, with `--source tool`.")
@workspace_command
def add_feedback(
    slug: str,
    email: str,
    rating: str,
    comment: str | None,
    session_id: UUID | None,
    source: str | None,
    tool: str | None,
    as_json: bool,
) -> None:
    """Give feedback in the name of a member. An admin's observation is a flag and needs a comment."""
    from app.db import acting_as, transaction
    from app.services.feedback.intake import NewFeedback, record_feedback
    from app.services.workspaces import identity
    from app.services.workspaces import store as workspace_store

    tenant_id = workspace_store.find_workspace(slug)
    user_id = identity.find_user(email)
    actor = identity.enter_workspace(user_id, tenant_id) if user_id else None
    if actor is None:
        raise NotFound(f"{email} is not in the workspace {slug}; add them with `upshot user create`.")
    about = source or ("tool" if tool else "session" if session_id else "observation")
    kind = {"observation": "flag" if actor.is_admin else "comment", "tool": "tool_observation"}.get(about, "comment")
    with acting_as(actor), transaction():
        context = {"tool_slug": tool} if tool else {}
        new = NewFeedback(
            source_type=about, kind=kind, rating=rating, comment=comment, session_id=session_id, context=context
        )
        row = record_feedback(new, actor=actor).row
        shown = ("id", "source_type", "kind", "rating", "status", "session_id")
        payload = {name: getattr(row, name) for name in shown} | {"tenant": slug, "user": email}
    emit(payload, f"Stored as {row.id}; it is pending.", as_json)
