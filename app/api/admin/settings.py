"""What the admins of a workspace decide."""

from typing import Literal

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body
from app.formats.workspace_settings import WorkspaceSettings, without_effect
from app.services.workspaces import store as workspace_store


class SettingsChange(Body):
    """What to change; what is left out stays."""

    review_enabled: bool = Field(False, description="Whether feedback is reviewed on a schedule.")
    review_cron: str = Field("0 * * * *", max_length=100, description="When, as five cron fields in UTC.")
    review_wait_days: int = Field(14, description="How many days a single signal waits for a second one, 1 to 365.")
    knowledge_gate: Literal["propose", "proved"] = Field(
        "propose", description="Who lets knowledge from feedback become active: a person, or later proof by goldens."
    )
    author_private: bool = Field(False, description="Hides from admins who gave feedback and who talked.")
    timezone: str = Field("UTC", max_length=64, description="Where a day begins, such as Europe/Berlin.")
    retention_days: int | None = Field(
        None, description="After how many days conversations are to go; kept, no deletion yet."
    )
    training_consent: bool = Field(
        False, description="Whether exports may be used for training; kept, there is no such export yet."
    )
    context_top_n: int = Field(8, description="How many rows of each type a prompt gets, 1 to 50.")
    feedback_origins: list[str] = Field([], max_length=50, description="Sites whose pages may send feedback.")
    machine_feedback: bool = Field(True, description="Whether messages are checked for judgements of earlier answers.")
    judge_model: str = Field(
        "", max_length=200, description="The model that judges replays by criteria; empty for the server's default."
    )
    judge_concurrency: int = Field(16, description="How many replays are judged at once, 1 to 100.")
    judge_seconds: int = Field(60, description="How long the judge may take for an answer, 1 to 600 seconds.")
    judge_daily_tokens: int = Field(5_000_000, description="How many tokens the judge may take in 24 hours.")


class WorkspaceSettingsAnswer(SettingsChange, Answer):
    """The settings as they are."""

    without_effect: dict[str, str] = Field({}, description="Settings that are kept but do nothing yet, and why.")


@admin_route("GET", "/api/admin/settings")
def read_settings() -> WorkspaceSettingsAnswer:
    """Read the workspace's settings."""
    return settings_answer(workspace_store.get_settings(g.actor))


@admin_route("PATCH", "/api/admin/settings")
def change_settings(body: SettingsChange) -> WorkspaceSettingsAnswer:
    """Change settings. Send only what changes; the answer has all of them, and says which of them do nothing yet."""
    return settings_answer(workspace_store.change_settings(body.model_dump(exclude_unset=True), actor=g.actor))


def settings_answer(settings: WorkspaceSettings) -> WorkspaceSettingsAnswer:
    return WorkspaceSettingsAnswer(
        **settings.model_dump(exclude={"mask_emails", "mask_phones"}), without_effect=without_effect(settings)
    )
