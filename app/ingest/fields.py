"""What a sender may say of a session, over the API and in a file of recorded runs."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.formats import session_limits as limits
from app.formats.messages import must
from app.formats.rfc3339 import read_past_moment

Kind = Literal["chat", "agent", "response", "tool", "mixed"]
Status = Literal["pending", "running", "completed", "failed", "cancelled"]
_MOMENT = {"type": "string", "format": "date-time"}
_SLUG = {"type": "string", "minLength": 1, "maxLength": 120, "pattern": "^[a-z0-9][a-z0-9._-]*$"}
PastMoment = Annotated[datetime, BeforeValidator(read_past_moment), WithJsonSchema(_MOMENT)]
Slug = Annotated[str, must(limits.AGENT_SLUG.fullmatch, limits.SLUG_FORM), WithJsonSchema(_SLUG)]
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME)]
Tag = Annotated[str, Field(min_length=1, max_length=limits.TAG)]


class SessionFields(BaseModel):
    """Exactly these fields, of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    agent: Slug = Field(description="The agent's slug. An unknown agent is created.")
    external_id: Name | None = Field(None, description="Your ID. Sending it again returns the stored session.")
    title: str | None = Field(None, min_length=1, max_length=limits.TITLE, description="Defaults to the first words.")
    session_type: Kind = "agent"
    error: str | None = Field(None, max_length=limits.ERROR, description="Why it failed.")
    trace_id: Name | None = Field(None, description="Made when left out.")
    model: str | None = Field(None, min_length=1, max_length=limits.MODEL)
    input_tokens: int | None = Field(None, ge=0, le=limits.TOKENS)
    output_tokens: int | None = Field(None, ge=0, le=limits.TOKENS)
    cost: float | None = Field(None, ge=0, le=limits.COST, description="In your currency.")
    duration_ms: int | None = Field(
        None, ge=0, le=limits.DURATION_MS, description="From `started_at` to `finished_at` when left out."
    )
    environment: str | None = Field(None, min_length=1, max_length=limits.ENVIRONMENT)
    tags: list[Tag] = Field([], max_length=limits.TAGS)
    metadata: dict[str, Any] = {}
    created_at: PastMoment | None = None
    started_at: PastMoment | None = None
    finished_at: PastMoment | None = None

    def values(self, *apart: str) -> dict[str, Any]:
        """What was sent, in the types that sessions are stored in, without the fields that are read apart."""
        given = self.model_dump(exclude=set(apart), exclude_none=True) | {"tags": tuple(dict.fromkeys(self.tags))}
        return given if self.cost is None else given | {"cost": Decimal(str(self.cost))}
