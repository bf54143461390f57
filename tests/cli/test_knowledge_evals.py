"""`upshot evals knowledge` for a build: exit codes, files, and what happens when a proof is taken away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from sqlalchemy import select

from app.artifacts import catalogue
from app.artifacts.rubric import DIMENSIONS
from app.cli import command
from app.db import acting_as, db, transaction
from app.models import KnowledgeScorecard
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from tests.cli.servers import environment
from tests.conftest import Workspace

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "postgresql://upshot_app:x@127.0.0.1:1/nothing"
NAMES = ["evidence-claim", "therapy-plan", "pf-idea", "pf-knowledge"]


@pytest.fixture
def upshot(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    return lambda *args: CliRunner().invoke(command, ["evals", "knowledge", *map(str, args)])


def take_away(data: Path, suite: str, dimension: str) -> None:
    """Remove the failing fixture of a dimension from the file of a suite."""
    path = data / f"{suite}.json"
    kept = [one for one in json.loads(path.read_text()) if one.get("fails") != dimension]
    path.write_text(json.dumps(kept))


def test_the_shipped_suites_pass_without_a_database(
    upshot: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", NOWHERE)
    out = tmp_path / "deep" / "out"
    done = upshot("--json", "--out", out, "--junit", out / "evals.xml")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["passed"] is True
    assert [(one["name"], one["passed"], one["fixtures"]) for one in found["suites"]] == [
        ("evidence-claim", True, 9), ("therapy-plan", True, 9), ("pf-idea", True, 9), ("pf-knowledge", True, 16),
    ]  # fmt: skip
    for suite in found["suites"]:
        assert suite["dimensions"] == {name: {"passed": True, "failing_fixtures": 1} for name in DIMENSIONS}
    assert json.loads((out / "summary.json").read_text()) == found
    assert (out / "summary.md").read_text().startswith("# Knowledge evals: pass\n")
    assert (out / "evals.xml").read_text().count("<testsuite ") == 4
    only = upshot("--suite", "pf-idea", "--suite", "therapy-plan")
    assert [line.split()[:2] for line in only.output.splitlines()] == [["ok", "pf-idea"], ["ok", "therapy-plan"]]


def test_wrong_use_is_told_from_failure(
    upshot: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (upshot("--suite", "nope").exit_code, upshot("--suite", "workspace").exit_code) == (2, 2)
    assert upshot("--tenant", "nowhere").exit_code == 3
    assert upshot("--junit", tmp_path / "no" / "evals.xml").exit_code == 3
    monkeypatch.setenv("UPSHOT_KNOWLEDGE_SUITES", "no.such.module")
    refused = upshot()
    assert (refused.exit_code, "no.such.module cannot be loaded" in refused.output) == (3, True)
    monkeypatch.setenv("UPSHOT_DATABASE_URL", NOWHERE)
    assert upshot("--tenant", "demo").exit_code == 4


@pytest.mark.parametrize("suite", NAMES)
def test_a_dimension_without_a_failing_fixture_fails_the_build(
    suite: str, upshot: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dimension in DIMENSIONS:
        data = tmp_path / dimension
        shutil.copytree(str(catalogue.DATA), data)
        take_away(data, suite, dimension)
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "DATA", data)
            done = upshot("--suite", suite)
        assert done.exit_code == 1, done.output
        assert done.output.splitlines()[1:] == [f"  - {dimension} has no failing fixture."]


@pytest.mark.process
def test_taking_a_fixture_out_of_a_copy_of_upshot_fails_the_build(tmp_path: Path) -> None:
    """As someone would do it: delete the fixture from its file, and run the command."""
    heavy = shutil.ignore_patterns("vendor", "demo", "__pycache__")
    shutil.copytree(ROOT / "app", tmp_path / "app", ignore=heavy)
    take_away(tmp_path / "app" / "artifacts" / "data", "pf-knowledge", "tenant_isolation")
    done = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", "evals", "knowledge", "--json"],
        env=environment(tmp_path, PYTHONPATH=str(tmp_path)), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["suites"] if not one["passed"]] == ["pf-knowledge"]
    dimensions = next(one["dimensions"] for one in found["suites"] if one["name"] == "pf-knowledge")
    assert [name for name, one in dimensions.items() if not one["passed"]] == ["tenant_isolation"]
    assert dimensions["tenant_isolation"]["failing_fixtures"] == 0


def test_a_workspace_is_graded_and_its_scorecard_kept(
    app: Flask, workspace: Workspace, upshot: Callable[..., Result]
) -> None:
    admin = workspace.actor()

    def stored() -> list[bool]:
        with app.app_context(), acting_as(admin), transaction():
            return list(db.session.scalars(select(KnowledgeScorecard.passed).order_by(KnowledgeScorecard.created_at)))

    done = upshot("--tenant", workspace.slug, "--json")
    assert done.exit_code == 0, done.output
    assert [one["name"] for one in json.loads(done.stdout)["suites"]] == [*NAMES, "workspace"]
    assert stored() == [True]
    with app.app_context(), acting_as(admin), transaction():
        knowledge_rows.add_row(NewRow(type="lesson", content="Always try to do good work."), actor=admin)
    worse = upshot("--tenant", workspace.slug)
    assert worse.exit_code == 1, worse.output
    assert "fails actionability: content: “Always try to do good work.” does not say" in worse.output
    assert stored() == [True, False]
    alone = upshot("--tenant", workspace.slug, "--suite", "workspace")
    assert (alone.exit_code, len(stored())) == (1, 2), "a part is not stored"
