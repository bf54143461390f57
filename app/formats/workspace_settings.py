"""What the admins of a workspace decide, with the limits of each decision."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from app.formats.agent_config import KEYS, OFFLINE
from app.formats.cron import check_cron
from app.formats.messages import field_errors, must

ORIGIN = re.compile(r"https?://(?:\[[0-9a-f:]{2,45}\]|[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::([0-9]{1,5}))?")


JUDGE_MODEL = (
    "Enter a model such as openai:gpt-5, or leave empty for the server’s default. The offline model can’t judge."
)


@lru_cache(maxsize=1)
def timezones() -> frozenset[str]:
    """Every zone this machine knows; UTC also where it has no list of zones."""
    return frozenset(available_timezones() | {"UTC"})


def origin(text: str) -> str:
    """Scheme, host and port of a site, as browsers send it."""
    text = text.strip().lower().removesuffix("/")
    found = ORIGIN.fullmatch(text)
    if found is None or (found[1] is not None and not 1 <= int(found[1]) <= 65535):
        raise ValueError(f"{text[:80]!r} isn’t an origin. Enter one such as https://app.example.com.")
    return text


def can_judge(name: str) -> bool:
    """Whether a model of this name may exist. A name without a provider is one of the OpenAI-compatible server."""
    provider, colon, model = name.partition(":")
    clean = name == name.strip() and name.isprintable() and name != OFFLINE
    return clean and (not colon or (provider in KEYS and bool(model.strip())))


def unique(origins: list[str]) -> list[str]:
    return list(dict.fromkeys(origins))


Origin = Annotated[str, AfterValidator(origin)]


class WorkspaceSettings(BaseModel):
    """A workspace's settings. What was never decided has the value given here."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    review_enabled: bool = False
    review_cron: Annotated[str, AfterValidator(check_cron)] = "0 * * * *"
    review_wait_days: Annotated[int, Field(ge=1, le=365)] = 14
    knowledge_gate: Literal["propose", "proved"] = "propose"
    author_private: bool = False
    timezone: Annotated[
        str, must(lambda name: name in timezones(), "Enter a time zone such as UTC or Europe/Berlin.")
    ] = "UTC"
    retention_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    training_consent: bool = False
    context_top_n: Annotated[int, Field(ge=1, le=50)] = 8
    feedback_origins: Annotated[list[Origin], Field(max_length=50), AfterValidator(unique)] = []
    mask_emails: bool = False
    mask_phones: bool = False
    machine_feedback: bool = True
    judge_model: Annotated[str, Field(max_length=200), must(lambda name: not name or can_judge(name), JUDGE_MODEL)] = ""
    judge_concurrency: Annotated[int, Field(ge=1, le=100)] = 16
    judge_seconds: Annotated[int, Field(ge=1, le=600)] = 60
    judge_daily_tokens: Annotated[int, Field(ge=0, le=1_000_000_000)] = 5_000_000

    @classmethod
    def stored(cls, values: dict[str, Any]) -> WorkspaceSettings:
        """What was stored. A value that does not fit any more, such as a renamed time zone, has its default."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
            return cls.model_validate({name: value for name, value in values.items() if name not in wrong})


# What is kept for a part of the product that is not there yet, and what holds until then. No page offers these.
NOT_YET = {
    "retention_days": "Kept. Nothing is deleted by age in this version.",
    "training_consent": "Kept. This version has no export for training.",
}


def without_effect(settings: WorkspaceSettings) -> dict[str, str]:
    """What was decided but does nothing yet, each with its sentence."""
    default = WorkspaceSettings()
    return {name: said for name, said in NOT_YET.items() if getattr(settings, name) != getattr(default, name)}


SENTENCES = {
    "review_wait_days": "Enter a number of days from 1 to 365.",
    "knowledge_gate": "Choose `propose` or `proved`.",
    "retention_days": "Enter a number of days from 1 to 3650, or nothing to keep everything.",
    "context_top_n": "Enter a number from 1 to 50.",
    "judge_model": JUDGE_MODEL,
    "judge_concurrency": "Enter a number from 1 to 100.",
    "judge_seconds": "Enter a number of seconds from 1 to 600.",
    "judge_daily_tokens": "Enter a number of tokens from 0 to 1,000,000,000.",
}


def settings_errors(error: ValidationError) -> dict[str, str]:
    """The first complaint about each setting, in words for the person who typed it."""
    found: dict[str, str] = {}
    for place, sentence in field_errors(error).items():
        name = place.partition(".")[0] or "settings"
        found.setdefault(name, SENTENCES.get(name) or sentence)
    return found
