"""Types for bodies and queries, and the error when a value is invalid."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema

from app.errors import Invalid
from app.formats.ids import parse_id
from app.formats.messages import field_errors, must

MAX_LIMIT = 100
SET_NAME = re.compile(r"[a-z0-9-]{1,60}", re.ASCII)


class Body(BaseModel):
    """What a client may send: exactly these fields, of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """What may follow the `?`: exactly these names, each at most once. An empty value is none, unless `keeps_empty`
    says that it is a value like any other."""

    model_config = ConfigDict(extra="forbid")
    keeps_empty: ClassVar[bool] = False


class Answer(BaseModel):
    """What we answer. Read from attributes, so that a row of a service can be given as it is."""

    model_config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)


def read_limit(text: Any, *, most: int = MAX_LIMIT) -> int:
    """Clamped to 1 and the most. `int` would also take other scripts' digits, underscores and spaces."""
    digits = text.removeprefix("-") if isinstance(text, str) else ""
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"Give a whole number from 1 to {most:,}.")
    if text.startswith("-"):
        return 1
    return min(max(int(digits[-9:]) if len(digits.lstrip("0")) <= 9 else most, 1), most)


def read_id(value: Any) -> UUID:
    found = parse_id(value)
    if found is None:
        raise ValueError("Send an ID (a UUID).")
    return found


def format_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_MOMENT = {"type": "string", "format": "date-time"}
Moment = Annotated[datetime, PlainSerializer(format_moment), WithJsonSchema(_MOMENT)]
Id = Annotated[UUID, BeforeValidator(read_id), WithJsonSchema({"type": "string", "format": "uuid"})]
# Its description names no bounds, because what is beyond them is not refused.
Limit = Annotated[int, BeforeValidator(read_limit), WithJsonSchema({"type": "integer"})]
Cursor = Annotated[str, Field(max_length=500)]
SetName = Annotated[
    str,
    must(SET_NAME.fullmatch, "Use up to 60 lowercase letters, digits and hyphens."),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9-]{1,60}$"}),
]


class Page(Query):
    """Lists come in pages; `next_cursor` of one is the `cursor` of the next."""

    limit: Limit = Field(50, validate_default=False, description="Items per page, 1 to 100.")
    cursor: Cursor | None = Field(None, description="`next_cursor` of the previous page.")


def invalid(error: ValidationError, what: str) -> Invalid:
    """The product's own words for what pydantic found. Neither the value nor anything of it is repeated."""
    fields = field_errors(error)
    name, message = next(iter(fields.items()))
    return Invalid(f"{what} `{name}`: {message}" if name else message, fields)
