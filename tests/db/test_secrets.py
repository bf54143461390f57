"""Secrets in files: one for all, whole or not there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import Unusable
from app.tokens import read_or_make

REPOSITORY = Path(__file__).resolve().parents[2]

# Waits for a line so that all processes ask at the same moment.
ASK = """
import secrets, sys
from pathlib import Path
from app.tokens import read_or_make
sys.stdin.readline()
print(read_or_make(Path(sys.argv[1]), lambda: secrets.token_urlsafe(32)))
"""


def test_processes_that_ask_at_once_get_the_same_secret(tmp_path: Path) -> None:
    path = tmp_path / "made" / "secret.key"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
    answers = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert answers == {path.read_text().strip()}
    assert len(answers.pop()) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["secret.key"]


def test_an_empty_file_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret.key").touch()
    with pytest.raises(Unusable, match="is empty"):
        read_or_make(tmp_path / "secret.key", lambda: "never asked")
