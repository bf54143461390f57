"""`upshot review run`: review a workspace's feedback here and now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from app.cli.output import emit, fail, work_until, workspace_command

if TYPE_CHECKING:
    from uuid import UUID

    from app.actor import Actor
    from app.services.review.runs import Review


@click.group("review")
def review() -> None:
    """Review feedback."""


@review.command("run")
@click.option("--tenant", "slug", required=True, help="The workspace's slug.")
@click.option("--dry-run", is_flag=True, help="Show what it would do, without changing anything or asking a model.")
@workspace_command
def run_review(slug: str, dry_run: bool, as_json: bool) -> None:
    """Review pending feedback now, even if scheduled reviews are off."""
    from app.db import acting_as, transaction
    from app.services.review import runs as review_runs
    from app.services.workspaces import store as workspace_store

    system = workspace_store.system_actor(workspace_store.find_workspace(slug))
    with acting_as(system), transaction():
        session_id = review_runs.start_review(actor=system, dry_run=dry_run)
    done = _follow(session_id, system)
    with acting_as(system), transaction():
        decisions = review_runs.list_decisions(session_id, actor=system)
    payload = done.report() | {"status": done.status, "dry_run": dry_run, "decisions": decisions}
    emit(payload, _describe(payload), as_json)
    if done.status != "completed":
        fail(f"The review was {done.status}: {done.error or 'no reason was given.'}")
    sys.exit(0)


def _follow(session_id: UUID, system: Actor) -> Review:
    """Carry out what waits until the review has ended. Ctrl-C stops it."""
    from app.services.review import runs as review_runs
    from app.services.sessions import start as session_start

    def ended() -> Review | None:
        found = review_runs.get_review(session_id, actor=system)
        return None if found.open else found

    return work_until(ended, lambda: session_start.stop_run(session_id, actor=system), system)


def _describe(done: dict[str, Any]) -> str:
    would = sum(one["what"] == "propose" for one in done["decisions"])
    proposed = f"{would:,} to propose" if done["dry_run"] else f"{len(done['proposed']):,} proposed"
    lines = ["Dry run. Nothing was changed, and no model was asked."] if done["dry_run"] else []
    lines += [
        f"Reviewed {done['considered']:,} rows: {proposed}, {len(done['merged']):,} merged,"
        f" {done['dismissed']:,} dismissed, {done['left_pending']:,} left pending."
    ]
    lines += [
        f"  would {one['what']} ({one['signals']}): {one.get('content') or one['reason']}" for one in done["decisions"]
    ]
    lines += [f"  refused to {one['what']}: {one['why']}" for one in done["refused"]]
    return "\n".join(lines)
