"""The examples of docs/api.md run as they stand against a running server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask

from app.api.admin.eval_runs import Configuration, Deployed
from app.api.admin.evals import CandidateItem, NewGolden
from app.api.admin.settings import SettingsChange
from app.api.admin.shared_context import KnowledgeChange, KnowledgeQuery, NewKnowledge
from app.api.kit.limits import PER_MINUTE
from app.api.kit.problems import ABOUT
from app.api.members.feedback import Decision, FeedbackQuery, NewFeedback
from app.db import acting_as, transaction
from app.services.agents import versions
from tests.conftest import Api, Workspace
from tests.http_server import served

pytestmark = pytest.mark.exhaustive

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "api.md").read_text()


@pytest.fixture
def address(app: Flask) -> Iterator[str]:
    with served(app) as address:
        yield address


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_example_runs(app: Flask, address: str, workspace: Workspace, api: Callable[..., Api]) -> None:
    script = "set -e\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
    admin = workspace.actor("admin")
    with app.app_context(), acting_as(admin), transaction():
        versions.ensure_agent("deal-analyst", kind="builtin", config={"instructions": "Answer briefly."}, actor=admin)
    environment = {**os.environ, "UPSHOT_URL": address, "UPSHOT_KEY": api(workspace.actor("admin"), "admin").key}
    ran = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    assert ran.stdout.count('"comment":"Done in one go."') >= 2
    assert '"status":"dismissed"' in ran.stdout
    assert "upshot_sessions_running" in ran.stdout
    assert "\n304\n" in ran.stdout.replace("}304", "}\n304")
    assert '"content":"Use LTM EBITDA, never the last fiscal year."' in ran.stdout
    (verdict, reason) = re.findall(r'The comparison returns `("verdict":"\w+")` with the reason `(.+?)`', TEXT)[0]
    (compared,) = [line for line in ran.stdout.split("}{") if '"overall_accuracy"' in line and reason in line]
    assert verdict in compared
    assert ran.stdout.count('"status":"cancelled"') == 2
    assert '{"updated":0}' in ran.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_script_run(address: str, workspace: Workspace, api: Callable[..., Api]) -> None:
    text = (DOCS / "feedback-js.md").read_text()
    script = "set -e\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    key = api(workspace.actor("member"), "feedback", "feedback-token").key
    environment = {**os.environ, "UPSHOT_URL": address, "UPSHOT_KEY": key}
    ran = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    assert '"token":"fbt_' in ran.stdout
    assert '"items":[{' in ran.stdout


def test_the_page_names_what_there_is() -> None:
    names = {*NewFeedback.model_fields, *SettingsChange.model_fields, *FeedbackQuery.model_fields}
    names |= {*KnowledgeChange.model_fields, *NewKnowledge.model_fields, *KnowledgeQuery.model_fields}
    names |= set(Decision.model_fields["action"].annotation.__args__)  # type: ignore[union-attr]
    names |= {*NewGolden.model_fields, *Configuration.model_fields, *CandidateItem.model_fields, *Deployed.model_fields}
    missing = {name for name in names - {"details", "project"} if name not in TEXT}
    assert not missing
    assert f"{PER_MINUTE:,}" in TEXT
    assert all(str(status) in TEXT for status in ABOUT if status != 405)
