"""Short commands load what they need and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.servers import environment

HEAVY = (
    "alembic", "apscheduler", "argon2", "bs4", "granian", "markdown_it", "mcp", "numpy", "plotly", "pydantic_ai",
    "app.agents", "app.api", "app.evals", "app.jobs", "app.views",
)  # fmt: skip
CODE = """
import sys
from app.cli import command
try:
    command(sys.argv[1:], standalone_mode=False)
except SystemExit:
    pass
loaded = set(sys.modules)
import json
print(json.dumps(sorted(loaded)))
"""


def modules_of(arguments: list[str], data: Path, app_url: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env=environment(data, UPSHOT_DATABASE_URL=app_url),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_loads_neither_the_web_framework_nor_the_database(tmp_path: Path, app_url: str) -> None:
    loaded = modules_of(["--help"], tmp_path, app_url)
    assert not loaded & {*HEAVY, "flask", "sqlalchemy", "psycopg", "pydantic"}


@pytest.mark.parametrize("arguments", [["evals", "run", "--help"], ["review", "run", "--help"]])
def test_help_of_long_commands_loads_no_database(arguments: list[str], tmp_path: Path, app_url: str) -> None:
    loaded = modules_of(arguments, tmp_path, app_url)
    assert not loaded & ({*HEAVY, "sqlalchemy", "psycopg", "app.models"} - {"app.evals"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["key", "create", "--tenant", "none", "--user", "ada@example.test", "--scope", "feedback"],
        ["signin-link", "--email", "nobody@example.test"],
    ],
)
def test_short_commands_load_psycopg_and_no_more(arguments: list[str], tmp_path: Path, app_url: str) -> None:
    loaded = modules_of(arguments, tmp_path, app_url)
    assert "psycopg" in loaded
    assert not loaded & {*HEAVY, "flask", "flask_sqlalchemy", "pydantic", "sqlalchemy", "app.models"}
