"""The workspace's settings over the API."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db
from app.formats.workspace_settings import NOT_YET
from app.models.people import AuditEntry
from tests.conftest import Api, Workspace

PATH = "/api/admin/settings"
DEFAULTS = {
    "review_enabled": False,
    "review_cron": "0 * * * *",
    "review_wait_days": 14,
    "knowledge_gate": "propose",
    "author_private": False,
    "timezone": "UTC",
    "retention_days": None,
    "training_consent": False,
    "context_top_n": 8,
    "feedback_origins": [],
    "machine_feedback": True,
    "judge_model": "",
    "judge_concurrency": 16,
    "judge_seconds": 60,
    "judge_daily_tokens": 5_000_000,
    "without_effect": {},
}
CHANGED = {
    "review_enabled": True,
    "review_cron": "15 */2 * * 1-5",
    "review_wait_days": 30,
    "knowledge_gate": "proved",
    "author_private": True,
    "timezone": "Europe/Berlin",
    "retention_days": 90,
    "training_consent": True,
    "context_top_n": 50,
    "feedback_origins": ["https://app.example.com"],
    "machine_feedback": False,
    "judge_model": "openai:gpt-5",
    "judge_concurrency": 2,
    "judge_seconds": 30,
    "judge_daily_tokens": 0,
}


def test_every_setting_is_read_and_changed(
    app: Flask, workspace: Workspace, make_workspace: Callable[..., Workspace], api: Callable[..., Api]
) -> None:
    admin = api(workspace.actor("admin"))
    assert admin.get(PATH).get_json() == DEFAULTS
    changed = admin.patch(PATH, CHANGED)
    assert changed.status_code == 200
    assert changed.get_json() == CHANGED | {"without_effect": NOT_YET}
    less = {name: said for name, said in NOT_YET.items() if name != "retention_days"}
    kept = admin.patch(PATH, {"retention_days": None}).get_json()
    assert kept == CHANGED | {"retention_days": None, "without_effect": less}
    assert admin.patch(PATH, {}).get_json() == admin.get(PATH).get_json()
    assert api(make_workspace().actor("admin")).get(PATH).get_json() == DEFAULTS
    with app.app_context(), acting_as(workspace.actor("admin")):
        actions = db.session.scalars(select(AuditEntry.action).where(AuditEntry.subject_id == workspace.id)).all()
    assert actions.count("settings.changed") == 2


def test_what_cannot_be_is_refused_and_changes_nothing(workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = api(workspace.actor("admin"))
    wrong = {
        "review_cron": "every hour",
        "review_wait_days": 0,
        "knowledge_gate": "off",
        "timezone": "Mars/Olympus",
        "retention_days": 0,
        "context_top_n": 51,
        "feedback_origins": ["https://example.com/path"],
        "review_enabled": "yes",
        "secret": "mine",
    }
    never_judge = [("judge_model", model) for model in ("foo:bar", "openai:", "offline", " openai:gpt-5")]
    for name, value in [*wrong.items(), *never_judge]:
        response = admin.patch(PATH, {"author_private": True, name: value})
        assert response.status_code == 400, name
        assert [error["field"].split(".")[0] for error in response.get_json()["errors"]] == [name]
        first = response.get_json()["errors"][0]
        assert first["field"] in response.get_json()["detail"]
        assert response.get_json()["detail"].endswith(first["message"])
    assert admin.get(PATH).get_json() == DEFAULTS
