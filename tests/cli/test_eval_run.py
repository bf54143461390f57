"""`upshot evals run` for a build: exit codes, JUnit, and the command that the guide shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from app.cli import command, output
from app.services.agents import versions
from app.services.evals import promotion, run_lists
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Workspace

__all__ = ["bench"]
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'
GUIDE = (Path(__file__).parents[2] / "docs" / "evals.md").read_text()


@pytest.fixture
def upshot(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(command, ["evals", "run", *map(str, args)])


def test_the_command_of_the_guide_passes_and_then_finds_the_regression(
    bench: Bench, workspace: Workspace, upshot: Callable[..., Result], tmp_path: Path
) -> None:
    bench.golden(WON)
    shown = re.search(r"^upshot evals run (.+)$", GUIDE, re.MULTILINE)
    assert shown is not None
    here = {"demo": workspace.slug, "first-time-admin": "default"}
    args = [here.get(part, part) for part in shlex.split(shown[1])]
    passed = upshot(*args)
    assert passed.exit_code == 0, passed.output
    report = (tmp_path / "evals.xml").read_text()
    assert (report.count("<testcase"), report.count("<failure")) == (1, 0)
    bench.worse()
    worse = upshot(*args, "--json")
    assert worse.exit_code == 1, worse.output
    found = json.loads(worse.stdout)
    assert found["verdicts"]["fail"] == 1
    assert {name: found["baseline"][name] for name in ("worse", "better", "same", "new")} == {
        "worse": 1, "better": 0, "same": 0, "new": 0,
    }  # fmt: skip
    assert next(iter(found["results"].values()))["before"]["verdict"] == "pass"
    again = upshot(*args)
    assert f"Compared with run {found['id']}: 0 worse, 0 better, 1 same, 0 new." in again.output
    first = found["baseline"]["run_id"]
    assert f"Compared with run {first}: 1 worse" in upshot(*args, "--baseline", first).output
    assert upshot(*args, "--baseline", "00000000-0000-0000-0000-000000000000").exit_code == 3
    assert (tmp_path / "evals.xml").read_text().count("<failure") == 1
    assert upshot(*args, "--fail-under", "0").exit_code == 0


def test_each_kind_of_trouble_has_its_exit_code(
    bench: Bench, workspace: Workspace, upshot: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = ("--tenant", workspace.slug)
    assert upshot(*tenant).exit_code == 2
    assert upshot(*tenant, "--set", "default", "--version", "1").exit_code == 2
    for share in ("nan", "inf", "-inf", "-0.1", "1.01", "90", "most"):
        refused = upshot(*tenant, "--set", "default", "--fail-under", share)
        assert (refused.exit_code, "from 0 to 1" in refused.output) == (2, True), refused.output
    assert upshot(*tenant, "--set", "nothing").exit_code == 3
    assert upshot("--tenant", "nowhere", "--set", "default").exit_code == 3
    bench.golden(WON)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"model": "openai:none"}, actor=bench.admin)
    assert upshot(*tenant, "--set", "default").exit_code == 3
    monkeypatch.setenv("UPSHOT_DATABASE_URL", "postgresql://upshot_app:x@127.0.0.1:1/nothing")
    assert upshot(*tenant, "--set", "default").exit_code == 4


def test_an_agent_is_given_what_it_recorded_itself(
    bench: Bench, workspace: Workspace, upshot: Callable[..., Result]
) -> None:
    bench.golden(WON)
    bench.desk.agent("stranger", **CONFIG)
    args = ("--tenant", workspace.slug, "--set", "default")
    nothing = upshot(*args, "--agent", "stranger")
    assert (nothing.exit_code, "Nothing in default was recorded by" in nothing.output) == (3, True), nothing.output
    other = bench.desk.ask("Sing a song", agent="stranger")
    bench.drain()
    with bench.acting():
        promotion.promote_session(other, promotion.Promotion(), actor=bench.admin)
    own = upshot(*args, "--agent", "stranger", "--json")
    assert own.exit_code == 0, own.output
    assert list(json.loads(own.stdout)["results"]) == [str(other)]
    assert json.loads(own.stdout)["left_out"] == {"other_agents": 1}
    assert "Left out: 1 golden of other agents." in upshot(*args, "--agent", "stranger").output
    assert upshot(*args, "--agent", "stranger", "--version", "7").exit_code == 3
    assert len(json.loads(upshot(*args, "--json").stdout)["results"]) == 2


def test_ctrl_c_is_no_regression_and_cancels_the_run(
    bench: Bench, workspace: Workspace, upshot: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.golden(WON)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(output, "time", SimpleNamespace(sleep=interrupt))
        patch.setattr("app.jobs.executor.Executor.start", lambda self: None)
        stopped = upshot("--tenant", workspace.slug, "--set", "default")
    assert stopped.exit_code == 130, stopped.output
    with bench.acting():
        [run] = run_lists.list_newest_runs("default", 5, actor=bench.admin)
    assert (run.status, run.command_line) == ("cancelled", True)


def test_a_run_that_was_cancelled_says_nothing_either_way() -> None:
    from app.cli.eval_run import exit_code

    good = {"verdicts": {"pass": 5}, "accuracy": 1.0}
    assert exit_code(good, 0.9, whole=True) == 0
    assert exit_code(good, 0.9, whole=False) == 5
    assert exit_code({"verdicts": {"pass": 1, "fail": 4}, "accuracy": 0.2}, 0.9, whole=False) == 1
