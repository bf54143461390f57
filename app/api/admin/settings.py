"""Workspace settings over the API."""

from typing import Literal

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body
from app.formats.workspace_settings import WorkspaceSettings, without_effect
from app.services.workspaces import store as workspace_store


class SettingsChange(Body):
    """Fields to change. Omitted fields stay the same."""

    review_enabled: bool = Field(False, description="Review feedback on a schedule.")
    review_cron: str = Field("0 * * * *", max_length=100, description="Review schedule, as five cron fields in UTC.")
    review_wait_days: int = Field(14, description="Days a single complaint waits for a second one, 1 to 365.")
    knowledge_gate: Literal["propose", "proved"] = Field(
        "propose", description="How knowledge from feedback becomes active."
    )
    author_private: bool = Field(False, description="Hide people's names from admins.")
    timezone: str = Field("UTC", max_length=64, description="Time zone for dates, such as Europe/Berlin.")
    retention_days: int | None = Field(
        None, description="Retention of conversations in days. Stored, but nothing is deleted yet."
    )
    training_consent: bool = Field(
        False, description="Consent to use exports for training. Stored, but there is no such export yet."
    )
    context_top_n: int = Field(8, description="Rows of each type per prompt, 1 to 50.")
    feedback_origins: list[str] = Field([], max_length=50, description="Sites that may send feedback.")
    machine_feedback: bool = Field(True, description="Detect feedback in chat messages.")
    judge_model: str = Field(
        "", max_length=200, description="Model that judges replays. Empty uses the server's default."
    )
    judge_concurrency: int = Field(16, description="Replays judged at the same time, 1 to 100.")
    judge_seconds: int = Field(60, description="Time limit per judgement in seconds, 1 to 600.")
    judge_daily_tokens: int = Field(5_000_000, description="Token limit for the judge per 24 hours.")


class WorkspaceSettingsAnswer(SettingsChange, Answer):
    """Current settings."""

    without_effect: dict[str, str] = Field({}, description="Settings that have no effect yet, and why.")


@admin_route("GET", "/api/admin/settings")
def read_settings() -> WorkspaceSettingsAnswer:
    """Get the settings."""
    return settings_answer(workspace_store.get_settings(g.actor))


@admin_route("PATCH", "/api/admin/settings")
def change_settings(body: SettingsChange) -> WorkspaceSettingsAnswer:
    """Update settings. Send only the fields to change. Returns all settings."""
    return settings_answer(workspace_store.change_settings(body.model_dump(exclude_unset=True), actor=g.actor))


def settings_answer(settings: WorkspaceSettings) -> WorkspaceSettingsAnswer:
    return WorkspaceSettingsAnswer(
        **settings.model_dump(exclude={"mask_emails", "mask_phones"}), without_effect=without_effect(settings)
    )
