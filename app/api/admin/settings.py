"""What the admins of a workspace decide: its settings, and the criteria sets that responses are judged by."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import Field

from app.api.admin import admin_route
from app.api.kit.fields import Answer, Body, Moment
from app.formats.workspace_settings import WorkspaceSettings, without_effect
from app.services.entities import store as entity_store
from app.services.workspaces import store as workspace_store


class SettingsChange(Body):
    """What to change; what is left out stays."""

    review_enabled: bool = Field(False, description="Kept for the Feedback Review Agent, which does not run yet.")
    review_cron: str = Field(
        "0 * * * *", max_length=100, description="When it would run, as five cron fields; kept, nothing runs yet."
    )
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


MAX_DIMENSIONS = 200
FieldName = Annotated[str, Field(min_length=1, max_length=256)]


class NewCriteriaSet(Body):
    """A criteria set."""

    slug: str = Field(max_length=60, description="Small letters, digits, dashes and underscores.")
    name: str = Field(min_length=1, max_length=200)
    dimensions: dict[FieldName, dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="By field: `kind` (`numeric`, `text`, `select` or `relation-rank`), and if needed `weight`,"
        " `relative_tolerance`, `absolute_tolerance`, `match`, `options`.",
    )


class CriteriaSetAnswer(Answer):
    """A criteria set."""

    id: UUID
    slug: str
    name: str
    dimensions: dict[str, Any]
    created_at: Moment
    updated_at: Moment


class CriteriaSetList(Answer):
    """All criteria sets of the workspace, by name."""

    items: list[CriteriaSetAnswer]


@admin_route("GET", "/api/admin/criteria-sets")
def list_sets() -> CriteriaSetList:
    """List criteria sets."""
    return CriteriaSetList.model_validate({"items": entity_store.list_criteria_sets(actor=g.actor)})


@admin_route("POST", "/api/admin/criteria-sets", status=201, idempotent=True, also={409: "This slug is taken."})
def create_set(body: NewCriteriaSet) -> CriteriaSetAnswer:
    """Create a criteria set."""
    row = entity_store.create_criteria_set(slug=body.slug, name=body.name, dimensions=body.dimensions, actor=g.actor)
    return CriteriaSetAnswer.model_validate(row)
