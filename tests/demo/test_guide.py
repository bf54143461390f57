"""The command in docs/evals.md, on the demo as anybody gets it."""

from __future__ import annotations

import re
import secrets
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask import Flask
from psycopg import sql

from app.cli import command
from app.db import db

# One worker, so that the demo is made once.
pytestmark = pytest.mark.xdist_group("demo")


def test_the_command_of_the_guide_passes_on_the_demo(
    demo_app: Flask, server: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a copy, because the run counts in the history of its set."""
    guide = (Path(__file__).parents[2] / "docs" / "evals.md").read_text()
    shown = re.search(r"^upshot (evals run .+)$", guide, re.MULTILINE)
    assert shown is not None
    with demo_app.app_context():
        db.session.remove()
        db.engine.dispose()
    # What other tests of the demo left open: a database is copied only while nobody is in it.
    server.run(sql.SQL("select pg_terminate_backend(pid) from pg_stat_activity where datname = {}").format(place))
    copy = f"demo_{secrets.token_hex(6)}"
    server.copy(place, copy)
    server.prepare(copy)
    monkeypatch.chdir(tmp_path)
    environment = {"UPSHOT_DATABASE_URL": server.conninfo("app", copy), "UPSHOT_DATA_DIR": str(tmp_path)}
    try:
        answer = CliRunner().invoke(command, shlex.split(shown[1]), env=environment)
    finally:
        server.drop(copy)
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "evals.xml").read_text().count("<testcase") == 8
