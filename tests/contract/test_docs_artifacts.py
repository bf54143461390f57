"""The recipe of docs/artifact-evals.md, followed to the letter in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.artifacts.catalogue import ADAPTERS
from app.artifacts.model import KnowledgeSafetyClass
from app.artifacts.rubric import DIMENSIONS
from tests.cli.servers import environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/artifact-evals.md").read_text()
FILE = re.compile(r"^ *`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> list[str]:
    files = FILE.findall(PAGE)
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [name for name, _ in files]


def run_steps(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the shell block with this clone's Python and `upshot` first on the PATH."""
    (script,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    upshot = "-c 'from app.cli import main; main()'"
    for name, arguments in (("python", ""), ("upshot", upshot)):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:$PYTHONPATH" exec "{sys.executable}" {arguments} "$@"\n')
        tool.chmod(0o755)
    found = environment(folder / "var", PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, env=found, capture_output=True, text=True, timeout=300
    )


@pytest.mark.process
def test_the_recipe_works_as_it_is_written(tmp_path: Path) -> None:
    names = write_files(tmp_path)
    assert len(names) == 6
    done = run_steps(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "ok   supplier-note    8 fixtures" in done.stdout
    fixtures = tmp_path / "supplier_notes" / "fixtures.json"
    without = [line for line in fixtures.read_text().splitlines() if '"no-page"' not in line]
    fixtures.write_text("\n".join(without))
    (tmp_path / "test_supplier_notes.py").write_text("def test_nothing():\n    pass\n")
    done = run_steps(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "workspace_renderability has no failing fixture." in done.stdout


def test_the_page_names_every_dimension_suite_and_class() -> None:
    for name, question in DIMENSIONS.items():
        assert f"| `{name}` | {question} |" in PAGE
    for name in (*ADAPTERS, "workspace"):
        assert f"| `{name}` |" in PAGE
    assert all(f"`{name}`" in PAGE for name in KnowledgeSafetyClass)
