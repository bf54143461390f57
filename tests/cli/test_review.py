"""`upshot review run`: what it prints for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import command
from tests.conftest import Workspace
from tests.review.conftest import WRONG, Desk

REPORT = {"session_id", "considered", "patterns", "proposed", "merged", "dismissed", "left_pending", "refused"}


@pytest.fixture
def upshot(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    return lambda *args: CliRunner().invoke(command, ["review", "run", *args])


def test_a_dry_run_then_a_review(
    app_context: None, workspace: Workspace, run_sessions: Callable[[], int], upshot: Callable[..., Result]
) -> None:
    desk = Desk(workspace, run_sessions)
    same = [desk.complain("member", WRONG), desk.complain("other", WRONG)]
    planned = upshot("--tenant", workspace.slug, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "Reviewed 2 rows: 1 to propose" in planned.output
    assert "no model was asked" in planned.output
    assert desk.statuses(*same) == ["pending", "pending"]
    done = upshot("--tenant", workspace.slug, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report.keys() >= REPORT
    assert (report["considered"], len(report["proposed"]), report["refused"]) == (2, 1, [])
    assert desk.statuses(*same) == ["reviewed", "reviewed"]
    assert upshot("--tenant", "nobody").exit_code == 1
