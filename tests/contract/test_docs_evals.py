"""The build step of docs/evals.md runs as it stands, and its exit code says what the verdicts say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask

from app.services.agents import versions
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace
from tests.http_server import served

pytestmark = pytest.mark.exhaustive

__all__ = ["bench"]
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "evals.md").read_text()
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'


@pytest.fixture
def address(app: Flask) -> Iterator[str]:
    with served(app) as address:
        yield address


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_step_for_a_build_runs(
    address: str, bench: Bench, workspace: Workspace, api: Callable[..., Api], tmp_path: Path
) -> None:
    (script,) = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    with bench.acting():
        slug = versions.get_agent(bench.agent_id, actor=bench.admin).slug
    key = api(workspace.actor("admin"), "admin").key
    environment = {**os.environ, "UPSHOT_URL": address, "UPSHOT_KEY": key, "AGENT": slug, "COMMIT": "4f2c1e9"}

    def build() -> tuple[int, str]:
        step = subprocess.Popen(
            ["sh", "-c", script],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while True:
            try:
                said, _ = step.communicate(timeout=1)
                return step.returncode, said
            except subprocess.TimeoutExpired:
                bench.drain()

    code, said = build()
    assert (code, "has recorded no golden" in said) == (3, True), said
    bench.golden(WON)
    code, said = build()
    assert "1 passed, 0 failed" in said
    assert code == 0, said
    bench.worse()
    code, said = build()
    assert "0 passed, 1 failed" in said
    assert code == 1, said
    for name, value, exits, words in (
        ("AGENT", "nobody", 3, '"status": 404'),
        ("UPSHOT_KEY", "up_wrong", 3, '"status": 401'),
        ("UPSHOT_URL", "http://127.0.0.1:1", 4, "curl"),
    ):
        kept, environment[name] = environment[name], value
        code, said = build()
        assert (code, words in said) == (exits, True), said
        environment[name] = kept


def test_the_page_names_every_exit_code() -> None:
    from app.cli import evals

    table = dict(re.findall(r"^\| (\d) \| (\w+)", TEXT, re.MULTILINE))
    assert table[str(evals.PASSED)] == "passed"
    assert table[str(evals.REGRESSION)] == "regression"
    assert table[str(evals.INCONCLUSIVE)] == "inconclusive"
    assert {str(evals.CONFIGURATION), "2", "4"} <= table.keys()
